"""LiveScreen: watch the run, and stop it or take it up again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.keys import keyed
from hud_tui.rl.compare import Overlay
from hud_tui.rl.curves import WEIGHTS
from hud_tui.rl.export import Sheet, groups_sheet, metrics_sheet
from hud_tui.rl.groups import Order
from hud_tui.rl.run import Run
from hud_tui.tui.job_actions import RESUMABLE, cancel, resume
from hud_tui.tui.keys import ClickableText, bindings, pressed
from hud_tui.tui.layout import Choices, read_choices, write_choices
from hud_tui.tui.screens.base import HudScreen, ViewContext
from hud_tui.tui.screens.chart_settings import ChartList, OverlayList
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.widgets.chart import LEAST, ChartData, ChartView
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.tui.widgets.metric_grid import MetricGrid
from hud_tui.tui.widgets.run_status import EventLog, Reason, RunStatus

REWARD = "reward_mean"
"""The metric that is in the focus chart until another is chosen."""
ALL = "All steps are shown."
NO_PAN = "All steps are shown: {live.zoom.1} shows fewer, then there are others to go to."


KINDS: dict[str, type[LinesView]] = {
    "metrics": MetricGrid,
    "groups": GroupGrid,
    "events": EventLog,
}
PANES = tuple(KINDS)
"""Names of the panes, in the order of Tab."""


WIDTHS = [(0, "-narrow"), (160, "-wide")]
HEIGHTS = [(0, "-tiny"), (18, "-short"), (32, "-tall"), (50, "-taller")]
"""From which size on the screen has which class."""
VIEW_ACTIONS = frozenset(
    {
        *(
            "full",
            "leave",
            "open",
            "cursor",
            "first",
            "last",
            "smooth",
            "axis",
            "log",
            "clip",
            "envelope",
        ),
        *(
            "charts",
            "overlay",
            "zoom",
            "pan",
            "freeze",
            "groups",
            "face",
            "order",
            "pane",
            "move",
            "page",
        ),
    }
)
"""What changes the view of a run alone."""


class LiveScreen(HudScreen):
    """The charts, groups and events of `shown`: the run, or what it was when frozen."""

    shown: reactive[Run] = reactive(Run, repaint=False)
    """What the panes show."""
    lens: reactive[ChartView] = reactive(ChartView, repaint=False)
    choices: reactive[Choices] = reactive(Choices, repaint=False)
    keys: reactive[Sequence[str]] = reactive[Sequence[str]]((), repaint=False)
    """The metrics that are shown, in their order."""
    hidden: reactive[int] = reactive(0, repaint=False)
    """How many are not."""
    focus_key: reactive[str] = reactive(REWARD, repaint=False)
    """The metric of the focus chart."""
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""
    AUTO_FOCUS: ClassVar[str | None] = ""
    """None by itself: the one that had it last time has it."""
    pane: reactive[str] = reactive(PANES[0], repaint=False)
    """The pane that has the focus; where there is room for one only, the one that is seen."""
    full: reactive[bool] = reactive(False, repaint=False)
    """Whether that pane has all of the view."""
    VIEW = "live"
    BINDINGS: ClassVar[list[BindingType]] = bindings("live")
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    frozen: reactive[bool] = reactive(False, repaint=False)

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.sight = ChartData()
        self._wanted = REWARD
        """The metric for the focus chart, once the run has it."""

    def watch_choices(self, before: Choices, now: Choices) -> None:
        if (before.order, before.hidden) != (now.order, now.hidden):
            self._arrange()
        if self.is_mounted:
            write_choices(self.session.store, now, before)

    def watch_lens(self, lens: ChartView) -> None:
        self.choices = self.choices.seen_through(lens)

    def _arrange(self) -> None:
        keys = self.choices.shown(self.shown.series.keys)
        if list(self.keys) != keys:
            self.keys = keys
        self.hidden = len(self.shown.series.keys) - len(keys)
        if self._wanted in keys:
            self.focus_key = self._wanted
        elif self.focus_key not in keys and keys:
            self.focus_key = keys[0]

    @on(MetricGrid.Chosen)
    def focus_metric(self, message: MetricGrid.Chosen) -> None:
        self.enlarge(message.key)

    def enlarge(self, key: str) -> None:
        """Show this metric in the focus chart, and remember it."""
        self.context.layout.arrange(chart=key)
        self._wanted = self.focus_key = key

    def action_cursor(self, steps: int) -> None:
        """So many steps later, or earlier where below 0; past the newest it follows again.

        Of more than one, so many thousandths of what is in sight, where that is more.
        """
        length = self.shown.series.length
        first, stop = self.lens.rows(length)
        leap = max(1, (stop - first) // 1000) if abs(steps) > 1 else 1
        start = length if self.cursor is None else self.cursor
        self.point(start + steps * leap)

    def action_first(self) -> None:
        self.point(self.lens.rows(self.shown.series.length)[0])

    @on(FocusChart.Scaled)
    def scale(self, message: FocusChart.Scaled) -> None:
        length = self.shown.series.length
        self.lens = self.lens.scaled(message.factor, length, message.row, message.share)

    @on(FocusChart.Spanned)
    def span(self, message: FocusChart.Spanned) -> None:
        self.lens = self.lens.spanning(message.first, message.last, self.shown.series.length)

    @on(FocusChart.Panned)
    def pan_chart(self, message: FocusChart.Panned) -> None:
        self.lens = self.lens.panned(message.halves, self.shown.series.length)

    @on(FocusChart.Pointed)
    @on(MetricGrid.Pointed)
    def point_here(self, message: FocusChart.Pointed | MetricGrid.Pointed) -> None:
        self.point(message.row)

    def point(self, row: int) -> None:
        """The crosshair to a row, and the rest of the app to its step."""
        series = self.shown.series
        self.cursor = None if row >= series.length or not series.length else max(0, row)
        self.session.at = None if self.cursor is None else series.id_at(self.cursor)
        if self.cursor is not None:
            self.lens = self.lens.showing(self.cursor, series.length)

    def _find_cursor(self) -> None:
        """The crosshair stays on its step; one that the lineage has no more, it leaves."""
        if not self.is_mounted or not self.is_current:
            return
        at, series = self.session.at, self.shown.series
        row = self.cursor
        if row is not None and row < series.length and series.id_at(row) == at:
            return
        position = self.shown.tree.find(at)
        row = None if position is None else self.shown.tree.depth(position) - 1
        held = row is not None and row < series.length and series.id_at(row) == at
        self.cursor = row if held else None

    def action_smooth(self, step: int) -> None:
        """More smoothing, or less."""
        smoothing = min(len(WEIGHTS) - 1, max(0, self.lens.smoothing + step))
        self.lens = replace(self.lens, smoothing=smoothing)

    def action_log(self) -> None:
        self.lens = replace(self.lens, log=not self.lens.log)

    def action_axis(self) -> None:
        self.lens = replace(self.lens, axis=self.lens.axis.following)

    def action_clip(self) -> None:
        self.lens = replace(self.lens, clip=not self.lens.clip)

    def action_envelope(self) -> None:
        self.lens = replace(self.lens, envelope=not self.lens.envelope)

    def action_zoom(self, times: int) -> None:
        """Closer, or further away; 0 shows all of the run."""
        if times:
            lens = self.lens.zoomed(times, self.shown.series.length, self.cursor)
        else:
            lens = replace(self.lens, span=None, end=None)
        self._look(lens, f"No closer: at least {LEAST} steps are shown." if times > 0 else ALL)

    def action_charts(self) -> None:
        """Which metrics are shown, and in which order."""
        self.app.push_screen(ChartList(self))

    def action_overlay(self) -> None:
        """Which branch or model is laid over the curves."""
        self.app.push_screen(OverlayList(self))

    def compare(self, overlay: Overlay | None) -> None:
        self.lens = replace(self.lens, overlay=overlay)

    def action_pan(self, halves: int) -> None:
        lens = self.lens.panned(halves, self.shown.series.length)
        end = "These are the first steps." if halves < 0 else "These are the newest steps."
        self._look(lens, keyed(NO_PAN) if self.lens.span is None else end)

    def _look(self, lens: ChartView, why_not: str) -> None:
        """Look at other steps; where the same ones stay in sight, say why."""
        length = self.shown.series.length
        if lens.rows(length) == self.lens.rows(length):
            self.notice(why_not)
        self.lens = lens

    # The panes: which has the focus, and what they show is kept.

    @property
    def metrics(self) -> MetricGrid:
        return self.query_one(MetricGrid)

    @property
    def focused_pane(self) -> LinesView:
        """The pane that the arrows move in."""
        return self.query_one(KINDS[self.pane])

    def on_mount(self) -> None:
        groups = self.query_one(GroupGrid)
        self.watch(groups, "face", self._keep_face, init=False)
        self.watch(groups, "order", self._keep_order, init=False)

    def on_screen_resume(self) -> None:
        """Textual calls the base class' own too. The crosshair may have moved in another view."""
        self._find_cursor()
        if self.is_mounted and self.focused is None:
            self.show_pane(self.pane)

    # The curves, how they are looked at, and the crosshair through them.

    def lay_out(self) -> None:
        super().lay_out()
        kept, groups = self.context.layout.now, self.query_one(GroupGrid)
        self.choices = read_choices(self.session.store)
        self.lens = self.choices.lens
        self._wanted = kept.chart
        self._arrange()
        self.full, groups.face, groups.order = kept.full_pane, kept.face, kept.order
        self.show_pane(kept.pane)

    def _keep_face(self, face: Face) -> None:
        self.context.layout.arrange(face=face)

    def _keep_order(self, order: Order) -> None:
        self.context.layout.arrange(order=order)

    def watch_pane(self, pane: str) -> None:
        for name in PANES:
            self.set_class(name == pane, f"-on-{name}")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        names: dict[type[Widget], str] = {kind: name for name, kind in KINDS.items()}
        self.pane = names.get(type(event.widget), self.pane)
        if self.pane != "groups":
            self.query_one(GroupGrid).pinned = None
        self.context.layout.arrange(pane=self.pane)

    def action_pane(self, step: int) -> None:
        """Go to the next pane, or the one before."""
        self.show_pane(PANES[(PANES.index(self.pane) + step) % len(PANES)])

    def action_full(self) -> None:
        """Give the pane all of the view, or fold it back."""
        self.full = not self.full

    def watch_full(self, full: bool) -> None:
        self.set_class(full, "-full")
        if self.is_mounted:
            self.context.layout.arrange(full_pane=full)

    def action_leave(self) -> None:
        """One layer out: the full pane, the step of the groups, the crosshair, the comparison."""
        groups = self.query_one(GroupGrid)
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
        self.query_one(GroupGrid).pinned = None

    def action_groups(self) -> None:
        self.show_pane("groups")

    def show_pane(self, pane: str) -> None:
        """Bring a pane into sight, and give it the focus."""
        self.pane = pane
        if self.is_attached and (found := self.query_one_optional(KINDS[pane])):
            found.focus()

    def action_move(self, columns: int, rows: int) -> None:
        """Move among the metrics, or scroll the other panes."""
        if self.pane == "metrics":
            self.metrics.move(columns, rows)
        elif self.pane == "groups":
            self.query_one(GroupGrid).move(rows)
        else:
            self.focused_pane.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        rows = pages * max(1, self.focused_pane.body_rows)
        if self.pane == "metrics":
            self.metrics.move_page(pages)
        elif self.pane == "groups":
            self.query_one(GroupGrid).move(rows)
        else:
            self.focused_pane.scroll_rows(rows)

    @on(FocusChart.Opened)
    @on(MetricGrid.Opened)
    def action_open(self) -> None:
        """From the charts to the groups of the step; from there into a group."""
        if self.pane == "groups":
            self.query_one(GroupGrid).open()
        else:
            self.show_pane("groups")

    def action_face(self) -> None:
        """The groups of the step, of many steps, or what they wasted."""
        groups = self.query_one(GroupGrid)
        groups.face = groups.face.following

    def action_order(self) -> None:
        groups = self.query_one(GroupGrid)
        groups.order = Order.TASK if groups.order is Order.TEACHES else Order.TEACHES

    @on(GroupGrid.Pointed)
    def point_at_step(self, message: GroupGrid.Pointed) -> None:
        self.point(message.row)

    @on(GroupGrid.Opened)
    def open_group(self, message: GroupGrid.Opened) -> None:
        """Read a group; while its step is sampled, as its rollouts come."""
        client = None if self.session.replays else self.session.client
        self.app.push_screen(GroupScreen(client, message.found, self.query_one(GroupGrid)))

    # The view: what it holds, the run, following.

    def body(self) -> Iterable[Widget]:
        here = LiveScreen
        charts = {"run": here.shown, "lens": here.lens, "cursor": here.cursor}
        yield RunStatus().data_bind(run=here.run, freshness=here.freshness)
        yield Reason().data_bind(run=here.run, freshness=here.freshness)
        yield ClickableText(id="nothing")
        with Vertical(id="panes"):
            yield FocusChart(self.sight).data_bind(key=here.focus_key, **charts)
            yield MetricGrid(self.sight).data_bind(
                keys=here.keys, hidden=here.hidden, chosen=here.focus_key, **charts
            )
            with Container(id="foot"):
                yield GroupGrid().data_bind(**charts)
                yield EventLog().data_bind(run=here.shown)

    def watch_run(self, before: Run, run: Run) -> None:
        if _id(run) != _id(before):
            self.frozen = False
            self.compare(None)
        if not self.frozen:
            self.shown = run
        if run.training is not before.training or run.job is not before.job:
            self.refresh_bindings()

    def watch_shown(self, run: Run) -> None:
        self._arrange()
        self._find_cursor()
        nothing = nothing_yet(run)
        if self.has_class("-nothing") != (nothing is not None):
            self.set_class(nothing is not None, "-nothing")
            self.refresh_bindings()
        if nothing is not None and (told := self.query_one_optional("#nothing", Static)):
            told.update(nothing)

    def watch_frozen(self, frozen: bool) -> None:
        if status := self.query_one_optional(RunStatus):
            status.frozen = self.shown if frozen else None
        if not frozen:
            self.shown = self.run

    def sheet(self) -> Sheet:
        """The groups where they are looked at; else every metric, in the charts' order."""
        if self.pane == "groups":
            return groups_sheet(self.shown)
        return metrics_sheet(self.shown, self.keys)

    def action_freeze(self) -> None:
        self.frozen = not self.frozen

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is one only where there is something that it acts on."""
        job = self.run.job
        if self.has_class("-nothing") and action in VIEW_ACTIONS:
            return False
        if action == "cancel_run":
            return job is not None and job.id is not None and self.run.training
        if action == "resume_run":
            return job is not None and job.id is not None and job.status in RESUMABLE
        if action == "copy":
            return job is not None and job.id is not None
        return super().check_action(action, parameters)

    def action_copy(self) -> None:
        if (job := self.run.job) is not None and job.id is not None:
            self.copy(job.id)

    @work(exclusive=True, group="act")
    async def action_cancel_run(self) -> None:
        if (job := self.run.job) is not None:
            await cancel(self, job)

    @work(exclusive=True, group="act")
    async def action_resume_run(self) -> None:
        if (job := self.run.job) is not None:
            await resume(self, job)


def _id(run: Run) -> str | None:
    return None if run.model is None else run.model.id


def nothing_yet(run: Run) -> Content | None:
    """What to press where there is nothing to watch; None where there is."""
    if run.model is None:
        return Content.assemble(
            "No model yet. Press ", pressed("app.view.models"), " to choose one."
        )
    if not run.loaded:
        return Content("Reading the checkpoint tree …")
    if run.job is None and not len(run.series.keys):
        return Content.assemble("No run yet. Press ", pressed("app.view.launch"), " to launch one.")
    return None
