"""The embedded service's data directory: whether a start would take it, and what starts left."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from platform import machine, python_implementation, python_version, system
from typing import Any, Literal
from urllib.parse import urlsplit

from hud_tui.config import CONFIG_NAME, config_dir, read_config
from hud_tui.errors import HudError, HudNoKey, HudUsage
from hud_tui.rl.tasks.checks import count
from hud_tui.rl.text import one_line
from hud_tui.settings import (
    CLOUD,
    DEFAULTS,
    OTHERS,
    PROCESS,
    BadOption,
    Options,
    Paths,
    Place,
    Settings,
    is_set_up,
    local_settings,
    read_max_disk,
    read_options,
    usable_key,
    usable_url,
)

# What ``hud-tui doctor`` reports: facts in sections, and a finding for each problem.


Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One problem, or one thing that is well."""

    check: Literal[
        "settings", "hosts", "versions", "terminal", "directories", "service", "tinker", "config"
    ]
    level: Level
    message: str
    fix: str = ""
    """What to do about it."""
    code: int = 0
    """Of a failure: the exit code, as docs/headless.md lists them."""


@dataclass(frozen=True)
class Setting:
    """One variable. Its value is not part of a report."""

    name: str
    set: bool
    origin: str
    """Where the value in use is from; ``default`` or ``not set`` where nothing sets it."""
    hidden: Sequence[str] = ()
    """Places that set it too, and lose."""


@dataclass(frozen=True)
class Host:
    """One host and its answer."""

    names: tuple[str, ...]
    """Which of HUD's hosts this is: api, rl, gateway, telemetry, web."""
    url: str
    """What was asked, without credentials and query."""
    reachable: bool
    status: int | None = None
    seconds: float | None = None
    """From sending to the answer's head."""
    detail: str = ""
    """Why no answer came, or what the server says is wrong."""


@dataclass(frozen=True)
class Terminal:
    """What the terminal can do, as far as can be told without asking it."""

    is_terminal: bool
    term: str
    columns: int | None
    rows: int | None
    colors: Literal["none", "16", "256", "truecolor"]
    unicode: bool
    clipboard: Literal["likely", "unlikely", "unknown"]
    """Whether text copied by OSC 52 reaches the clipboard."""
    multiplexer: str
    """``tmux``, ``screen`` or empty."""


@dataclass(frozen=True)
class Directory:
    """One of this program's directories."""

    kind: Literal["config", "state", "data"]
    path: str
    exists: bool
    writable: bool
    """Or can be made, where it does not exist."""
    used_bytes: int | None
    """None where it does not exist, or holds more files than are counted."""
    free_bytes: int | None


@dataclass(frozen=True)
class Service:
    """The embedded service of this machine."""

    running: bool
    pid: int | None = None
    url: str = ""


@dataclass(frozen=True)
class Report:
    """All of it."""

    settings: Sequence[Setting]
    hosts: Sequence[Host]
    versions: Mapping[str, str | None]
    """By distribution; None where it is not installed."""
    terminal: Terminal
    directories: Sequence[Directory]
    service: Service
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def verdict(self) -> Level:
        """The worst level of all."""
        levels = {finding.level for finding in self.findings}
        return "failure" if "failure" in levels else "warning" if "warning" in levels else "ok"


def exit_code(findings: Iterable[Finding], fail_on: Level = "failure") -> int:
    """The largest code of all failures; 0 without one, or 1 where warnings count too."""
    findings = list(findings)
    codes = [finding.code for finding in findings if finding.level == "failure"]
    warned = fail_on == "warning" and any(f.level == "warning" for f in findings)
    return max([*codes, 1 if warned else 0])


# This program's directories: whether they can be written to, and how much room there is.


MOST_FILES = 100_000
"""Files of a directory that are counted."""
LITTLE, TOO_LITTLE = 2 * 10**9, 10**8
"""Free bytes below which a run may soon stop, or cannot start."""


def directories(paths: Paths) -> list[Directory]:
    """The three of them."""
    return [
        _directory("config", paths.config),
        _directory("state", paths.state),
        _directory("data", paths.data),
    ]


