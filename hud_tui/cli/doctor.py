"""``doctor``: checks settings, hosts and this machine, with a fix for each problem."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from platform import machine, python_implementation, python_version, system
from shutil import disk_usage
from typing import Any

from hud_tui import __version__, build
from hud_tui import settings as configured
from hud_tui.cli.connect import paths_of
from hud_tui.cli.doctor_host import examine_host
from hud_tui.cli.output import emit, service_flags, with_flags
from hud_tui.cli.sinks import check_wandb
from hud_tui.client.probe import Host, probe, probe_url
from hud_tui.client.transport import origin_of
from hud_tui.config import CONFIG_NAME, config_dir, read_config
from hud_tui.cores import read_cores
from hud_tui.errors import HudError, HudInsecure, HudNoKey, HudUsage
from hud_tui.local_service import RESTART
from hud_tui.remote.checks import check_machines
from hud_tui.remote.machines import machines_in
from hud_tui.rl.disk import retention_text
from hud_tui.rl.findings import Check, Finding, Severity, verdict, worst_first
from hud_tui.rl.text import counted, one_line, size
from hud_tui.service_file import ServiceReady, is_serving, named
from hud_tui.settings import Paths, Settings, VariableSource, local_settings
from hud_tui.terminal import Terminal, print_rows, shortcomings, this_terminal
from hud_tui.tinker_options import BadOption, is_set_up, read_options

NEEDED = {"api": "HUD_API_URL", "rl": "HUD_RL_URL", "gateway": "HUD_GATEWAY_URL"}
"""Hosts that training needs; without the others only reports and links are missing."""
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
PACKAGES = ("hud-tui", "textual", "rich", "httpx", "pydantic", "numpy", "starlette", "ruamel.yaml")
OPTIONAL = {
    "tinker": "not installed; only the tinker engine needs it",
    "datasets": "not installed; only convert needs it: pip install 'hud-tui[hf]'",
    "wandb": "not installed; only --wandb needs it: pip install 'hud-tui[wandb]'",
    "hud": "not installed; the official SDK and CLI, not required",
}
NO_TINKER = "the tinker engine is not set up (TINKER_API_KEY, TINKER_BASE_URL); tiny needs neither"
FOR_LOCAL = "for HUD: set HUD_API_KEY; for the embedded service: hud-tui doctor --local"
PRIME_URL = "PRIME_API_BASE_URL"
LITTLE, TOO_LITTLE = 2 * 10**9, 10**8
"""Free bytes below which a run may soon stop, or cannot start."""
EXAMINE_S = 30.0
"""Maximum seconds for checking a data directory."""


def doctor(args: argparse.Namespace) -> int:
    """Check everything and print it, as a document or for people; returns the exit code.

    With ``--local``: checks the embedded service, and needs no key; with ``--host`` a service
    elsewhere; else HUD's hosts.
    """
    report = examine(paths_of(args), args.local, args.service_url)
    flags = service_flags(args)
    report["findings"] = [
        replace(
            finding, message=with_flags(finding.message, flags), fix=with_flags(finding.fix, flags)
        )
        for finding in report["findings"]
    ]
    if args.headless:
        emit("doctor", report)
    else:
        print_rows(rows(report), report["terminal"])
    return exit_code(report["findings"], args.fail_on)


def exit_code(findings: Iterable[Finding], fail_on: Severity = "failure") -> int:
    """The largest exit code of all failures; 0 without one, or 1 if warnings count too."""
    return max(
        (finding.code or 1 for finding in findings if finding.level in ("failure", fail_on)),
        default=0,
    )


def examine(paths: Paths, local: bool, host: str | None = None) -> dict[str, Any]:
    """The document: all facts, and the findings of each check. Only hosts are waited for. `host`:
    URL of a service elsewhere."""
    sources = configured.read_sources()
    settings, problems = configured.usable_settings(sources, needs_key=not (local or host))
    ready, on_service = find_service(paths)
    if ready is not None and not local:
        problems = [
            HudNoKey(problem.message, FOR_LOCAL) if isinstance(problem, HudNoKey) else problem
            for problem in problems
        ]
    embedded = None
    if ready is not None:
        embedded = local_settings(ready.url, ready.api_key, ready.telemetry_url)
    if embedded is not None and local:
        embedded = configured.encrypted(embedded, problems)
    pid, url = (ready.pid, origin_of(ready.url)) if ready else (None, "")
    called = None if host else embedded if local else settings
    elsewhere, on_elsewhere = examine_host(host, paths) if host else (None, [])
    is_set = PRIME_URL in os.environ  # it is read from nowhere else
    prime_url = Variable(PRIME_URL, is_set, configured.PROCESS if is_set else "default")
    facts: dict[str, Any] = {
        "settings": [*list_variables(sources), prime_url],
        "hosts": (hosts := asyncio.run(probe(called)) if called else []),
        "host": elsewhere,
        "versions": (installed := versions()),
        "terminal": (terminal := this_terminal()),
        "directories": (folders := [look_at(kind, path) for kind, path in vars(paths).items()]),
        "service": {"running": ready is not None, "pid": pid, "url": url},
    }
    findings = [
        *check_settings(settings, problems, sources),
        *on_elsewhere,
        *check_hosts(hosts, bool(called and called.api_key), os.environ, local),
        check_cores(os.environ),
        check_tinker(os.environ),
        check_wandb(installed["wandb"], sources, paths.state, os.environ),
        *check_versions(installed),
        *check_terminal(terminal),
        check_config(os.environ),
        *check_directories(folders, paths.service_file, os.environ),
        on_service,
        *check_data(paths.data, ready is not None),
        *check_machines(machines_in(paths.state)),
    ]
    return {"verdict": verdict(findings), **facts, "findings": worst_first(findings)}


@dataclass(frozen=True)
class Variable:
    """Where a variable is set; never its value."""

    name: str
    set: bool
    origin: str
    """Where the effective value comes from; ``default`` or ``not set`` if no place sets it."""
    hidden: tuple[str, ...] = ()
    """Further places that set it, with lower precedence."""

    def __str__(self) -> str:
        hidden = f" (also in {', '.join(self.hidden)})" if self.hidden else ""
        return f"{self.name:18} {self.origin}{hidden}"


UNUSED = "HUD_RUNTIME_URL"
"""A variable of HUD with a default, which this program does not use."""


def list_variables(sources: Sequence[VariableSource]) -> list[Variable]:
    """Every variable that this program uses or that is set."""
    names = dict.fromkeys(("HUD_API_KEY", *configured.OTHERS, *configured.DEFAULTS, UNUSED))
    names |= dict.fromkeys(sorted({name for source in sources for name in source.variables}))
    listed = []
    for name in names:
        unset = "default" if name in configured.DEFAULTS or name == UNUSED else "not set"
        origins = [one_line(source.origin) for source in sources if name in source.variables]
        first, *hidden = origins or [unset]
        listed.append(Variable(one_line(name, 80), bool(origins), first, tuple(hidden)))
    return listed


def versions() -> dict[str, str | None]:
    """Versions by name, from installed metadata, and the build; None if not installed."""
    python = f"{python_version()} ({python_implementation()}, {system()} {machine()})"
    packages = {name: [*distributions(name=name)] for name in (*PACKAGES, *OPTIONAL)}
    installed = {name: d[0].version if d else None for name, d in packages.items()}
    return {"python": python, "build": build.digest()} | installed


def _failed(check: Check, error: HudError) -> Finding:
    return Finding(check, "failure", error.message, fix=error.hint, code=error.exit_code)


def _open_to(check: Check, file: Path | None, mode: int, what: str) -> Iterator[Finding]:
    """Whether others can access a file in this way."""
    with suppress(OSError):
        if file is not None and file.stat().st_mode & mode:
            name = one_line(file)
            yield Finding(check, "warning", f"{name} {what}", fix=f"chmod 600 {name}")


def check_settings(
    settings: Settings, problems: Sequence[HudError], sources: Sequence[VariableSource]
) -> Iterator[Finding]:
    """Whether the settings are valid, and whether others can read a key."""
    yield from (_failed("settings", problem) for problem in problems)
    for source in sources:
        if {"HUD_API_KEY", *configured.OTHERS} & {*source.variables}:
            private = "holds a key and can be read by others"
            yield from _open_to("settings", source.file, 0o044, private)
    if settings.api_key:
        yield Finding("settings", "ok", "an API key is set")
    if settings.api_key and settings.insecure:
        try:
            replace(settings, insecure=False).check_clear_text()
        except HudInsecure as error:
            fix = "use https where that host speaks it, and unset HUD_TUI_INSECURE"
            yield Finding("settings", "warning", error.message, fix=fix)


def check_hosts(
    hosts: Sequence[Host], has_key: bool, environ: Mapping[str, str], local: bool = False
) -> Iterator[Finding]:
    """The meaning of the hosts' answers."""
    for host in hosts:
        if host.reachable:
            yield _answered(host, has_key and "api" in host.names, local)
        else:
            yield _unreachable(host, environ, local)


