"""BrailleChart: one metric in a few cells; MetricGrid: one chart for every metric."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, isfinite
from statistics import quantiles
from time import perf_counter
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.alarms.alarm import Alarm, Level
from hud_tui.rl.axes import Axis, Positions, Scale, at_least, axis_length, duration_text, fit
from hud_tui.rl.compare import ChartView, Overlay
from hud_tui.rl.curves import Bucket, Curve, Curves, HeldOut, Sign, Spreads, column_edges
from hud_tui.rl.metrics import (
    REWARDS,
    are_equal,
    canonical,
    metric,
    most_of,
    outside,
    reading,
    resolution,
    short,
    signed,
    title,
)
from hud_tui.rl.own_numbers import HELDOUT, HELDOUT_TRACES
from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.theme import BRAILLE
from hud_tui.tui.widgets.lines import LinesView, fit_text, line

# A curve as braille: two dots per cell across, four down; an average over the range of its values.
#
# Each chart column is one integer whose bits are its dots, lowest dot first.
#
# Source: Unicode 15, Braille Patterns (U+2800); bits 0–2 and 6 are the left column from the top,
# bits 3–5 and 7 the right one.


_FROM_BELOW = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def _cell_bits(side: int) -> tuple[int, ...]:
    """Braille bits of one half cell for each of its 16 sets of dots."""
    return tuple(
        sum(_FROM_BELOW[side][dot] for dot in range(4) if dots >> dot & 1) for dots in range(16)
    )


LEFT, RIGHT = _cell_bits(0), _cell_bits(1)
LEAST_REWARD = 0.05
"""Least length of an axis of rewards, as a share of the greatest."""


class Drawing(NamedTuple):
    """Dots of a chart; each layer is one integer per dot column, and the first layer lies on
    top."""

    line: list[int]
    other: list[int]
    held: list[int]
    """Intervals of held-out rewards."""
    limit: list[int]
    envelope: list[int]


class Span(NamedTuple):
    """Neighbouring cells of one row with the same style."""

    text: str
    kind: str
    """A layer's name, ``blank`` or ``cross``."""


def draw(
    buckets: Sequence[Bucket],
    scale: Scale,
    columns: int,
    dots: int,
    smoothed: bool,
    ranged: bool = True,
    others: Sequence[Bucket] = (),
    limit: float | None = None,
) -> Drawing:
    """Draw the average as a line over the range of the raw values, and another curve's in between.

    Args:
        buckets: At most one per dot column, left to right.
        scale: The y axis over all dots.
        columns: Dot columns.
        dots: Dot rows, at least 1.
        smoothed: Whether there is an average; without one the raw values are the line.
        ranged: Whether the raw values are drawn beside an average.
        others: Buckets of the compared curve.
        limit: An alarm's limit, drawn dashed; None for no line.
    """
    layer = _average if smoothed else extents
    line = layer(buckets, scale, columns, dots - 1)
    other = layer(others, scale, columns, dots - 1)
    behind = smoothed and ranged
    return Drawing(
        line,
        other,
        [0] * columns,
        dashed(limit, scale, columns, dots - 1),
        extents(buckets, scale, columns, dots - 1) if behind else [0] * columns,
    )


def dashed(limit: float | None, scale: Scale, columns: int, top: int) -> list[int]:
    """A dashed horizontal line; empty if the value is off the scale."""
    if limit is None or not scale.low <= limit <= scale.high:
        return [0] * columns
    dot = 1 << round(scale.share(limit) * top)
    return [0 if column & 2 else dot for column in range(columns)]


def extents(buckets: Sequence[Bucket], scale: Scale, columns: int, top: int) -> list[int]:
    """From the lowest to the highest value of each column, connected between columns."""
    spans = [(round(scale.share(b.low) * top), round(scale.share(b.high) * top)) for b in buckets]
    raw = [0] * columns
    for bucket, (low, high) in zip(buckets, spans, strict=True):
        raw[bucket.column] |= _between(low, high)
    for (one, here), (other, there) in pairwise(zip(buckets, spans, strict=True)):
        if other.joined:
            _connect(raw, one.column, _end(here, there), other.column, _end(there, here))
    return raw


