"""Chart axes: y scales with round labels, x positions of a run's steps."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from math import ceil, floor, inf, isfinite, log10

from hud_tui.rl.metrics import Series, short
from hud_tui.rl.run import Run
from hud_tui.rl.text import seconds

# The y axis. Its tick distances are 1, 2, 2.5 or 5 times a power of ten.
#
# Source: Heckbert 1990 ("Nice numbers for graph labels", Graphics Gems I).


FLAT = 1e-9
"""Relative range below which values count as equal."""
HUGE = 1e300
TINY = 1e-300
"""Bounds that values are clamped to, so that computing a range does not overflow."""


@dataclass(frozen=True)
class Scale:
    """A chart's y axis: its range, its ticks, and how values map to heights."""

    low: float
    high: float
    """Greater than `low`; both positive on a log scale."""
    log: bool = False
    ticks: tuple[float, ...] = ()
    """Labelled values, ascending, within [low, high]."""

    def share(self, value: float) -> float:
        """Height of a value: 0 at `low`, 1 at `high`, clamped.

        Rounded to nine digits, so that values that differ by rounding share a row.
        """
        value = min(self.high, max(self.low, value))
        if self.log:
            bottom, top = log10(self.low), log10(self.high)
            return round(min(1.0, max(0.0, (log10(value) - bottom) / (top - bottom))), 9)
        return round((value - self.low) / (self.high - self.low), 9)

    def heights(self, values: Sequence[float], top: int) -> list[int]:
        """The heights of values in whole dots, 0 to `top`."""
        low, high = self.low, self.high
        if self.log:
            return [round(self.share(value) * top) for value in values]
        length = high - low
        clamped = (x if low <= x <= high else high if x > high else low for x in values)
        return [round(round((x - low) / length, 9) * top) for x in clamped]

    @property
    def labels(self) -> list[str]:
        """The ticks as text, with as few digits as keep them distinct."""
        for spell in (short, "{:.4g}".format, "{:.7g}".format):
            texts = [spell(tick) for tick in self.ticks]
            if len(set(texts)) == len(texts):
                return texts
        return [repr(tick) for tick in self.ticks]


def fit(
    low: float, high: float, log: bool = False, intervals: float = 0, most: float = inf
) -> Scale:
    """The y axis for values from `low` to `high`.

    Args:
        low: Smallest value; NaN if there are no values.
        log: Use a log scale; linear if `low` is not positive.
        intervals: Length of the axis in tick distances, at least 1. It starts at a round value
            and need not end at one, so that labels are evenly spaced on terminal rows.
            0: the axis is [low, high] without ticks.
        most: Largest value that is possible, e.g. 1 for rewards. A linear axis with ticks then
            gets its spare room below the values, and has no tick above `most`.
    """
    if not (isfinite(low) and isfinite(high)):
        return Scale(0.0, 1.0, ticks=(0.0, 1.0) if intervals else ())
    if log and low > 0:
        least_ticks = max(3, ceil(intervals)) if intervals else 0
        return _log(min(HUGE, max(TINY, low)), min(HUGE, max(TINY, high)), least_ticks)
    low, high = _widen(min(HUGE, max(-HUGE, low)), min(HUGE, max(-HUGE, high)))
    if not intervals:
        return Scale(low, high)
    step = round_step((high - low) / intervals, halves=True)
    while (first := floor(low / step + FLAT)) * step + intervals * step < high - FLAT * step:
        step = round_step(1.2 * step, halves=True)
    if high <= most < inf:
        beyond = floor(first + intervals - most / step + FLAT)
        first -= max(0, min(beyond, first if low >= 0 else beyond))
    ticks = [(first + n) * step for n in range(floor(intervals) + 1)]
    ticks = [tick for tick in ticks if high > most or tick <= most + FLAT * step]
    return Scale(ticks[0], max(ticks[0] + intervals * step, high), ticks=tuple(ticks))


ROWS_APART = (3, 2, 4)
"""Rows between two ticks of the y axis in cells; the one that leaves the fewest rows empty is
used."""