_of_host = partial(Finding, "hosts")
SLOW_S = 2
"""Seconds of an answer that is worth a warning."""


def _answered(host: Host, checks_key: bool, local: bool) -> Finding:
    """The meaning of an answer. `checks_key`: whether it says that the key is good."""
    status, seconds, named = host.status or 0, host.seconds or 0, ", ".join(host.names)
    answer = f"{named}: HTTP {status} from {host.url}{_detail(host)}"
    took = f"{named}: an answer in {seconds:.2f} s"
    if checks_key and status in (401, 403):
        fix = "hud-tui stop, then hud-tui --local" if local else "copy HUD_API_KEY again"
        return _of_host("failure", answer, fix=fix, code=4)
    if status >= 500 and "api" in host.names:
        return _of_host("failure", answer, fix="try again later")
    if status >= 500:
        return _of_host("warning", answer, fix="try again later")
    if checks_key and not 200 <= status < 300:
        return _of_host("failure", answer, fix="set HUD_API_URL to where the service is")
    if seconds > SLOW_S:
        return _of_host("warning", took, fix="every call takes that long: look for a proxy")
    return _of_host("ok", took if local or not checks_key else f"{took}, and the key is good")


def _detail(host: Host) -> str:
    return f": {host.detail}" if host.detail else ""