def bars(buckets: Sequence[Bucket], scale: Scale, columns: int, top: int) -> list[int]:
    """From the lowest to the highest value of each column, not connected."""
    return extents([bucket._replace(joined=False) for bucket in buckets], scale, columns, top)


def _average(buckets: Sequence[Bucket], scale: Scale, columns: int, top: int) -> list[int]:
    line = [0] * columns
    heights = [round(scale.share(bucket.smooth) * top) for bucket in buckets]
    for bucket, height in zip(buckets, heights, strict=True):
        line[bucket.column] |= 1 << height
    for (one, start), (other, stop) in pairwise(zip(buckets, heights, strict=True)):
        if other.joined:
            _connect(line, one.column, start, other.column, stop)
    return line


def rows(drawing: Drawing, height: int) -> list[list[Span]]:
    """The drawing as text rows, top first, each of len(line) // 2 cells.

    A cell on the line shows the line only, so that it can be followed.
    """
    layers = [(k, dots) for k, dots in zip(Drawing._fields, drawing, strict=True) if any(dots)]
    columns = len(drawing.line)
    return [_row(layers, columns, 4 * (height - 1 - row)) for row in range(height)]


Layers = Sequence[tuple[str, list[int]]]


def _row(layers: Layers, columns: int, shift: int) -> list[Span]:
    runs: list[Span] = []
    text, before = "", ""
    for column in range(0, columns, 2):
        kind, bits = _cell(layers, column, shift)
        if kind != before and text:
            runs.append(Span(text, before))
            text = ""
        text, before = text + (chr(BRAILLE + bits) if bits else " "), kind
    return [*runs, Span(text, before)] if text else runs


def _cell(layers: Layers, column: int, shift: int) -> tuple[str, int]:
    for kind, dots in layers:
        bits = LEFT[dots[column] >> shift & 15] | RIGHT[dots[column + 1] >> shift & 15]
        if bits:
            return kind, bits
    return "blank", 0


def crossed(runs: Sequence[Span], cell: int | None) -> list[Span]:
    """A row with the crosshair in one cell, unless a curve is there."""
    free = cell is not None and is_blank(runs, cell)
    return put(runs, cell, Span("┊", "cross")) if free and cell is not None else list(runs)


def is_blank(runs: Sequence[Span], cell: int) -> bool:
    for run in runs:
        if cell < len(run.text):
            return run.kind == "blank"
        cell -= len(run.text)
    return False


def put(runs: Sequence[Span], cell: int, mark: Span) -> list[Span]:
    """A row with one cell replaced."""
    found: list[Span] = []
    for run in runs:
        if 0 <= cell < len(run.text):
            parts = Span(run.text[:cell], run.kind), mark, Span(run.text[cell + 1 :], run.kind)
            found += [part for part in parts if part.text]
        else:
            found.append(run)
        cell -= len(run.text)
    return found


def signed_rows(rows: Sequence[list[Span]], marks: Mapping[int, Sign]) -> list[list[Span]]:
    """Rows with a sign in each of these cells, in the lowest row that is blank there."""
    drawn = list(rows)
    for cell, sign in marks.items():
        free = (at for at in range(len(rows) - 1, -1, -1) if is_blank(rows[at], cell))
        at = next(free, len(rows) - 1)
        drawn[at] = put(drawn[at], cell, Span(sign, sign.name.lower()))
    return drawn


def _connect(masks: list[int], column: int, height: int, last: int, end: int) -> None:
    """Set the dots between one point and the next, without gaps."""
    before = height
    for step in range(1, last - column + 1):
        now = height + round((end - height) * step / (last - column))
        masks[column + step] |= _between(now, before + (now > before) - (now < before))
        before = now


