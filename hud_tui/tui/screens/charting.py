"""ChartingScreen: how the curves of a run are looked at, and the crosshair through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual import on
from textual.reactive import reactive

from hud_tui.keys import keyed
from hud_tui.rl.overlay import Overlay
from hud_tui.rl.run import Run
from hud_tui.rl.smoothing import WEIGHTS
from hud_tui.tui.chart_choices import Choices, read_choices, write_choices
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.chart_list import ChartList
from hud_tui.tui.screens.overlay_list import OverlayList
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.lens import LEAST, Lens
from hud_tui.tui.widgets.metric_grid import MetricGrid
from hud_tui.tui.widgets.sight import Sight

REWARD = "reward_mean"
"""The metric that is in the focus chart until another is chosen."""
ALL = "All steps are shown."
NO_PAN = "All steps are shown: {live.zoom.1} shows fewer, then there are others to go to."


class ChartingScreen(HudScreen):
    """The lens, the choice of charts and the crosshair; `shown` is the run that they show."""

    shown: reactive[Run] = reactive(Run, repaint=False)
    """What the panes show."""
    lens: reactive[Lens] = reactive(Lens, repaint=False)
    choices: reactive[Choices] = reactive(Choices, repaint=False)
    keys: reactive[Sequence[str]] = reactive[Sequence[str]]((), repaint=False)
    """The metrics that are shown, in their order."""
    hidden: reactive[int] = reactive(0, repaint=False)
    """How many are not."""
    focus_key: reactive[str] = reactive(REWARD, repaint=False)
    """The metric of the focus chart."""
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""

    def __init__(self) -> None:
        super().__init__()
        self.sight = Sight()
        self._wanted = REWARD
        """The metric for the focus chart, once the run has it."""

    def lay_out(self) -> None:
        super().lay_out()
        self.choices = read_choices(self.hud.shelf)
        self.lens = self.choices.lens
        self._wanted = self.hud.layout.chart
        self._arrange()

    def on_screen_resume(self) -> None:
        """The base class' own is called too: the crosshair may have moved elsewhere."""
        self._find_cursor()

    # What is shown

    def watch_shown(self, run: Run) -> None:
        self._arrange()
        self._find_cursor()

    def watch_choices(self, before: Choices, now: Choices) -> None:
        if (before.order, before.hidden) != (now.order, now.hidden):
            self._arrange()
        if self.is_mounted:
            write_choices(self.hud.shelf, now, before)

    def watch_lens(self, lens: Lens) -> None:
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
        self.hud.arrange(chart=key)
        self._wanted = self.focus_key = key

    # The crosshair

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

    def action_last(self) -> None:
        self.point(self.shown.series.length)

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
        self.hud.at = None if self.cursor is None else series.id_at(self.cursor)
        if self.cursor is not None:
            self.lens = self.lens.showing(self.cursor, series.length)

    def _find_cursor(self) -> None:
        """The crosshair stays on its step; one that the lineage has no more, it leaves."""
        if not self.is_mounted or not self.is_current:
            return
        at, series = self.hud.at, self.shown.series
        row = self.cursor
        if row is not None and row < series.length and series.id_at(row) == at:
            return
        position = self.shown.tree.find(at)
        row = None if position is None else self.shown.tree.depth(position) - 1
        held = row is not None and row < series.length and series.id_at(row) == at
        self.cursor = row if held else None

    # The lens

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

    def _look(self, lens: Lens, why_not: str) -> None:
        """Look at other steps; where the same ones stay in sight, say why."""
        length = self.shown.series.length
        if lens.rows(length) == self.lens.rows(length):
            self.hud.say(why_not)
        self.lens = lens
