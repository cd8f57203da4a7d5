"""FocusChart: the chosen metric, large, with axes."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, nan
from operator import itemgetter
from typing import Any

import plotext
from rich.segment import Segment
from rich.style import Style
from textual.events import (
    Click,
    MouseDown,
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
from hud_tui.rl.axes import Axis, Scale, marks
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.compare import ChartView
from hud_tui.rl.curves import DELTA_STEPS, NEAR, Bucket, Readout, Sign
from hud_tui.rl.metrics import change, metric, outside, short, signed
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.widgets import chart
from hud_tui.tui.widgets.chart import (
    ChartData,
    RunChart,
    alarm_tone,
    beyond,
    metric_title,
    y_scale,
)
from hud_tui.tui.widgets.lines import fit_text, line

NEARER = 0.75
"""Factor of the visible steps per notch of the wheel."""
DRAWN = 2
"""Cells from which dragging selects a span instead of clicking."""


class ChartMouse(RunChart):
    """Mouse actions of the chart, as messages; the screen carries them out as for keys."""

    band: reactive[tuple[int, int] | None] = reactive[tuple[int, int] | None](None, repaint=False)
    """First and last cell of the span that is being dragged."""
    _from: int | None = None
    """The cell where the button was pressed."""
    _was_drawn = False
    """Whether the button was released after a span, so that it was no click."""

    @dataclass
    class Pointed(Message):
        """The user moved the crosshair to this row."""

        row: int

    @dataclass
    class Opened(Message):
        """The user pressed enter at the crosshair, or clicked it."""

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

    @abstractmethod
    def row_at(self, cell: int, within: bool = True) -> int | None:
        """The step closest to a cell. Beside the curves None, or with `within` their end."""

    @abstractmethod
    def share_at(self, cell: int) -> float:
        """Position of a cell along the curves, in [0, 1]."""

    def watch_band(self) -> None:
        self.redraw()

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
        self._wheel(event.x, NEARER, -1, pan=event.shift or event.ctrl)
        event.stop()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._wheel(event.x, 1 / NEARER, 1, pan=event.shift or event.ctrl)
        event.stop()

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        self.post_message(self.Panned(-1))
        event.stop()

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        self.post_message(self.Panned(1))
        event.stop()

    def _wheel(self, cell: int, factor: float, way: int, pan: bool) -> None:
        row = self.row_at(cell, within=False)
        if pan:
            self.post_message(self.Panned(way))
        elif row is not None:
            self.post_message(self.Scaled(factor, row, self.share_at(cell)))


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


@dataclass(frozen=True)
class Curves:
    """The content of a figure."""

    tone: Callable[[str], Style]
    run: Run
    key: str
    """The metric."""
    chart_data: ChartData
    chart_view: ChartView
    alarm: Alarm | None = None
    """The one on the metric that was opened, else the most severe."""

    @property
    def limit(self) -> float | None:
        """The alarm's limit, if it is drawn."""
        return None if self.alarm is None else self.alarm.limit

    @property
    def own(self) -> Style:
        """Style of the metric's curve."""
        return self.tone(alarm_tone(self.alarm) or "accent")

    def figure(self, width: int, height: int) -> Figure:
        """The curves and their axes. The scale comes first, since its labels take room."""
        raw, others = self._buckets(area(width, []))
        rows = max(2, height - 3)  # from the lowest row of the plot to its highest
        band = self._band(raw)
        sure = [bucket for bucket in band if bucket.last >= NEAR]
        shown = [*raw, *others, *self._held(area(width, [])), *sure]
        scales = [
            y_scale(shown, self.chart_view, max(1.0, rows / every), self.limit, self.key)
            for every in TICK_ROWS
        ]
        scale = min(scales, key=lambda scale: (scale.high - scale.low, -len(scale.ticks)))
        labels = scale.labels
        cells = area(width, labels)
        if cells != area(width, []):
            raw, others = self._buckets(cells)
            band = self._band(raw)
        y_ticks = list(zip(map(scale.share, scale.ticks), labels, strict=True))
        held = self._held(cells)
        averages = self._averages(raw, others, held, scale)
        lines = plot(averages, self._x_ticks(cells), y_ticks, width, height, self.tone("dim"))
        left = label_width(labels) + 1
        strips = [Strip(parts) for parts in lines]
        rows = len(strips) - AXIS_ROWS
        behind = self._ranges(raw, others, held, band, scale, cells, rows)
        strips[: len(behind)] = [
            _under(strip, left, runs) for strip, runs in zip(strips, behind, strict=False)
        ]
        off = beyond(raw, scale) if self.chart_view.clip else 0
        return Figure(strips, left, cells, off, self._points(held, scale, cells, rows))

    @property
    def _of_rewards(self) -> bool:
        """Whether held-out rewards and intervals are drawn with the curve."""
        return self.key == REWARD

    def _held(self, cells: int) -> list[Bucket]:
        """The newest held-out reward of each column, with its interval as range."""
        if not self._of_rewards:
            return []
        run, held_out = self.run, self.chart_data.held_out
        held_out.follow(run)
        found = []
        newest = self.chart_data.newest(run, self.chart_view, held_out.rows, cells)
        for column, row in newest:
            score = held_out.scores[row]
            low = score.value if score.low is None else score.low
            high = score.value if score.high is None else score.high
            found.append(Bucket(column, low, high, score.value, score.joins, row))
        return found

    def _band(self, raw: Sequence[Bucket]) -> list[Bucket]:
        """The curve's 95 % interval, if its width is known."""
        if not self._of_rewards or not self.chart_view.envelope:
            return []
        spreads, weight = self.chart_data.spreads, self.chart_view.weight
        values = self.run.series.column(self.key)
        band = []
        for bucket in raw:
            half = spreads.half(self.run, bucket.last, weight)
            middle = bucket.smooth if weight else values[bucket.last]
            if isfinite(half) and isfinite(middle):
                band.append(bucket._replace(low=middle - half, high=middle + half))
        return band

    def _points(
        self, held: Sequence[Bucket], scale: Scale, cells: int, rows: int
    ) -> list[tuple[int, int]]:
        if len(held) * APART > cells:
            return []
        heights = (round(scale.share(bucket.smooth) * (4 * rows - 1)) for bucket in held)
        return [(b.column, rows - 1 - h // 4) for b, h in zip(held, heights, strict=True)]

    def _buckets(self, cells: int) -> tuple[list[Bucket], list[Bucket]]:
        run, chart_view, chart_data = self.run, self.chart_view, self.chart_data
        return chart_data.buckets(run, self.key, chart_view, cells), chart_data.others(
            run, self.key, chart_view, cells
        )

    def _averages(
        self,
        raw: Sequence[Bucket],
        others: Sequence[Bucket],
        held: Sequence[Bucket],
        scale: Scale,
    ) -> list[Signal]:
        """The moving averages, the run's own on top.

        Without smoothing, one point of the curve: plotext draws no axes without any.
        """
        joined = [bucket for bucket in held if bucket.joined]
        beside = Signal(*_average(joined, scale), self.tone("second"))
        if not self.chart_view.weight:
            first = [(2.0 * b.column, scale.share(b.low)) for b in raw[:1]]
            alone = [Signal([x], [y], self.own) for x, y in first]
            return [*([beside] if beside.xs else []), *alone]
        found = [
            Signal(*_average(others, scale), self.tone("plain")),
            beside,
            Signal(*_average(raw, scale), self.own),
        ]
        return [signal for signal in found if signal.xs]

    def _ranges(
        self,
        raw: Sequence[Bucket],
        others: Sequence[Bucket],
        held: Sequence[Bucket],
        band: Sequence[Bucket],
        scale: Scale,
        cells: int,
        rows: int,
    ) -> list[list[tuple[str, Style | None]]]:
        """What lies behind the averages, row by row: texts with a style, None for blanks.

        The intervals of both rewards, or the range of another metric's raw values; without
        smoothing, the raw values. A noisy curve is a solid block of dots, which plotext fills
        slowly.
        """
        smoothed, ranged = self.chart_view.weight > 0, self.chart_view.ranged
        columns, top = 2 * cells, 4 * rows - 1
        drawing = chart.Drawing(
            chart.extents([] if smoothed else _spaced(raw), scale, columns, top),
            chart.extents([] if smoothed else _spaced(others), scale, columns, top),
            chart.bars(_spaced(held), scale, columns, top),
            chart.dashed(self.limit, scale, columns, top),
            chart.bars(_spaced(band), scale, columns, top)
            if band
            else chart.extents(_spaced(raw) if smoothed and ranged else [], scale, columns, top),
        )
        tones = {
            "line": self.own,
            "other": self.tone("plain"),
            "held": self.tone("second"),
            "limit": self.tone("warm"),
            "envelope": self.tone("faint"),
        }
        return [
            [(run.text, tones.get(run.kind)) for run in row] for row in chart.rows(drawing, rows)
        ]

    def _x_ticks(self, cells: int) -> list[Tick]:
        low, high = self.chart_data.reach(self.run, self.chart_view)
        dots = (2 * cells - 1) / (high - low)
        found = marks(
            self.chart_data.axis(self.run, self.chart_view), low, high, max(1, cells // TICK_CELLS)
        )
        return [((value - low) * dots, label) for value, label in found]


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


@dataclass(frozen=True)
class Heading:
    """The parts of the line, most important first."""

    title: str
    numbers: Sequence[tuple[str, str, str]]
    """Name, number, and tone of the number."""
    meaning: str
    words: Sequence[str]
    """Position of the crosshair, and anything unusual."""

    def strip(self, tones: Mapping[str, Style], width: int) -> Strip:
        """The line in exactly `width` cells; parts that do not fit are left out."""
        words, numbers = list(self.words), list(self.numbers)
        parts = self._left(numbers, tones)
        where = len(words[0]) + 3 if words else 0
        while len(numbers) > 1 and line(*parts).cell_length + where > width:
            numbers.remove(max(numbers, key=_spared))
            parts = self._left(numbers, tones)
        left = line(*parts)
        while words and left.cell_length + len(" · ".join(words)) + 3 > width:
            words.pop()
        right = " · ".join(reversed(words)) + " "
        room = max(0, width - left.cell_length - len(right))
        meaning = f"  {self.meaning}" if len(self.meaning) + 4 <= room else ""
        return line(*parts, (fit_text(meaning, room), tones["dim"]), (right, tones["dim"])).crop(
            0, width
        )

    def _left(
        self, numbers: Sequence[tuple[str, str, str]], tones: Mapping[str, Style]
    ) -> list[tuple[str, Style]]:
        parts = [(f" {self.title} ", tones["strong"])]
        for name, text, tone in numbers:
            parts += [(f"  {name} ", tones["dim"]), (text.ljust(6), tones[tone])]
        return parts


def _spared(number: tuple[str, str, str]) -> int:
    name = next((kind for kind in (OTHER, FLAG) if number[0].startswith(kind)), number[0])
    return SPARED.index(name) if name in SPARED else -1


def focus_heading(
    key: str,
    run: Run,
    chart_data: ChartData,
    chart_view: ChartView,
    cursor: int | None,
    off: int,
    alarm: Alarm | None = None,
) -> Heading:
    """The heading for a metric of the run.

    Args:
        key: The metric.
        run: The run.
        chart_data: Its curves.
        chart_view: How they are shown.
        cursor: The row under the crosshair; None for the newest.
        off: Columns with a value that is off the scale.
        alarm: The alarm that is drawn with it.
    """
    chart_view = chart_view.of(key)
    return Heading(
        metric_title(key, run),
        [one for one in _numbers(key, run, chart_data, chart_view, cursor, alarm) if one[1]],
        metric(key).meaning,
        [word for word in _words(key, run, chart_data, chart_view, cursor, off) if word],
    )


def _numbers(
    key: str,
    run: Run,
    chart_data: ChartData,
    chart_view: ChartView,
    cursor: int | None,
    alarm: Alarm | None,
) -> list[tuple[str, str, str]]:
    """The numbers of a heading: label, value (empty if there is none) and tone."""
    length = run.series.length if cursor is None else cursor + 1
    curve, known = chart_data.curve(run, key, chart_view), metric(key)
    readout = curve.readout(length, exact=cursor is not None)
    tone = alarm_tone(alarm) or ("warm" if outside(known, readout.raw) else "plain")
    numbers = [
        (RAW, short(readout.raw), tone),
        (DELTA, signed(readout.delta), "plain"),
    ]
    if alarm is not None:
        since = f"since step {alarm.onset}"
        limit = since if alarm.limit is None else f"limit {short(alarm.limit)}"
        over = "" if alarm.ended is None else f" until step {alarm.ended}"
        numbers.append((f"{FLAG} {alarm.title}", f"{limit}{over}", tone))
    if chart_view.weight:
        numbers.insert(0, (f"EMA({chart_view.weight:g}) =", short(readout.smooth), "plain"))
    if key == REWARD and length:
        half = chart_data.spreads.half(run, length - 1, chart_view.weight)
        numbers.insert(1, (SURE, short(half) if isfinite(half) else "", "dim"))
    return numbers + _compared(key, chart_data, chart_view, length, readout)


def _words(
    key: str,
    run: Run,
    chart_data: ChartData,
    chart_view: ChartView,
    cursor: int | None,
    off: int,
) -> list[str]:
    """What a heading says of the chart's range and scales; empty texts are left out."""
    missing = chart_data.curve(run, key, chart_view).missing
    clipped = "outliers clipped" if chart_view.clip else ""
    return [
        _where(run, chart_data, chart_view, cursor),
        f"⚠ {missing} missing" if missing else "",
        "log" if chart_view.log else "",
        _axis_text(run, chart_data, chart_view),
        f"outliers clipped: {counted(off, 'column')}" if off else clipped,
        _zoom_text(run, chart_view),
    ]


def _compared(
    key: str, chart_data: ChartData, chart_view: ChartView, length: int, own: Readout
) -> list[tuple[str, str, str]]:
    """The overlay's number at the same position, and the run's difference from it."""
    other = chart_view.overlay
    if other is None:
        return []
    steps = min(length - other.shift, other.run.series.length)
    if steps < 1 or key not in other.run.series.keys:
        return [("vs", one_line(other.name, 24), "plain"), ("", "–", "plain")]
    there = chart_data.other_curve(other, key, chart_view).readout(steps)
    theirs, ours = (there.smooth, own.smooth) if chart_view.weight else (there.raw, own.raw)
    apart = signed(change(theirs, ours))
    return [(f"{OTHER}{one_line(other.name, 24)}", f"{short(theirs)} {apart}", "plain")]


def _where(run: Run, chart_data: ChartData, chart_view: ChartView, cursor: int | None) -> str:
    if cursor is None:
        return steps_text(run)
    position = run.tree.find(run.series.id_at(cursor))
    name = f"step {cursor + 1}" if position is None else one_line(label(run.tree[position]), 24)
    return f"┊ {name}{chart_data.x_text(run, chart_view, cursor)}"


def steps_text(run: Run) -> str:
    """Length of the curves in steps; the last one by name if it has another number."""
    length, head = run.series.length, run.head
    if head is None or head.step in (None, length):
        return f"step {length}"
    return f"{counted(length, 'step')} up to {one_line(label(head), 24)}"


def _axis_text(run: Run, chart_data: ChartData, chart_view: ChartView) -> str:
    if chart_view.axis is Axis.STEP:
        return ""
    known = chart_data.axis(run, chart_view) is chart_view.axis
    return f"by {chart_view.axis}" if known else f"by step: {chart_view.axis} not reported"


def _zoom_text(run: Run, chart_view: ChartView) -> str:
    if chart_view.span is None:
        return ""
    start, stop = chart_view.rows(run.series.length)
    return f"steps {start + 1}–{stop}"


HEADING_TONES = ("strong", "dim", "plain", "second", "warm", "hot")
LEGEND_FROM = 7
"""Rows below the heading from which there is a legend."""
LEGEND_WORDS = (3, 2, 1, 0)
"""Forms of the rewards' legend, longest first: with the evaluated checkpoint, without it, without
what train's interval is over, and with the numbers alone."""
LEAST_ROWS, LEAST_CELLS = 3, 20
"""Least size of a figure."""


class FocusChart(ChartMouse, can_focus=False):
    """A figure, with the crosshair and the alarms' flags over it.

    The figure is cached, so that moving the crosshair does not draw it again.
    """

    key: reactive[str] = reactive("", repaint=False)
    """The metric."""
    opened: reactive[str] = reactive("", repaint=False)
    """Id of the alarm that was opened; others on its metric are then not drawn."""

    _stamp: object = None
    _figure = EMPTY

    def watch_key(self) -> None:
        self.redraw()

    def watch_opened(self) -> None:
        self.redraw()

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
        off = self._cached(width, self._figure_rows).off if self.drawable else 0
        tones = {name: self.tone(name) for name in HEADING_TONES}
        return focus_heading(
            self.key, self.run, self.chart_data, self.chart_view, self.pointed, off, self.alarm
        ).strip(tones, width)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        if not self.drawable:
            return []
        figure = self._cached(width, self._figure_rows)
        lines = self._banded(self._signed(figure))
        below = [self._legend(width)] if self._figure_rows < len(rows) else []
        cursor = self.pointed
        column = (
            None
            if cursor is None
            else self.chart_data.column(self.run, self.chart_view, cursor, 2 * figure.cells)
        )
        if column is None:
            return [*lines, *below]
        cell = figure.left + column // 2
        *plotted, axis = [self._crossed(strip, cell) for strip in lines[:-1]]
        foot = Segment("▲", self.tone("strong"))
        return [*plotted, _put(axis, cell, foot), lines[-1], *below]

    def _signed(self, figure: Figure) -> Sequence[Strip]:
        """The figure with held-out rewards marked, and the signs on its x axis."""
        *plotted, axis, labels = figure.lines
        for cell, row in figure.points:
            mark = Segment(HELD_MARK, self.tone("second"))
            plotted[row] = _put(plotted[row], figure.left + cell, mark)
        for cell, sign in self._signs(figure.cells).items():
            axis = _put(axis, figure.left + cell, Segment(sign, self._sign_tone(sign)))
        return [*plotted, axis, labels]

    def _signs(self, cells: int) -> Mapping[int, Sign]:
        return self.chart_data.cells(self.run, self.chart_view, self.signs, cells)

    def _sign_tone(self, sign: Sign) -> Style:
        return self.tone(chart.TONES[sign.name.lower()])

    @property
    def _figure_rows(self) -> int:
        """Rows of the figure: all, or all but the legend's."""
        rows = self.body_rows
        has_legend = self.key == REWARD or any(self._signs(2 * self.width))
        return rows - 1 if has_legend and rows >= LEGEND_FROM else rows

    def _legend(self, width: int) -> Strip:
        """The curves, what their intervals are over, and the signs; the shortest form that says
        all of it, if the longer ones do not fit."""
        signs: list[tuple[str, Style]] = []
        for sign in dict.fromkeys(self._signs(self._figure.cells).values()):
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
        over = self.chart_data.spreads.at(run, row).over
        interval = f", 95 % over {over}" if over and words > 1 else ""
        parts = [("   ━", self.tone("accent")), (f" train{interval}", dim)]
        if (held := self.chart_data.held_out.at(row)) is not None:
            where, score = held
            of = label(run.tree[run.tree.find(run.series.id_at(where)) or 0])
            text = f" of {one_line(of, 24)}" if words > 2 else ""
            if score.over and words > 0:
                sure = score.low is not None and (words > 2 or not interval)
                text += f", {'95 % over ' if sure else ''}{score.over}"
            ends = "" if score.low is None else f" [{short(score.low)}, {short(score.high)}]"
            parts += [(f"   {HELD_MARK}", self.tone("second")), (" held-out ", dim)]
            parts += [(f"{short(score.value)}{ends}", self.tone("plain")), (text, dim)]
        return parts

    def _banded(self, lines: Sequence[Strip]) -> Sequence[Strip]:
        """The figure with the dragged span highlighted between two lines."""
        if self.band is None:
            return lines
        first, last = self.band
        ground = Style(bgcolor=self.tone("cursor-blurred").bgcolor)

        def banded(strip: Strip) -> Strip:
            edged = self._crossed(self._crossed(strip, first), last)
            inside = edged.crop(first, last + 1).apply_style(ground)
            return Strip.join([edged.crop(0, first), inside, edged.crop(last + 1)])

        return [*map(banded, lines[:-AXIS_ROWS]), *lines[-AXIS_ROWS:]]

    def _crossed(self, strip: Strip, cell: int) -> Strip:
        free = strip.crop(cell, cell + 1).text == " "
        return _put(strip, cell, Segment("┊", self.tone("dim"))) if free else strip

    def _cached(self, width: int, height: int) -> Figure:
        reach = self.chart_data.reach(self.run, self.chart_view)
        alarm = self.alarm
        of_alarm = None if alarm is None else (alarm.level, alarm.active, alarm.limit)
        edition = self.run.tree.edition if self.key == REWARD else 0
        stamp = (
            *(self.run.series, reach, self.chart_view, self.key, width, height),
            *(of_alarm, edition),
        )
        if stamp != self._stamp:
            chart_view = self.chart_view.of(self.key)
            curves = Curves(self.tone, self.run, self.key, self.chart_data, chart_view, alarm)
            self._figure, self._stamp = curves.figure(width, height), stamp
        return self._figure

    def row_at(self, cell: int, within: bool = True) -> int | None:
        figure, place = self._figure, cell - self._figure.left
        if not self.drawable or (within and not 0 <= place < figure.cells):
            return None
        place = max(0, min(figure.cells - 1, place))
        return self.chart_data.row(self.run, self.chart_view, 2 * place, 2 * figure.cells)

    def share_at(self, cell: int) -> float:
        figure = self._figure
        return max(0.0, min(1.0, (cell - figure.left) / max(1, figure.cells - 1)))


def _put(strip: Strip, cell: int, segment: Segment) -> Strip:
    """The line with one cell replaced."""
    return Strip.join([strip.crop(0, cell), Strip([segment]), strip.crop(cell + 1)])
