"""Running statistics that robust detectors need, each a few operations a step."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import isfinite, nan, sqrt
from statistics import median

from hud_tui.rl.alarms.thresholds import Limits

HUGE = 1e100
"""Larger numbers are taken for this, so that no square or sum overflows."""
NORMAL_IQR = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def grade(value: float, limits: Limits) -> float:
    """A value's severity: 1, 2 and 3 at the limits of info, warn and critical.

    Where there is no limit for info, the way up to the warning is in proportion from 0.
    """
    if value >= limits.warn:
        return 2 + (value - limits.warn) / (limits.critical - limits.warn)
    if limits.info is None or value < limits.info:
        return value / (limits.warn / 2 if limits.info is None else limits.info)
    return 1 + (value - limits.info) / (limits.warn - limits.info)


def bounded(value: float | None) -> float | None:
    """A finite number within ±HUGE; None for what is no number."""
    if value is None or -HUGE < value < HUGE:
        return value
    return max(-HUGE, min(HUGE, value)) if isfinite(value) else None


class Ema:
    """Exponential moving average, bias-corrected as in Adam (Kingma & Ba 2015, section 3)."""

    def __init__(self, weight: float) -> None:
        self.weight, self.value, self.seen = weight, nan, 0
        self._sum = self._share = 0.0

    def push(self, value: float) -> float:
        self.seen += 1
        self._sum = self.weight * self._sum + (1 - self.weight) * value
        self._share = self.weight * self._share + 1 - self.weight
        self.value = self._sum / self._share
        return self.value


class Early:
    """The median of the first values: what a run started from."""

    def __init__(self, size: int) -> None:
        self.size, self.value = size, nan
        self._first: list[float] = []

    def push(self, value: float) -> float:
        """NaN until there are `size` values."""
        if len(self._first) < self.size:
            self._first.append(value)
            if len(self._first) == self.size:
                self.value = median(self._first)
        return self.value


class Window:
    """The last values in order of arrival and of size."""

    def __init__(self, size: int) -> None:
        self._recent: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def push(self, value: float) -> None:
        """Values are finite: NaN has no place in an order."""
        if len(self._recent) == self._recent.maxlen:
            del self._sorted[bisect_left(self._sorted, self._recent[0])]
        self._recent.append(value)
        insort(self._sorted, value)

    @property
    def median(self) -> float:
        n = len(self._sorted)
        return (self._sorted[(n - 1) // 2] + self._sorted[n // 2]) / 2 if n else nan

    @property
    def sigma(self) -> float:
        """Standard deviation estimated from the quartiles, which outliers do not move."""
        n = len(self._sorted)
        return (self._sorted[(3 * n - 1) // 4] - self._sorted[n // 4]) / NORMAL_IQR if n else nan


class Lag:
    """What a value was some steps ago."""

    def __init__(self, steps: int) -> None:
        self._past: deque[float] = deque(maxlen=steps + 1)

    def push(self, value: float) -> float:
        """The value `steps` pushes before; NaN where there were fewer."""
        self._past.append(value)
        return self._past[0] if len(self._past) == self._past.maxlen else nan


class Correlation:
    """Pearson's correlation of two streams, weighted towards the newest."""

    def __init__(self, weight: float) -> None:
        self._means = Ema(weight), Ema(weight)
        self._moments = Ema(weight), Ema(weight), Ema(weight)
        self.value = nan

    def push(self, x: float, y: float) -> float:
        dx, dy = x - self._means[0].push(x), y - self._means[1].push(y)
        xx, yy = self._moments[0].push(dx * dx), self._moments[1].push(dy * dy)
        xy = self._moments[2].push(dx * dy)
        spread = sqrt(xx) * sqrt(yy)
        self.value = xy / spread if spread > 0 else nan
        return self.value


def theil_sen(values: Sequence[float]) -> float:
    """The median slope of all pairs, per place. O(n²): give it some dozens of values.

    Source: Sen 1968, Estimates of the regression coefficient based on Kendall's tau.
    """
    n = len(values)
    slopes = [(values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n)]
    return median(slopes) if slopes else nan


def block_means(values: Sequence[float], blocks: int) -> list[float]:
    """Means of at most `blocks` equal parts, in order; values beyond whole parts are left out."""
    size = max(1, len(values) // blocks)
    count = min(blocks, len(values) // size)
    start = len(values) - count * size
    return [sum(values[i : i + size]) / size for i in range(start, len(values), size)]
