"""ChartList: every reported metric, its meaning, and whether and where it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.compare import Branch, Overlay, branch_overlay, branches, model_overlay
from hud_tui.rl.metrics import healthy, metric, outside, short, title
from hud_tui.rl.names import is_shared
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import FootLine, bindings
from hud_tui.tui.layout import Choices
from hud_tui.tui.screens.dialogs import Over
from hud_tui.tui.widgets.row_list import Column, Row, RowList
from hud_tui.wire import Model


class ChartedView(Protocol):
    """What the lists need of the view whose charts they configure."""

    choices: Choices
    focus_key: str

    @property
    def keys(self) -> Sequence[str]: ...

    @property
    def client(self) -> HudClient: ...

    @property
    def shown(self) -> Run: ...

    def enlarge(self, key: str) -> None: ...

    def compare(self, overlay: Overlay | None) -> None: ...


CHART_COLUMNS = (
    Column("", 1),
    Column("metric", 18),
    Column("newest", 7, right=True, rank=2),
    Column("healthy", 9, rank=3),
    Column("what it means"),
)
CHART_FOOT = (
    "{charts.show_or_hide} show or hide  {charts.place.1} {charts.place.-1} move  "
    "{charts.enlarge} enlarge  {charts.reset} reset  {charts.leave} back"
)


class ChartList(Over[None]):
    """Changes apply at once, and are stored."""

    VIEW: ClassVar = "charts"
    BINDINGS: ClassVar[list[BindingType]] = bindings("charts")
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, below: ChartedView) -> None:
        """`below` is the screen whose charts these are."""
        super().__init__()
        self.below = below

    def compose(self) -> ComposeResult:
        with Vertical(id="charts") as box:
            box.border_title = "charts"
            yield RowList(CHART_COLUMNS, id="charts-list", least=20)
            yield Static("", id="charts-note", markup=False)
            yield FootLine(CHART_FOOT, id="charts-foot")

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
        """Move the chart down, or up for negative numbers."""
        if (key := self.rows.key) is not None:
            keys = self.below.shown.series.keys
            self.below.choices = self.below.choices.moved(keys, key, places)
            self._show()

    def action_reset(self) -> None:
        """Show all charts, in the default order."""
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
    """A metric's full meaning, and its other names."""
    known = metric(key)
    range_ = f" Healthy {healthy(known)}." if known.healthy else ""
    names = f" Also called {', '.join(known.names)}." if known.names else ""
    text = (f"{known.meaning}{range_}", "$foreground"), (names, "$text-muted")
    return Content.assemble((f"{one_line(key, 60)}  ", "bold"), *text)


OVERLAY_COLUMNS = (
    Column("compare with"),
    Column("steps", 6, right=True),
    Column("reward", 7, right=True, rank=1),
    Column("diverged at", 14, rank=2),
)
NONE, BRANCH, MODEL = "none", "branch:", "model:"
OVERLAY_FOOT = "{overlays.choose} compare   {overlays.leave} back"
ALONE = "No other branch, and no other model with steps, to compare with."


class OverlayList(Over[None]):
    """Closes once the overlay is shown; Esc keeps the current one."""

    VIEW: ClassVar = "overlays"
    BINDINGS: ClassVar[list[BindingType]] = bindings("overlays")
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, below: ChartedView) -> None:
        """`below` is the screen whose curves are compared."""
        super().__init__()
        self.below = below
        self.branches: Sequence[Branch] = branches(below.shown)
        self.models: Sequence[Model] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="overlays") as box:
            box.border_title = "compare"
            yield RowList(OVERLAY_COLUMNS, id="overlays-list", least=20)
            yield FootLine(OVERLAY_FOOT, id="overlays-foot")

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    @property
    def foot(self) -> FootLine:
        return self.query_one(FootLine)

    def on_mount(self) -> None:
        self._show()
        self.read_models()

    @work(exclusive=True, group="read")
    async def read_models(self) -> None:
        try:
            models = await self.below.client.models()
        except HudError as error:
            self._say(error)
            return
        own = self.below.shown.model
        self.models = [
            model
            for model in models
            if model.is_trainable
            and not is_shared(model)
            and model.checkpoint_count != 0
            and (own is None or model.id != own.id)
        ]
        self._show()
        if not self.models and not self.branches:
            self.foot.say(f"{ALONE}\n{OVERLAY_FOOT}")

    def _show(self) -> None:
        rows = [Row(NONE, (Content("nothing"), Content(), Content(), Content()))]
        if self.branches:
            rows.append(Row("", (Content("branches of this model"),), heading=True))
        rows += [_branch(one) for one in self.branches]
        if self.models:
            rows.append(Row("", (Content("other models"),), heading=True))
        rows += [_model(one) for one in self.models]
        self.rows.show(rows)

    def action_choose(self) -> None:
        key = self.rows.key or ""
        if key == NONE:
            self._lay(None)
        elif key.startswith(BRANCH):
            self._lay(branch_overlay(self.below.shown, int(key.removeprefix(BRANCH))))
        elif key.startswith(MODEL):
            [model] = [one for one in self.models if one.id == key.removeprefix(MODEL)]
            self.lay_model(model)

    def on_row_list_opened(self) -> None:
        self.action_choose()

    @work(exclusive=True, group="read")
    async def lay_model(self, model: Model) -> None:
        """Read the other model's tree, then overlay its curves."""
        self.foot.say("reading its steps …")
        try:
            nodes = await self.below.client.checkpoints(model.id)
        except HudError as error:
            self._say(error)
            return
        self._lay(model_overlay(self.below.shown, model, Tree.of(nodes)))

    def _say(self, error: HudError) -> None:
        self.foot.update(one_line(error.message))

    def _lay(self, overlay: Overlay | None) -> None:
        self.below.compare(overlay)
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()


def _branch(one: Branch) -> Row:
    cells = (one_line(one.name, 60), str(one.steps), one.reward, one_line(one.common, 40))
    return Row(f"{BRANCH}{one.tip}", tuple(map(Content, cells)))


def _model(one: Model) -> Row:
    steps = short(one.checkpoint_count) if one.checkpoint_count is not None else ""
    cells = (one_line(one.model_name, 60), steps, "", "")
    return Row(f"{MODEL}{one.id}", tuple(map(Content, cells)))
