"""FindingsPanel: all that the checks found, to scroll through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import on
from textual.widget import Widget

from hud_tui.rl.preflight import Finding
from hud_tui.tui.screens.panel import Panel
from hud_tui.tui.widgets.findings import whole_lines
from hud_tui.tui.widgets.text_pane import TextPane


class FindingsPanel(Panel[None]):
    FOOT = "↑ ↓ scroll   {panel.close} back"

    def __init__(self, title: str, findings: Sequence[Finding]) -> None:
        super().__init__(title)
        self.findings = findings
        self.pane = TextPane(id="all-findings")

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()

    @on(TextPane.Resized)
    def _lay_out(self) -> None:
        self.pane.show(list(whole_lines(self.findings, self.pane.width)))
