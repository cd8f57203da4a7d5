"""``doctor``: what is set, what answers, what this machine has, and what to do about it."""

import asyncio
import os
import sys
from collections.abc import Iterator

from hud_tui.cli.output import emit
from hud_tui.client.probe import probe, probe_url, shown_url
from hud_tui.doctor import (
    OPTIONAL,
    Finding,
    Report,
    Service,
    check_config,
    check_data,
    check_directories,
    check_hosts,
    check_leftovers,
    check_terminal,
    check_tinker,
    check_versions,
    directories,
    exit_code,
    look_into,
    settings_of,
    size_text,
    this_terminal,
    tinker_settings,
    usable_settings,
    versions,
)
from hud_tui.errors import HudUsage
from hud_tui.rl.text import clean
from hud_tui.service_file import alive, named
from hud_tui.settings import Paths, Settings, local_settings, read_places
from hud_tui.wire import ServiceReady

# The doctor's report for people: sections, one row a fact, then what to do.


GLYPHS = {"ok": "✓", "warning": "!", "failure": "✗", "off": "·"}
PLAIN = {"ok": "+", "warning": "!", "failure": "x", "off": "-"}
COLORS = {"ok": "32", "warning": "33", "failure": "31", "off": "2"}
"""Of ECMA-48's select graphic rendition."""
ASCII = str.maketrans({"×": "x", "·": "-", "→": ">", "…": "."})


def print_report(report: Report) -> None:
    """Print it to stdout, in colours where that is a terminal that has some."""
    colored = sys.stdout.isatty() and report.terminal.colors != "none"
    glyphs = GLYPHS if report.terminal.unicode else PLAIN
    for mark, text in lines(report):
        text = text if report.terminal.unicode else text.translate(ASCII)
        glyph = glyphs.get(mark, "")
        if glyph and colored:
            glyph = f"\x1b[{COLORS[mark]}m{glyph}\x1b[0m"
        print(f"  {glyph} {clean(text)}" if glyph else clean(text))


def lines(report: Report) -> Iterator[tuple[str, str]]:
    """A mark, one of `GLYPHS` or empty, and the line behind it."""
    yield "", "settings"
    width = max(len(setting.name) for setting in report.settings)
    for setting in report.settings:
        hidden = f" (also in {', '.join(setting.hidden)})" if setting.hidden else ""
        yield "ok" if setting.set else "off", f"{setting.name:{width}}  {setting.origin}{hidden}"
    yield from _host_lines(report)
    yield "", "versions"
    for name, version in report.versions.items():
        absent = f"not installed; {OPTIONAL[name]}" if name in OPTIONAL else "not installed"
        yield "ok" if version else "off", f"{name:{width}}  {version or absent}"
    yield from _machine(report, width)
    yield from _findings(report)


def _host_lines(report: Report) -> Iterator[tuple[str, str]]:
    yield "", "hosts"
    if not report.hosts:
        yield "off", "none: the embedded service is not running"
    width = max((len(", ".join(host.names)) for host in report.hosts), default=0)
    for host in report.hosts:
        named = f"{', '.join(host.names):{width}}  {host.url}"
        if host.seconds is None:
            yield "failure", f"{named}  no answer"
        else:
            yield "ok", f"{named}  HTTP {host.status}, {host.seconds:.2f} s"


def _machine(report: Report, width: int) -> Iterator[tuple[str, str]]:
    screen = report.terminal
    yield "", "terminal"
    if not screen.is_terminal:
        yield "off", "stdout is not a terminal"
    else:
        drawn = "Unicode" if screen.unicode else "ASCII"
        inside = f" in {screen.multiplexer}" if screen.multiplexer else ""
        size = f"{screen.columns}×{screen.rows}"
        yield "ok", f"{screen.term}{inside}  {size}, {screen.colors} colours, {drawn}"
        mark = {"likely": "ok", "unlikely": "warning"}.get(screen.clipboard, "off")
        yield mark, f"clipboard by OSC 52: {screen.clipboard}"
    yield "", "directories"
    for one in report.directories:
        state = "" if one.exists else ", not made yet"
        room = f"{size_text(one.used_bytes)} used, " if one.exists else ""
        room += f"{size_text(one.free_bytes)} free{state}"
        yield "ok" if one.writable else "failure", f"{one.kind:{width}}  {one.path}  {room}"