def _unreachable(host: Host, environ: Mapping[str, str], local: bool) -> Finding:
    message = f"{', '.join(host.names)}: no answer from {host.url}{_detail(host)}"
    needed = ", ".join(NEEDED[name] for name in host.names if name in NEEDED)
    if not needed:
        return _of_host("warning", message, fix="reports and links need it; training does not")
    proxies = [f", and the proxy that {name} names" for name in PROXIES if environ.get(name)]
    again = "try again; if it stays so: hud-tui stop, then hud-tui --local"
    fix = again if local else f"check the network and {needed}{''.join(proxies[:1])}"
    return _of_host("failure", message, fix=fix, code=3)


def check_cores(environ: Mapping[str, str]) -> Finding:
    """On how many cores the tiny engine of a service that is started here computes, and why."""
    try:
        cores = read_cores(environ=environ)
    except HudUsage as error:
        return _failed("cores", error)
    summary = f"tiny computes on {counted(cores.count, 'core')}: {cores.why}"
    other = "" if cores.is_chosen else "; serve --cores N or HUD_TUI_CORES=N changes that"
    return Finding("cores", "ok", summary + other)


def check_tinker(environ: Mapping[str, str]) -> Finding:
    """Whether ``serve --engine tinker`` would work; nothing else needs it."""
    if not is_set_up(environ):
        return Finding("tinker", "ok", NO_TINKER)
    try:
        options = read_options(environ)
    except BadOption as error:
        fix = "correct it, or unset it: only serve --engine tinker needs it"
        return Finding("tinker", "warning", str(error), fix=fix)
    asked = probe_url("tinker", f"{options.url}/api/v1/healthz", options.is_loopback)
    host = asyncio.run(asked)
    where = f"tinker engine: {options.url}"
    if not host.reachable:
        fix = "start the server, or check TINKER_BASE_URL; serve --engine tinker needs it"
        return Finding("tinker", "warning", f"{where} does not answer: {host.detail}", fix=fix)
    if (host.status or 0) >= 500:
        return Finding("tinker", "warning", f"{where}: HTTP {host.status}", fix="try again later")
    facts = f"rank {options.rank}, checkpoints kept {retention_text(options.ttl_s)}"
    return Finding("tinker", "ok", f"{where} answers in {host.seconds or 0:.2f} s ({facts})")


