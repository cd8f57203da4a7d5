"""Sight: the curves and positions of the run on the screen, shared by its charts."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles

from hud_tui.rl.axis import Axis, Positions, room, time_said
from hud_tui.rl.curves import Bucket, Curve, Curves
from hud_tui.rl.metrics import short
from hud_tui.rl.overlay import Overlay
from hud_tui.rl.run import Run
from hud_tui.rl.scale import Scale, fit
from hud_tui.tui.widgets.lens import Lens

KEPT = 200
"""Charts whose buckets are kept."""
FENCE = 3.0
"""A value is an outlier where it lies so many interquartile ranges beyond the quartiles."""


@dataclass
class Sight:
    """What a lens shows of a run. Everything is kept, and grows with the run."""

    _curves: Curves = field(default_factory=Curves)
    _positions: Positions = field(default_factory=Positions)
    _others: Curves = field(default_factory=Curves)
    """The overlay's."""
    _kept: dict[tuple[str, int], tuple[object, list[Bucket]]] = field(default_factory=dict)
    """Buckets by metric and columns, with what they were made of."""

    def curve(self, run: Run, key: str, lens: Lens) -> Curve:
        """The metric's curve, up to date with the run."""
        return self._curves.of(run.series, key, lens.weight)

    def buckets(self, run: Run, key: str, lens: Lens, columns: int) -> list[Bucket]:
        """The metric spread over a chart's columns, on the lens' x axis."""
        axis, reach = self.axis(run, lens), self.reach(run, lens)
        rows = lens.rows(run.series.length)
        stamp = run.series, axis, reach, rows, lens.weight
        kept = self._kept.get((key, columns))
        if kept is not None and kept[0] == stamp:
            return kept[1]
        at = self._positions.of(run, axis)
        found = self.curve(run, key, lens).buckets(at, *reach, columns, rows)
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[key, columns] = stamp, found
        return found

    def others(self, run: Run, key: str, lens: Lens, columns: int) -> list[Bucket]:
        """The overlay's curve of the metric over the same columns; empty without one."""
        other = lens.overlay
        if other is None or key not in other.run.series.keys:
            return []
        axis = self.axis(run, lens)
        offset = other.offset(self._positions, run, axis)
        low, high = (x - offset for x in self.reach(run, lens))
        at = other.positions.of(other.run, axis)
        rows = _between(at, low, high, other.run.series.length)
        curve = self.other_curve(other, key, lens)
        return curve.buckets(at, low, high, columns, rows) if rows[0] < rows[1] else []

    def other_curve(self, other: Overlay, key: str, lens: Lens) -> Curve:
        return self._others.of(other.run.series, key, lens.weight)

    def axis(self, run: Run, lens: Lens) -> Axis:
        """The lens' x axis; steps where the service gave no times or tokens to measure by."""
        at, length = self._positions.of(run, lens.axis), run.series.length
        return lens.axis if length < 2 or at[length - 1] > at[0] else Axis.STEP

    def reach(self, run: Run, lens: Lens) -> tuple[float, float]:
        """The x of a chart's two sides: steps, seconds or tokens."""
        axis, length = self.axis(run, lens), run.series.length
        at = self._positions.of(run, axis)
        if not length:
            return 0.0, 1.0
        if lens.span is not None:
            start, stop = lens.rows(length)
            return at[start], max(at[stop - 1], at[start] + 1)
        if axis is Axis.STEP:
            low, high = 1.0, float(max(2, room(length, _last_step(run))))
        else:
            low, high = at[0], max(at[length - 1], at[0] + 1)
        return low, max(high, self._other_end(run, lens, axis))

    def _other_end(self, run: Run, lens: Lens, axis: Axis) -> float:
        other = lens.overlay
        if other is None or not other.run.series.length:
            return 0.0
        at = other.positions.of(other.run, axis)
        return at[other.run.series.length - 1] + other.offset(self._positions, run, axis)

    def column(self, run: Run, lens: Lens, row: int, columns: int) -> int | None:
        """The chart column that a step stands in; None where it is out of sight."""
        start, stop = lens.rows(run.series.length)
        if not start <= row < stop:
            return None
        low, high = self.reach(run, lens)
        x = self._positions.of(run, self.axis(run, lens))[row]
        return round((x - low) / (high - low) * (columns - 1))

    def x_said(self, run: Run, lens: Lens, row: int) -> str:
        """Where a step stands on the axis, in its unit; empty where its number says it."""
        axis = self.axis(run, lens)
        x = self._positions.of(run, axis)[row]
        if axis is Axis.TIME:
            return f" at {time_said(x)}"
        return f" at {short(x)} tokens" if axis is Axis.TOKENS else ""

    def row(self, run: Run, lens: Lens, column: int, columns: int) -> int | None:
        """The step nearest to a chart column; None where there are none."""
        low, high = self.reach(run, lens)
        start, stop = lens.rows(run.series.length)
        if start == stop:
            return None
        at = self._positions.of(run, self.axis(run, lens))
        x = low + (high - low) * column / max(1, columns - 1)
        after = _between(at, x, high, stop)[0]
        near = (row for row in (after - 1, after) if start <= row < stop)
        return min(near, key=lambda row: abs(at[row] - x), default=None)


def y_scale(buckets: Sequence[Bucket], lens: Lens, intervals: float = 0) -> Scale:
    """The y axis that holds all of a chart, or all but its outliers; see `hud_tui.rl.scale.fit`."""
    values = [value for b in buckets for value in (b.low, b.high)] if lens.ranged else []
    if lens.weight:  # of a close look, the average may lie beside all of the raw values
        values += [bucket.smooth for bucket in buckets]
    if lens.log and min(values, default=1.0) <= 0:
        values = [v for v in values if v > 0] or values  # zeros stand on the floor
    low, high = min(values, default=float("nan")), max(values, default=float("nan"))
    if lens.clip and len(values) > 3:
        first, _, third = quantiles(values, n=4)
        room = FENCE * (third - first)
        low, high = max(low, first - room), min(high, third + room)
    return fit(low, high, lens.log, intervals)


def beyond(buckets: Sequence[Bucket], scale: Scale) -> int:
    """Columns with a value that is off the scale."""
    return sum(bucket.low < scale.low or bucket.high > scale.high for bucket in buckets)


def _between(at: Sequence[float], low: float, high: float, length: int) -> tuple[int, int]:
    """The rows whose x is in [low, high]: first, and one past the last."""
    return bisect_left(at, low, 0, length), bisect_right(at, high, 0, length)


def _last_step(run: Run) -> int | None:
    """How long the lineage will be when the job is done; None where none is under way."""
    if not run.training or run.job is None:
        return None
    length, job = run.series.length, run.job
    return length + max(0, job.steps - (job.step or 0)) if job.steps else 2 * length
