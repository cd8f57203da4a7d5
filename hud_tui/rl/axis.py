"""Where a run's steps stand on a chart's x axis."""

from array import array
from collections.abc import Sequence
from enum import StrEnum
from math import ceil, isfinite

from hud_tui.rl.ages import seconds
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.scale import round_step
from hud_tui.rl.series import Series

TOKENS = "num_tokens"
"""The metric that the token axis adds up."""
ROOM = tuple(int(m * 10**e) for e in range(1, 8) for m in (1, 1.5, 2, 3, 4, 6, 8))
"""Lengths of a growing chart's step axis: it is rescaled now and then, not each step."""
UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
ROUND_TIMES = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
)
"""Seconds that divide a clock evenly."""


class Axis(StrEnum):
    """What the x axis measures."""

    STEP = "step"
    TIME = "time"
    TOKENS = "tokens"

    @property
    def following(self) -> "Axis":
        """The next one, in turn."""
        axes = list(Axis)
        return axes[(axes.index(self) + 1) % len(axes)]


class Positions:
    """The x of every step of a run's lineage, extended as the lineage grows."""

    def __init__(self) -> None:
        self._series = Series()
        self._origin: float | None = None
        self._columns: dict[Axis, array[float]] = {}

    def of(self, run: Run, axis: Axis) -> Sequence[float]:
        """One x a step, shape (≥ n,), never falling; not to be changed.

        Steps count from 1; time is seconds since the first step; tokens are those
        generated up to a step, its own included.
        """
        series = run.series
        if axis is Axis.STEP:
            return range(1, series.length + 1)
        if not series.same_rows(self._series):
            self._columns, self._origin = {}, None
        self._series = series
        column = self._columns.setdefault(axis, array("d"))
        if axis is Axis.TOKENS:
            self._add_tokens(column, series)
        else:
            self._add_times(column, run)
        return column

    def _add_tokens(self, column: "array[float]", series: Series) -> None:
        counts, total = series.column(TOKENS), column[-1] if column else 0.0
        for row in range(len(column), series.length):
            total += counts[row] if isfinite(counts[row]) else 0.0
            column.append(total)

    def _add_times(self, column: "array[float]", run: Run) -> None:
        elapsed = column[-1] if column else 0.0
        for stamp in _stamps(run, run.series.length - len(column)):
            if stamp is not None:
                self._origin = stamp if self._origin is None else self._origin
                elapsed = max(elapsed, stamp - self._origin)
            column.append(elapsed)


def room(length: int, most: int | None) -> int:
    """The steps that the step axis has room for.

    Args:
        length: Steps taken.
        most: Steps there will be; None where nothing goes on, so that the chart fills up.
    """
    if most is None or most <= length:
        return length
    return min(most, next((size for size in ROOM if size >= length), length))


def marks(axis: Axis, low: float, high: float, count: int) -> list[tuple[float, str]]:
    """About `count` round values in [low, high] and how they are written, rising."""
    for wanted in (count, 2 * count):
        values = _marked(axis, low, high, max(1, wanted))
        if len(values) > 1:
            break
    return list(zip(values, _written(axis, values), strict=True))


def _marked(axis: Axis, low: float, high: float, count: int) -> list[float]:
    least = max(high - low, 1.0) / count
    step = round_step(least) if axis is not Axis.TIME else _round_time(least)
    step = max(step, 1.0)
    values = [n * step for n in range(ceil(low / step), int(high / step) + 1)]
    if axis is Axis.STEP and values[:1] != [low]:
        values = [low, *(value for value in values if value - low >= step / 2)]
    return values


def _written(axis: Axis, values: Sequence[float]) -> list[str]:
    """The values as text, as short as keeps them apart."""
    texts = [time_said(value) if axis is Axis.TIME else short(value) for value in values]
    for digits in range(4, 16):
        if len(set(texts)) == len(texts):
            break
        plain = f"{{:.{digits}g}}".format
        texts = [time_said(v, digits) if axis is Axis.TIME else plain(v) for v in values]
    return texts


def _round_time(least: float) -> float:
    return next((float(t) for t in ROUND_TIMES if t >= least), ceil(least / 86_400) * 86_400.0)


def time_said(value: float, digits: int = 3) -> str:
    """Seconds since the start in the largest unit that fits, e.g. ``90 s`` as ``1.5m``."""
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size), (1.0, "s"))
    return f"{value / size:.{digits}g}{unit}" if value else "0"


def _stamps(run: Run, count: int) -> list[float | None]:
    """When the newest `count` steps were taken, oldest first, in Unix seconds."""
    stamps: list[float | None] = []
    lineage = run.tree.lineage(run.tree.head)
    while len(stamps) < count and (position := next(lineage, None)) is not None:
        stamps.append(seconds(run.tree[position].created_at))
    return stamps[::-1]