def roomiest(low: float, high: float, log: bool, rows: int, most: float = inf) -> Scale:
    """The y axis for `rows` rows of cells on which the values take up the most room; the other
    arguments are those of `fit`."""
    lengths = (max(1.0, (max(2, rows) - 1) / apart) for apart in ROWS_APART)
    scales = (fit(low, high, log, length, most) for length in lengths)
    return min(scales, key=lambda scale: (scale.high - scale.low, -len(scale.ticks)))


def _widen(low: float, high: float) -> tuple[float, float]:
    """The range; for a constant value v it is [0, 2v] or [2v, 0], and [0, 1] for 0."""
    size = max(abs(low), abs(high))
    if size < TINY:
        return 0.0, 1.0
    if high - low > FLAT * size:
        return low, high
    return (0.0, 2 * high) if high > 0 else (2 * low, 0.0)


def at_least(share: float, low: float, high: float) -> tuple[float, float]:
    """Widen a range around its middle to at least `share` times its largest absolute value."""
    size = share * max(abs(low), abs(high))
    if not isfinite(size) or not 0 < high - low < size:
        return low, high
    middle = (low + high) / 2
    return middle - size / 2, middle + size / 2


def round_step(least: float, halves: bool = False) -> float:
    """Smallest number ≥ `least` that is 1, 2 or 5 (with `halves` also 2.5) times a power of ten."""
    power = 10.0 ** floor(log10(least))
    sizes = (1, 2, 2.5, 5, 10) if halves else (1, 2, 5, 10)
    return next(m * power for m in sizes if m * power >= least * (1 - FLAT))


def _log(low: float, high: float, ticks: int) -> Scale:
    if not high > low * (1 + FLAT):
        low, high = low / 2, high * 2
    if not ticks:
        return Scale(low, high, log=True)
    marks = _log_marks(low, high, ticks)
    if len(marks) < 3:  # within a decade linear ticks are rounder
        marks = tuple(mark for mark in fit(low, high, intervals=ticks).ticks if low <= mark <= high)
    return Scale(low, high, log=True, ticks=marks if len(marks) > 1 else (low, high))


def _log_marks(low: float, high: float, ticks: int) -> tuple[float, ...]:
    """Ticks of a log axis: powers of ten in [low, high], thinned to about `ticks`; within two
    decades also values between them (1, 2, 5 or 1, 3)."""
    first, last = ceil(log10(low)), floor(log10(high))
    if last - first >= 2:
        apart = ceil((last - first) / ticks)
        powers = [10.0**exponent for exponent in range(first, last + 1, apart)]
        return tuple(power for power in powers if low <= power <= high)
    powers = [10.0**exponent for exponent in range(first - 1, last + 1)]
    for parts in ((1, 2, 5), (1, 3)):
        marks = [m * power for power in powers for m in parts if low <= m * power <= high]
        if len(marks) <= 2 * ticks:
            break
    return tuple(marks)


TOKENS = "num_tokens"
"""The metric summed by the token axis."""
ROOM = tuple(int(m * 10**e) for e in range(1, 8) for m in (1, 1.5, 2, 3, 4, 6, 8))
"""Lengths that a growing step axis can have, in steps: the axis is rescaled now and then instead of
with each step."""
UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
_PARTS = (1, 2, 5, 10, 15, 30)
ROUND_TIMES = (*_PARTS, *(60 * n for n in _PARTS), *(3600 * n for n in (1, 2, 3, 6, 12)))
"""Distances between marks of the time axis, seconds."""


StepAt = Callable[[int], int]
"""The number of the step at a row of the lineage, from 0; see `Series.step_at`."""


class Axis(StrEnum):
    """Unit of the x axis."""

    STEP = "step"
    TIME = "time"
    TOKENS = "tokens"

    @property
    def following(self) -> "Axis":
        """The next axis in the order of the key that switches it; after the last comes the
        first."""
        axes = list(Axis)
        return axes[(axes.index(self) + 1) % len(axes)]


