"""Curves: what a chart draws of a metric, from any number of steps, in time for the next frame.

A curve keeps a pyramid and a moving average beside a series' column and grows with it,
so a repaint reads a few rows a chart column and never all of them.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import NamedTuple

from hud_tui.rl.metrics import change
from hud_tui.rl.pyramid import FAN, Pyramid
from hud_tui.rl.series import Series
from hud_tui.rl.smoothing import Ema

DELTA_STEPS = 10
"""A chart's Δ is against the value so many steps before."""
COARSE = 8 * FAN
"""From so many steps a column on, a column ends on a whole block of the pyramid: its steps
move by less than an eighth of a column, and no single ones are read."""


class Bucket(NamedTuple):
    """The steps that share one chart column."""

    column: int
    low: float
    high: float
    smooth: float
    """The moving average at its last step."""
    joined: bool
    """Whether a line leads here from the bucket before; False after a gap."""


@dataclass(frozen=True)
class Readout:
    """A metric's newest numbers; NaN where there is none."""

    raw: float
    smooth: float
    delta: float
    """Change of the smoothed value over the last DELTA_STEPS steps; 0 where that cannot be seen."""


class Curve:
    """One metric of one lineage, ready to be drawn at any size."""

    def __init__(self, column: "array[float]", weight: float) -> None:
        self.column = column
        self.pyramid = Pyramid()
        self.ema = Ema(weight)

    def follow(self, length: int, weight: float) -> None:
        """Take in the column's rows up to `length`, smoothed by `weight`."""
        if self.ema.weight != weight:
            self.ema = Ema(weight)
        self.pyramid.extend(self.column, length)
        self.ema.extend(self.column, length, self.pyramid.finite == length)

    def buckets(
        self,
        at: Sequence[float],
        low: float,
        high: float,
        columns: int,
        rows: tuple[int, int] | None = None,
    ) -> list[Bucket]:
        """Spread the steps over a chart's columns; O(columns · log n).

        Args:
            at: Where each step stands on the x axis, shape (≥ n,), never falling.
            low: The x of column 0.
            high: The x of the last column, above `low` unless there is one column.
            columns: How many there are, at least 1.
            rows: The steps in sight, first and one past the last; None for all.

        Returns:
            One bucket for each column with a number, left to right.
        """
        start, stop = rows or (0, len(at))
        edges = column_edges(at, low, high, columns, start, stop)
        if stop - start >= COARSE * columns:
            edges[1:-1] = [max(start, edge // FAN * FAN) for edge in edges[1:-1]]
        buckets: list[Bucket] = []
        bridge, missing = self._bridge(), 0
        for column in range(columns):
            start, stop = edges[column], edges[column + 1]
            if start == stop:
                continue
            least, greatest = self.pyramid.span(self.column, start, stop)
            if least != least:
                missing += stop - start
                continue
            smooth = self.ema.at(self.column, stop - 1)
            buckets.append(Bucket(column, least, greatest, smooth, missing <= bridge))
            missing = 0
        return buckets

    def readout(self, length: int, exact: bool = False) -> Readout:
        """The numbers beside the chart, as of row `length` − 1.

        `raw` is that row's own where it is to be `exact`, else the newest number up to it.
        """
        rows = range(length - 1, max(-1, length - 2) if exact else -1, -1)
        raw = next((self.column[row] for row in rows if isfinite(self.column[row])), nan)
        smooth = self.ema.at(self.column, length - 1) if length else nan
        then = length - 1 - DELTA_STEPS
        before = self.ema.at(self.column, then) if then >= 0 else nan
        return Readout(raw, smooth, change(before, smooth))

    @property
    def missing(self) -> int:
        """Steps without a number since its first, in a metric that comes every step."""
        first, pyramid = self.pyramid.first, self.pyramid
        return 0 if first is None or self._spacing > 1 else pyramid.length - first - pyramid.finite

    @property
    def _spacing(self) -> int:
        """Steps from one of its numbers to the next, as a rule."""
        first, pyramid = self.pyramid.first, self.pyramid
        return 1 if first is None else round((pyramid.length - first) / pyramid.finite)

    def _bridge(self) -> int:
        """Missing rows that a line may cross: none, unless the metric comes only now and then.

        A metric of every fifth step (a held-out reward) is a line; a NaN in one of every
        step is a gap.
        """
        return 2 * self._spacing if self._spacing > 1 else 0


class Curves:
    """The curves of one series; a series that grew another way starts them anew."""

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}

    def of(self, series: Series, key: str, weight: float) -> Curve:
        """The metric's curve, grown to the series' length. Cheap when nothing is new."""
        column = series.column(key)
        curve = self._curves.get(key)
        if curve is None or curve.column is not column:
            curve = self._curves[key] = Curve(column, weight)
        curve.follow(min(series.length, len(column)), weight)
        return curve


def column_edges(
    at: Sequence[float], low: float, high: float, columns: int, start: int, stop: int
) -> list[int]:
    """First step of each chart column, and one past the last: shape (columns + 1,).

    A step belongs to the column nearest to it; those before `start` and from `stop` on to none.
    """
    width = (high - low) / max(1, columns - 1)
    inner = [
        bisect_left(at, low + (column - 0.5) * width, start, stop) for column in range(1, columns)
    ]
    return [start, *inner, stop]
