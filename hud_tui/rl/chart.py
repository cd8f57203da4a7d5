"""Chart: a run as a chart view shows it, one metric at a time, as a small plot or a large one."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import isfinite, nan
from statistics import quantiles
from typing import NamedTuple

from hud_tui.rl.axes import (
    Axis,
    Positions,
    Scale,
    at_least,
    axis_length,
    fit,
    marks,
    roomiest,
    step_marks,
)
from hud_tui.rl.compare import ChartView, Overlay
from hud_tui.rl.curves import (
    NEAR,
    Bucket,
    Curve,
    Curves,
    HeldOut,
    Readout,
    Sign,
    Spreads,
    column_edges,
)
from hud_tui.rl.metrics import REWARDS, are_equal, canonical, most_of, resolution, short
from hud_tui.rl.own_numbers import HELDOUT, REWARD
from hud_tui.rl.plot import Flag, Layer, Plot, Shape, Tick, level
from hud_tui.rl.run import Run
from hud_tui.rl.text import duration

# The curves and positions of the displayed run, shared by its charts.


LEAST_REWARD = 0.05
"""Least length of an axis of rewards, as a share of the greatest."""
KEPT = 200
"""Charts whose buckets are cached."""
FENCE = 3.0
"""A value is an outlier if it lies this many interquartile ranges beyond the quartiles."""


class Frame(NamedTuple):
    """The columns of a chart."""

    axis: Axis
    low: float
    high: float
    """The x of the first and the last column."""
    columns: int
    start: int
    """The first visible row."""
    weight: float
    """Of the moving average."""


class Bucketed(NamedTuple):
    """The buckets of a curve, and what they were computed from."""

    stamp: object
    stop: int
    """One past the last row."""
    buckets: list[Bucket]


@dataclass
class ChartData:
    """What a screen's charts have in common, extended as the run grows."""

    curves: Curves = field(default_factory=Curves)
    others: Curves = field(default_factory=Curves)
    """The overlay's."""
    positions: Positions = field(default_factory=Positions)
    spreads: Spreads = field(default_factory=Spreads)
    held_out: HeldOut = field(default_factory=HeldOut)
    _buckets: dict[tuple[str, int], Bucketed] = field(default_factory=dict)
    """By metric and columns."""

    def bucketed(
        self,
        name: str,
        curve: Curve,
        xs: Sequence[float],
        frame: Frame,
        rows: tuple[int, int],
    ) -> list[Bucket]:
        """A curve's buckets. Of one that has grown in the same frame only the last ones are
        computed.

        Args:
            name: The curve's, for this data.
            curve: Up to date.
            xs: The x of each step, shape (≥ n,).
            frame: The chart's columns.
            rows: The visible steps: first, and one past the last.
        """
        cached = self._buckets.get((name, frame.columns))
        stamp = curve, frame, curve.bridge
        before: Sequence[Bucket] = ()
        if cached is not None and cached.stamp == stamp and cached.stop <= rows[1]:
            if cached.stop == rows[1]:
                return cached.buckets
            before = cached.buckets
        buckets = curve.buckets(xs, frame.low, frame.high, frame.columns, rows, before)
        if len(self._buckets) >= KEPT:
            self._buckets.clear()
        self._buckets[name, frame.columns] = Bucketed(stamp, rows[1], buckets)
        return buckets


