"""FocusChart: the chosen metric, large, with axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from rich.style import Style
from textual.events import (
    Click,
    MouseDown,
    MouseEvent,
    MouseMove,
    MouseScrollDown,
    MouseScrollLeft,
    MouseScrollRight,
    MouseScrollUp,
    MouseUp,
)
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.axes import Axis, Scale
from hud_tui.rl.chart import LINE, Chart, ChartData, beyond, held_sign, large_plot
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.curves import DELTA_STEPS, Readout, Sign
from hud_tui.rl.metrics import (
    change,
    distance,
    estimate_text,
    metric,
    outside,
    reading,
    short,
    signed,
)
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.plot import Flag, Plot, Sketch, crossed
from hud_tui.rl.progress import awaiting
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.widgets.chart import TONES, RunChart, alarm_tone, metric_title
from hud_tui.tui.widgets.figure import AXIS_ROWS, PlotFigure, figure, styled
from hud_tui.tui.widgets.lines import Toned, fit_text, line
from hud_tui.wire import Estimate

NEARER = 0.75
"""Factor of the visible steps per notch of the wheel."""
DRAWN = 2
"""Cells from which dragging selects a span instead of clicking."""


# The line above the focus chart: the values at the crosshair, or of the newest step.


DELTA, RAW, SURE, FLAG = f"Δ{DELTA_STEPS}", "raw", "±", "⚑"
OTHER = "vs "
"""Prefix of the overlay's number, followed by its name."""
SPARED = (OTHER, RAW, FLAG, DELTA, SURE)
"""What a narrow line leaves out, the last of them first."""


Number = tuple[str, str, str]
"""Name, number, and tone of the number."""


@dataclass(frozen=True)
class Heading:
    """The parts of the line, most important first."""

    title: str
    numbers: Sequence[Number]
    meaning: str
    words: Sequence[str]
    """Position of the crosshair, and anything unusual."""

    def strip(self, tone: Toned, width: int) -> Strip:
        """The line in exactly `width` cells; parts that do not fit are left out."""
        words, numbers = list(self.words), list(self.numbers)
        parts = self._left(numbers, tone)
        where = len(words[0]) + 3 if words else 0
        while len(numbers) > 1 and line(*parts).cell_length + where > width:
            numbers.remove(max(numbers, key=_spared))
            parts = self._left(numbers, tone)
        left, dim = line(*parts), tone("dim")
        while words and left.cell_length + len(" · ".join(words)) + 3 > width:
            words.pop()
        right = " · ".join(reversed(words)) + " "
        room = max(0, width - left.cell_length - len(right))
        meaning = f"  {self.meaning}" if len(self.meaning) + 4 <= room else ""
        return line(*parts, (fit_text(meaning, room), dim), (right, dim)).crop(0, width)

    def _left(self, numbers: Sequence[Number], tone: Toned) -> list[tuple[str, Style]]:
        parts = [(f" {self.title} ", tone("strong"))]
        for name, text, of_number in numbers:
            parts += [(f"  {name} ", tone("dim")), (text.ljust(6), tone(of_number))]
        return parts


def _spared(number: Number) -> int:
    name = next((kind for kind in (OTHER, FLAG) if number[0].startswith(kind)), number[0])
    return SPARED.index(name) if name in SPARED else -1


def focus_heading(
    chart: Chart, key: str, cursor: int | None, off: int, alarm: Alarm | None = None
) -> Heading:
    """The heading for a metric at the row under the crosshair, None for the newest. `off`: columns
    with a value that is off the scale; `alarm` is drawn with it."""
    return Heading(
        metric_title(key, chart.run),
        [pair for pair in _numbers(chart, key, cursor, alarm) if pair[1]],
        metric(key).meaning,
        [word for word in _words(chart, key, cursor, off) if word],
    )