def _end(here: tuple[int, int], there: tuple[int, int]) -> int:
    """The dot of `here` that is closest to `there`."""
    return min(here[1], max(here[0], (there[0] + there[1]) // 2))


def _between(one: int, other: int) -> int:
    """The dots from one height to another, inclusive."""
    low, high = min(one, other), max(one, other)
    return (1 << high + 1) - (1 << low)


# The curves and positions of the displayed run, shared by its charts.


KEPT = 200
"""Charts whose buckets are cached."""
FENCE = 3.0
"""A value is an outlier if it lies this many interquartile ranges beyond the quartiles."""


@dataclass
class ChartData:
    """What a screen's charts have in common, extended as the run grows."""

    curves: Curves = field(default_factory=Curves)
    others: Curves = field(default_factory=Curves)
    """The overlay's."""
    positions: Positions = field(default_factory=Positions)
    spreads: Spreads = field(default_factory=Spreads)
    held_out: HeldOut = field(default_factory=HeldOut)
    buckets: dict[tuple[str, int], tuple[object, list[Bucket]]] = field(default_factory=dict)
    """By metric and columns, with what they were computed from."""


@dataclass(frozen=True)
class Chart:
    """A run in a chart view: its x axis, and its curves in a chart's columns."""

    data: ChartData
    run: Run
    view: ChartView

    def of(self, key: str) -> Chart:
        """The chart of one metric: see `ChartView.of`."""
        return replace(self, view=self.view.of(key))

    @property
    def rows(self) -> tuple[int, int]:
        """The visible steps: first row, and one past the last."""
        return self.view.rows(self.run.series.length)

    @property
    def axis(self) -> Axis:
        """The view's x axis; steps where the service reports no times or tokens."""
        axis, length = self.view.axis, self.run.series.length
        at = self.data.positions.of(self.run, axis)
        return axis if length < 2 or at[length - 1] > at[0] else Axis.STEP

    @property
    def at(self) -> Sequence[float]:
        """The x of each step: steps, seconds or tokens."""
        return self.data.positions.of(self.run, self.axis)

    @property
    def reach(self) -> tuple[float, float]:
        """The x at the chart's two sides."""
        at, length = self.at, self.run.series.length
        if not length:
            return 0.0, 1.0
        if self.view.span is not None:
            start, stop = self.rows
            return at[start], max(at[stop - 1], at[start] + 1)
        if self.axis is Axis.STEP:
            low, high = 1.0, float(max(2, axis_length(length, _last_step(self.run))))
        else:
            low, high = at[0], max(at[length - 1], at[0] + 1)
        other = self.view.overlay
        if other is not None and (steps := other.run.series.length):
            theirs = other.positions.of(other.run, self.axis)
            high = max(high, theirs[steps - 1] + self._offset(other))
        return low, high

    def _offset(self, other: Overlay) -> float:
        return other.offset(self.data.positions, self.run, self.axis)

    def curve(self, key: str) -> Curve:
        """The metric's curve, up to date with the run."""
        return self.data.curves.of(self.run.series, key, self.view.of(key).weight)

    def other_curve(self, other: Overlay, key: str) -> Curve:
        return self.data.others.of(other.run.series, key, self.view.of(key).weight)

    def buckets(self, key: str, columns: int) -> list[Bucket]:
        """The metric in this many columns."""
        reach, cache = self.reach, self.data.buckets
        stamp = self.run.series, self.axis, reach, self.rows, self.view.of(key).weight
        cached = cache.get((key, columns))
        if cached is not None and cached[0] == stamp:
            return cached[1]
        found = self.curve(key).buckets(self.at, *reach, columns, self.rows)
        if len(cache) >= KEPT:
            cache.clear()
        cache[key, columns] = stamp, found
        return found

    def others(self, key: str, columns: int) -> list[Bucket]:
        """The overlay's curve of the metric over the same columns; empty without one."""
        other = self.view.overlay
        if other is None or key not in other.run.series.keys:
            return []
        offset = self._offset(other)
        low, high = (x - offset for x in self.reach)
        at = other.positions.of(other.run, self.axis)
        rows = _rows_between(at, low, high, other.run.series.length)
        curve = self.other_curve(other, key)
        return curve.buckets(at, low, high, columns, rows) if rows[0] < rows[1] else []

    def column(self, row: int | None, columns: int) -> int | None:
        """The column of a step; None if it is not visible."""
        start, stop = self.rows
        if row is None or not start <= row < stop:
            return None
        low, high = self.reach
        return round((self.at[row] - low) / (high - low) * (columns - 1))

    def row(self, column: int, columns: int) -> int | None:
        """The step closest to a column; None if there are none."""
        at, (low, high), (start, stop) = self.at, self.reach, self.rows
        if start == stop:
            return None
        x = low + (high - low) * column / max(1, columns - 1)
        after = _rows_between(at, x, high, stop)[0]
        near = (row for row in (after - 1, after) if start <= row < stop)
        return min(near, key=lambda row: abs(at[row] - x), default=None)

    def newest(self, rows: Sequence[int], columns: int) -> list[tuple[int, int]]:
        """The last of some ascending rows in each column that has any; O(columns · log n)."""
        edges = column_edges(self.at, *self.reach, columns, *self.rows)
        found = []
        for column, (start, stop) in enumerate(pairwise(edges)):
            place = bisect_left(rows, stop) - 1
            if place >= 0 and rows[place] >= start:
                found.append((column, rows[place]))
        return found

    def cells(self, marks: Mapping[int, Sign], cells: int) -> dict[int, Sign]:
        """Visible signs by the chart cell of their step."""
        found: dict[int, Sign] = {}
        for row, sign in marks.items():
            column = self.column(row, 2 * cells)
            if column is not None:
                found.setdefault(column // 2, sign)
        return found

    def x_text(self, row: int) -> str:
        """A step's x in its unit; empty if the step's number says it."""
        if self.axis is Axis.TIME:
            return f" at {duration_text(self.at[row])}"
        return f" at {short(self.at[row])} tokens" if self.axis is Axis.TOKENS else ""


def y_scale(
    buckets: Sequence[Bucket],
    chart_view: ChartView,
    intervals: float = 0,
    limit: float | None = None,
    key: str = "",
) -> Scale:
    """The y axis that holds all of a chart and an alarm's limit, or all but its outliers; see
    `hud_tui.rl.axes.fit`. Of rewards (`key`) it is long enough that their noise looks small."""
    values = [value for b in buckets for value in (b.low, b.high)] if chart_view.ranged else []
    if chart_view.weight:  # zoomed in, the average may lie beside all raw values
        values += [bucket.smooth for bucket in buckets]
    if chart_view.log and min(values, default=1.0) <= 0:
        values = [v for v in values if v > 0] or values  # zeros stand on the floor
    low, high = min(values, default=float("nan")), max(values, default=float("nan"))
    if are_equal(key, low, high):  # rounding is no curve
        low = high = 0.0 if abs(high) < resolution(key) else high
    if chart_view.clip and len(values) > 3:
        first, _, third = quantiles(values, n=4)
        room = FENCE * (third - first)
        low, high = max(low, first - room), min(high, third + room)
    elif limit is not None and isfinite(limit) and (limit > 0 or not chart_view.log):
        low, high = min(low, limit), max(high, limit)
    if canonical(key) in REWARDS and not chart_view.log:
        low, high = at_least(LEAST_REWARD, low, high)
    return fit(low, high, chart_view.log, intervals, most_of(key, high))


def beyond(buckets: Sequence[Bucket], scale: Scale) -> int:
    """Number of columns with a value that is off the scale."""
    return sum(bucket.low < scale.low or bucket.high > scale.high for bucket in buckets)


def _rows_between(at: Sequence[float], low: float, high: float, length: int) -> tuple[int, int]:
    """The rows whose x is in [low, high]: first, and last + 1."""
    return bisect_left(at, low, 0, length), bisect_right(at, high, 0, length)


def _last_step(run: Run) -> int | None:
    """Length of the lineage when the job is done; None without a job in progress."""
    if not run.training or run.job is None:
        return None
    length, job = run.series.length, run.job
    return length + max(0, job.steps - (job.step or 0)) if job.steps else 2 * length


NUMBERS = 10
"""Cells to the right of the curve, for the value and its change."""
TONES = {
    "line": "accent",
    "other": "plain",
    "held": "second",
    "limit": "warm",
    "envelope": "faint",
    "alarm": "warm",
    "head": "accent",
    "branch": "plain",
    "blank": "plain",
    "cross": "dim",
}
"""Style of each layer of a drawing."""


@dataclass(frozen=True)
class Look:
    """What all charts of a frame share."""

    chart: Chart
    tones: Mapping[str, Style]
    """Styles by name; ``cursor`` is that of a chosen title."""
    alarms: Mapping[str, Alarm]
    """The most severe alarm of each metric that has one."""
    signs: Mapping[int, Sign]
    """By row of the lineage."""
    cursor: int | None
    """The row under the crosshair; None reads the newest."""
    width: int
    """Cells of a chart."""
    height: int
    """Rows of its curve."""

    @property
    def cells(self) -> int:
        return max(1, self.width - NUMBERS)


@dataclass
class BrailleChart:
    """A metric's small chart: a title above a curve, with two numbers beside it.

    The curve is cached, so that moving the crosshair does not draw it again.
    """

    key: str
    last: Sequence[Strip] = ()
    """The lines as they were last drawn."""
    _stamp: object = None
    _rows: list[list[Span]] = field(default_factory=list)

    def drawn(self, look: Look) -> bool:
        """Whether its last lines have the requested size."""
        lines = look.height + 1
        return len(self.last) == lines and self.last[0].cell_length == look.width

    def strips(self, look: Look, chosen: bool) -> Sequence[Strip]:
        """The chart's lines: a title and the curve.

        Args:
            look: How to draw it.
            chosen: Whether this metric is in the focus chart.
        """
        chart, tones, cursor = look.chart, look.tones, look.cursor
        column = chart.column(cursor, 2 * look.cells)
        readout = chart.curve(self.key).readout(
            chart.run.series.length if cursor is None else cursor + 1, exact=cursor is not None
        )
        alarm = look.alarms.get(self.key)
        ill = outside(metric(self.key), readout.raw)
        tone = alarm_tone(alarm) or ("warm" if ill else "plain")
        numbers = [(reading(self.key, readout.raw), tone), (signed(readout.delta), "dim")]
        if alarm is not None and alarm.limit is not None:  # of two rows it takes the change's
            numbers[min(2, look.height - 1) :] = [(f"╌ {short(alarm.limit)}", "warm")]
        numbers += [("", "dim")] * look.height
        strips = [self._title(look, chosen, alarm)]
        kinds = TONES | {"line": alarm_tone(alarm) or "accent"}
        marks = chart.cells(look.signs, look.cells)
        curve = signed_rows(self._curve(look, alarm), marks)
        for runs, (text, tone) in zip(curve, numbers, strict=False):
            marked = crossed(runs, None if column is None else column // 2)
            parts = [(run.text, tones[kinds[run.kind]]) for run in marked]
            strips.append(line(*parts, (text.rjust(NUMBERS), tones[tone])))
        self.last = strips
        return strips

    def _curve(self, look: Look, alarm: Alarm | None) -> list[list[Span]]:
        chart, limit = look.chart.of(self.key), alarm.limit if alarm else None
        view = chart.view
        stamp = (chart.run.series, chart.reach, view, look.cells, look.height, limit)
        if stamp != self._stamp:
            self._stamp = stamp
            columns, dots = 2 * look.cells, 4 * look.height
            buckets, others = chart.buckets(self.key, columns), chart.others(self.key, columns)
            scale = y_scale([*buckets, *others], view, limit=limit, key=self.key)
            drawing = draw(
                buckets, scale, columns, dots, view.weight > 0, view.ranged, others, limit
            )
            self._rows = rows(drawing, look.height)
        return self._rows

    def _title(self, look: Look, chosen: bool, alarm: Alarm | None) -> Strip:
        """The longest form that fits: whose number it is gives way to the alarm."""
        sign = "●" if chosen else " "
        text = f"{sign} " if alarm is None else f"{sign} ⚑ "
        name, whole = one_line(title(self.key), 60), metric_title(self.key, look.chart.run)
        forms = [whole, name] if alarm is None else [f"{name}: {alarm.title}", whole, name]
        fits = (form for form in forms if cell_len(text + form) <= look.width)
        text += next(fits, name)
        tone = "cursor" if chosen else alarm_tone(alarm) or "dim"
        return line((fit_text(text, look.width), look.tones[tone]))


def metric_title(key: str, run: Run) -> str:
    """A metric's title; a held-out reward's says that it is the run's own, not an evaluation's,
    and the mean of how many rollouts: ``held-out reward (run's own, n=48)``."""
    name = one_line(title(key), 60)
    if key != HELDOUT:
        return name
    rollouts = run.series.last(HELDOUT_TRACES)
    return f"{name} (run's own{f', n={rollouts:.0f}' if isfinite(rollouts) else ''})"


def alarm_tone(alarm: Alarm | None) -> str:
    """The tone of an active alarm; empty without one."""
    if alarm is None or not alarm.active:
        return ""
    return "hot" if alarm.level is Level.CRITICAL else "warm"


class RunChart(LinesView):
    """A pane of curves of the run; drawn again when a step arrives or the view changes."""

    run: reactive[Run] = reactive(Run, repaint=False)
    chart_view: reactive[ChartView] = reactive(ChartView, repaint=False)
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""
    signs: reactive[Mapping[int, Sign]] = reactive[Mapping[int, Sign]]({}, repaint=False)
    """What happened at a step, by row of the lineage."""

    @dataclass
    class Pointed(Message):
        """The user moved the crosshair to this row."""

        row: int

    def __init__(self, chart_data: ChartData) -> None:
        """`chart_data` is shared by all charts of a screen."""
        super().__init__()
        self.chart_data = chart_data
        self._reach = (0.0, 0.0)

    @property
    def chart(self) -> Chart:
        return Chart(self.chart_data, self.run, self.chart_view)

    @property
    def pointed(self) -> int | None:
        """The row under the crosshair, if it exists."""
        here = self.cursor
        return here if here is not None and here < self.run.series.length else None

    def watch_run(self, before: Run, run: Run) -> None:
        reach = self.chart.reach
        waits = awaiting(run) != awaiting(before)
        flags = run.alarms is not before.alarms or run.tree.edition != before.tree.edition
        if run.series is not before.series or reach != self._reach or waits or flags:
            self._reach = reach
            self.redraw()

    watch_chart_view = watch_cursor = watch_signs = LinesView.redraw


CELL_COLUMNS = 36
"""Cells of the narrowest readable chart: about 25 for the curve, and its numbers."""
GAP = 2
PATIENCE_S = 0.006
"""Seconds per frame for redrawing charts; the others follow in the next frames."""
ROOMY = 32
"""Rows of a screen from which a curve has three rows instead of two."""
CELL_TONES = ("plain", "strong", "dim", "faint", "accent", "second", "warm", "hot")


class MetricGrid(RunChart):
    """The charts of all metrics. The chosen metric stays chosen when others arrive."""

    keys: reactive[Sequence[str]] = reactive[Sequence[str]]((), repaint=False)
    """The metrics to show, in this order."""
    hidden: reactive[int] = reactive(0, repaint=False)
    """How many metrics the user has hidden."""
    constant: reactive[int] = reactive(0, repaint=False)
    """How many others are not drawn because they are constant."""
    chosen: reactive[str] = reactive("", repaint=False)
    """The metric of the focus chart, under the cursor here."""

    @dataclass
    class Chosen(Message):
        """The user chose this metric."""

        key: str

    @dataclass
    class Opened(Message):
        """The user pressed enter, or clicked twice, on the chosen metric."""

    def __init__(self, chart_data: ChartData) -> None:
        super().__init__(chart_data)
        self._charts: dict[str, BrailleChart] = {}
        self._until = inf
        self._late = False
        """Whether a chart is still to be redrawn."""

    @property
    def index(self) -> int:
        """Index of the chosen metric; 0 if it is not shown."""
        return self.keys.index(self.chosen) if self.chosen in self.keys else 0

    @property
    def curve_rows(self) -> int:
        """Rows of a chart's curve, below its title."""
        return 3 if self.app.size.height >= ROOMY else 2

    @property
    def tall(self) -> int:
        """Rows of a chart."""
        return self.curve_rows + 1

    @property
    def grid_rows(self) -> int:
        """Charts in a column."""
        return -(-len(self.keys) // self.per_row)

    @property
    def per_row(self) -> int:
        """Charts in a row."""
        return max(1, (self.width + GAP) // (CELL_COLUMNS + GAP))

    def watch_keys(self) -> None:
        self._charts = {key: self._charts.get(key) or BrailleChart(key) for key in self.keys}
        self.refresh(layout=True)
        self.redraw()

    watch_hidden = watch_constant = LinesView.redraw

    def watch_chosen(self) -> None:
        self._show_chosen()
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, self.grid_rows) * self.tall + 1

    def title(self, width: int) -> str:
        below = self.grid_rows - (self.scroll_offset.y + self.body_rows) // self.tall
        more = f" · {counted(below, 'more row')} below" if below > 0 else ""
        constant = f" · {self.constant} constant" if self.constant else ""
        hidden = f" · {self.hidden} hidden" if self.hidden else ""
        return f"metrics · {len(self.keys)}{constant}{hidden}{more}"

    @property
    def count(self) -> int:
        return self.grid_rows * self.tall

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not rows:
            return []
        self._until, self._late = perf_counter() + PATIENCE_S, False
        first, last = rows.start // self.tall, (rows.stop - 1) // self.tall
        strips = [strip for row in range(first, last + 1) for strip in self._row(row, width)]
        if self._late:
            self.call_after_refresh(self.redraw)
        above = rows.start - first * self.tall
        return strips[above : above + len(rows)]

    def _row(self, row: int, width: int) -> list[Strip]:
        cell = (width + GAP) // self.per_row - GAP
        tones = {name: self.tone(name) for name in CELL_TONES}
        tones["cursor"] = self.tone("cursor" if self.has_focus else "cursor-blurred")
        keys = self.keys[row * self.per_row : (row + 1) * self.per_row]
        chosen = self.keys[self.index]
        alarms, here = self.run.alarms.by_metric, self.pointed
        look = Look(self.chart, tones, alarms, self.signs, here, cell, self.curve_rows)
        charts = [self._chart(key, look, key == chosen) for key in keys]
        gap = line((" " * GAP, tones["plain"]))
        return [
            Strip.join([part for strip in strips for part in (strip, gap)][:-1])
            for strips in zip(*charts, strict=True)
        ]

    def _chart(self, key: str, look: Look, chosen: bool) -> Sequence[Strip]:
        """A chart's lines; the previous ones if this frame has no time left."""
        chart = self._charts[key]
        if perf_counter() < self._until or not chart.drawn(look):
            return chart.strips(look, chosen)
        self._late = True
        return chart.last

    def move(self, columns: int, rows: int) -> None:
        self.move_to(self.index + columns + rows * self.per_row)

    def move_to(self, place: int) -> None:
        """Choose the metric at an index, if there is one."""
        if 0 <= place < len(self.keys):
            self.post_message(self.Chosen(self.keys[place]))

    def move_page(self, pages: int) -> None:
        """Move the choice by as many rows as are visible."""
        rows = max(1, self.body_rows // self.tall)
        ways = range(rows, 0, -1)
        steps = (pages * way * self.per_row for way in ways)
        step = next((s for s in steps if 0 <= self.index + s < len(self.keys)), 0)
        if step:
            self.move(step, 0)

    def _show_chosen(self) -> None:
        """Scroll to the chosen metric."""
        row = self.index // self.per_row * self.tall
        low, high = row + self.tall - self.body_rows, row
        self.scroll_to(y=min(high, max(low, self.scroll_offset.y)), animate=False)

    def on_click(self, event: Click) -> None:
        """Choose a metric; a click on the curve of the chosen one moves the crosshair, a second one
        opens it."""
        cell = (self.width + GAP) // self.per_row
        column, line_ = min(self.per_row - 1, event.x // cell), event.y - 1 + self.scroll_offset.y
        place = line_ // self.tall * self.per_row + column
        if not event.y or place >= len(self.keys):
            return
        if event.chain == 2:
            self.post_message(self.Opened())
        elif self.keys[place] != self.chosen or not line_ % self.tall:
            self.post_message(self.Chosen(self.keys[place]))
        elif (row := self._row_at(event.x - column * cell, cell - GAP - NUMBERS)) is not None:
            self.post_message(self.Pointed(row))

    def _row_at(self, place: int, cells: int) -> int | None:
        """The step closest to a cell of a curve; None outside it."""
        return self.chart.row(2 * place, 2 * cells) if 0 <= place < cells else None
