"""What a view shows, in lists: Live's charts, what its curves are compared with, Runs' columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from hud_tui.errors import HudError
from hud_tui.rl.checkpoint_tree import Kind, Tree, kind
from hud_tui.rl.compare import Branch, Overlay, branch_overlay, branches, model_overlay
from hud_tui.rl.metrics import ChartOrder, healthy, metric, outside, reading, short, title
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import Column as RunColumn
from hud_tui.rl.run_columns import column
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import FootLine
from hud_tui.tui.layout import Choices
from hud_tui.tui.screens.base import ViewContext
from hud_tui.tui.screens.dialogs import Over, T, show_notice
from hud_tui.tui.widgets.run_table import NAME, Arrangement, RunTable
from hud_tui.tui.widgets.table import DIM, Column, Row, RowList, item_row
from hud_tui.wire import Model


class ListBox(Over[T]):
    """A list in a box over the view, with its keys at the foot."""

    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012
    HEADING: ClassVar[str]
    COLUMNS: ClassVar[Sequence[Column[Any]]]
    FOOT: ClassVar[str]
    """Names keys by their ids, see `FootLine`."""
    BOX, NOTE = "charts", ""
    """Ids of the box, and of the text beneath the list, if there is one."""
    LEAST = 20
    """Least width of the flexible column, cells."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = RowList(self.COLUMNS, id=f"{self.BOX}-list", least=self.LEAST)
        self.note = Static("", id=self.NOTE or None, markup=False)
        self.foot = FootLine(self.FOOT, id=f"{self.BOX}-foot")

    def compose(self) -> ComposeResult:
        with Vertical(id=self.BOX) as box:
            box.border_title = self.HEADING
            yield self.rows
            if self.NOTE:
                yield self.note
            yield self.foot


class ChartedView(Protocol):
    """What the lists need of the view whose charts they configure."""

    choices: Choices
    charts: ChartOrder
    focus_key: str
    shown: Run
    context: ViewContext

    def enlarge(self, key: str) -> None: ...

    def compare(self, overlay: Overlay | None) -> None: ...


@dataclass(frozen=True)
class ChartLine:
    key: str
    newest: float
    is_hidden: bool

    @property
    def tone(self) -> str:
        return "$text-disabled" if self.is_hidden else "$foreground"


def _newest(line: ChartLine) -> Content:
    is_outside = outside(metric(line.key), line.newest)
    newest = reading(line.key, line.newest)
    return Content.styled(newest, "$warning" if is_outside else line.tone)


CHARTS: Sequence[Column[ChartLine]] = (
    Column("", 1, lambda line: " " if line.is_hidden else "●"),
    Column("metric", 18, lambda line: Content.styled(one_line(title(line.key), 60), line.tone)),
    Column("newest", 7, _newest, right=True, rank=2),
    Column("healthy", 9, lambda line: healthy(metric(line.key)), DIM, rank=3),
    Column("what it means", 0, lambda line: metric(line.key).meaning, DIM),
)


class ChartList(ListBox[None]):
    """Changes apply at once, and are stored."""

    VIEW = "charts"
    HEADING = "charts"
    COLUMNS = CHARTS
    FOOT = (
        "{charts.show_or_hide} show or hide  {charts.place.1} {charts.place.-1} move  "
        "{charts.enlarge} enlarge  {charts.reset} reset  {charts.leave} back"
    )
    NOTE = "charts-note"

    def __init__(self, below: ChartedView) -> None:
        super().__init__()
        self.below = below

    def on_mount(self) -> None:
        self._show()
        self.rows.select(self.below.focus_key)

    def _show(self) -> None:
        choices, series = self.below.choices, self.below.shown.series
        keys = choices.arranged(series.keys)
        lines = [ChartLine(key, series.last(key), key in choices.hidden) for key in keys]
        self.rows.show([item_row(CHARTS, line.key, line) for line in lines])

    def on_table_moved(self, event: RowList.Moved) -> None:
        if event.key is not None:
            self.note.update(_note(event.key))

    def action_show_or_hide(self) -> None:
        if (key := self.rows.key) is not None:
            self.below.choices = self.below.choices.toggled(key)
            self._show()

    def action_place(self, steps: int) -> None:
        """Move the chart down, or up for negative numbers."""
        if (key := self.rows.key) is not None:
            keys = self.below.shown.series.keys
            self.below.choices = self.below.choices.moved(keys, key, steps)
            self._show()

    def action_reset(self) -> None:
        self.below.choices = self.below.choices.unchosen()
        self._show()

    @on(RowList.Opened)
    def action_enlarge(self) -> None:
        if (key := self.rows.key) is not None and key in self.below.charts.keys:
            self.below.enlarge(key)
        self.dismiss()


