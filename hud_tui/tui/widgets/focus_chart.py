"""FocusChart: the chosen metric, large, with axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, nan
from operator import itemgetter
from typing import Any, NamedTuple

import plotext
from rich.segment import Segment
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
from hud_tui.rl.axes import Axis, Scale, marks, step_marks
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.curves import DELTA_STEPS, NEAR, Bucket, Readout, Sign
from hud_tui.rl.metrics import (
    change,
    interval_text,
    metric,
    outside,
    reading,
    short,
    signed,
)
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.widgets import chart
from hud_tui.tui.widgets.chart import (
    Chart,
    RunChart,
    alarm_tone,
    beyond,
    metric_title,
    y_scale,
)
from hud_tui.tui.widgets.lines import Toned, crossed, fit_text, line, put

NEARER = 0.75
"""Factor of the visible steps per notch of the wheel."""
DRAWN = 2
"""Cells from which dragging selects a span instead of clicking."""


# One figure by plotext, as lines of styled text.
#
# plotext is loaded when the first figure is drawn. It gets shares of the plot's area instead of the
# data, so no value is too large for it and it does no scaling.
#
# Source: plotext 5.3; its figure is one global, so two are never drawn at a time.


LABEL = 5
"""Least width of the y axis' labels, cells, so that the plot stays in place."""
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
_COLOUR = re.compile(r"(?:^|;)38;5;(\d+)$")


@dataclass(frozen=True)
class Signal:
    """One line of the figure; NaN in `ys` breaks it."""

    xs: Sequence[float]
    """In dots from the left, two a cell."""
    ys: Sequence[float]
    """From 0 at the foot to 1 at the top."""
    style: Style


Tick = tuple[float, str]
"""(position, label): position in dots on the x axis, a share on the y axis."""


def area(width: int, labels: Sequence[str]) -> int:
    """Width left for the curves in a figure of `width` cells."""
    return max(1, width - label_width(labels) - 1)


def label_width(labels: Sequence[str]) -> int:
    """Width of the y axis' labels, cells."""
    return max(LABEL, *map(len, labels)) if labels else LABEL


def plot(
    signals: Sequence[Signal],
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    width: int,
    height: int,
    axis: Style,
) -> list[list[Segment]]:
    """Draw a figure of `width` × `height` cells, including its axes."""
    figure: Any = plotext
    figure.clear_figure()
    figure.limit_size(False, False)
    figure.theme("clear")
    figure.plotsize(width, height)
    for colour, signal in enumerate(signals, start=1):
        figure.plot(signal.xs, signal.ys, marker="braille", color=colour)
    labels = [label for _, label in y_ticks]
    figure.xlim(0, 2 * area(width, labels) - 1)
    figure.ylim(0, 1)
    figure.xticks([place for place, _ in x_ticks], [label for _, label in x_ticks])
    wide = label_width(labels)
    figure.yticks([place for place, _ in y_ticks], [label.rjust(wide) for label in labels])
    figure.xaxes(True, False)
    figure.yaxes(True, False)
    styles = {str(colour): signal.style for colour, signal in enumerate(signals, start=1)}
    return [segments(text, styles, axis) for text in figure.build().splitlines()[:height]]


def segments(text: str, styles: Mapping[str, Style], plain: Style) -> list[Segment]:
    """One line of text with escape sequences as styled text.

    Args:
        text: As plotext returns it.
        styles: Styles by plotext's colour number.
        plain: Style of everything else.
    """
    found, style = [], plain
    for place, part in enumerate(_ESCAPE.split(text)):
        if place % 2:
            colour = _COLOUR.search(part)
            style = styles.get(colour[1], plain) if colour else plain
        elif part:
            found.append(Segment(part, style))
    return found


TICK_ROWS = (3, 2, 4)
"""Rows between ticks of the y axis; the one that leaves the fewest rows empty is used."""
AXIS_ROWS = 2
"""Rows of a figure below its curves."""
TICK_CELLS = 16
"""Approximate cells between two ticks of the x axis."""


