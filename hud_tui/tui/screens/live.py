"""LiveScreen: watch the run; cancel or resume it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on, work
from textual.containers import Container, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.client.replay import Playback
from hud_tui.keys import Action, keyed
from hud_tui.rl.bisect import before_damage
from hud_tui.rl.changed import pair_at, weights_at
from hud_tui.rl.chart import ChartData
from hud_tui.rl.checkpoint_tree import ROOT
from hud_tui.rl.compare import LEAST_STEPS, ChartView, Overlay
from hud_tui.rl.curves import WEIGHTS, Sign, signs
from hud_tui.rl.export import Sheet, groups_sheet, metrics_sheet
from hud_tui.rl.groups import Order
from hud_tui.rl.metrics import ChartOrder, Movement, order_charts
from hud_tui.rl.run import Run
from hud_tui.rl.sides import Side
from hud_tui.rl.work import Work
from hud_tui.tui.job_actions import Ask, act, ask_cancel, ask_resume, of_session
from hud_tui.tui.keys import OPENS, ClickableText, Need, pressed
from hud_tui.tui.layout import FILE, Choices, read_choices, write_changes
from hud_tui.tui.screens.base import HudScreen, TextPanel, ViewContext
from hud_tui.tui.screens.bisect import bisect_and_serve
from hud_tui.tui.screens.chart_settings import ChartList, OverlayList
from hud_tui.tui.screens.compare import show_changed
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.time import TimeScreen
from hud_tui.tui.widgets.chart import MetricGrid, RunChart
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.tui.widgets.run_status import ConstantLine, EventLog, Reason, RunStatus, run_facts

REWARD = "reward_mean"
"""The metric of the focus chart until another is chosen."""
NO_PAN = "All steps are shown: zoom in ({live.zoom.1}) to pan."


KINDS: dict[str, type[LinesView]] = {"metrics": MetricGrid, "groups": GroupGrid, "events": EventLog}
PANES = tuple(KINDS)


WIDTHS = [(0, "-narrow"), (160, "-wide")]
HEIGHTS = [(0, "-tiny"), (18, "-short"), (28, "-middle"), (32, "-tall"), (50, "-taller")]
REPLAY = (
    *("play", "replay_step(1)", "replay_step(-1)"),
    *("replay_speed(1)", "replay_speed(-1)", "replay_to"),
)
"""Actions on a replay's clock."""
PLAYING = ("play", "replay_speed(-1)", "replay_speed(1)", "replay_to")
"""Those that the last line names first while it plays."""
VIEW_ACTIONS = frozenset(
    {
        *("leave", "open", "cursor", "first", "last", "smooth", "axis", "log", "outliers"),
        *("charts", "compare", "zoom", "pan", "follow", "next_view", "order", "mark"),
        "before_after",
        *("pane", "move", "page", "edge"),
    }
)
"""Actions that only change how a run is displayed."""
CHART_HINTS = (
    *("cursor(-1)", "open", "before_after", "bisect", "pane(1)", "follow", "details"),
    *("smooth(1)", "compare"),
    "zoom(1)",
    "zoom(-1)",
    *("cancel_run", "resume_run", "leave", "time", "next_view", "zoom(0)", "charts", "axis", "log"),
    "outliers",
)
HINTS: dict[str, tuple[str, ...]] = {
    "metrics": CHART_HINTS,
    "groups": (
        *("open", "next_view", "pane(1)", "order", "cursor(-1)", "follow", "zoom(1)", "zoom(-1)"),
        *("cancel_run", "resume_run", "leave"),
    ),
    "events": ("open", "pane(1)", "follow", "cancel_run", "resume_run", "leave"),
}