def _note(key: str) -> Content:
    """A metric's full meaning, and its other names."""
    definition = metric(key)
    range_ = f" Healthy {healthy(definition)}." if definition.healthy else ""
    names = f" Also called {', '.join(definition.names)}." if definition.names else ""
    text = (f"{definition.meaning}{range_}", "$foreground"), (names, "$text-muted")
    return Content.assemble((f"{one_line(key, 60)}  ", "bold"), *text)


NONE, BRANCH, MODEL = "none", "branch:", "model:"
ALONE = "No other branch, and no other model with steps, to compare with."


@dataclass(frozen=True)
class OverlayLine:
    """Something that the curves can be compared with."""

    key: str
    name: str
    steps: str = ""
    reward: str = ""
    common: str = ""
    """The step at which it diverged."""


OVERLAYS: Sequence[Column[OverlayLine]] = (
    Column("compare with", 0, lambda line: line.name),
    Column("steps", 6, lambda line: line.steps, right=True),
    Column("reward", 7, lambda line: line.reward, right=True, rank=1),
    Column("diverged at", 14, lambda line: line.common, rank=2),
)


class OverlayList(ListBox[None]):
    """Closes once the overlay is shown; Esc keeps the current one."""

    VIEW = "overlays"
    HEADING = "compare"
    COLUMNS = OVERLAYS
    FOOT = "{overlays.choose} compare   {overlays.leave} back"
    BOX = "overlays"

    def __init__(self, below: ChartedView) -> None:
        super().__init__()
        self.below, self.client = below, below.context.session.client
        self.branches: Sequence[Branch] = branches(below.shown)
        self.models: Sequence[Model] = ()

    def on_mount(self) -> None:
        self._show()
        self.read_models()

    @work(exclusive=True, group="read")
    async def read_models(self) -> None:
        try:
            models = await self.client.models()
        except HudError as error:
            self.foot.update(one_line(error.message))
            return
        own = self.below.shown.model
        others = [model for model in models if own is None or model.id != own.id]
        self.models = [
            model for model in others if kind(model) is Kind.OWN and model.checkpoint_count != 0
        ]
        self._show()
        if not self.models and not self.branches:
            self.foot.show_text(f"{ALONE}\n{self.FOOT}")

    def _show(self) -> None:
        rows = [_overlay(OverlayLine(NONE, "nothing"))]
        if self.branches:
            rows.append(Row("", (Content("branches of this model"),), heading=True))
        for branch in self.branches:
            name, common = one_line(branch.name, 60), one_line(branch.common, 40)
            key, steps = f"{BRANCH}{branch.tip}", str(branch.steps)
            rows.append(_overlay(OverlayLine(key, name, steps, branch.reward, common)))
        if self.models:
            rows.append(Row("", (Content("other models"),), heading=True))
        for model in self.models:
            count, name = model.checkpoint_count, one_line(model.model_name, 60)
            steps = "" if count is None else short(count)
            rows.append(_overlay(OverlayLine(f"{MODEL}{model.id}", name, steps)))
        self.rows.show(rows)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        key = self.rows.key or ""
        if key == NONE:
            self._lay(None)
        elif key.startswith(BRANCH):
            self._lay(branch_overlay(self.below.shown, int(key.removeprefix(BRANCH))))
        elif key.startswith(MODEL):
            [model] = [model for model in self.models if model.id == key.removeprefix(MODEL)]
            self.lay_model(model)

    @work(exclusive=True, group="read")
    async def lay_model(self, model: Model) -> None:
        self.foot.show_text("reading its steps …")
        try:
            nodes = await self.client.checkpoints(model.id)
        except HudError as error:
            self.foot.update(one_line(error.message))
            return
        self._lay(model_overlay(self.below.shown, model, Tree.of(nodes)))

    def _lay(self, overlay: Overlay | None) -> None:
        self.below.compare(overlay)
        self.dismiss()


