"""OverlayList: which branch or which model to lay over the run's curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content

from hud_tui.errors import HudError
from hud_tui.rl.metrics import short
from hud_tui.rl.model_checks import is_shared
from hud_tui.rl.overlay import Branch, Overlay, branches, over_branch, over_model
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import Tree
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.over import Over
from hud_tui.tui.widgets.clickable_text import FootLine
from hud_tui.tui.widgets.row_list import Column, Row, RowList

if TYPE_CHECKING:
    from hud_tui.tui.screens.charting import ChartingScreen
    from hud_tui.wire import Model

COLUMNS = (
    Column("compare with"),
    Column("steps", 6, right=True),
    Column("reward", 7, right=True, rank=1),
    Column("parted at", 14, rank=2),
)
NONE, BRANCH, MODEL = "none", "branch:", "model:"
FOOT = "{overlays.choose} lays it over the curves   {overlays.leave} back"
ALONE = "There is no other branch yet, and no other model has steps."


class OverlayList(Over[None]):
    """Closes once the curves are laid over; what was there stays where the user leaves."""

    VIEW: ClassVar = "overlays"
    BINDINGS: ClassVar[list[BindingType]] = bindings("overlays")
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, below: ChartingScreen) -> None:
        """`below` is the screen whose curves are compared."""
        super().__init__()
        self.below = below
        self.branches: Sequence[Branch] = branches(below.shown)
        self.models: Sequence[Model] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="overlays") as box:
            box.border_title = "compare"
            yield RowList(COLUMNS, id="overlays-list", least=20)
            yield FootLine(FOOT, id="overlays-foot")

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
            self.foot.say(f"{ALONE}\n{FOOT}")

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
            self._lay(over_branch(self.below.shown, int(key.removeprefix(BRANCH))))
        elif key.startswith(MODEL):
            [model] = [one for one in self.models if one.id == key.removeprefix(MODEL)]
            self.lay_model(model)

    def on_row_list_opened(self) -> None:
        self.action_choose()

    @work(exclusive=True, group="read")
    async def lay_model(self, model: Model) -> None:
        """Read the other model's tree, then lay its curves over."""
        self.foot.say("reading its steps …")
        try:
            nodes = await self.below.client.checkpoints(model.id)
        except HudError as error:
            self._say(error)
            return
        self._lay(over_model(self.below.shown, model, Tree.of(nodes)))

    def _say(self, error: HudError) -> None:
        self.foot.update(one_line(error.message))

    def _lay(self, overlay: Overlay | None) -> None:
        self.below.compare(overlay)
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()


def _branch(one: Branch) -> Row:
    cells = (one_line(one.name, 60), str(one.steps), one.reward, one_line(one.parted, 40))
    return Row(f"{BRANCH}{one.tip}", tuple(map(Content, cells)))


def _model(one: Model) -> Row:
    steps = short(one.checkpoint_count) if one.checkpoint_count is not None else ""
    cells = (one_line(one.model_name, 60), steps, "", "")
    return Row(f"{MODEL}{one.id}", tuple(map(Content, cells)))