def _findings(report: Report) -> Iterator[tuple[str, str]]:
    yield "", "findings"
    rank = ("failure", "warning", "ok")
    for finding in sorted(report.findings, key=lambda finding: rank.index(finding.level)):
        yield finding.level, finding.message + _fix(finding)
    levels = [finding.level for finding in report.findings]
    failures, warnings = levels.count("failure"), levels.count("warning")
    yield "", f"{failures} to correct, {warnings} to look at" if failures + warnings else "all well"


def _fix(finding: Finding) -> str:
    return f"\n      → {finding.fix}" if finding.fix else ""


def doctor(paths: Paths, local: bool, document: bool, fail_on_warning: bool) -> int:
    """Look at everything and say it; returns the exit code of the worst finding.

    Args:
        paths: This program's directories.
        local: Look at the embedded service, and want no key; else at HUD's hosts.
        document: Print JSON; else a table.
        fail_on_warning: Warnings count too.
    """
    report = examine(paths, local)
    if document:
        emit("doctor", {"verdict": report.verdict, **vars(report)})
    else:
        print_report(report)
    return exit_code(report.findings, "warning" if fail_on_warning else "failure")


def examine(paths: Paths, local: bool) -> Report:
    """Everything, gathered; only the hosts are waited for."""
    places = read_places()
    settings, findings = usable_settings(places, needs_key=not local)
    service, of_service = _service(paths)
    if local:
        settings = _embedded(paths, service) or settings
    hosts = [] if local and not service.running else asyncio.run(probe(settings))
    findings += check_hosts(hosts, bool(settings.api_key), os.environ, local)
    findings += _tinker()
    found, screen, folders = versions(), this_terminal(), directories(paths)
    return Report(
        settings=settings_of(places),
        hosts=hosts,
        versions=found,
        terminal=screen,
        directories=folders,
        service=service,
        findings=[
            *findings,
            *check_versions(found),
            *check_terminal(screen),
            check_config(os.environ),
            *check_directories(folders, paths.service_file, os.environ),
            *of_service,
            *([] if service.running else check_data(look_into(paths.data))),
            *check_leftovers(paths.data),
        ],
    )


def _tinker() -> list[Finding]:
    options, findings = tinker_settings(os.environ)
    if options is None:
        return findings
    url = f"{options.url}/api/v1/healthz"
    host = asyncio.run(probe_url("tinker", url, options.is_loopback))
    return [check_tinker(options, host)]


def _service(paths: Paths) -> tuple[Service, list[Finding]]:
    try:
        ready = _named(paths)
    except HudUsage as error:
        wrong = Finding("service", "failure", error.message, error.hint, error.exit_code)
        return Service(False), [wrong]
    if ready is None:
        return Service(False), [Finding("service", "ok", "the embedded service is not running")]
    if not alive(ready.pid):
        message = "the embedded service ended without a word"
        fix = f"hud-tui --local starts it again; its log is {paths.service_log}"
        return Service(False), [Finding("service", "warning", message, fix)]
    found = Finding("service", "ok", f"the embedded service runs as process {ready.pid}")
    return Service(True, ready.pid, shown_url(ready.url)), [found]


def _named(paths: Paths) -> ServiceReady | None:
    """The service that ``--local`` would find, or that lived last."""
    found = [ready for _, ready in named(paths)]
    return next((ready for ready in found if alive(ready.pid)), found[0] if found else None)


def _embedded(paths: Paths, service: Service) -> Settings | None:
    ready = _named(paths) if service.running else None
    return local_settings(ready.url, ready.api_key, ready.telemetry_url) if ready else None