def _overlay(line: OverlayLine) -> Row:
    return item_row(OVERLAYS, line.key, line)


class ArrangedView(Protocol):
    """What the list of columns needs of the view whose table it arranges."""

    table: RunTable
    context: ViewContext

    @property
    def offered(self) -> list[str]: ...

    def rearrange(
        self, shown: Sequence[str] | None = None, sort: str | None = None, group: str | None = None
    ) -> None: ...


@dataclass(frozen=True)
class ColumnLine:
    column: RunColumn
    is_shown: bool
    arrangement: Arrangement
    text: str
    """Its text for the run under the cursor."""


def _order(line: ColumnLine) -> str:
    key, down = line.arrangement.sorted_by
    order = "↓ descending" if down else "↑ ascending"
    return order if key == line.column.key else ""


def _column_title(line: ColumnLine) -> Content:
    style = "" if line.is_shown else "$text-disabled"
    return Content.styled(one_line(line.column.title, 60), style)


RUN_COLUMNS: Sequence[Column[ColumnLine]] = (
    Column("", 1, lambda line: "●" if line.is_shown else " "),
    Column("column", 22, _column_title),
    Column("sorted", 14, _order, "$accent"),
    Column("grouped", 7, lambda line: "●" * (line.arrangement.group == line.column.key), "$accent"),
    Column("under the cursor", 0, lambda line: line.text, DIM, rank=1),
)


class ColumnList(ListBox[None]):
    """Changes apply at once, and are stored."""

    VIEW = "columns"
    HEADING = "columns"
    COLUMNS = RUN_COLUMNS
    FOOT = (
        "{columns.choose} sort  {columns.show_or_hide} show or hide  "
        "{columns.place.-1} {columns.place.1} move  {columns.next_view} group  "
        "{columns.reset} reset  {columns.leave} back"
    )
    NOTE, LEAST = "columns-note", 12

    def __init__(self, below: ArrangedView) -> None:
        super().__init__()
        self.below = below

    @property
    def arrangement(self) -> Arrangement:
        return self.below.table.arrangement

    def on_mount(self) -> None:
        self._show()
        self.rows.select(self.arrangement.sorted_by[0] or NAME)

    def _show(self) -> None:
        row, now, rows = self.below.table.row, self.below.context.clock(), list[Row]()
        shown = {run_column.key: run_column for run_column in self.arrangement.columns}
        offered = {key: column(key) for key in self.below.offered}
        for key, run_column in {**shown, **offered}.items():
            text = "" if row is None else one_line(run_column.text(row, now), 60)
            line = ColumnLine(run_column, key in shown, self.arrangement, text)
            rows.append(item_row(RUN_COLUMNS, key, line))
        self.rows.show(rows)

    @on(RowList.Moved)
    def _show_meaning(self) -> None:
        key = self.rows.key
        self.note.update("" if key is None else column(key).meaning)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        if (key := self.rows.key) is not None:
            self.below.rearrange(sort=self.arrangement.sorting(column(key)))
            self._show()

    def action_show_or_hide(self) -> None:
        key, keys = self.rows.key, [run_column.key for run_column in self.arrangement.columns]
        if key is None or key == NAME:
            show_notice(self.app, "The name stays: runs are identified by it.")
            return
        self.below.rearrange(shown=[k for k in keys if k != key] if key in keys else [*keys, key])
        self._show()

    def action_place(self, steps: int) -> None:
        """Move a shown column to the right, or to the left for negative numbers."""
        key, keys = self.rows.key, [run_column.key for run_column in self.arrangement.columns]
        if key is not None and key in keys:
            here = keys.index(key)
            keys.insert(max(0, min(len(keys) - 1, here + steps)), keys.pop(here))
            self.below.rearrange(shown=keys)
            self._show()

    def action_next_view(self) -> None:
        key = self.rows.key or ""
        self.below.rearrange(group="" if self.arrangement.group == key else key)
        self._show()

    def action_reset(self) -> None:
        self.below.rearrange(shown=[], sort="", group="")
        self._show()