class Positions:
    """The x coordinate of every step of a run's lineage; extended as the lineage grows."""

    def __init__(self) -> None:
        self._series = Series()
        self._origin: float | None = None
        self._columns: dict[Axis, array[float]] = {}

    def of(self, run: Run, axis: Axis) -> Sequence[float]:
        """The x of each step, shape (≥ n,), non-decreasing; the caller must not change it.

        STEP: its place in the lineage, from 1; TIME: seconds since the first step; TOKENS:
        generated tokens up to and including the step.
        """
        series = run.series
        if axis is Axis.STEP:
            return range(1, series.length + 1)
        if not series.same_rows(self._series):
            self._columns, self._origin = {}, None
        self._series = series
        column = self._columns.setdefault(axis, array("d"))
        if axis is Axis.TOKENS:
            counts, total = series.column(TOKENS), column[-1] if column else 0.0
            for row in range(len(column), series.length):
                total += counts[row] if isfinite(counts[row]) else 0.0
                column.append(total)
        else:
            elapsed = column[-1] if column else 0.0
            for stamp in _stamps(run, run.series.length - len(column)):
                if stamp is not None:
                    self._origin = stamp if self._origin is None else self._origin
                    elapsed = max(elapsed, stamp - self._origin)
                column.append(elapsed)
        return column


def axis_length(length: int, most: int | None) -> int:
    """Length of the step axis.

    Args:
        most: Total steps of the run; None if no run is active, then the curve fills the chart.
    """
    if most is None or most <= length:
        return length
    return min(most, next((size for size in ROOM if size >= length), length))


def marks(axis: Axis, low: float, high: float, count: int) -> list[tuple[float, str]]:
    """About `count` round values in [low, high] with their labels, ascending."""
    for ticks in (count, 2 * count):
        values = _marked(axis, low, high, max(1, ticks))
        if len(values) > 1:
            break
    return list(zip(values, _written(axis, values), strict=True))


def step_marks(step_at: StepAt, low: float, high: float, count: int) -> list[tuple[float, str]]:
    """About `count` round step numbers with their places in the lineage from `low` to `high`,
    ascending. A number that the lineage left out by a rollback has no mark."""
    rows = range(ceil(low) - 1, floor(high))
    labels: list[tuple[float, str]] = []
    if not rows:
        return labels
    first, last = step_at(rows[0]), step_at(rows[-1])
    among = min(4 * count, count * (last - first + 1) // len(rows))  # those left out have none
    for number, text in marks(Axis.STEP, first, last, among):
        row = rows[bisect_left(rows, number, key=step_at)]
        is_apart = not labels or row + 1 - labels[-1][0] >= (high - low) / count / 3
        if step_at(row) == number and is_apart:
            labels.append((float(row + 1), text))
    return labels


def _marked(axis: Axis, low: float, high: float, count: int) -> list[float]:
    least = max(high - low, 1.0) / count
    step = round_step(least) if axis is not Axis.TIME else _round_time(least)
    step = max(step, 1.0)
    values = [n * step for n in range(ceil(low / step), int(high / step) + 1)]
    if axis is Axis.STEP and values[:1] != [low]:
        values = [low, *(value for value in values if value - low >= step / 2)]
    return values


def _written(axis: Axis, values: Sequence[float]) -> list[str]:
    """Labels of the values, with as few digits as keep them distinct."""
    texts = [duration_text(value) if axis is Axis.TIME else short(value) for value in values]
    for digits in range(4, 16):
        if len(set(texts)) == len(texts):
            break
        plain = f"{{:.{digits}g}}".format
        texts = [duration_text(v, digits) if axis is Axis.TIME else plain(v) for v in values]
    return texts


def _round_time(least: float) -> float:
    return next((float(t) for t in ROUND_TIMES if t >= least), ceil(least / 86_400) * 86_400.0)


def duration_text(value: float, digits: int = 3) -> str:
    """Seconds as text in the largest unit that fits: ``1.5m`` for 90."""
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size), (1.0, "s"))
    return f"{value / size:.{digits}g}{unit}" if value else "0"


def _stamps(run: Run, count: int) -> list[float | None]:
    """Creation times of the newest `count` steps, oldest first, in Unix seconds; None where
    unknown."""
    newest = islice(run.tree.lineage(run.tree.head), max(0, count))
    return [seconds(run.tree[position].created_at) for position in newest][::-1]
