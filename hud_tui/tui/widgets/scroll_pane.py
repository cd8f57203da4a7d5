"""ScrollPane: text that scrolls with the keys that move a list's cursor."""

from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll

from hud_tui.tui.bindings import bindings


class ScrollPane(VerticalScroll, can_focus=True):
    """A pane of lines; Tab goes to it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    def action_move(self, rows: int) -> None:
        self.scroll_relative(y=rows, animate=False)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)