def check_versions(installed: Mapping[str, str | None]) -> Iterator[Finding]:
    """Whether Python is supported and all requirements are installed."""
    missing = ", ".join(name for name in PACKAGES if installed[name] is None)
    if not (supported := (3, 11) <= sys.version_info[:2] < (3, 14)):
        message = f"Python {python_version()} is not supported"
        yield Finding("versions", "warning", message, fix="use Python 3.11, 3.12 or 3.13")
    if missing:
        message = f"not installed: {missing}"
        yield Finding("versions", "failure", message, fix="pip install hud-tui again")
    elif supported:
        yield Finding("versions", "ok", f"hud-tui {installed['hud-tui']} is completely installed")


def check_terminal(terminal: Terminal) -> Iterator[Finding]:
    """What keeps the app from drawing or copying correctly."""
    here, pipe = "the app can draw and copy here", "no terminal here, which only the app needs"
    problems = [*shortcomings(terminal)]
    if terminal.term == "dumb":
        problems[0] = replace(problems[0], level="failure")
    yield from problems or [Finding("terminal", "ok", here if terminal.is_terminal else pipe)]


def check_config(environ: Mapping[str, str]) -> Finding:
    """Problems of the config file."""
    file = (directory := config_dir(environ)) / CONFIG_NAME
    try:
        changed = len(read_config(directory).keys)
    except HudUsage as error:
        return _failed("config", error)
    keys = f"; {changed} actions have other keys" if changed else ""
    state = "can be used" + keys if file.exists() else "does not exist: the defaults apply"
    return Finding("config", "ok", f"{one_line(file, 400)} {state}")


MOST_FILES = 100_000
"""Maximum number of files counted in a directory."""


@dataclass(frozen=True)
class Directory:
    """A directory and its disk."""

    kind: str
    """Its purpose, e.g. ``data``."""
    path: str
    exists: bool
    writable: bool
    """Whether it is writable, or can be created."""
    used_bytes: int | None
    """None if it does not exist, or contains too many files to count."""
    free_bytes: int | None

    def __str__(self) -> str:
        used = f"{size(self.used_bytes)} used" if self.exists else "not created yet"
        return f"{self.kind:18} {self.path}  {used}, {size(self.free_bytes)} free"


def look_at(kind: str, path: Path) -> Directory:
    """Size and free space of a directory, whether or not it exists."""
    exists, nearest = path.is_dir(), path
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    try:
        free = disk_usage(nearest).free
    except OSError:
        free = None
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Directory(
        kind, one_line(path, 400), exists, writable, used_bytes(path) if exists else None, free
    )


