"""Whether ``serve --engine tinker`` would work: its settings, and its server's answer."""

from collections.abc import Mapping

from hud_tui.doctor.report import Finding, Host
from hud_tui.tinker_settings import CLOUD, BadOption, Options, is_set_up, read_options

NOT_SET_UP = "the tinker engine is not set up (TINKER_API_KEY, TINKER_BASE_URL); tiny needs neither"


def tinker_settings(environ: Mapping[str, str]) -> tuple[Options | None, list[Finding]]:
    """What the engine would use, None where there is nothing to ask; and what is wrong with it."""
    if not is_set_up(environ):
        return None, [Finding("tinker", "ok", NOT_SET_UP)]
    try:
        return read_options(environ), []
    except BadOption as error:
        fix = "correct it, or unset it: only serve --engine tinker needs it"
        return None, [Finding("tinker", "warning", str(error), fix)]


def check_tinker(options: Options, host: Host) -> Finding:
    """What its server's answer means; without it everything else works."""
    place = "Tinker's cloud" if options.url == CLOUD else options.url
    where = f"tinker engine: {place}"
    if not host.reachable:
        fix = "start the server, or check TINKER_BASE_URL; serve --engine tinker needs it"
        return Finding("tinker", "warning", f"{where} does not answer: {host.detail}", fix)
    if (host.status or 0) >= 500:
        return Finding("tinker", "warning", f"{where}: HTTP {host.status}", "try again later")
    kept = "until deleted" if options.ttl_s is None else f"for {options.ttl_s // 3600} h"
    facts = f"rank {options.rank}, checkpoints kept {kept}"
    return Finding("tinker", "ok", f"{where} answers in {host.seconds or 0:.2f} s ({facts})")
