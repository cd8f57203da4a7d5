"""Findings: what preflight found, a line a check, each filled in as its answer comes."""

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from hud_tui.rl.preflight import Finding
from hud_tui.rl.text import one_line

CHECKS = {
    "rows": "rows load",
    "train": "to train on",
    "slugs": "slugs unique",
    "model": "model",
    "environments": "environments",
    "scenarios": "scenarios",
    "args": "args",
}
"""Every check, in the order they are shown."""
GLYPHS = {"ok": ("✔", "$success"), "warning": ("⚠", "$warning"), "failure": ("✘", "$error")}
LABEL = 14


class Findings(Static):
    """Checks that passed share a line; a warning or a failure has its own, with the fix."""

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False)
    checking: reactive[bool] = reactive(False, init=False)

    def watch_findings(self) -> None:
        self._draw()

    def watch_checking(self) -> None:
        self._draw()

    def _draw(self) -> None:
        lines = [line for check in CHECKS for line in self._lines(check)]
        self.update(Content("\n").join(lines))

    def _lines(self, check: str) -> list[Content]:
        found = [finding for finding in self.findings if finding.check == check]
        bad = [finding for finding in found if finding.level != "ok"]
        good = [finding.message for finding in found if finding.level == "ok"]
        lines = [_line("ok", check, ", ".join(good))] if good and not bad else []
        lines += [_line(one.level, check, one.message, _advice(one)) for one in bad]
        if lines:
            return lines
        waiting = "…" if self.checking else ""
        return [Content.styled(f"· {CHECKS[check]:<{LABEL}}{waiting}", "$text-muted")]


def _advice(finding: Finding) -> str:
    parts = (finding.where, finding.fix)
    return " · ".join(one_line(part, 200) for part in parts if part)


def _line(level: str, check: str, message: str, advice: str = "") -> Content:
    glyph, style = GLYPHS[level]
    text = Content.assemble((f"{glyph} ", style), f"{CHECKS[check]:<{LABEL}}")
    text += Content.styled(one_line(message, 300), "$text-muted" if level == "ok" else style)
    if advice:
        text += Content.styled(f"\n  {'':<{LABEL}}→ {advice}", "$foreground")
    return text


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The first failure, else the first warning."""
    by_level = sorted(
        (one for one in findings if one.level != "ok"), key=lambda one: one.level != "failure"
    )
    return by_level[0] if by_level else None
