"""The doctor's report for people: sections, one row a fact, then what to do."""

import sys
from collections.abc import Iterator

from hud_tui.doctor.report import Finding, Report
from hud_tui.doctor.storage import size_text
from hud_tui.doctor.versions import OPTIONAL
from hud_tui.rl.text import clean

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
    yield from _hosts(report)
    yield "", "versions"
    for name, version in report.versions.items():
        absent = f"not installed; {OPTIONAL[name]}" if name in OPTIONAL else "not installed"
        yield "ok" if version else "off", f"{name:{width}}  {version or absent}"
    yield from _machine(report, width)
    yield from _findings(report)


def _hosts(report: Report) -> Iterator[tuple[str, str]]:
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