def used_bytes(path: Path) -> int | None:
    """Total size of its files; None if there are too many to count."""
    total, count = 0, 0
    for folder, _, names in os.walk(path):
        count += len(names)
        if count > MOST_FILES:
            return None
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def check_directories(
    directories: Sequence[Directory], service_file: Path, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Whether the embedded service can store its files, and whether its key is private."""
    private = "holds the service's key and is open to others"
    problems = [*_open_to("directories", service_file, 0o077, private)]
    for directory in directories:
        if not directory.writable:
            fix = f"correct its permissions, or set HUD_TUI_{directory.kind.upper()}_DIR"
            message = f"the {directory.kind} directory {directory.path} cannot be written to"
            problems.append(Finding("directories", "failure", message, fix=fix, code=2))
    try:
        enough = min(LITTLE, limit := configured.read_max_disk(environ=environ))
    except HudError as error:
        enough = limit = 0
        problems.append(_failed("directories", error))
    free, fix = directories[-1].free_bytes, "free some, or point HUD_TUI_DATA_DIR at another disk"
    if free is not None and free < TOO_LITTLE:
        problems.append(
            Finding("directories", "failure", f"{size(free)} free for checkpoints", fix=fix)
        )
    elif free is not None and free < enough:
        message = f"{size(free)} free for checkpoints, which may take {size(limit)}"
        problems.append(
            Finding("directories", "warning", message, fix=f"{fix}; or lower HUD_TUI_MAX_DISK")
        )
    yield from problems or [
        Finding("directories", "ok", "the directories are writable and the disk has space")
    ]


def find_service(paths: Paths) -> tuple[ServiceReady | None, Finding]:
    """The service that ``--local`` would find, if it runs; and the finding."""
    try:
        services = [ready for _, ready in named(paths)]
    except HudUsage as error:
        return None, _failed("service", error)
    for ready in services:
        if is_serving(ready):
            runs = f"the embedded service runs as process {ready.pid}"
            if not ready.is_other:
                return ready, Finding("service", "ok", runs)
            which = f"version {ready.version or 'older'}, this is {__version__}"
            if ready.version == __version__:
                which = f"version {__version__} of other files than this"
            return ready, Finding("service", "warning", f"{runs}: {which}", fix=RESTART)
    if not services:
        return None, Finding("service", "ok", "the embedded service is not running")
    fix = f"hud-tui --local starts it again; its log is {paths.service_log}"
    return None, Finding("service", "warning", "the embedded service ended unexpectedly", fix=fix)


def check_data(data_dir: Path, served: bool) -> Iterator[Finding]:
    """Problems that a start would report for the data directory, and what starts have moved
    aside."""
    yield from [] if served else _look_into(data_dir)
    fix = "remove it where nothing in it is missed; or stop the service, put back the service.db"
    fix += " that knows them, and move them to checkpoints"
    for leftovers in sorted(data_dir.glob("leftovers-*")):
        held = f"{one_line(leftovers, 400)} holds {size(used_bytes(leftovers))}"
        yield Finding("service", "warning", f"{held} that service.db did not know", fix=fix)


def _look_into(data_dir: Path) -> list[Finding]:
    """What the service would report at a start on this directory, as
    `hud_tui.service.data_dir.examine`, computed in a process of its own; empty if the directory has
    no data."""
    if not (data_dir / "service.db").exists() and not (data_dir / "checkpoints").exists():
        return []
    command = [sys.executable, "-P", "-m", "hud_tui.service", "--check", "--data-dir"]
    try:
        asked = subprocess.run(
            [*command, str(data_dir)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=EXAMINE_S,
            check=True,
        )
        return [Finding(**finding) for finding in json.loads(asked.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        message = f"{one_line(data_dir)} could not be looked into: {one_line(error)}"
        return [Finding("service", "failure", message)]


def _mark(is_well: bool, otherwise: str) -> str:
    return "ok" if is_well else otherwise


def _host_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for host in report["hosts"]:
        yield _mark(host.reachable, "failure"), host
    if report["host"]:
        yield _mark(report["host"]["reachable"], "failure"), report["host"]["url"]


def rows(report: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The report for people: a mark, as for `print_rows`, and the line after it."""
    terminal = report["terminal"]
    unused = set() if report["versions"].get("wandb") else {"WANDB_API_KEY"}
    sections = {
        "settings": [
            (_mark(setting.set and setting.name not in unused, "off"), setting)
            for setting in report["settings"]
        ],
        "hosts": list(_host_rows(report)),
        "versions": [
            (
                _mark(bool(version), "off"),
                f"{name:18} {version or OPTIONAL.get(name, 'not installed')}",
            )
            for name, version in report["versions"].items()
        ],
        "terminal": [(_mark(terminal.is_terminal, "off"), terminal)],
        "directories": [(_mark(d.writable, "failure"), d) for d in report["directories"]],
        "findings": [
            (finding.level, "\n      ".join([finding.message, *finding.advice]))
            for finding in report["findings"]
        ],
    }
    for name, lines in sections.items():
        yield "", name
        yield from lines or [("off", "none: the embedded service is not running")]
    levels = [finding.level for finding in report["findings"]]
    failures, warnings = levels.count("failure"), levels.count("warning")
    counts = f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}"
    yield "", counts if failures or warnings else "no problems"
