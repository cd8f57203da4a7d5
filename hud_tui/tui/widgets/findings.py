"""Findings: what preflight found, a line a check, each filled in as its answer comes."""

from collections.abc import Sequence
from textwrap import wrap

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from hud_tui.rl.preflight import Finding, in_order
from hud_tui.rl.text import one_line

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


class Findings(Static):
    """Checks that passed share a line; a warning or a failure has its own, with the fix."""

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
        lines = [line for check in CHECKS for line in self._lines(check)]
        self.update(Content("\n").join(lines))

    def _lines(self, check: str) -> list[Content]:
        found = in_order(finding for finding in self.findings if finding.check == check)
        bad = [finding for finding in found if finding.level != "ok"]
        if bad:
            return [line for finding in bad for line in self._bad(finding)]
        if check not in SHOWN and not (found and check in TOLD):
            return []
        glyph, style = GLYPHS["ok"] if found else ("·", "$text-muted")
        said = ", ".join(_passed(finding) for finding in found) or "…" * self.checking
        if check == "rows" and self.source:
            said = f"{self.source}: {said}"
        label = Content.styled(f"{CHECKS[check]:<{LABEL}}", "" if found else "$text-muted")
        text = Content.assemble((f"{glyph} ", style), label, (said, "$text-muted"))
        return [text.truncate(max(1, self.content_size.width), ellipsis=True)]

    def _bad(self, finding: Finding) -> list[Content]:
        glyph, style = GLYPHS[finding.level]
        room = max(12, self.content_size.width - LABEL - 2)
        advice = [one_line(part, 200) for part in (finding.where, finding.fix) if part]
        said = [(line, style) for line in wrap(one_line(finding.message, 300), room)]
        said += [(line, "") for part in advice for line in wrap(f"→ {part}", room)]
        heads = [Content.assemble((f"{glyph} ", style), f"{CHECKS[finding.check]:<{LABEL}}")]
        heads += [Content(" " * (LABEL + 2))] * (len(said) - 1)
        return [head + Content.styled(*line) for head, line in zip(heads, said, strict=False)]


def _passed(finding: Finding) -> str:
    by_name = finding.check in BY_NAME and finding.where
    return one_line(finding.where if by_name else finding.message, 200)


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The first failure, else the first warning."""
    by_level = sorted(
        (one for one in findings if one.level != "ok"), key=lambda one: one.level != "failure"
    )
    return by_level[0] if by_level else None
