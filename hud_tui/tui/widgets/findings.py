"""Findings: what preflight found, a line a check, each filled in as its answer comes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from textwrap import wrap

from textual.content import Content
from textual.reactive import reactive

from hud_tui.keys import keyed
from hud_tui.rl.tasks.checks import Finding, in_order
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import ClickableText, clicked

CHECKS = {
    "rows": "rows load",
    "train": "to train on",
    "slugs": "slugs unique",
    "model": "model",
    "environments": "environments",
    "scenarios": "scenarios",
    "args": "args fit",
    "key": "key",
    "ready": "model ready",
    "tokens": "tokens",
    "group_size": "group size",
    "disk": "disk",
    "count": "enough tasks",
    "duplicates": "duplicates",
    "vision": "images",
    "runtime": "runtime",
    "fields": "fields",
    "graded": "graded",
    "variables": "variables",
    "remote": "MCP servers",
    "lock": "lock file",
    "signal": "signal",
}
"""Every check, in the order they are shown."""
SHOWN = frozenset(list(CHECKS)[:7])
"""Checks that have a line when they pass; the others have one only where they found something."""
TOLD = ("signal",)
"""Checks that are made on demand, and then have a line when they pass too."""
BY_NAME = ("environments", "scenarios", "args")
"""Checks made once an environment: where they pass, its name says enough."""
GLYPHS = {"ok": ("✔", "$success"), "warning": ("⚠", "$warning"), "failure": ("✘", "$error")}
LABEL = 14
SHORT, LONG = 300, 4000
"""Characters of one part of a finding, in the pane and where all of it is shown."""
MORE = "{launch.details} shows all that was found"


class Findings(ClickableText):
    """Checks that passed share a line; a warning or a failure has its own, with the fix.

    Where there is no room for all of it, what fails comes first, then what was asked for, then
    what is doubtful.
    """

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False)
    checking: reactive[bool] = reactive(False, init=False)
    source: reactive[str] = reactive("", init=False)
    """What is checked, by its name."""

    def watch_findings(self) -> None:
        self._draw()

    def watch_checking(self) -> None:
        self._draw()

    def watch_source(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.content_size
        lines = list(islice(self._lines(CHECKS, width), height + 1))
        if len(lines) > height > 1:
            lines = list(islice(self._lines(self._worst_first(), width), height - 1))
            lines.append(clicked(Content.styled(keyed(MORE), "$accent"), "launch.details"))
        self.update(Content("\n").join(lines))

    def _worst_first(self) -> list[str]:
        level = {level: {f.check for f in self.findings if f.level == level} for level in GLYPHS}
        first = [level["failure"], frozenset(TOLD), level["warning"]]
        return sorted(CHECKS, key=lambda check: [check not in checks for checks in first])

    def _lines(self, checks: Iterable[str], width: int) -> Iterator[Content]:
        for check in checks:
            found = in_order(finding for finding in self.findings if finding.check == check)
            bad = [finding for finding in found if finding.level != "ok"]
            if bad:
                yield from chain.from_iterable(_wrapped(finding, width) for finding in bad)
            elif check in SHOWN or (found and check in TOLD):
                yield self._passed(check, found).truncate(max(1, width), ellipsis=True)

    def _passed(self, check: str, found: Sequence[Finding]) -> Content:
        glyph, style = GLYPHS["ok"] if found else ("·", "$text-muted")
        said = ", ".join(_briefly(finding) for finding in found) or "…" * self.checking
        if check == "rows" and self.source:
            said = f"{self.source}: {said}"
        label = Content.styled(f"{CHECKS[check]:<{LABEL}}", "" if found else "$text-muted")
        return Content.assemble((f"{glyph} ", style), label, (said, "$text-muted"))


def whole_lines(findings: Sequence[Finding], width: int) -> Iterator[Content]:
    """Every finding in full, what is wrong first, `width` cells wide."""
    by_level = ("failure", "warning", "ok")
    for finding in sorted(in_order(findings), key=lambda one: by_level.index(one.level)):
        yield from _wrapped(finding, width, LONG)


def _wrapped(finding: Finding, width: int, most: int = SHORT) -> Iterator[Content]:
    """A finding over as many lines as it takes, each part cut at `most` characters."""
    glyph, style = GLYPHS[finding.level]
    room = max(12, width - LABEL - 2)
    advice = [finding.where, finding.fix] if finding.level != "ok" else []
    said = [(line, style) for line in wrap(one_line(finding.message, most), room)]
    said += [
        (line, "") for part in advice if part for line in wrap(f"→ {one_line(part, most)}", room)
    ]
    head = Content.assemble((f"{glyph} ", style), f"{CHECKS[finding.check]:<{LABEL}}")
    for line in said:
        yield head + Content.styled(*line)
        head = Content(" " * (LABEL + 2))


def _briefly(finding: Finding) -> str:
    by_name = finding.check in BY_NAME and finding.where
    return one_line(finding.where if by_name else finding.message, 200)


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The first failure, else the first warning."""
    by_level = sorted(
        (one for one in findings if one.level != "ok"), key=lambda one: one.level != "failure"
    )
    return by_level[0] if by_level else None
