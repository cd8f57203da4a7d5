"""BisectPanel: which step of a lineage did the damage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content

from hud_tui.client.bisection import Bisector, Lineage
from hud_tui.client.records import Asked, Record
from hud_tui.errors import HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.bisect import FIRST, USUAL_BUDGET, Bisection, path_between, why_nothing
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.rl.evaluation import Scores
from hud_tui.rl.head import to_known
from hud_tui.rl.metrics import estimate_text
from hud_tui.rl.sides import Side
from hud_tui.rl.text import counted, one_line, percent, spaced
from hud_tui.tui.keys import OPENS, bindings
from hud_tui.tui.screens.base import HudScreen, WritePolicy
from hud_tui.tui.screens.compare import show_changed
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.screens.sampling import SamplingPanel
from hud_tui.tui.screens.set_head import move_head
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.table import Column, RowList, item_row
from hud_tui.wire import Model, WorkState

EXPLAINS = "Both ends first, then always the checkpoint whose evaluation narrows it down the most."
BEGIN = "{bisect.evaluate} evaluates checkpoints between the two until the step is found."
BAR = 12
"""Cells of the bar of how much of the damage is done."""


@dataclass(frozen=True)
class Evaluated:
    name: str
    scores: Scores
    done: float | None
    """How much of the damage is done before it, from 0 to 1; None while that is unknown."""


def _reward(row: Evaluated) -> str:
    return estimate_text(row.scores.mean)


def _done(row: Evaluated) -> Content:
    if row.done is None:
        return Content("–")
    filled = round(BAR * row.done)
    return Content.assemble(("█" * filled, "$warning"), ("·" * (BAR - filled), "$text-muted"))


TABLE: Sequence[Column[Evaluated]] = (
    Column("checkpoint", 0, lambda row: one_line(row.name, 200)),
    Column("mean reward", 17, _reward),
    Column("rollouts", 8, lambda row: spaced(row.scores.rollouts), right=True, rank=1),
    Column("damage done", BAR, _done),
    Column("", 5, lambda row: "" if row.done is None else percent(row.done), right=True, rank=2),
)


class BisectPanel(SamplingPanel[str, Lineage]):
    """What was evaluated between a good and a bad checkpoint, in the order of the lineage, and the
    verdict; closes with the id of the last good checkpoint, to serve it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("bisect")
    HINTS: ClassVar[dict[str, str]] = {
        "cancel_sampling": "{bisect.cancel_sampling} stop",
        "resume_sampling": "{bisect.resume_sampling} go on",
        "evaluate": "{bisect.evaluate} bisect",
        "before_after": "{bisect.before_after} what changed there",
        "set_head": "{bisect.set_head} serve the last good one",
    }

    def __init__(
        self,
        session: RunSession,
        writes: WritePolicy,
        model: Model,
        tree: Tree,
        positions: Sequence[int],
    ) -> None:
        """`positions`: of the lineage, from the good checkpoint to the bad one."""
        self.names = [label(tree.node(position)) for position in positions]
        steps = counted(len(positions) - 1, "step")
        title = f"{steps} from {self.names[0]} to {self.names[-1]}: which one did the damage"
        table = RowList(TABLE, id="sampling-table", least=14)
        super().__init__(title, session, writes, table)
        self.model, self.checkpoints, self.positions = model, tree, positions
        nodes = [tree.node(position) for position in positions]
        self.path = [None if node is None else node.id for node in nodes]
        self._bisector = Bisector(session.works, session.store.directory)
        self.bisection = Bisection(len(positions), {})

    @property
    def bisector(self) -> Bisector:
        """With the present client, which a reconnect replaces."""
        if self._bisector.works is not self.session.works:
            self._bisector = Bisector(self.session.works, self.session.store.directory)
        return self._bisector

    def is_for_this(self, record: Record) -> bool:
        return isinstance(record, Lineage) and record.path == self.path

    async def newest(self) -> Lineage | None:
        return await self.bisector.newest(self.model, self.path)

    async def read_record(self) -> None:
        if self.record is not None:
            self.bisection = await self.bisector.state(self.record)
        search = self.bisection.search
        rows = [
            Evaluated(
                self.names[position], scores, None if search is None else search.done(position)
            )
            for position, scores in sorted(self.bisection.scores.items())
        ]
        self.table.show([item_row(TABLE, row.name, row) for row in rows])
        self.show_said(self.bisection.sentences(self.names.__getitem__))

    def state_text(self) -> str:
        if self.record is None:
            return keyed(BEGIN)
        spent = f"{spaced(self.bisection.rollouts)} of at most {spaced(self.record.budget)}"
        if self.record.is_complete:
            return f"{spent} rollouts were made."
        return keyed(f"Cut short after {spent} rollouts: {{bisect.resume_sampling}} goes on.")

    def budget_dialog(self) -> BudgetDialog:
        title = "Find the step that did it"
        plan = EXPLAINS, USUAL_BUDGET, self._foreseen, self._begin
        return BudgetDialog(self.session, self.model, title, *plan)

    def _foreseen(self, tasks: int, budget: int) -> tuple[str, int]:
        least = 2 * FIRST * tasks
        if budget < least:
            raise HudUsage(f"evaluating both ends takes {counted(least, 'rollout')}")
        return f"{counted(least, 'rollout')} for both ends, then {tasks} at a time", budget

    async def _begin(self, asked: Asked, budget: int) -> Record:
        return await self.bisector.begin(
            self.model, self.checkpoints, self.positions, asked, budget
        )

    def spend(self, record: Lineage) -> AsyncGenerator[WorkState, None]:
        return self.bisector.spend(record)

    async def verdict(self, record: Lineage) -> str:
        bisection = await self.bisector.state(record)
        return bisection.sentences(self.names.__getitem__)[0]

    # Keys.

    @work(exclusive=True, group=OPENS)
    async def action_before_after(self) -> None:
        """What changed at the step that did it: its batch, its tasks, its metrics."""
        if (step := self.bisection.step) is not None:
            before, after = (
                Side(self.checkpoints, self.positions[place], self.model.id)
                for place in (step - 1, step)
            )
            await show_changed(self.app, self.session, before, after)

    def action_set_head(self) -> None:
        if self._last_good is not None:
            self.dismiss(self._last_good)

    @property
    def _last_good(self) -> str | None:
        step = self.bisection.step
        return None if step is None else self.path[step - 1]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        match action:
            case "before_after":
                return self.bisection.step is not None
            case "set_head":
                return self._last_good is not None
        return super().check_action(action, parameters)


async def bisect_and_serve(
    view: HudScreen,
    good: int,
    bad: int,
    show: Callable[[Content], object],
    is_asked: bool = False,
) -> None:
    """Show a bisection between two positions of the followed model's tree, unless what is known
    says that there is no damage; then serve the last good checkpoint, if the user asks for it,
    `show` as in `move_head`. From a worker. `is_asked`: whether the user has named both, whatever
    is known."""
    model, tree = view.run.model, view.run.tree
    if model is None:
        return
    try:
        positions = path_between(tree, good, bad)
    except HudUsage as error:
        view.warn(f"{error.message}.")
        return
    if not is_asked and (why := why_nothing(tree, good, bad)):
        view.warn(why)
        return
    panel = BisectPanel(view.session, view.context.writes, model, tree, positions)
    last_good = await view.app.push_screen_wait(panel)
    if last_good is not None:
        move_head(view, lambda: to_known(view.run, last_good), show)
