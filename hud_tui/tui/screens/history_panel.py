"""HistoryPanel: where the head was set, by whom and when; Enter goes back to one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.rl.ages import age
from hud_tui.rl.head import named
from hud_tui.rl.moves import Move
from hud_tui.rl.run import Run
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.panel import Panel
from hud_tui.tui.widgets.row_list import Column, Row, RowList

COLUMNS = (
    Column("when", 6, right=True),
    Column("from", 14, rank=2),
    Column("head set to", 0),
    Column("by", 14, rank=1),
)


class HistoryPanel(Panel[str]):
    """Closes with the id of the checkpoint that was set there."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("history")
    FOOT = "{history.choose} previews serving it again   {panel.close} back"

    def __init__(self, run: Run, moves: Sequence[Move], now: float) -> None:
        super().__init__("Where the head was set")
        self.rows = RowList(COLUMNS, id="history")
        self.moves = moves[::-1]
        self._shown = [_row(run, number, move, now) for number, move in enumerate(self.moves)]

    def body(self) -> Iterable[Widget]:
        if self._shown:
            yield self.rows
        else:
            said = "The head was not set yet, as far as this machine knows; steps do not count."
            yield Static(said, id="history-empty", markup=False)

    def on_mount(self) -> None:
        if self._shown:
            self.rows.show(self._shown)
            self.rows.focus()

    @on(RowList.Opened)
    def action_choose(self) -> None:
        if self.rows.key is not None:
            self.dismiss(self.moves[int(self.rows.key)].after)


def _row(run: Run, number: int, move: Move, now: float) -> Row:
    return Row(
        str(number),
        (
            Content(age(move.at or None, now)),
            Content.styled(named(run, move.before), "$text-muted"),
            Content.styled(named(run, move.after), "bold"),
            Content("you, here") if move.ours else Content.styled("somebody else", "$warning"),
        ),
    )
