"""Running statistics for the detectors, O(1) or O(log n) per step; rows of metrics."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import median

from hud_tui.rl.alarms.thresholds import Limits
from hud_tui.rl.groups import group_shares
from hud_tui.rl.metrics import flat_share, metrics_of, step_number
from hud_tui.rl.text import seconds
from hud_tui.wire import Checkpoint, bounded

NORMAL_IQR = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def grade(value: float, limits: Limits) -> float:
    """Severity of a value: 1, 2 and 3 at the limits of info, warn and critical, linear between
    them.

    Without an info limit it is linear from 0 to 2 below the warn limit.
    """
    if value >= limits.warn:
        return 2 + (value - limits.warn) / (limits.critical - limits.warn)
    if limits.info is None or value < limits.info:
        return value / (limits.warn / 2 if limits.info is None else limits.info)
    return 1 + (value - limits.info) / (limits.warn - limits.info)


def usable(value: float | None) -> float | None:
    """The value, bounded; None for NaN, infinities and None."""
    return None if value is None or not isfinite(value) else bounded(value)


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


class InitialMedian:
    """Median of the first `size` values: the level at the start of a run."""

    def __init__(self, size: int) -> None:
        self.size, self.value = size, nan
        self._first: list[float] = []

    def push(self, value: float) -> float:
        """Add a value; the median is NaN until there are `size` values."""
        if len(self._first) < self.size:
            self._first.append(value)
            if len(self._first) == self.size:
                self.value = median(self._first)
        return self.value


class Window:
    """The last `size` values, also sorted: median and robust standard deviation."""

    def __init__(self, size: int) -> None:
        self._recent: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def push(self, value: float) -> None:
        """Add a finite value (NaN could not be sorted)."""
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
        """Standard deviation estimated from the interquartile range, robust to outliers."""
        n = len(self._sorted)
        return (self._sorted[(3 * n - 1) // 4] - self._sorted[n // 4]) / NORMAL_IQR if n else nan


class Lag:
    """The value a fixed number of steps ago."""

    def __init__(self, steps: int) -> None:
        self._past: deque[float] = deque(maxlen=steps + 1)

    def push(self, value: float) -> float:
        """The value `steps` pushes earlier; NaN if there were fewer."""
        self._past.append(value)
        return self._past[0] if len(self._past) == self._past.maxlen else nan


class Correlation:
    """Exponentially weighted Pearson correlation of two series."""

    def __init__(self, weight: float) -> None:
        self._means = Ema(weight), Ema(weight)
        self._moments = Ema(weight), Ema(weight), Ema(weight)
        self.value = nan

    def push(self, x: float, y: float) -> float:
        dx, dy = x - self._means[0].push(x), y - self._means[1].push(y)
        xx, yy = self._moments[0].push(dx * dx), self._moments[1].push(dy * dy)
        xy = self._moments[2].push(dx * dy)
        scale = sqrt(xx) * sqrt(yy)
        self.value = xy / scale if scale > 0 else nan
        return self.value


def theil_sen(values: Sequence[float]) -> float:
    """Theil–Sen estimator: median slope of all pairs, per index. O(n²): for dozens of values.

    Source: Sen 1968, Estimates of the regression coefficient based on Kendall's tau.
    """
    n = len(values)
    slopes = [(values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n)]
    return median(slopes) if slopes else nan


def block_means(values: Sequence[float], blocks: int) -> list[float]:
    """Means of at most `blocks` equal parts, in order; a remainder at the start is dropped."""
    size = max(1, len(values) // blocks)
    count = min(blocks, len(values) // size)
    start = len(values) - count * size
    return [sum(values[i : i + size]) / size for i in range(start, len(values), size)]


# Rows: one training step each, with its metrics under canonical keys.
#
# A missing metric differs from NaN: a step without a held-out reward is normal, a NaN loss is not.


@dataclass(frozen=True)
class Row:
    """One step of a lineage."""

    index: int
    """Index in the lineage, from 0."""
    metrics: Mapping[str, float]
    step: int
    checkpoint_id: str | None = None
    at: float | None = None
    """Time of the step, Unix seconds."""
    job_id: str | None = None
    """The run that took it."""
    tasks_digest: str | None = None
    """Hash of the tasks of that run; None if the service does not report it."""
    slugs: frozenset[str] = frozenset()
    """Slugs of the tasks of its rollouts; empty if the service does not report them."""

    def read(self, key: str) -> float | None:
        """A metric's value if it is a finite number, else None."""
        return usable(self.metrics.get(key))

    def number(self, key: str) -> float:
        """As `read`, with NaN for None."""
        reading = self.read(key)
        return nan if reading is None else reading


UPDATES = ("grad_norm", "learning_rate", "entropy", "num_traces")
"""Metrics of which every optimizer step reports at least one."""


def took_update(row: Row) -> bool:
    """Whether an optimizer step made this row; a row that only records an evaluation has no
    loss."""
    return any(row.read(key) is not None for key in UPDATES)


RESIDUE = 1e-3
"""Standard deviations below this are rounding error (NVIDIA-NeMo/RL#4161)."""


def without_variance(row: Row) -> float | None:
    """`flat_share`, else by the standard deviation of all rewards; None if neither is known."""
    flat, std = flat_share(row.metrics), row.read("reward_std")
    return float(std < RESIDUE) if flat is None and std is not None else flat


def row_of(index: int, checkpoint: Checkpoint) -> Row:
    """The row of a checkpoint at index `index` of its lineage."""
    metrics = metrics_of(checkpoint)
    if checkpoint.groups and "frac_reward_zero_std" not in metrics:
        rewards = (list(filter(isfinite, group.rewards)) for group in checkpoint.groups)
        metrics = {**metrics, **group_shares(rewards)}
    stamp = seconds(checkpoint.created_at)
    return Row(
        index,
        metrics,
        step_number(checkpoint, index),
        checkpoint.id,
        stamp,
        checkpoint.job_id,
        checkpoint.tasks_digest,
        frozenset(group.task_slug for group in checkpoint.groups),
    )