def check_directories(
    found: list[Directory], service_file: Path, environ: Mapping[str, str]
) -> list[Finding]:
    """Whether the embedded service can keep what it makes."""
    findings = [
        Finding(
            "directories",
            "failure",
            f"the {one.kind} directory {one.path} cannot be written to",
            f"correct its permissions, or set HUD_TUI_{one.kind.upper()}_DIR",
            code=2,
        )
        for one in found
        if not one.writable
    ]
    data = next(one for one in found if one.kind == "data")
    findings += _check_room(data, environ) + _check_private(service_file)
    return findings or [Finding("directories", "ok", "there is room, and it can be written to")]


def size_text(size: int | None) -> str:
    """E.g. ``2.1 GB``; decimal units."""
    if size is None:
        return "?"
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return (
        f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"
    )


def _check_room(data: Directory, environ: Mapping[str, str]) -> list[Finding]:
    try:
        limit = read_max_disk(environ=environ)
    except HudError as error:
        return [Finding("directories", "failure", error.message, error.hint, error.exit_code)]
    free = data.free_bytes
    fix = "free some, or point HUD_TUI_DATA_DIR at another disk"
    if free is not None and free < TOO_LITTLE:
        message = f"{size_text(free)} free for checkpoints"
        return [Finding("directories", "failure", message, fix, code=1)]
    if free is not None and free < min(LITTLE, limit):
        message = f"{size_text(free)} free for checkpoints, which may take {size_text(limit)}"
        return [Finding("directories", "warning", message, f"{fix}; or lower HUD_TUI_MAX_DISK")]
    return []


def _check_private(service_file: Path) -> list[Finding]:
    try:
        mode = service_file.stat().st_mode
    except OSError:
        return []
    if not mode & 0o077:
        return []
    name = one_line(service_file)
    message = f"{name} holds the service's key and is open to others"
    return [Finding("directories", "warning", message, f"chmod 600 {name}")]


def _directory(kind: Literal["config", "state", "data"], path: Path) -> Directory:
    exists = path.is_dir()
    nearest = _nearest(path)
    try:
        free = shutil.disk_usage(nearest).free
    except OSError:
        free = None
    return Directory(
        kind=kind,
        path=one_line(path, 400),
        exists=exists,
        writable=nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK),
        used_bytes=used(path) if exists else None,
        free_bytes=free,
    )


def _nearest(path: Path) -> Path:
    """The directory itself, or the nearest one above that exists."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def used(path: Path) -> int | None:
    """Bytes of its files; None where there are too many to count, or it cannot be read."""
    total, count = 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            count += 1
            if count > MOST_FILES:
                return None
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


PATIENCE_S = 30.0


def look_into(data_dir: Path) -> dict[str, Any]:
    """What the service itself says of a directory that it does not serve now, asked in a process
    of its own; empty where there is nothing to look at."""
    if not (data_dir / "service.db").exists() and not (data_dir / "checkpoints").exists():
        return {}
    command = [sys.executable, "-P", "-m", "hud_tui.service", "--check", "--data-dir"]
    try:
        asked = subprocess.run(
            [*command, str(data_dir)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return dict(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"refusal": f"{data_dir} could not be looked into: {error}"}


def check_data(said: dict[str, Any]) -> list[Finding]:
    """What to do about it."""
    if not said:
        return []
    if said["refusal"]:
        what, _, fix = one_line(said["refusal"], 1000).partition(". ")
        return [Finding("service", "failure", f"the service would not start: {what}", fix, code=1)]
    findings = []
    if said["damaged"]:
        damaged = count(said["damaged"], "damaged checkpoint")
        message = f"{damaged}: files are missing or corrupted"
        fix = "put them back from a backup; is:damaged in Checkpoints (/) shows which"
        findings.append(Finding("service", "warning", message, fix))
    if said["unknown"]:
        message = f"files of {count(said['unknown'], 'checkpoint')} that service.db does not know"
        fix = (
            "a crash left them, or service.db is an older copy: put the newer one back before the"
            " next start, which moves them to leftovers-DATE in the data directory"
        )
        findings.append(Finding("service", "warning", message, fix))
    return findings or [Finding("service", "ok", "database and checkpoints belong together")]


def check_leftovers(data_dir: Path) -> list[Finding]:
    """What starts moved aside."""
    fix = (
        "remove it where nothing in it is missed; or stop the service, put back the service.db that"
        " knows them, and move them to checkpoints"
    )
    return [
        Finding(
            "service",
            "warning",
            f"{one_line(place, 400)} holds {size_text(used(place))} that service.db did not know",
            fix,
        )
        for place in sorted(data_dir.glob("leftovers-*"))
        if place.is_dir()
    ]


# The config file: whether the app can use it.


def check_config(environ: Mapping[str, str]) -> Finding:
    """What is wrong with it, as the app would say when it starts."""
    directory = config_dir(environ)
    try:
        config = read_config(directory)
    except HudUsage as error:
        return Finding("config", "failure", error.message, error.hint, code=error.exit_code)
    file = one_line(directory / CONFIG_NAME, 400)
    if not (directory / CONFIG_NAME).exists():
        return Finding("config", "ok", f"there is no {file}: all is as it comes")
    keys = f"; {len(config.keys)} actions have other keys" if config.keys else ""
    return Finding("config", "ok", f"{file} can be used{keys}")


# Which variables are set, where, and what is wrong with them.


UNUSED = ("HUD_RUNTIME_URL",)
"""HUD's too, with a default, but nothing here calls it."""
VARIABLES = ("HUD_API_KEY", *OTHERS, *DEFAULTS, *UNUSED)
"""Variables that are listed whether they are set or not."""
KEYS = ("HUD_API_KEY", *OTHERS)


