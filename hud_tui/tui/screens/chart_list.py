"""ChartList: every metric that arrives, what it means, and whether and where it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from hud_tui.rl.metrics import healthy, metric, outside, short, title
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.over import Over
from hud_tui.tui.widgets.clickable_text import FootLine
from hud_tui.tui.widgets.row_list import Column, Row, RowList

if TYPE_CHECKING:
    from hud_tui.tui.screens.charting import ChartingScreen

COLUMNS = (
    Column("", 1),
    Column("metric", 18),
    Column("newest", 7, right=True, rank=2),
    Column("healthy", 9, rank=3),
    Column("what it means"),
)
FOOT = (
    "{charts.show_or_hide} show or hide  {charts.place.1} {charts.place.-1} move  "
    "{charts.enlarge} enlarge  {charts.reset} as at first  {charts.leave} back"
)


class ChartList(Over[None]):
    """What is chosen here is seen at once, and kept."""

    VIEW: ClassVar = "charts"
    BINDINGS: ClassVar[list[BindingType]] = bindings("charts")
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, below: ChartingScreen) -> None:
        """`below` is the screen whose charts these are."""
        super().__init__()
        self.below = below

    def compose(self) -> ComposeResult:
        with Vertical(id="charts") as box:
            box.border_title = "charts"
            yield RowList(COLUMNS, id="charts-list", least=20)
            yield Static("", id="charts-note", markup=False)
            yield FootLine(FOOT, id="charts-foot")

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    def on_mount(self) -> None:
        self._show()
        self.rows.select(self.below.focus_key)

    def _show(self) -> None:
        keys = self.below.choices.arranged(self.below.shown.series.keys)
        self.rows.show([self._row(key) for key in keys])

    def _row(self, key: str) -> Row:
        known, newest = metric(key), self.below.shown.series.last(key)
        hidden = key in self.below.choices.hidden
        tone = "$text-disabled" if hidden else "$foreground"
        number = "$warning" if outside(known, newest) else tone
        cells = (
            Content(" " if hidden else "●"),
            Content.styled(one_line(title(key), 60), tone),
            Content.styled(short(newest), number),
            Content.styled(healthy(known), "$text-muted"),
            Content.styled(known.meaning, "$text-muted"),
        )
        return Row(key, cells)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if (note := self.query_one_optional("#charts-note", Static)) and event.key is not None:
            note.update(_note(event.key))

    def action_show_or_hide(self) -> None:
        if (key := self.rows.key) is not None:
            self.below.choices = self.below.choices.toggled(key)
            self._show()

    def action_place(self, places: int) -> None:
        """The chart later, or earlier where below 0."""
        if (key := self.rows.key) is not None:
            keys = self.below.shown.series.keys
            self.below.choices = self.below.choices.moved(keys, key, places)
            self._show()

    def action_reset(self) -> None:
        """All charts, in the order they come in."""
        self.below.choices = self.below.choices.unchosen()
        self._show()

    def action_enlarge(self) -> None:
        if (key := self.rows.key) is not None and key in self.below.keys:
            self.below.enlarge(key)
        self.dismiss()

    def on_row_list_opened(self) -> None:
        self.action_enlarge()

    def action_leave(self) -> None:
        self.dismiss()


def _note(key: str) -> Content:
    """A metric's meaning in full, and what else it is called."""
    known = metric(key)
    range_ = f" Healthy {healthy(known)}." if known.healthy else ""
    names = f" Others call it {', '.join(known.names)}." if known.names else ""
    text = (f"{known.meaning}{range_}", "$foreground"), (names, "$text-muted")
    return Content.assemble((f"{one_line(key, 60)}  ", "bold"), *text)
