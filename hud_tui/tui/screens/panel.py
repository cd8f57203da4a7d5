"""Panel: a titled box over the view, with something to read or to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget

from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.over import Over
from hud_tui.tui.widgets.clickable_text import FootLine

T = TypeVar("T")


class Panel(Over[T | None]):
    """Closes with what was chosen, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("panel")
    LEAVE: ClassVar[str] = "close"
    FOOT = "{panel.close} back"
    """What the last line says of the keys."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.heading = title

    def compose(self) -> ComposeResult:
        with Vertical(id="panel") as box:
            box.border_title = Content(one_line(self.heading, 100)).markup
            yield from self.body()
            yield FootLine(self.FOOT, id="panel-foot")

    def body(self) -> Iterable[Widget]:
        """What is in the box."""
        return ()

    def action_close(self) -> None:
        self.dismiss(None)