def settings_of(places: Sequence[Place]) -> list[Setting]:
    """Every variable that matters or is set, and where the value in use is from."""
    known = dict.fromkeys(VARIABLES)
    known |= dict.fromkeys(sorted({name for place in places for name in place.variables}))
    return [_setting(name, places) for name in known]


def _setting(name: str, places: Sequence[Place]) -> Setting:
    origins = [one_line(place.origin) for place in places if name in place.variables]
    if origins:
        return Setting(one_line(name, 80), True, origins[0], tuple(origins[1:]))
    return Setting(name, False, "default" if name in (*DEFAULTS, *UNUSED) else "not set")


def usable_settings(
    places: Sequence[Place], needs_key: bool = True
) -> tuple[Settings, list[Finding]]:
    """The settings to probe with, and what is wrong with them.

    An unusable URL is replaced by its default, an unusable key by none.
    """
    found: dict[str, str] = {}
    for place in reversed(places):
        found |= place.variables
    wrong: list[Finding] = []
    urls = {name: _url(name, found.get(name), wrong) for name in DEFAULTS}
    key = _key(found.get("HUD_API_KEY", ""), wrong) if needs_key else ""
    base = local_settings(urls["HUD_API_URL"], key, urls["HUD_TELEMETRY_URL"])
    settings = replace(
        base,
        rl_url=urls["HUD_RL_URL"].removesuffix("/v1"),
        gateway_url=urls["HUD_GATEWAY_URL"],
        web_url=urls["HUD_WEB_URL"],
        local=False,
    )
    wrong += _malformed(places)
    wrong += _readable_by_others(places)
    wrong += [_unencrypted(name, url) for name, url in urls.items() if key and _is_open(url)]
    return settings, wrong


def _url(name: str, value: str | None, wrong: list[Finding]) -> str:
    try:
        return usable_url(name, value or DEFAULTS[name])
    except HudError as error:
        wrong.append(_failure(error))
        return DEFAULTS[name]


def _key(value: str, wrong: list[Finding]) -> str:
    try:
        key = usable_key(value)
    except HudNoKey as error:
        fix = "set HUD_API_KEY; or, for the embedded service alone: hud-tui doctor --local"
        wrong.append(Finding("settings", "failure", error.message, fix, error.exit_code))
        return ""
    except HudError as error:
        wrong.append(_failure(error))
        return ""
    wrong.append(Finding("settings", "ok", "an API key is set"))
    return key


def _failure(error: HudError) -> Finding:
    return Finding("settings", "failure", error.message, error.hint, error.exit_code)


