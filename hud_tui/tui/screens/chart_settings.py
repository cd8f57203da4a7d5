"""What a view shows, in lists: Live's charts, what its curves are compared with, Runs' columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from hud_tui.errors import HudError
from hud_tui.rl.checkpoint_tree import Kind, Tree, kind
from hud_tui.rl.compare import Branch, Overlay, branch_overlay, branches, model_overlay
from hud_tui.rl.metrics import ChartOrder, healthy, metric, outside, short, title
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import Column as RunColumn
from hud_tui.rl.run_columns import column
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import FootLine, bindings
from hud_tui.tui.layout import Choices
from hud_tui.tui.screens.base import ViewContext
from hud_tui.tui.screens.dialogs import Over, T
from hud_tui.tui.widgets.row_list import NAME, Arrangement, Column, Row, RowList, RunTable
from hud_tui.wire import Model


class ListBox(Over[T]):
    """A list in a box over the view, with its keys at the foot."""

    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012
    HEADING: ClassVar[str]
    COLUMNS: ClassVar[Sequence[Column]]
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

    def action_leave(self) -> None:
        self.dismiss(None)


class ChartedView(Protocol):
    """What the lists need of the view whose charts they configure."""

    choices: Choices
    charts: ChartOrder
    focus_key: str
    shown: Run
    context: ViewContext

    def enlarge(self, key: str) -> None: ...

    def compare(self, overlay: Overlay | None) -> None: ...


class ChartList(ListBox[None]):
    """Changes apply at once, and are stored."""

    VIEW: ClassVar = "charts"
    BINDINGS: ClassVar[list[BindingType]] = bindings("charts")
    HEADING = "charts"
    COLUMNS = (
        Column("", 1),
        Column("metric", 18),
        Column("newest", 7, right=True, rank=2),
        Column("healthy", 9, rank=3),
        Column("what it means"),
    )
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
        if event.key is not None:
            self.note.update(_note(event.key))

    def action_show_or_hide(self) -> None:
        if (key := self.rows.key) is not None:
            self.below.choices = self.below.choices.toggled(key)
            self._show()

    def action_place(self, places: int) -> None:
        """Move the chart down, or up for negative numbers."""
        if (key := self.rows.key) is not None:
            keys = self.below.shown.series.keys
            self.below.choices = self.below.choices.moved(keys, key, places)
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
    known = metric(key)
    range_ = f" Healthy {healthy(known)}." if known.healthy else ""
    names = f" Also called {', '.join(known.names)}." if known.names else ""
    text = (f"{known.meaning}{range_}", "$foreground"), (names, "$text-muted")
    return Content.assemble((f"{one_line(key, 60)}  ", "bold"), *text)


NONE, BRANCH, MODEL = "none", "branch:", "model:"
ALONE = "No other branch, and no other model with steps, to compare with."


class OverlayList(ListBox[None]):
    """Closes once the overlay is shown; Esc keeps the current one."""

    VIEW: ClassVar = "overlays"
    BINDINGS: ClassVar[list[BindingType]] = bindings("overlays")
    HEADING = "compare"
    COLUMNS = (
        Column("compare with"),
        Column("steps", 6, right=True),
        Column("reward", 7, right=True, rank=1),
        Column("diverged at", 14, rank=2),
    )
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
        others = [one for one in models if own is None or one.id != own.id]
        self.models = [one for one in others if kind(one) is Kind.OWN and one.checkpoint_count != 0]
        self._show()
        if not self.models and not self.branches:
            self.foot.show_text(f"{ALONE}\n{self.FOOT}")

    def _show(self) -> None:
        rows = [Row(NONE, (Content("nothing"), Content(), Content(), Content()))]
        if self.branches:
            rows.append(Row("", (Content("branches of this model"),), heading=True))
        rows += [_branch(one) for one in self.branches]
        if self.models:
            rows.append(Row("", (Content("other models"),), heading=True))
        rows += [_model(one) for one in self.models]
        self.rows.show(rows)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        key = self.rows.key or ""
        if key == NONE:
            self._lay(None)
        elif key.startswith(BRANCH):
            self._lay(branch_overlay(self.below.shown, int(key.removeprefix(BRANCH))))
        elif key.startswith(MODEL):
            [model] = [one for one in self.models if one.id == key.removeprefix(MODEL)]
            self.lay_model(model)

    @work(exclusive=True, group="read")
    async def lay_model(self, model: Model) -> None:
        """Read the other model's tree, then overlay its curves."""
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


def _branch(one: Branch) -> Row:
    cells = (one_line(one.name, 60), str(one.steps), one.reward, one_line(one.common, 40))
    return Row(f"{BRANCH}{one.tip}", tuple(map(Content, cells)))


def _model(one: Model) -> Row:
    steps = short(one.checkpoint_count) if one.checkpoint_count is not None else ""
    cells = (one_line(one.model_name, 60), steps, "", "")
    return Row(f"{MODEL}{one.id}", tuple(map(Content, cells)))


class ArrangedView(Protocol):
    """What the list of columns needs of the view whose table it arranges."""

    table: RunTable
    context: ViewContext

    @property
    def offered(self) -> list[str]: ...

    def rearrange(
        self, shown: Sequence[str] | None = None, sort: str | None = None, group: str | None = None
    ) -> None: ...


class ColumnList(ListBox[None]):
    """Changes apply at once, and are stored."""

    VIEW: ClassVar = "columns"
    BINDINGS: ClassVar[list[BindingType]] = bindings("columns")
    HEADING = "columns"
    COLUMNS = (
        Column("", 1),
        Column("column", 24),
        Column("sorted", 14),
        Column("grouped", 7),
        Column("under the cursor", rank=1),
    )
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
        shown = {one.key: one for one in self.arrangement.columns}
        offered = {key: column(key) for key in self.below.offered}
        self.rows.show([self._row(one, one.key in shown) for one in {**shown, **offered}.values()])

    def _row(self, one: RunColumn, shown: bool) -> Row:
        (key, down), row = self.arrangement.sorted_by, self.below.table.row
        order = ("↓ descending" if down else "↑ ascending") if key == one.key else ""
        text = "" if row is None else one_line(one.text(row, self.below.context.clock()), 60)
        cells = (
            Content("●" if shown else " "),
            Content.styled(one_line(one.title, 60), "" if shown else "$text-disabled"),
            Content.styled(order, "$accent"),
            Content.styled("●" if self.arrangement.group == one.key else "", "$accent"),
            Content.styled(text, "$text-muted"),
        )
        return Row(one.key, cells)

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
        key, keys = self.rows.key, [one.key for one in self.arrangement.columns]
        if key is None or key == NAME:
            self.notify("The name stays: it is what a run is told by.", markup=False)
            return
        self.below.rearrange(shown=[k for k in keys if k != key] if key in keys else [*keys, key])
        self._show()

    def action_place(self, places: int) -> None:
        """Move a shown column to the right, or to the left for negative numbers."""
        key, keys = self.rows.key, [one.key for one in self.arrangement.columns]
        if key is not None and key in keys:
            here = keys.index(key)
            keys.insert(max(0, min(len(keys) - 1, here + places)), keys.pop(here))
            self.below.rearrange(shown=keys)
            self._show()

    def action_next_view(self) -> None:
        key = self.rows.key or ""
        self.below.rearrange(group="" if self.arrangement.group == key else key)
        self._show()

    def action_reset(self) -> None:
        self.below.rearrange(shown=[], sort="", group="")
        self._show()