@dataclass(frozen=True)
class Figure:
    """A chart drawn by plotext, without crosshair and flags."""

    lines: Sequence[Strip]
    left: int
    """Cells of the y axis and its labels."""
    cells: int
    """Cells of the curves."""
    off: int
    """Columns with a value that is off the scale."""
    points: Sequence[tuple[int, int]] = ()
    """Cells and rows of the held-out rewards, if there are few enough to mark each."""


EMPTY = Figure((), 0, 0, 0)
HELD_MARK = "■"
APART = 4
"""Average distance in cells from which held-out rewards are marked."""


class Columns(NamedTuple):
    """What a figure shows, in columns of one cell."""

    raw: list[Bucket]
    others: list[Bucket]
    """The overlay's."""
    held: list[Bucket]
    """Held-out rewards, with their intervals as ranges."""
    band: list[Bucket]
    """The 95 % interval of the curve, where its width is known."""


@dataclass(frozen=True)
class Curves:
    """The content of a figure: one metric."""

    tone: Toned
    chart: Chart
    key: str
    alarm: Alarm | None = None
    """The one on the metric that was opened, else the most severe."""

    @property
    def limit(self) -> float | None:
        """The alarm's limit, if it is drawn."""
        return None if self.alarm is None else self.alarm.limit

    def figure(self, width: int, height: int) -> Figure:
        """The curves and their axes. The scale comes first, since its labels take room."""
        cells = area(width, [])
        found = self._columns(cells)
        scale = self._scale(found, max(2, height - 3))
        labels = scale.labels
        if area(width, labels) != cells:
            cells = area(width, labels)
            found = self._columns(cells)
        y_ticks = list(zip(map(scale.share, scale.ticks), labels, strict=True))
        averages = self._averages(found, scale)
        lines = plot(averages, self._x_ticks(cells), y_ticks, width, height, self.tone("dim"))
        left, rows = label_width(labels) + 1, len(lines) - AXIS_ROWS
        behind = [*self._ranges(found, scale, cells, rows), *[[]] * AXIS_ROWS]
        strips = [
            _under(Strip(parts), left, runs) for parts, runs in zip(lines, behind, strict=True)
        ]
        off = beyond(found.raw, scale) if self.chart.view.clip else 0
        return Figure(strips, left, cells, off, _points(found.held, scale, cells, rows))

    def _columns(self, cells: int) -> Columns:
        raw, others = self.chart.buckets(self.key, cells), self.chart.others(self.key, cells)
        if self.key != REWARD:
            return Columns(raw, others, [], [])
        return Columns(raw, others, self._held(cells), self._band(raw))

    def _held(self, cells: int) -> list[Bucket]:
        """The newest held-out reward of each column."""
        held_out = self.chart.data.held_out
        held_out.follow(self.chart.run)
        found = []
        for column, row in self.chart.newest(held_out.rows, cells):
            score = held_out.scores[row]
            low = score.value if score.low is None else score.low
            high = score.value if score.high is None else score.high
            found.append(Bucket(column, low, high, score.value, score.joins, row))
        return found

    def _band(self, raw: Sequence[Bucket]) -> list[Bucket]:
        run, view, spreads = self.chart.run, self.chart.view, self.chart.data.spreads
        values = run.series.column(self.key)
        band = []
        for bucket in raw if view.envelope else ():
            half = spreads.half(run, bucket.last, view.weight)
            middle = bucket.smooth if view.weight else values[bucket.last]
            if isfinite(half) and isfinite(middle):
                band.append(bucket._replace(low=middle - half, high=middle + half))
        return band

    def _scale(self, found: Columns, rows: int) -> Scale:
        """The y axis; `rows` from the lowest row of the plot to its highest."""
        sure = [bucket for bucket in found.band if bucket.last >= NEAR]
        shown = [*found.raw, *found.others, *found.held, *sure]
        scales = [
            y_scale(shown, self.chart.view, max(1.0, rows / every), self.limit, self.key)
            for every in TICK_ROWS
        ]
        return min(scales, key=lambda scale: (scale.high - scale.low, -len(scale.ticks)))

    def _averages(self, found: Columns, scale: Scale) -> list[Signal]:
        """The moving averages, the run's own on top.

        Without smoothing, one point of the curve: plotext draws no axes without any.
        """
        own = self.tone(alarm_tone(self.alarm) or "accent")
        held = _average([bucket for bucket in found.held if bucket.joined], scale)
        signals = [Signal(*held, self.tone("second"))]
        if self.chart.view.weight:
            signals.insert(0, Signal(*_average(found.others, scale), self.tone("plain")))
            signals.append(Signal(*_average(found.raw, scale), own))
        else:
            first = found.raw[:1]
            xs, ys = [2.0 * b.column for b in first], [scale.share(b.low) for b in first]
            signals.append(Signal(xs, ys, own))
        return [signal for signal in signals if signal.xs]

    def _ranges(
        self, found: Columns, scale: Scale, cells: int, rows: int
    ) -> list[list[tuple[str, Style | None]]]:
        """What lies behind the averages, row by row: texts with a style, None for blanks.

        The intervals of both rewards, or the range of another metric's raw values; without
        smoothing, the raw values. A noisy curve is a solid block of dots, which plotext fills
        slowly.
        """
        raw, others, held, band = map(_spaced, found)
        smoothed, measures = self.chart.view.weight > 0, (scale, 2 * cells, 4 * rows - 1)
        behind = raw if smoothed and self.chart.view.ranged else []
        drawing = chart.Drawing(
            chart.extents([] if smoothed else raw, *measures),
            chart.extents([] if smoothed else others, *measures),
            chart.bars(held, *measures),
            chart.dashed(self.limit, *measures),
            chart.bars(band, *measures) if band else chart.extents(behind, *measures),
        )
        kinds = chart.TONES | {"line": alarm_tone(self.alarm) or "accent"}
        tones = {kind: self.tone(name) for kind, name in kinds.items() if kind != "blank"}
        return [
            [(run.text, tones.get(run.kind)) for run in row] for row in chart.rows(drawing, rows)
        ]

    def _x_ticks(self, cells: int) -> list[Tick]:
        low, high = self.chart.reach
        dots = (2 * cells - 1) / (high - low)
        axis, count = self.chart.axis, max(1, cells // TICK_CELLS)
        if axis is Axis.STEP:
            found = step_marks(self.chart.run.series.step_at, low, high, count)
        else:
            found = marks(axis, low, high, count)
        return [((value - low) * dots, label) for value, label in found]


def _points(held: Sequence[Bucket], scale: Scale, cells: int, rows: int) -> list[tuple[int, int]]:
    if len(held) * APART > cells:
        return []
    heights = (round(scale.share(bucket.smooth) * (4 * rows - 1)) for bucket in held)
    return [(b.column, rows - 1 - h // 4) for b, h in zip(held, heights, strict=True)]


def _spaced(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The same in dot columns, two per cell."""
    return [bucket._replace(column=2 * bucket.column) for bucket in buckets]


def _under(strip: Strip, left: int, behind: Sequence[tuple[str, Style | None]]) -> Strip:
    """The line with others behind it, visible where it is blank."""
    if all(style is None for _, style in behind):
        return strip
    front = [(char, segment.style) for segment in strip for char in segment.text]
    place = left
    for text, style in behind:
        if style is not None:
            for at, char in enumerate(text, start=place):
                if front[at][0] == " ":
                    front[at] = char, style
        place += len(text)
    return Strip(
        Segment("".join(char for char, _ in alike), style)
        for style, alike in groupby(front, key=itemgetter(1))
    )


def _average(buckets: Sequence[Bucket], scale: Scale) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for bucket in buckets:
        if not bucket.joined:
            xs.append(2 * bucket.column)
            ys.append(nan)
        xs.append(2 * bucket.column)
        ys.append(scale.share(bucket.smooth))
    return xs, ys


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
    """The heading for a metric of the run.

    Args:
        chart: The run, as the metric is shown.
        key: The metric.
        cursor: The row under the crosshair; None for the newest.
        off: Columns with a value that is off the scale.
        alarm: The alarm that is drawn with it.
    """
    return Heading(
        metric_title(key, chart.run),
        [one for one in _numbers(chart, key, cursor, alarm) if one[1]],
        metric(key).meaning,
        [word for word in _words(chart, key, cursor, off) if word],
    )


def _numbers(chart: Chart, key: str, cursor: int | None, alarm: Alarm | None) -> list[Number]:
    """The numbers of a heading; empty texts are left out."""
    length, weight = chart.run.series.length if cursor is None else cursor + 1, chart.view.weight
    readout = chart.curve(key).readout(length, exact=cursor is not None)
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
        half = chart.data.spreads.half(chart.run, length - 1, weight)
        numbers.insert(1, (SURE, short(half) if isfinite(half) else "", "dim"))
    return numbers + _compared(chart, key, length, readout)


def _words(chart: Chart, key: str, cursor: int | None, off: int) -> list[str]:
    """What a heading says of the chart's range and scales; empty texts are left out."""
    view, missing = chart.view, chart.curve(key).missing
    known = "" if chart.axis is view.axis else f"step: {view.axis} not reported"
    (start, stop), step_at = chart.rows, chart.run.series.step_at
    clipped = "outliers clipped" if view.clip else ""
    return [
        _where(chart, cursor),
        "constant" if chart.curve(key).is_constant else "",
        f"⚠ {missing} missing" if missing else "",
        "log" if view.log else "",
        "" if view.axis is Axis.STEP else f"by {known or view.axis}",
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
    run = chart.run
    if cursor is None:
        return steps_text(run)
    position = run.tree.find(run.series.id_at(cursor))
    unnamed = f"step {run.series.step_at(cursor)}"
    name = unnamed if position is None else one_line(label(run.tree[position]), 24)
    return f"┊ {name}{chart.x_text(cursor)}"


def steps_text(run: Run) -> str:
    """Length of the curves in steps; the last one by name if it has another number."""
    length, head = run.series.length, run.head
    if head is None or head.step in (None, length):
        return f"step {length}"
    return f"{counted(length, 'step')} up to {one_line(label(head), 24)}"


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
    opened: reactive[str] = reactive("", repaint=False)
    """Id of the alarm that was opened; others on its metric are then not drawn."""
    band: reactive[tuple[int, int] | None] = reactive[tuple[int, int] | None](None, repaint=False)
    """First and last cell of the span that is being dragged."""
    _from: int | None = None
    """The cell where the button was pressed."""
    _was_drawn = False
    """Whether the button was released after a span, so that it was no click."""
    _stamp: object = None
    _figure = EMPTY

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

    watch_key = watch_opened = watch_band = RunChart.redraw

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that is drawn."""
        return self.run.alarms.of_metric(self.key, self.opened)

    def notify_style_update(self) -> None:
        self._stamp = None
        super().notify_style_update()

    @property
    def count(self) -> int:
        return self.body_rows

    @property
    def drawable(self) -> bool:
        """Whether there is something to draw, and room for it."""
        room = self.body_rows >= LEAST_ROWS and self.width >= LEAST_CELLS
        return room and self.key in self.run.series.keys

    def heading(self, width: int) -> Strip:
        if self.key not in self.run.series.keys:
            text = fit_text(f" {one_line(awaiting(self.run), 500)}", width)
            return line((text, self.tone("dim")))
        off = self._cached(width).off if self.drawable else 0
        shown = self.chart.of(self.key)
        return focus_heading(shown, self.key, self.pointed, off, self.alarm).strip(self.tone, width)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        if not self.drawable:
            return []
        figure = self._cached(width)
        lines = self._banded(self._signed(figure))
        below = [self._legend(width)] if self._figure_rows < len(rows) else []
        column = self.chart.column(self.pointed, 2 * figure.cells)
        if column is None:
            return [*lines, *below]
        cell = figure.left + column // 2
        *plotted, axis, labels = lines
        plotted = [crossed(strip, cell, self.tone("dim")) for strip in plotted]
        return [*plotted, put(axis, cell, "▲", self.tone("strong")), labels, *below]

    def _signed(self, figure: Figure) -> Sequence[Strip]:
        """The figure with held-out rewards marked, and the signs on its x axis."""
        *plotted, axis, labels = figure.lines
        for cell, row in figure.points:
            plotted[row] = put(plotted[row], figure.left + cell, HELD_MARK, self.tone("second"))
        for cell, sign in self.chart.cells(self.signs, figure.cells).items():
            axis = put(axis, figure.left + cell, sign, self._sign_tone(sign))
        return [*plotted, axis, labels]

    def _sign_tone(self, sign: Sign) -> Style:
        return self.tone(chart.TONES[sign.name.lower()])

    @property
    def _figure_rows(self) -> int:
        """Rows of the figure: all, or all but the legend's."""
        rows = self.body_rows
        has_legend = self.key == REWARD or any(self.chart.cells(self.signs, 2 * self.width))
        return rows - 1 if has_legend and rows >= LEGEND_FROM else rows

    def _legend(self, width: int) -> Strip:
        """The curves, what their intervals are over, and the signs; the shortest form that says
        all of it, if the longer ones do not fit."""
        signs: list[tuple[str, Style]] = []
        for sign in dict.fromkeys(self.chart.cells(self.signs, self._figure.cells).values()):
            signs += [(f"   {sign}", self._sign_tone(sign)), (f" {sign.meaning}", self.tone("dim"))]
        if self.key != REWARD or not self.run.series.length:
            return line(*signs).crop(0, width)
        forms = (line(*self._rewards_legend(words), *signs) for words in LEGEND_WORDS)
        legend = next((form for form in forms if form.cell_length <= width), None)
        return legend or line(*self._rewards_legend(0), *signs).crop(0, width)

    def _rewards_legend(self, words: int) -> list[tuple[str, Style]]:
        """The rewards' part; `words` is one of `LEGEND_WORDS`."""
        run, dim = self.run, self.tone("dim")
        row = run.series.length - 1 if self.pointed is None else self.pointed
        over, weight = self.chart_data.spreads.at(run, row).over, self.chart_view.weight
        interval = f", 95 % over {over}"
        if weight:  # the band is that of a moving average, which is over more than this step's
            interval = f", 95 % of EMA({weight:g})"
        if not over or words < 2:
            interval = ""
        parts = [("   ━", self.tone("accent")), (f" train{interval}", dim)]
        if (held := self.chart_data.held_out.at(row)) is not None:
            where, score = held
            of = label(run.tree[run.tree.find(run.series.id_at(where)) or 0])
            text = f" of {one_line(of, 24)}" if words > 2 else ""
            if score.over and words > 0:
                sure = score.low is not None and (words > 2 or not interval)
                text += f", {'95 % over ' if sure else ''}{score.over}"
            value = f"{short(score.value)} {interval_text(score.low, score.high)}".rstrip()
            parts += [(f"   {HELD_MARK}", self.tone("second")), (" held-out ", dim)]
            parts += [(value, self.tone("plain")), (text, dim)]
        return parts

    def _banded(self, lines: Sequence[Strip]) -> Sequence[Strip]:
        """The figure with the dragged span highlighted between two lines."""
        if self.band is None:
            return lines
        first, last = self.band
        ground = Style(bgcolor=self.tone("cursor-blurred").bgcolor)

        def banded(strip: Strip) -> Strip:
            dim = self.tone("dim")
            edged = crossed(crossed(strip, first, dim), last, dim)
            inside = edged.crop(first, last + 1).apply_style(ground)
            return Strip.join([edged.crop(0, first), inside, edged.crop(last + 1)])

        return [*map(banded, lines[:-AXIS_ROWS]), *lines[-AXIS_ROWS:]]

    def _cached(self, width: int) -> Figure:
        shown, alarm, height = self.chart, self.alarm, self._figure_rows
        of_alarm = None if alarm is None else (alarm.level, alarm.active, alarm.limit)
        edition = self.run.tree.edition if self.key == REWARD else 0
        measures = shown.reach, self.key, width, height
        stamp = self.run.series, self.chart_view, *measures, of_alarm, edition
        if stamp != self._stamp:
            curves = Curves(self.tone, shown.of(self.key), self.key, alarm)
            self._figure, self._stamp = curves.figure(width, height), stamp
        return self._figure

    # The mouse.

    def row_at(self, cell: int, within: bool = True) -> int | None:
        """The step closest to a cell. Beside the curves None, or without `within` their end."""
        figure, place = self._figure, cell - self._figure.left
        if not self.drawable or (within and not 0 <= place < figure.cells):
            return None
        place = max(0, min(figure.cells - 1, place))
        return self.chart.row(2 * place, 2 * figure.cells)

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