def _malformed(places: Sequence[Place]) -> Iterator[Finding]:
    for place in places:
        yield from map(_failure, place.problems)


def _readable_by_others(places: Sequence[Place]) -> Iterator[Finding]:
    for place in places:
        if place.origin == PROCESS or place.file is None or not set(KEYS) & set(place.variables):
            continue
        try:
            mode = place.file.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            name = one_line(place.file)
            message = f"{name} holds a key and can be read by others"
            yield Finding("settings", "warning", message, f"chmod 600 {name}")


def _is_open(url: str) -> bool:
    """Whether a key sent there could be read on the way."""
    host = urlsplit(url).hostname or ""
    if not url.startswith("http:") or host == "localhost":
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def _unencrypted(name: str, url: str) -> Finding:
    message = (
        f"{name} is http, so the key travels unencrypted to {one_line(urlsplit(url).hostname)}"
    )
    return Finding("settings", "warning", message, "use https where that host speaks it")


# What the hosts' answers mean.


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


# What the terminal can do, told from the environment and, inside tmux, from tmux.
#
# Nothing is sent to the terminal: an answer could be mistaken for typing.
#
# Source: COLORTERM and NO_COLOR as terminals and https://no-color.org have them; OSC 52 as
# the manuals of the named terminals and of tmux (set-clipboard, client_termfeatures) say.


SMALLEST = (40, 12)
"""Columns and rows that the app needs."""
TMUX_S = 2.0
COPYING = ("kitty", "alacritty", "foot", "ghostty", "wezterm", "contour", "rio")
"""Terminals that take OSC 52 as they come, by TERM or TERM_PROGRAM."""
Ask = Callable[..., str]
"""Runs tmux with these words; its output, empty where it fails."""


def terminal(
    environ: Mapping[str, str], size: os.terminal_size | None, encoding: str | None, ask: Ask
) -> Terminal:
    """
    Args:
        environ: The process's.
        size: The terminal's; None where there is none.
        encoding: Of stdout.
        ask: Asks tmux.
    """
    term = environ.get("TERM", "")
    multiplexer = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    features = ask("display", "-p", "#{client_termfeatures}") if multiplexer == "tmux" else ""
    return Terminal(
        is_terminal=size is not None,
        term=term,
        columns=size.columns if size else None,
        rows=size.lines if size else None,
        colors=_colors(environ, "RGB" in features.split(",")),
        unicode=_unicode(environ, encoding),
        clipboard=_clipboard(environ, multiplexer, ask),
        multiplexer=multiplexer,
    )


def this_terminal() -> Terminal:
    """The one that this process runs in."""
    out = sys.__stdout__  # the app has its own in place of sys.stdout
    return terminal(os.environ, _size(), out.encoding if out else None, ask_tmux)