def _numbers(chart: Chart, key: str, cursor: int | None, alarm: Alarm | None) -> list[Number]:
    """The numbers of a heading; empty texts are left out."""
    length, weight = chart.run.series.length if cursor is None else cursor + 1, chart.view.weight
    readout = chart.readout(key, cursor)
    tone = alarm_tone(alarm) or ("warm" if outside(metric(key), readout.raw) else "plain")
    numbers = [(RAW, reading(key, readout.raw), tone), (DELTA, signed(readout.delta), "plain")]
    if alarm is not None:
        since = f"since step {alarm.onset}"
        limit = since if alarm.limit is None else f"limit {short(alarm.limit)}"
        over = "" if alarm.ended is None else f" until step {alarm.ended}"
        numbers.append((f"{FLAG} {alarm.title}", f"{limit}{over}", tone))
    if weight:
        numbers.insert(0, (f"EMA({weight:g}) =", reading(key, readout.smooth), "plain"))
    if key == REWARD and length:
        [half] = chart.data.spreads.halves(chart.run, [length - 1], weight)
        numbers.insert(1, (SURE, distance(half) if isfinite(half) else "", "dim"))
    return numbers + _compared(chart, key, length, readout)


def _words(chart: Chart, key: str, cursor: int | None, off: int) -> list[str]:
    """What a heading says of the chart's range and scales; empty texts are left out."""
    view, missing = chart.view, chart.curve(key).missing
    axis_note = "" if chart.axis is view.axis else f"step: {view.axis} not reported"
    (start, stop), step_at = chart.rows, chart.run.series.step_at
    clipped = "outliers clipped" if view.clip else ""
    return [
        _where(chart, cursor),
        "constant" if chart.curve(key).is_constant else "",
        f"⚠ {missing} missing" if missing else "",
        "log" if view.log else "",
        "" if view.axis is Axis.STEP else f"by {axis_note or view.axis}",
        f"{clipped}: {counted(off, 'column')}" if off else clipped,
        "" if view.span is None else f"steps {step_at(start)}–{step_at(stop - 1)}",
    ]


def _compared(chart: Chart, key: str, length: int, own: Readout) -> list[Number]:
    """The overlay's number at the same position, and the run's difference from it."""
    other = chart.view.overlay
    if other is None:
        return []
    steps = min(length - other.shift, other.run.series.length)
    if steps < 1 or key not in other.run.series.keys:
        return [("vs", one_line(other.name, 24), "plain"), ("", "–", "plain")]
    there = chart.other_curve(other, key).readout(steps)
    theirs, ours = (there.smooth, own.smooth) if chart.view.weight else (there.raw, own.raw)
    apart = signed(change(theirs, ours, key))
    return [(f"{OTHER}{one_line(other.name, 24)}", f"{short(theirs)} {apart}", "plain")]


def _where(chart: Chart, cursor: int | None) -> str:
    """The step under the crosshair; without one the curves' length, and the last step by its name
    if it has another number."""
    run = chart.run
    if cursor is None:
        length, head = run.series.length, run.head
        if head is None or head.step in (None, length):
            return f"step {length}"
        return f"{counted(length, 'step')} up to {one_line(label(head), 24)}"
    position = run.tree.find(run.series.id_at(cursor))
    unnamed = f"step {run.series.step_at(cursor)}"
    name = unnamed if position is None else one_line(label(run.tree[position]), 24)
    return f"┊ {name}{chart.x_text(cursor)}"


LEGEND_FROM = 7
"""Rows below the heading from which there is a legend."""
LEGEND_WORDS = (3, 2, 1, 0)
"""Forms of the rewards' legend, longest first: with the evaluated checkpoint, without it, without
what train's interval is over, and with the numbers alone."""
LEAST_ROWS, LEAST_CELLS = 3, 20
"""Least size of a figure."""