@dataclass(frozen=True)
class Chart:
    """A run in a chart view: its x axis, and its curves in a chart's columns."""

    data: ChartData
    run: Run
    view: ChartView

    def of(self, key: str) -> "Chart":
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
        xs = self.data.positions.of(self.run, axis)
        return axis if length < 2 or xs[length - 1] > xs[0] else Axis.STEP

    @property
    def xs(self) -> Sequence[float]:
        """The x of each step: steps, seconds or tokens."""
        return self.data.positions.of(self.run, self.axis)

    @property
    def reach(self) -> tuple[float, float]:
        """The x at the chart's two sides."""
        xs, length = self.xs, self.run.series.length
        if not length:
            return 0.0, 1.0
        if self.view.span is not None:
            start, stop = self.rows
            return xs[start], max(xs[stop - 1], xs[start] + 1)
        if self.axis is Axis.STEP:
            low, high = 1.0, float(max(2, axis_length(length, _last_step(self.run))))
        else:
            low, high = xs[0], max(xs[length - 1], xs[0] + 1)
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

    def readout(self, key: str, cursor: int | None) -> Readout:
        """The metric's numbers at a step, or the newest for None. A held-out reward is that of the
        checkpoint there, which a later step reports."""
        length = self.run.series.length if cursor is None else cursor + 1
        if cursor is not None and canonical(key) == HELDOUT:
            self.data.held_out.follow(self.run)
            length = self.data.held_out.report(cursor) + 1
        return self.curve(key).readout(length, exact=cursor is not None)

    def other_curve(self, other: Overlay, key: str) -> Curve:
        return self.data.others.of(other.run.series, key, self.view.of(key).weight)

    def buckets(self, key: str, columns: int) -> list[Bucket]:
        """The metric in this many columns."""
        rows = self.rows
        frame = Frame(self.axis, *self.reach, columns, rows[0], self.view.of(key).weight)
        return self.data.bucketed(key, self.curve(key), self.xs, frame, rows)

    def others(self, key: str, columns: int) -> list[Bucket]:
        """The overlay's curve of the metric over the same columns; empty without one."""
        other = self.view.overlay
        if other is None or key not in other.run.series.keys:
            return []
        offset = self._offset(other)
        low, high = (x - offset for x in self.reach)
        xs = other.positions.of(other.run, self.axis)
        rows = _rows_between(xs, low, high, other.run.series.length)
        if rows[0] >= rows[1]:
            return []
        frame = Frame(self.axis, low, high, columns, rows[0], self.view.of(key).weight)
        return self.data.bucketed(f"{OTHER}{key}", self.other_curve(other, key), xs, frame, rows)

    def column(self, row: int | None, columns: int) -> int | None:
        """The column of a step; None if it is not visible."""
        start, stop = self.rows
        if row is None or not start <= row < stop:
            return None
        low, high = self.reach
        return round((self.xs[row] - low) / (high - low) * (columns - 1))

    def row(self, column: int, columns: int) -> int | None:
        """The step closest to a column; None if there are none."""
        xs, (low, high), (start, stop) = self.xs, self.reach, self.rows
        if start == stop:
            return None
        x = low + (high - low) * column / max(1, columns - 1)
        after = _rows_between(xs, x, high, stop)[0]
        near = (row for row in (after - 1, after) if start <= row < stop)
        return min(near, key=lambda row: abs(xs[row] - x), default=None)

    def newest(self, rows: Sequence[int], columns: int) -> list[tuple[int, int]]:
        """The last of some ascending rows in each column that has any; O(columns · log n)."""
        edges = column_edges(self.xs, *self.reach, columns, *self.rows)
        marked = []
        for column, (start, stop) in enumerate(pairwise(edges)):
            index = bisect_left(rows, stop) - 1
            if index >= 0 and rows[index] >= start:
                marked.append((column, rows[index]))
        return marked

    def flags(self, signs: Mapping[int, Sign], cells: int) -> list[Flag]:
        """The visible signs, by row of the lineage, one per cell at most."""
        by_column: dict[int, Flag] = {}
        for row, sign in signs.items():
            column = self.column(row, 2 * cells)
            if column is not None:
                flag = Flag(column, sign, sign.name.lower(), sign.meaning)
                by_column.setdefault(column // 2, flag)
        return list(by_column.values())

    def x_ticks(self, count: int) -> list[Tick]:
        """About `count` ticks of the x axis."""
        (low, high), axis = self.reach, self.axis
        if axis is Axis.STEP:
            ticks = step_marks(self.run.series.step_at, low, high, count)
        else:
            ticks = marks(axis, low, high, count)
        return [((value - low) / (high - low), label) for value, label in ticks]

    def x_text(self, row: int) -> str:
        """A step's x in its unit; empty if the step's number says it."""
        if self.axis is Axis.TIME:
            return f" at {duration(self.xs[row])}"
        return f" at {short(self.xs[row])} tokens" if self.axis is Axis.TOKENS else ""


def y_range(
    buckets: Sequence[Bucket], view: ChartView, limit: float | None = None, key: str = ""
) -> tuple[float, float]:
    """The smallest and the largest value that the y axis has to hold; NaN twice without any.

    Args:
        buckets: All that is drawn.
        view: Decides whether raw values count, and outliers.
        limit: An alarm's, which is drawn too.
        key: The metric: the axis of rewards is long enough that their noise looks small.
    """
    values = _drawn(buckets, view)
    low, high = min(values, default=nan), max(values, default=nan)
    if are_equal(key, low, high):  # rounding is no curve
        low = high = 0.0 if abs(high) < resolution(key) else high
    if view.clip and len(values) > 3:
        first, _, third = quantiles(values, n=4)
        room = FENCE * (third - first)
        low, high = max(min(values), first - room), min(max(values), third + room)
    elif limit is not None and isfinite(limit) and (limit > 0 or not view.log):
        low, high = min(low, limit), max(high, limit)
    if canonical(key) in REWARDS and not view.log:
        low, high = at_least(LEAST_REWARD, low, high)
    return low, high


def _drawn(buckets: Sequence[Bucket], view: ChartView) -> list[float]:
    values = [value for b in buckets for value in (b.low, b.high)] if view.ranged else []
    if view.weight:  # zoomed in, the average may lie beside all raw values
        values += [bucket.smooth for bucket in buckets]
    if view.log and min(values, default=1.0) <= 0:
        return [value for value in values if value > 0] or values  # zeros stand on the floor
    return values


def y_scale(
    buckets: Sequence[Bucket],
    view: ChartView,
    limit: float | None = None,
    key: str = "",
) -> Scale:
    """The y axis without ticks that holds `y_range`."""
    low, high = y_range(buckets, view, limit, key)
    return fit(low, high, view.log, most=most_of(key, high))


def beyond(buckets: Sequence[Bucket], scale: Scale) -> int:
    """Number of columns with a value that is off the scale."""
    return sum(bucket.low < scale.low or bucket.high > scale.high for bucket in buckets)


def _rows_between(xs: Sequence[float], low: float, high: float, length: int) -> tuple[int, int]:
    """The rows whose x is in [low, high]: first, and last + 1."""
    return bisect_left(xs, low, 0, length), bisect_right(xs, high, 0, length)


def _last_step(run: Run) -> int | None:
    """Length of the lineage when the job is done; None without a job in progress."""
    if not run.training or run.job is None:
        return None
    length, job = run.series.length, run.job
    return length + max(0, job.steps - (job.step or 0)) if job.steps else 2 * length


# The plots of a metric.


LINE, OTHER, HELD, LIMIT, ENVELOPE = "line", "other", "held", "limit", "envelope"
"""Names of the layers: the curve, the overlay's, held-out rewards, an alarm's limit, and the range
of the raw values or the curve's interval."""


def small_plot(chart: Chart, key: str, columns: int, limit: float | None = None) -> Plot:
    """A metric without axes: the average over the range of the raw values.

    Args:
        columns: Columns, two per cell.
        limit: An alarm's, drawn dashed; None for no line.
    """
    chart = chart.of(key)
    raw, others, view = chart.buckets(key, columns), chart.others(key, columns), chart.view
    scale = y_scale([*raw, *others], view, limit=limit, key=key)
    shape = Shape.LINE if view.weight else Shape.RANGE
    layers = [
        Layer(LINE, raw, shape),
        Layer(OTHER, others, shape),
        level(LIMIT, limit, scale, columns),
    ]
    if view.weight and view.ranged:
        layers.append(Layer(ENVELOPE, raw, Shape.RANGE))
    return Plot(scale, columns, layers)


TICK_CELLS = 16
"""Approximate cells between two ticks of the x axis."""
HELD_MARK, HELD_LINE = "■", "┅"
"""Signs of held-out rewards in the legend: marked, or too many for that."""
APART = 4
"""Average distance in cells from which held-out rewards are marked."""


def large_plot(chart: Chart, key: str, cells: int, rows: int, limit: float | None = None) -> Plot:
    """A metric with its axes, a bucket per cell: a noisy curve would else be a solid block.

    Args:
        limit: An alarm's, drawn dashed; None for no line.
    """
    chart = chart.of(key)
    view, raw, others = chart.view, chart.buckets(key, cells), chart.others(key, cells)
    held = _held(chart, cells) if key == REWARD else []
    band = _band(chart, raw) if key == REWARD else []
    sure = [bucket for bucket in band if bucket.last >= NEAR]
    low, high = y_range([*raw, *others, *held, *sure], view, limit, key)
    scale = roomiest(low, high, view.log, rows, most_of(key, high))
    curve = Shape.LINE if view.weight else Shape.RANGE
    spaced = partial(Layer, apart=2)
    layers = [
        spaced(LINE, raw, curve),
        spaced(HELD, [bucket for bucket in held if bucket.joined], Shape.LINE),
        spaced(OTHER, others, curve),
        spaced(HELD, held, Shape.BARS),
        level(LIMIT, limit, scale, 2 * cells),
    ]
    if len(held) * APART <= cells:
        layers.insert(0, spaced(HELD, held, Shape.MARKS, HELD_MARK))
    if band:
        layers.append(spaced(ENVELOPE, band, Shape.BARS))
    elif view.weight and view.ranged:
        layers.append(spaced(ENVELOPE, raw, Shape.RANGE))
    return Plot(scale, 2 * cells, layers, chart.x_ticks(max(1, cells // TICK_CELLS)))


def held_sign(plot: Plot) -> str:
    """How a large plot shows held-out rewards; empty if it shows none."""
    shapes = {layer.shape for layer in plot.layers if layer.name == HELD and layer.buckets}
    if Shape.MARKS in shapes:
        return HELD_MARK
    return HELD_LINE if shapes else ""


def _held(chart: Chart, cells: int) -> list[Bucket]:
    """The newest held-out reward of each column, with its interval as its range."""
    held_out = chart.data.held_out
    held_out.follow(chart.run)
    buckets = []
    for column, row in chart.newest(held_out.rows, cells):
        score = held_out.scores[row]
        low = score.value if score.low is None else score.low
        high = score.value if score.high is None else score.high
        buckets.append(Bucket(column, low, high, score.value, score.joins, row))
    return buckets


def _band(chart: Chart, raw: Sequence[Bucket]) -> list[Bucket]:
    """The 95 % interval of the reward's curve, where its width is known."""
    run, view, spreads = chart.run, chart.view, chart.data.spreads
    values = run.series.column(REWARD)
    shown, band = raw if view.envelope else (), []
    halves = spreads.halves(run, [bucket.last for bucket in shown], view.weight)
    for bucket, half in zip(shown, halves, strict=True):
        middle = bucket.smooth if view.weight else values[bucket.last]
        if isfinite(half) and isfinite(middle):
            low, high = middle - half, middle + half
            band.append(Bucket(bucket.column, low, high, bucket.smooth, bucket.joined, bucket.last))
    return band