def ask_tmux(*words: str) -> str:
    """What tmux answers; empty where it does not."""
    try:
        done = subprocess.run(
            ["tmux", *words], capture_output=True, text=True, timeout=TMUX_S, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def check_terminal(found: Terminal) -> list[Finding]:
    """What keeps the app from looking or copying as it should."""
    if not found.is_terminal:
        return [Finding("terminal", "ok", "not a terminal: hud-tui --headless works, the app not")]
    problems = [_check_size(found), _check_colors(found), _check_text(found), _check_copy(found)]
    good = Finding("terminal", "ok", "the app can draw and copy here")
    return [problem for problem in problems if problem] or [good]


def _check_size(found: Terminal) -> Finding | None:
    columns, rows = found.columns or 0, found.rows or 0
    if columns >= SMALLEST[0] and rows >= SMALLEST[1]:
        return None
    message = f"the terminal is {columns}×{rows}; the app needs {SMALLEST[0]}×{SMALLEST[1]}"
    return Finding("terminal", "warning", message, "enlarge the window, or use --headless")


def _check_colors(found: Terminal) -> Finding | None:
    if found.term == "dumb":
        fix = "set TERM to what the terminal is, or use --headless"
        return Finding("terminal", "failure", "TERM is dumb: the app cannot draw", fix, code=1)
    if found.colors in ("256", "truecolor"):
        return None
    fix = "set TERM=xterm-256color, and COLORTERM=truecolor if it has that; unset NO_COLOR"
    return Finding("terminal", "warning", f"{found.colors} colours: curves look alike", fix)


def _check_text(found: Terminal) -> Finding | None:
    if found.unicode:
        return None
    fix = "set LANG=C.UTF-8 where the terminal has Unicode; ASCII is drawn until then"
    return Finding("terminal", "warning", "no Unicode: curves are drawn in ASCII", fix)


def _check_copy(found: Terminal) -> Finding | None:
    fix = copy_advice(found)
    message = "what y copies may not reach the clipboard"
    return Finding("terminal", "warning", message, fix) if fix else None


def copy_advice(found: Terminal) -> str:
    """What to do for copies to reach the clipboard; empty where they may as it is."""
    if found.clipboard != "unlikely":
        return ""
    fixes = {
        "tmux": "tmux set -s set-clipboard on",
        "screen": "use tmux instead, or select with the mouse while holding shift",
    }
    return fixes.get(found.multiplexer, "select with the mouse while holding shift")


def _size() -> os.terminal_size | None:
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            if stream is not None and stream.isatty():
                return os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            continue
    return None


def _colors(
    environ: Mapping[str, str], tmux_has_rgb: bool
) -> Literal["none", "16", "256", "truecolor"]:
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb"):
        return "none"
    if environ.get("COLORTERM") in ("truecolor", "24bit") or tmux_has_rgb or "direct" in term:
        return "truecolor"
    return "256" if "256color" in term or term.startswith(COPYING) else "16"


def _unicode(environ: Mapping[str, str], encoding: str | None) -> bool:
    if environ.get("HUD_TUI_ASCII", "") not in ("", "0"):
        return False
    return environ.get("TERM") != "linux" and "utf" in (encoding or "utf-8").lower()


def _clipboard(
    environ: Mapping[str, str], multiplexer: str, ask: Ask
) -> Literal["likely", "unlikely", "unknown"]:
    if multiplexer == "screen" or environ.get("TERM") in ("linux", "dumb"):
        return "unlikely"
    if multiplexer == "tmux":  # "external" lets tmux copy, and nothing that runs in it
        setting = ask("show", "-sv", "set-clipboard")
        return "likely" if setting == "on" else "unlikely" if setting else "unknown"
    names = f"{environ.get('TERM', '')} {environ.get('TERM_PROGRAM', '')}".lower()
    if environ.get("WT_SESSION") or any(name in names for name in COPYING):
        return "likely"
    return "unlikely" if environ.get("TERM_PROGRAM") == "Apple_Terminal" else "unknown"


# Whether ``serve --engine tinker`` would work: its settings, and its server's answer.


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


# Which versions run here, read from installed metadata; nothing is imported for it.


PACKAGES = ("hud-tui", "textual", "rich", "httpx", "pydantic", "numpy", "starlette", "ruamel.yaml")
OPTIONAL = {
    "tinker": "only the tinker engine needs it",
    "datasets": "only convert needs it: pip install 'hud-tui[hf]'",
    "hud": "the official SDK and CLI, which nothing here needs",
}
"""What each is for."""
SUPPORTED = ((3, 11), (3, 14))
"""Python from, and before."""


def versions() -> dict[str, str | None]:
    """By name; None where it is not installed."""
    python = f"{python_version()} ({python_implementation()}, {system()} {machine()})"
    return {"python": python, **{name: _version(name) for name in (*PACKAGES, *OPTIONAL)}}


def check_versions(found: dict[str, str | None]) -> list[Finding]:
    """Whether Python is supported and all that is needed is installed."""
    low, high = SUPPORTED
    findings = []
    if not low <= sys.version_info[:2] < high:
        message = f"Python {python_version()} is not supported"
        findings.append(Finding("versions", "warning", message, "use Python 3.11, 3.12 or 3.13"))
    missing = [name for name in PACKAGES if found[name] is None]
    if missing:
        message = f"not installed: {', '.join(missing)}"
        findings.append(
            Finding("versions", "failure", message, "pip install hud-tui again", code=1)
        )
    return findings or [Finding("versions", "ok", f"hud-tui {found['hud-tui']} is whole")]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