class FocusChart(RunChart, can_focus=False):
    """A figure, with the crosshair and the alarms' flags over it. Actions of the mouse are
    messages: the screen carries them out as it does those of keys.

    The figure is cached, so that moving the crosshair does not draw it again.
    """

    key: reactive[str] = reactive("", repaint=False)
    signs: reactive[Mapping[int, Sign]] = reactive[Mapping[int, Sign]]({}, repaint=False)
    """What happened at a step, by row of the lineage."""
    opened: reactive[str] = reactive("", repaint=False)
    """Id of the alarm that was opened; others on its metric are then not drawn."""
    band: reactive[tuple[int, int] | None] = reactive[tuple[int, int] | None](None, repaint=False)
    """First and last cell of the span that is being dragged."""
    _from: int | None = None
    """The cell where the button was pressed."""
    _was_drawn = False
    """Whether the button was released after a span, so that it was no click."""
    _stamp: object = None
    _figure = PlotFigure(Plot(Scale(0.0, 1.0), 0), (), 0)
    """Without flags and crosshair."""

    @dataclass
    class Opened(Message):
        """The user clicked the crosshair twice."""

    @dataclass
    class Scaled(Message):
        """The user zoomed: `factor` times as many steps, with this row fixed."""

        factor: float
        row: int
        share: float
        """Position of the row in the chart, in [0, 1]."""

    @dataclass
    class Spanned(Message):
        """The user zoomed to these rows, both inclusive."""

        first: int
        last: int

    @dataclass
    class Panned(Message):
        """The user panned to earlier or later steps."""

        halves: int

    def __init__(self, chart_data: ChartData) -> None:
        super().__init__(chart_data)
        self._sketch = Sketch()

    watch_key = watch_signs = watch_opened = watch_band = RunChart.redraw

    @property
    def alarm(self) -> Alarm | None:
        return self.run.alarms.of_metric(self.key, self.opened)

    @property
    def count(self) -> int:
        return self.body_rows

    @property
    def drawable(self) -> bool:
        room = self.body_rows >= LEAST_ROWS and self.width >= LEAST_CELLS
        return room and self.key in self.run.series.keys

    def heading(self, width: int) -> Strip:
        if self.key not in self.run.series.keys:
            text = fit_text(f" {one_line(awaiting(self.run), 500)}", width)
            return line((text, self.tone("dim")))
        off = self._off(width) if self.drawable and self.chart_view.clip else 0
        shown = self.chart.of(self.key)
        return focus_heading(shown, self.key, self.pointed, off, self.alarm).strip(self.tone, width)

    def _off(self, width: int) -> int:
        """Columns with a value that is off the scale."""
        drawn = self._cached(width)
        return beyond(self.chart.of(self.key).buckets(self.key, drawn.cells), drawn.plot.scale)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        if not self.drawable:
            return []
        drawn = self._cached(width)
        column = self.chart.column(self.pointed, 2 * drawn.cells)
        flags = self.chart.flags(self.signs, drawn.cells)
        drawn = replace(drawn, plot=replace(drawn.plot, flags=flags)).flagged()
        lines = self._banded(drawn.pointed(None if column is None else column // 2))
        if self._figure_rows >= len(rows):
            return lines
        return [*lines, self._legend(width, flags, held_sign(drawn.plot))]

    @property
    def _figure_rows(self) -> int:
        """Rows of the figure: all, or all but the legend's."""
        rows = self.body_rows
        has_legend = self.key == REWARD or any(self.chart.flags(self.signs, self.width))
        return rows - 1 if has_legend and rows >= LEGEND_FROM else rows

    def _legend(self, width: int, flags: Sequence[Flag], held: str) -> Strip:
        """The curves, what their intervals are over, and the signs; the shortest form that says
        all of it, if the longer ones do not fit."""
        signs: list[tuple[str, Style]] = []
        named = {flag.name: flag for flag in flags}
        for name, flag in named.items():
            signs += [(f"   {flag.glyph}", self.tone(TONES[name]))]
            signs += [(f" {flag.text}", self.tone("dim"))]
        if self.key != REWARD or not self.run.series.length:
            return line(*signs).crop(0, width)
        forms = (line(*self._rewards_legend(words, held), *signs) for words in LEGEND_WORDS)
        legend = next((form for form in forms if form.cell_length <= width), None)
        return legend or line(*self._rewards_legend(0, held), *signs).crop(0, width)

    def _rewards_legend(self, words: int, sign: str) -> list[tuple[str, Style]]:
        """The rewards' part; `words` is one of `LEGEND_WORDS`, `sign` that of held-out rewards."""
        run, dim = self.run, self.tone("dim")
        row = run.series.length - 1 if self.pointed is None else self.pointed
        over, weight = self.chart_data.spreads.spread_at(run, row).over, self.chart_view.weight
        interval = f", 95 % CI over {over}"
        if weight:  # the band is that of a moving average, which is over more than this step's
            interval = f", 95 % CI of EMA({weight:g})"
        if not over or words < 2:
            interval = ""
        parts = [("   ━", self.tone("accent")), (f" train{interval}", dim)]
        held = self.chart_data.held_out.score_at(row)
        if sign and held is not None:
            where, score = held
            of = label(run.tree[run.tree.find(run.series.id_at(where)) or 0])
            text = f" of {one_line(of, 24)}" if words > 2 else ""
            if score.over and words > 0:
                sure = score.low is not None and not interval
                text += f", {'95 % CI over ' if sure else ''}{score.over}"
            value = estimate_text(Estimate(value=score.value, low=score.low, high=score.high))
            parts += [(f"   {sign}", self.tone("second")), (" held-out ", dim)]
            parts += [(value, self.tone("plain")), (text, dim)]
        return parts

    def _banded(self, drawn: PlotFigure) -> list[Strip]:
        """The figure's lines, with the dragged span highlighted between two lines."""
        tones = TONES | {LINE: alarm_tone(self.alarm) or "accent"}
        styles = {name: self.tone(tone) for name, tone in tones.items()}
        if self.band is None:
            return [styled(row, styles) for row in drawn.rows]
        first, last = self.band
        ground = Style(bgcolor=self.tone("cursor-blurred").bgcolor)
        lines = []
        for row in drawn.rows[:-AXIS_ROWS]:
            edged = styled(crossed(crossed(row, first), last), styles)
            inside = edged.crop(first, last + 1).apply_style(ground)
            lines.append(Strip.join([edged.crop(0, first), inside, edged.crop(last + 1)]))
        return [*lines, *(styled(row, styles) for row in drawn.rows[-AXIS_ROWS:])]

    def _cached(self, width: int) -> PlotFigure:
        shown, alarm, height = self.chart, self.alarm, self._figure_rows
        limit = None if alarm is None else alarm.limit
        edition = self.run.tree.edition if self.key == REWARD else 0
        stamp = self.run.series, self.chart_view, shown.reach, self.key, width, height, limit
        if (stamp, edition) != self._stamp:
            self._stamp = stamp, edition
            self._figure = figure(
                self._sketch,
                lambda cells, rows: large_plot(shown, self.key, cells, rows, limit),
                width,
                height,
            )
        return self._figure

    # The mouse.

    def row_at(self, cell: int, within: bool = True) -> int | None:
        """The step closest to a cell. Beside the curves None, or without `within` their end."""
        figure, column = self._figure, cell - self._figure.left
        if not self.drawable or (within and not 0 <= column < figure.cells):
            return None
        column = max(0, min(figure.cells - 1, column))
        return self.chart.row(2 * column, 2 * figure.cells)

    def on_mouse_down(self, event: MouseDown) -> None:
        self._was_drawn = False
        if event.button == 1 and self.row_at(event.x) is not None:
            self._from = event.x
            self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        if self._from is not None:
            left, right = sorted((self._from, event.x))
            self.band = (left, right) if right - left >= DRAWN or self.band else None

    def on_mouse_up(self, event: MouseUp) -> None:
        if self._from is None:
            return
        self.release_mouse()
        band, self.band, self._from = self.band, None, None
        self._was_drawn = band is not None
        if band is not None and band[1] - band[0] >= DRAWN:
            first, last = (self.row_at(cell, within=False) for cell in band)
            if first is not None and last is not None:
                self.post_message(self.Spanned(first, last))

    def on_click(self, event: Click) -> None:
        row = None if self._was_drawn else self.row_at(event.x)
        if row is not None and event.chain == 2:
            self.post_message(self.Opened())
        elif row is not None:
            self.post_message(self.Pointed(row))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._wheel(event, NEARER, -1)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._wheel(event, 1 / NEARER, 1)

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        self.post_message(self.Panned(-1))
        event.stop()

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        self.post_message(self.Panned(1))
        event.stop()

    def _wheel(self, event: MouseEvent, factor: float, way: int) -> None:
        row, figure = self.row_at(event.x, within=False), self._figure
        if event.shift or event.ctrl:
            self.post_message(self.Panned(way))
        elif row is not None:
            share = max(0.0, min(1.0, (event.x - figure.left) / max(1, figure.cells - 1)))
            self.post_message(self.Scaled(factor, row, share))
        event.stop()
