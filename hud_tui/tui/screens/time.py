"""TimeScreen: where the time of the last steps went, or of the step under the crosshair; and the
rollouts that no step was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from hud_tui.errors import HudError, HudNotFound
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line, spaced
from hud_tui.rl.time_plot import Timeline, lasts_text
from hud_tui.rl.timeline import REASONS, time_sentence
from hud_tui.tui.keys import OPENS, FootLine
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.screens.dialogs import Over, show_error, show_notice
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.table import Column, RowList, item_row
from hud_tui.tui.widgets.timeline import TimelinePane, about
from hud_tui.wire import Group
from hud_tui.wire_time import Discarded, RunTime

AGAIN_S = 1.0
"""Seconds between two reads while the run goes on."""
MOST = 1000
"""Most discarded rollouts that are listed; the newest."""
STEPS, MOST_STEPS = 8, 128
"""Steps that are shown together at first, and at most."""
UNKNOWN = "This service does not say where the time goes."
NOT_MEASURED = "The time of this step was not measured: an older version took it."
NO_STEP = "No step was taken yet."
NOT_RECORDED = "A recording has neither the texts of rollouts nor those of other batches."
FOOT = (
    "{time.cursor.-1} {time.cursor.1} step  {time.move.-1} {time.move.1} rollout  "
    "{time.open} open  {time.pane.1} pane  {time.order} sort  {time.help} help  {time.leave} back"
)
COLUMNS: Sequence[Column[Discarded]] = (
    Column("reason", 13, lambda item: one_line(item.reason, 40)),
    Column("task", 0, lambda item: one_line(item.task_slug or "–", 100)),
    Column("step", 6, lambda item: _number(item.step), right=True),
    Column("reward", 6, lambda item: short(item.reward), right=True),
    Column("took", 7, lambda item: _took(item.seconds), right=True, rank=1),
    Column("tokens", 7, lambda item: _number(item.num_tokens), right=True, rank=2),
    Column("attempt", 7, lambda item: _number(item.attempt), right=True, rank=4),
    Column("rollout", 8, lambda item: item.trace_id[:8], "$text-muted", rank=3),
)
ORDERS: dict[str, Callable[[Discarded], Any]] = {
    "newest": lambda item: 0,
    "reason": lambda item: list(REASONS).index(item.reason) if item.reason in REASONS else 99,
    "task": lambda item: item.task_slug or "",
    "reward": lambda item: (item.reward is None, item.reward or 0.0),
    "took": lambda item: -(item.seconds or 0.0),
    "tokens": lambda item: -(item.num_tokens or 0),
}
"""The orders of the list; equal ones stay as they are read, newest first."""


def _number(value: int | None) -> str:
    return "–" if value is None else spaced(value)


def _took(seconds: float | None) -> str:
    return "–" if seconds is None else lasts_text(seconds)


class Crosshair(Protocol):
    """A view with a crosshair on a step, as Live."""

    run: Run
    shown: Run
    cursor: int | None

    @property
    def session(self) -> RunSession: ...

    def point(self, row: int) -> None: ...

    def action_cursor(self, steps: int) -> None: ...

    def action_last(self) -> None: ...


class TimeScreen(Over[None]):
    """Moves the crosshair of the view below."""

    VIEW = "time"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, live: Crosshair) -> None:
        super().__init__()
        self.live, self.session = live, live.session
        self.steps = STEPS
        self.order = next(iter(ORDERS))
        self.pane = TimelinePane()
        self.table = RowList(COLUMNS, id="discarded", least=10)
        self._discarded: Sequence[Discarded] = ()
        self._total = -1
        """Discarded rollouts of the run when they were last read."""

    def compose(self) -> ComposeResult:
        with Vertical(id="time") as box:
            box.border_title = "where the time goes"
            yield Static("reading …", id="time-said", markup=False)
            yield self.pane
            yield Static("", id="time-chosen", markup=False)
            yield Static("", id="discarded-said", markup=False)
            yield self.table
            yield FootLine(FOOT, id="time-foot")

    def on_mount(self) -> None:
        self.pane.focus()
        self.read()
        self.set_interval(AGAIN_S, self._again)

    def _again(self) -> None:
        playback = self.session.playback
        loop = self.session.loop
        goes_on = self.live.run.training or (loop is not None and loop.is_active)
        if goes_on or (playback is not None and not playback.ended):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the newest steps of the run, or the one under the crosshair; and the discarded
        rollouts if there are more."""
        run_id, cursor, client = self.session.measured_id, self.live.cursor, self.session.client
        here = None if cursor is None else self.live.shown.series.id_at(cursor)
        if run_id is None:
            self._say(NO_STEP)
            return
        try:
            told = await client.runs.run_time(run_id, self.steps, checkpoint_id=here)
            total = sum(told.discarded.values())
            if total != self._total:
                page = await client.runs.discarded(run_id, MOST)
                self._discarded, self._total = page.items, total
        except HudNotFound:
            self._say(NO_STEP if self.session.replays or not len(self.live.shown.tree) else UNKNOWN)
            return
        except HudError as error:
            self._say(f"Cannot be read: {one_line(error.message)}")
            return
        self.show(told, of_one=bool(here))

    def show(self, told: RunTime, of_one: bool) -> None:
        timeline = Timeline(tuple(told.steps))
        self.pane.show(timeline)
        if not told.steps:
            self._say(NOT_MEASURED if of_one else NO_STEP)
        else:
            self._say(time_sentence(timeline.account))
        self._show_chosen()
        self._show_discarded(told)

    def _say(self, text: str) -> None:
        self.query_one("#time-said", Static).update(text)

    @on(TimelinePane.Chosen)
    def _show_chosen(self) -> None:
        chosen = self.pane.chosen
        text = "" if chosen is None else one_line(about(chosen), 300)
        self.query_one("#time-chosen", Static).update(text)

    def _show_discarded(self, told: RunTime) -> None:
        counts = sorted(told.discarded.items(), key=lambda pair: -pair[1])
        said = [
            one_line(reason, 40) if len(counts) == 1 else f"{spaced(number)} {one_line(reason, 40)}"
            for reason, number in counts
        ]
        total = sum(told.discarded.values())
        of_run = f"{counted(total, 'rollout')} of the run discarded"
        order = "newest first" if self.order == "newest" else f"by {self.order}"
        listed = f" · {spaced(MOST)} listed" if total > MOST else ""
        text = f"{of_run}: {', '.join(said)} · {order}{listed}"
        text = text if total else "None discarded."
        self.query_one("#discarded-said", Static).update(text)
        self._list()

    def _list(self) -> None:
        rows = sorted(self._discarded, key=ORDERS[self.order])
        self.table.show([item_row(COLUMNS, item.trace_id, item) for item in rows])

    # Keys.

    def action_cursor(self, steps: int) -> None:
        self.live.action_cursor(steps)
        self.read()

    def action_first(self) -> None:
        self.live.point(0)
        self.read()

    def action_last(self) -> None:
        self.live.action_last()
        self.read()

    def action_zoom(self, times: int) -> None:
        steps = self.steps // 2 if times > 0 else self.steps * 2
        self.steps = max(1, min(MOST_STEPS, steps))
        self.live.point(self.live.shown.series.length)
        self.read()

    def action_pane(self, by: int) -> None:
        other = self.table if self.pane.has_focus else self.pane
        other.focus()

    def action_move(self, by: int) -> None:
        self.pane.choose(by)

    def action_order(self) -> None:
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self.read()
        self._list()

    @on(TimelinePane.Opened)
    @on(RowList.Opened)
    def action_open(self) -> None:
        if self.table.has_focus:
            row = next((d for d in self._discarded if d.trace_id == self.table.key), None)
            if row is not None:
                self.open(row.trace_id, row.task_slug or "")
            return
        if self.pane.chosen is None:
            self.pane.choose(1)
        elif (chosen := self.pane.chosen) is not None:
            self.open(chosen.trace_id, chosen.task_slug)

    @work(exclusive=True, group=OPENS)
    async def open(self, trace_id: str, task_slug: str) -> None:
        """Show a rollout beside the others of its group."""
        replays = self.session.replays
        try:
            step = self._recorded(task_slug) if replays else await self._group_of(trace_id)
        except HudError as error:
            show_error(self.app, error)
            return
        if step is None:
            show_notice(self.app, NOT_RECORDED)
            return
        client = None if replays else self.session.client
        await self.app.push_screen(GroupScreen(client, step, trace_id=trace_id))

    async def _group_of(self, trace_id: str) -> StepGroups:
        """The rollouts of a task that were sampled with this one. Raises HudError."""
        rollouts = self.session.client.rollouts
        trace = await rollouts.trace(trace_id)
        group = [trace]
        if trace.job_id is not None and trace.step is not None:
            place = trace.task_slug, trace.attempt, trace.group_id
            traces = await rollouts.job_traces(trace.job_id, trace.step)
            group = [t for t in traces if (t.task_slug, t.attempt, t.group_id) == place] or group
        named = f"step {trace.step}" if trace.step is not None else "a rollout"
        told = Group(
            task_slug=trace.task_slug or "",
            rewards=[t.reward or 0.0 for t in group],
            trace_ids=[t.id for t in group],
            num_tokens=[t.num_tokens or 0 for t in group],
        )
        return StepGroups(named, [told], 0, step=trace.step)

    def _recorded(self, task_slug: str) -> StepGroups | None:
        """A group of the step under the crosshair, else of the newest, as its event has it."""
        run, cursor = self.live.shown, self.live.cursor
        here = run.series.tip if cursor is None else run.series.id_at(cursor)
        node = run.tree.node(run.tree.find(here))
        groups = [] if node is None else [g for g in node.groups if g.task_slug == task_slug]
        if node is None or not groups:
            return None
        return StepGroups(f"step {node.step}", groups, 0, node=node, step=node.step)
