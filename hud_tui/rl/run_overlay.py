"""Runs laid over each other in one chart, each from its own beginning: by step, time or tokens."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, nan

from hud_tui.rl.axes import Axis
from hud_tui.rl.curves import Bucket, Curve, column_edges
from hud_tui.rl.metrics import metric, metrics_of
from hud_tui.rl.runs import RunRow
from hud_tui.rl.text import seconds
from hud_tui.wire import Checkpoint


class RunSeries:
    """A run's steps, as they grow. Step, time and tokens count from the run's own beginning."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """Checkpoint of each step, shape (N,)."""
        self._xs: dict[Axis, array[float]] = {axis: array("d") for axis in Axis}
        self._columns: dict[str, array[float]] = {}
        self._curves: dict[str, Curve] = {}
        self._origin: float | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, steps: Iterable[Checkpoint]) -> "RunSeries":
        """Of the checkpoints that a run made, oldest first."""
        series = cls()
        for node in steps:
            series.add(node.id, seconds(node.created_at), node.num_tokens or 0, metrics_of(node))
        return series

    def add(
        self, id_: str, at: float | None, tokens: int, metrics: Mapping[str, float | None]
    ) -> None:
        """Append a step.

        Args:
            id_: Its checkpoint's.
            at: When it was taken, in Unix seconds.
            tokens: Generated for it.
            metrics: Its numbers.
        """
        rows = len(self.ids)
        self.ids.append(id_)
        if at is not None and self._origin is None:
            self._origin = at
        times, counts = self._xs[Axis.TIME], self._xs[Axis.TOKENS]
        before = times[-1] if times else 0.0
        times.append(before if at is None else max(before, at - (self._origin or at)))
        counts.append((counts[-1] if counts else 0.0) + max(0, tokens))
        self._xs[Axis.STEP].append(rows + 1.0)
        for key, value in metrics.items():
            column = self._columns.setdefault(key, array("d"))
            column.extend([nan] * (rows - len(column)))
            column.append(nan if value is None else value)

    def x(self, axis: Axis) -> Sequence[float]:
        """Where each step stands, shape (N,), never falling; seconds for time."""
        return self._xs[axis]

    @property
    def keys(self) -> list[str]:
        """Metrics that any step has."""
        return list(self._columns)

    def curve(self, key: str, weight: float) -> Curve | None:
        """The metric's curve, as long as the run; None if no step has it."""
        column = self._columns.get(key)
        if column is None:
            return None
        column.extend([nan] * (len(self.ids) - len(column)))
        curve = self._curves.get(key)
        if curve is None:
            curve = self._curves[key] = Curve(column, weight)
        curve.follow(len(self.ids), weight)
        return curve


@dataclass(frozen=True)
class Line:
    """One run in the chart."""

    row: RunRow
    buckets: Sequence[Bucket]
    """What is drawn, a bucket a column that has a number; of a smoothed line the average alone."""
    rows: tuple[int, int]
    """Steps in sight: first, and one past the last."""
    last: float
    """Its smoothed value at the right end of what is in sight; NaN if there is none."""


@dataclass(frozen=True)
class Overlay:
    """Runs in one chart."""

    key: str
    """The metric."""
    axis: Axis
    low: float
    high: float
    """Of the x axis."""
    lines: Sequence[Line]
    """The best first, by the metric's last smoothed value: so is the legend."""

    @property
    def extent(self) -> tuple[float, float]:
        """Least and greatest value that is drawn; NaN twice if none is."""
        drawn = [bucket for line in self.lines for bucket in line.buckets]
        if not drawn:
            return nan, nan
        return min(bucket.low for bucket in drawn), max(bucket.high for bucket in drawn)


def overlay(
    runs: Sequence[tuple[RunRow, RunSeries]],
    key: str,
    axis: Axis = Axis.STEP,
    width: int = 80,
    weight: float = 0.0,
    window: tuple[float, float] | None = None,
) -> Overlay:
    """Lay runs over each other, each from its own beginning.

    Args:
        runs: What is marked, in any order.
        key: The metric, by the vocabulary's key.
        axis: What they are aligned by.
        width: Columns of the chart; braille has two a cell.
        weight: Of the moving average.
        window: Least and greatest x in sight; None for all. O(runs · width · log steps).
    """
    xs = [series.x(axis) for _, series in runs if len(series)]
    low = min((x[0] for x in xs), default=0.0)
    high = max((x[-1] for x in xs), default=1.0)
    low, high = window or (low, high)
    high = max(high, low + 1e-9)
    lines = [_line(row, series, key, axis, (low, high, width), weight) for row, series in runs]
    return Overlay(key, axis, low, high, ordered(lines, key))


def _line(
    row: RunRow,
    series: RunSeries,
    key: str,
    axis: Axis,
    frame: tuple[float, float, int],
    weight: float,
) -> Line:
    low, high, width = frame
    at, curve = series.x(axis), series.curve(key, weight)
    if curve is None or not len(series):
        return Line(row, (), (0, 0), nan)
    start = bisect_left(at, low)
    stop = bisect_right(at, high)
    if stop <= start:
        return Line(row, (), (start, start), nan)
    rows = (start, stop)
    if weight:
        buckets = _trend(curve, at, frame, rows)
    else:
        buckets = curve.buckets(at, low, high, width, rows)
    return Line(row, buckets, (start, stop), curve.ema.at(curve.column, stop - 1))


def _trend(
    curve: Curve, at: Sequence[float], frame: tuple[float, float, int], rows: tuple[int, int]
) -> list[Bucket]:
    """The moving average alone, which is what many lines in one chart leave room for."""
    low, high, width = frame
    edges = column_edges(at, low, high, width, *rows)
    first, column = curve.pyramid.first, curve.column
    if first is None:
        return []
    found = []
    for place, (start, stop) in enumerate(pairwise(edges)):
        if start < stop and stop > first:
            smooth = curve.ema.at(column, stop - 1)
            found.append(Bucket(place, smooth, smooth, smooth, True))
    return found


def ordered(lines: Iterable[Line], key: str) -> list[Line]:
    """Lines with the best first, by their last values; those without one last. A metric of which
    neither more nor less is better has the greatest first."""
    sign = -1 if metric(key).better >= 0 else 1
    return sorted(lines, key=lambda line: sign * line.last if isfinite(line.last) else inf)


def value_at(series: RunSeries, key: str, axis: Axis, x: float, weight: float = 0.0) -> float:
    """A run's smoothed value under a crosshair; NaN outside it, or where it has none."""
    at, curve = series.x(axis), series.curve(key, weight)
    if curve is None or not len(series) or x < at[0] or x > at[-1]:
        return nan
    return curve.ema.at(curve.column, bisect_right(at, x) - 1)