class LiveScreen(HudScreen):
    """The charts, groups and events of `shown`: the run, or what it was when frozen."""

    shown: reactive[Run] = reactive(Run, repaint=False)
    chart_view: reactive[ChartView] = reactive(ChartView, repaint=False)
    choices: reactive[Choices] = reactive(Choices, repaint=False)
    charts: reactive[ChartOrder] = reactive(ChartOrder, repaint=False)
    hidden: reactive[int] = reactive(0, repaint=False)
    focus_key: reactive[str] = reactive(REWARD, repaint=False)
    opened: reactive[str] = reactive("", repaint=False)
    """Id of the alarm whose metric it is, if one was opened; for as long as this model is
    selected."""
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""
    signs: reactive[dict[int, Sign]] = reactive[dict[int, Sign]](dict, repaint=False)
    """What happened at a step, by its row."""
    AUTO_FOCUS: ClassVar[str | None] = ""
    """No auto-focus; the last focused pane is restored."""
    pane: reactive[str] = reactive(PANES[0], repaint=False)
    """The pane with the focus; on small screens the only visible one."""
    full: reactive[bool] = reactive(False, repaint=False)
    """Whether that pane fills the view."""
    VIEW = "live"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    frozen: reactive[bool] = reactive(False, repaint=False)

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.chart_data = ChartData()
        self._movement = Movement()
        self.groups = GroupGrid()
        self._requested = REWARD
        """The metric for the focus chart once the run reports it."""
        self._pointed: str | None = None
        """Id of the step that the crosshair was moved to here."""
        self.marked: str | None = None
        """Id of the step that is marked to be compared with another."""

    def watch_choices(self, before: Choices, now: Choices) -> None:
        if (before.order, before.hidden) != (now.order, now.hidden):
            self._arrange()
        if self.is_mounted:
            write_changes(self.session.store, FILE, now, before)

    def watch_chart_view(self, chart_view: ChartView) -> None:
        self.choices = self.choices.seen_through(chart_view)
        self.renew_hints()

    def watch_cursor(self) -> None:
        self.renew_hints()

    def _arrange(self) -> None:
        run = self.shown
        keys = self.choices.shown(run.series.keys)
        if self._requested in keys:
            self.focus_key = self._requested
        elif self.focus_key not in keys and keys:
            self.focus_key = keys[0]
        moved = self._movement.of(run.series)
        self.charts = order_charts(keys, list(run.alarms.by_metric), moved, self.focus_key)
        self.hidden = len(run.series.keys) - len(keys)

    @on(MetricGrid.Chosen)
    def focus_metric(self, message: MetricGrid.Chosen) -> None:
        self.enlarge(message.key)

    def enlarge(self, key: str) -> None:
        self.context.layout.arrange(chart=key)
        self._request(key)

    def _request(self, key: str, opened: str = "") -> None:
        self._requested, self.opened = key, opened
        self._arrange()

    def action_cursor(self, steps: int) -> None:
        """Move the crosshair by steps; past the newest it follows again.

        More than one step is at least that many thousandths of the visible range.
        """
        length = self.shown.series.length
        first, stop = self.chart_view.rows(length)
        leap = max(1, (stop - first) // 1000) if abs(steps) > 1 else 1
        start = length if self.cursor is None else self.cursor
        self.point(start + steps * leap)

    def action_first(self) -> None:
        self.point(self.chart_view.rows(self.shown.series.length)[0])

    @on(FocusChart.Scaled)
    def scale(self, message: FocusChart.Scaled) -> None:
        length = self.shown.series.length
        self.chart_view = self.chart_view.scaled(message.factor, length, message.row, message.share)

    @on(FocusChart.Spanned)
    def span(self, message: FocusChart.Spanned) -> None:
        self.chart_view = self.chart_view.spanning(
            message.first, message.last, self.shown.series.length
        )

    @on(FocusChart.Panned)
    def pan_chart(self, message: FocusChart.Panned) -> None:
        self.chart_view = self.chart_view.panned(message.halves, self.shown.series.length)

    @on(RunChart.Pointed)
    @on(GroupGrid.Pointed)
    def point_here(self, message: RunChart.Pointed | GroupGrid.Pointed) -> None:
        self.point(message.row)

    def point(self, row: int) -> None:
        """Move the crosshair to a row, in every view."""
        series = self.shown.series
        self.cursor = None if row >= series.length or not series.length else max(0, row)
        self.session.checkpoint_id = None if self.cursor is None else series.id_at(self.cursor)
        self._pointed = self.session.checkpoint_id
        if self.cursor is not None:
            self.chart_view = self.chart_view.showing(self.cursor, series.length)

    def _find_cursor(self) -> None:
        """Keep the crosshair on its step; remove it if the lineage no longer has the step. One that
        another view left on the newest step follows the next ones."""
        if not self.is_mounted or not self.is_current:
            return
        if self.session.checkpoint_id == self.shown.series.tip != self._pointed:
            self.session.checkpoint_id = None
        self.cursor = self.shown.row_of(self.session.checkpoint_id)

    def _find_signs(self) -> None:
        if self.is_mounted and self.shown.model is not None:
            self.signs = signs(self.shown, self.marked)

    def action_smooth(self, step: int) -> None:
        smoothing = min(len(WEIGHTS) - 1, max(0, self.chart_view.smoothing + step))
        self.chart_view = replace(self.chart_view, smoothing=smoothing)

    def action_log(self) -> None:
        self.chart_view = replace(self.chart_view, log=not self.chart_view.log)

    def action_axis(self) -> None:
        self.chart_view = replace(self.chart_view, axis=self.chart_view.axis.following)

    def action_outliers(self) -> None:
        self.chart_view = replace(self.chart_view, clip=not self.chart_view.clip)

    def action_next_view(self) -> None:
        """Another face of the groups, or the curves with or without range."""
        groups = self.groups
        if self.pane == "groups":
            groups.face = groups.face.following
        elif self.pane == "metrics":
            self.chart_view = replace(self.chart_view, envelope=not self.chart_view.envelope)

    def action_zoom(self, times: int) -> None:
        """Zoom in or out; 0 shows the whole run."""
        if times:
            chart_view = self.chart_view.zoomed(times, self.shown.series.length, self.cursor)
        else:
            chart_view = replace(self.chart_view, span=None, end=None)
        closest = f"Cannot zoom in further: at least {LEAST_STEPS} steps are shown."
        self._show_range(chart_view, closest if times > 0 else "All steps are shown.")

    def action_details(self) -> None:
        run = self.run
        self.app.push_screen(TextPanel("Run", lambda width: run_facts(run)))

    def action_time(self) -> None:
        self.app.push_screen(TimeScreen(self))

    def action_charts(self) -> None:
        self.app.push_screen(ChartList(self))

    def action_compare(self) -> None:
        self.app.push_screen(OverlayList(self))

    def action_mark(self) -> None:
        """Mark the step under the crosshair, or the newest, to compare it; or unmark it."""
        series = self.shown.series
        here = None if self.cursor is None else series.id_at(self.cursor)
        here = here or series.tip
        self.marked = None if here == self.marked else here
        self._find_signs()

    @work(exclusive=True, group=OPENS)
    async def action_before_after(self) -> None:
        """What changed from the marked step to this one, or at this step, or where the alarm of
        the large chart began."""
        pair, model = self._pair(), self.shown.model
        if pair is None or model is None:
            self.notice("No step was taken yet: there is nothing to compare.")
            return
        before, after = (Side(self.shown.tree, position, model.id) for position in pair)
        await show_changed(self.app, self.session, before, after)

    @work(exclusive=True, group="bisect")
    async def action_bisect(self) -> None:
        """Find the step that did the damage: between the marked step and this one, or where the
        alarm of the large chart began, or before this step."""
        pair, tree = self._pair(), self.shown.tree
        if pair is None:
            self.notice("No step was taken yet: there is nothing to bisect.")
            return
        good, bad = pair
        if tree.depth(bad) - tree.depth(good) <= 1:
            good = before_damage(tree, bad)
        is_asked = self.marked is not None and good == pair[0]
        await bisect_and_serve(
            self, good, bad, lambda said: self.notice(said.plain), is_asked=is_asked
        )

    def _pair(self) -> tuple[int, int] | None:
        """Positions of the two checkpoints to compare; None without steps."""
        run, key = self.shown, self.focus_key
        marked = run.row_of(self.marked)
        row = run.series.length - 1 if self.cursor is None else self.cursor
        if marked is None or marked == row:
            return pair_at(run, key, self.cursor, self.opened)
        sides = (weights_at(run, key, each) for each in sorted((marked, row)))
        before, after = (ROOT if position is None else position for position in sides)
        return before, after

    def compare(self, overlay: Overlay | None) -> None:
        self.chart_view = replace(self.chart_view, overlay=overlay)

    def action_pan(self, halves: int) -> None:
        chart_view = self.chart_view.panned(halves, self.shown.series.length)
        end = "The first steps are shown." if halves < 0 else "The newest steps are shown."
        self._show_range(chart_view, keyed(NO_PAN) if self.chart_view.span is None else end)

    def _show_range(self, chart_view: ChartView, why_not: str) -> None:
        """Show another range of steps; if it does not change, show why."""
        length = self.shown.series.length
        if chart_view.rows(length) == self.chart_view.rows(length):
            self.notice(why_not)
        self.chart_view = chart_view

    # The panes: focus, and stored layout.

    @property
    def metrics(self) -> MetricGrid:
        return self.query_one(MetricGrid)

    @property
    def focused_pane(self) -> LinesView:
        return self.query_one(KINDS[self.pane])

    def on_mount(self) -> None:
        groups = self.groups
        layout = self.context.layout
        self.watch(groups, "face", self._store_face, init=False)
        self.watch(groups, "order", lambda order: layout.arrange(order=order), init=False)

    def update_loop(self, loop: Work | None) -> None:
        super().update_loop(loop)
        if self.is_built:
            self.query_one(RunStatus).loop = loop

    def resume(self) -> None:
        """The crosshair and the head may have moved in another view."""
        self._find_cursor()
        self._find_signs()
        chart, alarm = self.context.layout.now.chart, self.session.opened
        if self.is_mounted and (alarm or (chart != self._requested and not self.opened)):
            self.session.opened, self.full = None, False
            self._request(alarm.metric if alarm else chart, alarm.id if alarm else "")
            self.show_pane("metrics")
        if self.is_mounted and self.focused is None:
            self.show_pane(self.pane)

    # The curves, their range and smoothing, and the crosshair.

    def lay_out(self) -> None:
        layout, groups = self.context.layout.now, self.groups
        self.choices = read_choices(self.session.store)
        self.chart_view = self.choices.chart_view
        self._requested = layout.chart
        self._arrange()
        self.full, groups.face, groups.order = layout.full_pane, layout.face, layout.order
        self.show_pane(layout.pane)

    def _store_face(self, face: Face) -> None:
        self.renew_hints()
        self.context.layout.arrange(face=face)

    def watch_pane(self, pane: str) -> None:
        for name in PANES:
            self.set_class(name == pane, f"-on-{name}")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        names: dict[type[Widget], str] = {kind: name for name, kind in KINDS.items()}
        self.pane = names.get(type(event.widget), self.pane)
        if self.pane != "groups":
            self.groups.pinned = None
        self.context.layout.arrange(pane=self.pane)

    def action_pane(self, step: int) -> None:
        self.show_pane(PANES[(PANES.index(self.pane) + step) % len(PANES)])

    def watch_full(self, full: bool) -> None:
        self.set_class(full, "-full")
        self.renew_hints()
        if self.is_mounted:
            self.context.layout.arrange(full_pane=full)

    def action_leave(self) -> None:
        """Leave one layer: the full pane, the groups' step, the crosshair, the comparison."""
        groups = self.groups
        if self.full:
            self.full = False
        elif groups.pinned is not None:
            groups.pinned = None
        elif self.cursor is not None:
            self.action_last()
        else:
            self.compare(None)

    def action_last(self) -> None:
        self.point(self.shown.series.length)
        self.groups.pinned = None

    def show_pane(self, pane: str) -> None:
        self.pane = pane
        if self.is_attached and (widget := self.query_one_optional(KINDS[pane])):
            widget.focus()

    def action_move(self, columns: int, rows: int) -> None:
        if self.pane == "metrics":
            self.metrics.move(columns, rows)
        else:
            self._move_rows(rows)

    def action_page(self, pages: int) -> None:
        if self.pane == "metrics":
            self.metrics.move_page(pages)
        else:
            self._move_rows(pages * self.focused_pane.page)

    def action_edge(self, way: int) -> None:
        """Scroll to the top of the pane for negative numbers, else to its end."""
        if self.pane == "metrics":
            self.metrics.move_to(0 if way < 0 else len(self.charts.charted) - 1)
        else:
            self._move_rows(way * self.focused_pane.count)

    def _move_rows(self, rows: int) -> None:
        """Move the cursor among the groups, or scroll another pane."""
        if self.pane == "groups":
            self.groups.move(rows)
        else:
            self.focused_pane.scroll_rows(rows)

    @on(MetricGrid.Opened)
    def action_open(self) -> None:
        """Enlarge the pane; from the charts go to the groups of the step, then into a group."""
        if self.pane == "groups":
            self.groups.open()
        elif self.pane == "metrics" and (self.full or self.cursor is not None):
            self.show_pane("groups")
        else:
            self.full = True

    @on(FocusChart.Opened)
    def show_step(self) -> None:
        """Show the groups of the step that was clicked twice."""
        self.show_pane("groups")

    def go_to(self, name: str) -> None:
        """Move the cursor to a task's group: of this step, else of the last that has one."""
        groups = self.groups
        groups.face = Face.REWARDS
        step = groups.groups_of(name) or groups.last_of(name)
        node = None if step is None else step.node
        if node is not None and node is not groups.groups.node:
            self.session.checkpoint_id = node.id
            self._find_cursor()
        self.show_pane("groups")
        groups.picked = name
        self.call_after_refresh(groups.move, 0)

    def action_order(self) -> None:
        groups = self.groups
        groups.order = Order.TASK if groups.order is Order.SIGNAL else Order.SIGNAL

    @on(GroupGrid.Opened)
    def open_group(self, message: GroupGrid.Opened) -> None:
        """Open a group; while its step is sampled, its rollouts are added as they come."""
        client = None if self.session.replays else self.session.client
        self.app.push_screen(GroupScreen(client, message.found, self.groups))

    # The view: widgets, run, following.

    def body(self) -> Iterable[Widget]:
        here = LiveScreen
        steps = {"run": here.shown, "chart_view": here.chart_view, "cursor": here.cursor}
        yield RunStatus().data_bind(run=here.run, freshness=here.freshness)
        yield Reason().data_bind(run=here.run, freshness=here.freshness)
        yield ClickableText(id="nothing")
        with Vertical(id="panes"):
            yield FocusChart(self.chart_data).data_bind(
                key=here.focus_key, opened=here.opened, signs=here.signs, **steps
            )
            yield MetricGrid(self.chart_data).data_bind(
                charts=here.charts, hidden=here.hidden, chosen=here.focus_key, **steps
            )
            yield ConstantLine().data_bind(run=here.shown, charts=here.charts)
            with Container(id="foot"):
                yield self.groups.data_bind(**steps)
                yield EventLog().data_bind(run=here.shown, pane=here.pane)

    def watch_run(self, before: Run, run: Run) -> None:
        self._show_time()
        if run.model_id != before.model_id:
            self.frozen, self.marked = False, None
            self.compare(None)
            if self.focus_key in before.alarms.by_metric and not self.opened:
                self.context.layout.arrange(chart=REWARD)
            self._request(self.context.layout.now.chart)
        if not self.frozen:
            self.shown = run
        if _job_state(run) != _job_state(before):
            self.refresh_bindings()

    def watch_shown(self, run: Run) -> None:
        self._arrange()
        self._find_cursor()
        self._find_signs()
        nothing = nothing_yet(run)
        if self.has_class("-nothing") != (nothing is not None):
            self.set_class(nothing is not None, "-nothing")
            self.refresh_bindings()
        if nothing is not None and (line := self.query_one_optional("#nothing", Static)):
            line.update(nothing)

    def watch_frozen(self, frozen: bool) -> None:
        if status := self.query_one_optional(RunStatus):
            status.frozen = self.shown if frozen else None
        if not frozen:
            self.shown = self.run

    def sheet(self) -> Sheet:
        """The groups if that pane has the focus; else all metrics, in the charts' order."""
        if self.pane == "groups":
            return groups_sheet(self.shown)
        return metrics_sheet(self.shown, self.charts.keys)

    def action_follow(self) -> None:
        self.frozen = not self.frozen

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        by_name = {action.name: action for action in actions}
        playback = self.session.playback
        first = () if playback is None else REPLAY[:3] if playback.paused else PLAYING
        names = dict.fromkeys((*first, *HINTS[self.pane], *REPLAY))
        return [by_name[name] for name in names if name in by_name and self.can(name)]

    def _has_more_to_zoom(self) -> bool:
        first, stop = self.chart_view.rows(self.shown.series.length)
        return stop - first > LEAST_STEPS

    def _has_to_leave(self) -> bool:
        """Whether anything is enlarged, compared, under the crosshair or pinned."""
        above = (self.chart_view.overlay, self.cursor, self.groups.pinned)
        return self.full or any(each is not None for each in above)

    NEEDS: ClassVar[Mapping[str, Need[LiveScreen]]] = {
        "open": Need(lambda view: not (view.pane == "events" and view.full)),
        "order": Need(lambda view: view.groups.face is Face.REWARDS),
        "zoom(1)": Need(_has_more_to_zoom),
        **dict.fromkeys(
            ("zoom(-1)", "zoom(0)"), Need(lambda view: view.chart_view.span is not None)
        ),
        "leave": Need(_has_to_leave),
    }

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions without an object are disabled."""
        job = self.run.job
        if self.has_class("-nothing") and action in VIEW_ACTIONS:
            return False
        if action == "play" or action.startswith("replay_"):
            return self.session.replays
        if action == "cancel_run":
            return job is not None and job.id is not None and not Work.of(job).why_no_cancel
        if action == "resume_run":
            return job is not None and job.id is not None and not Work.of(job).why_no_resume
        if action == "copy":
            return job is not None and job.id is not None
        return super().check_action(action, parameters)

    # A replay: pause, step, go to a step, speed.

    def _replay(self, change: Callable[[Playback], None]) -> None:
        self.session.replay(change)
        self._show_time()

    def _show_time(self) -> None:
        playback, status = self.session.playback, self.query_one_optional(RunStatus)
        if playback is not None and status is not None:
            if status.played[:1] != playback.state_text[:1]:
                self.call_later(self.renew_hints)
            status.played = playback.state_text

    def action_play(self) -> None:
        self._replay(lambda playback: playback.toggle())

    def action_replay_step(self, steps: int) -> None:
        self._replay(lambda playback: playback.move(steps))

    def action_replay_speed(self, times: int) -> None:
        self._replay(lambda playback: playback.faster(times))

    @work(exclusive=True, group="act")
    async def action_replay_to(self) -> None:
        if (playback := self.session.playback) is None:
            return
        last = playback.last_step

        def check(text: str) -> str:
            fine = text.isdecimal() and int(text[:12]) <= last
            return "" if fine else f"Expected a step from 0 to {last}."

        lines = [f"The recording goes up to step {last}; step {playback.step} is shown."]
        dialog = InputDialog("Go to a step of the replay", lines, "Go", check=check)
        if (text := await self.app.push_screen_wait(dialog)) is not None:
            self._replay(lambda playback: playback.go_to(int(text)))

    def action_copy(self) -> None:
        if (job := self.run.job) is not None and job.id is not None:
            self.copy(job.id)

    def action_cancel_run(self) -> None:
        self._act(ask_cancel)

    def action_resume_run(self) -> None:
        self._act(ask_resume)

    @work(exclusive=True, group="act")
    async def _act(self, ask: Ask) -> None:
        if (job := self.run.job) is not None:
            await act(self, ask, of_session(self.session, job))


def _job_state(run: Run) -> tuple[str | None, ...]:
    """What decides which actions the run's job has."""
    job = run.job
    return () if job is None else (job.id, job.kind, job.status)


def nothing_yet(run: Run) -> Content | None:
    """What to press if there is nothing to watch yet; None otherwise."""
    if run.model is None:
        return Content.assemble(
            "No model yet. Press ", pressed("app.view.models"), " to choose one."
        )
    if not run.loaded:
        return Content("Reading the checkpoint tree …")
    if run.job is None and not len(run.series.keys):
        return Content.assemble("No run yet. Press ", pressed("app.view.launch"), " to launch one.")
    return None
