"""What the hosts' answers mean."""

from collections.abc import Mapping, Sequence

from hud_tui.doctor.report import Finding, Host

NEEDED = {"api": "HUD_API_URL", "rl": "HUD_RL_URL", "gateway": "HUD_GATEWAY_URL"}
"""Hosts without which nothing trains; of the others, only reports and links are lost."""
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
SLOW_S = 2.0


def check_hosts(
    hosts: Sequence[Host], has_key: bool, environ: Mapping[str, str], local: bool = False
) -> list[Finding]:
    """
    Args:
        hosts: Their answers.
        has_key: Whether the API was asked with a key.
        environ: The process's, for its proxies.
        local: Whether this is the embedded service.
    """
    findings = []
    for host in hosts:
        finding = _unreachable(host, environ, local) or _refused(host, has_key, local)
        findings.append(finding or _well(host, has_key))
    return findings


def _unreachable(host: Host, environ: Mapping[str, str], local: bool) -> Finding | None:
    if host.reachable:
        return None
    message = f"{_named(host)}: no answer from {host.url}: {host.detail}"
    variables = [NEEDED[name] for name in host.names if name in NEEDED]
    if not variables:
        return Finding("hosts", "warning", message, "reports and links need it; training does not")
    proxy = next((name for name in PROXIES if environ.get(name)), None)
    fix = f"check the network and {', '.join(variables)}"
    fix += f", and the proxy that {proxy} names" if proxy else ""
    if local:
        fix = "try again; if it stays so: hud-tui stop, then hud-tui --local"
    return Finding("hosts", "failure", message, fix, code=3)


def _refused(host: Host, has_key: bool, local: bool) -> Finding | None:
    status = host.status or 0
    message = f"{_named(host)}: HTTP {status} from {host.url}"
    message += f": {host.detail}" if host.detail else ""
    if status in (401, 403) and "api" in host.names and has_key:
        fix = "hud-tui stop, then hud-tui --local" if local else "copy HUD_API_KEY again"
        return Finding("hosts", "failure", message, fix, code=4)
    if status >= 500:
        if "api" not in host.names:
            return Finding("hosts", "warning", message, "try again later")
        return Finding("hosts", "failure", message, "try again later", code=1)
    if "api" in host.names and has_key and not 200 <= status < 300:
        fix = "set HUD_API_URL to where the service is"
        return Finding("hosts", "failure", message, fix, code=1)
    return None


def _well(host: Host, has_key: bool) -> Finding:
    seconds = host.seconds or 0.0
    message = f"{_named(host)}: an answer in {seconds:.2f} s"
    if seconds > SLOW_S:
        return Finding("hosts", "warning", message, "every call takes that long: look for a proxy")
    keyed = ", and the key is good" if has_key and "api" in host.names else ""
    return Finding("hosts", "ok", message + keyed)


def _named(host: Host) -> str:
    return ", ".join(host.names)
