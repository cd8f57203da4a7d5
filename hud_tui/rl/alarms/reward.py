"""Detectors of the reward: components, collapse, plateau, held-out gap, zero variance."""

import re
from array import array
from collections.abc import Iterator
from math import nan, sqrt

from hud_tui.rl.alarms.alarm import Evidence, Skipped
from hud_tui.rl.alarms.detector import BELOW_WARN, Context, Detector, Episode
from hud_tui.rl.alarms.statistics import (
    Ema,
    InitialMedian,
    Row,
    Window,
    block_means,
    grade,
    theil_sen,
    usable,
    without_variance,
)
from hud_tui.rl.alarms.thresholds import Collapse, Limits, Plateau
from hud_tui.rl.metrics import title

_PART = re.compile(r"^(?:rewards?|reward_component|critic/rewards)/([^/]{1,80})(?:/(mean|std))?$")
_WHOLE = frozenset({"total", "mean", "std", "min", "max"})
_AUXILIARY = re.compile(r"format|length|len_|style|penalty|bonus|brevity|verbos|syntax", re.I)
"""Auxiliary reward components; correctness is expected to dominate."""
WEIGHT = 0.99


class _Part:
    """Variance of one reward component: within steps if its std is reported, else between steps."""

    def __init__(self) -> None:
        self._mean, self._between, self._within = Ema(WEIGHT), Ema(WEIGHT), Ema(WEIGHT)

    def push(self, value: float, is_std: bool) -> None:
        if is_std:
            self._within.push(value * value)
            return
        before = self._mean.value if self._mean.seen else value
        self._between.push((value - before) * (value - self._mean.push(value)))

    @property
    def variance(self) -> float:
        source = self._within if self._within.seen else self._between
        return max(0.0, source.value) if source.seen else 0.0


class ComponentDominance(Detector[Limits]):
    NAME, TITLE = "component_dominance", "one reward component dominates"
    USUAL = Limits(warn=0.7, critical=0.9, warmup=150)  # rl-doctor
    NEEDS = "reward/<component> for two or more components"
    READS = "reward_mean"
    BY_TASKS = True
    MEANING = (
        "Most of the reward's variance comes from an auxiliary component (format, length, style), "
        "so the policy optimises that component."
    )
    ADVICE = "Lower the weight of that component, or remove it once it is learned."
    HAS_LIMIT = False  # it is on a share of the variance

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._parts: dict[str, _Part] = {}
        self._share = nan

    def value(self, row: Row) -> float | None:
        """The largest share of the reward's variance that an auxiliary component makes up."""
        for name, part, is_std in parts_of(row):
            self._parts.setdefault(name, _Part()).push(part, is_std)
        if len(self._parts) < 2:
            return None
        variances = {name: part.variance for name, part in self._parts.items()}
        total = sum(variances.values())
        auxiliary = [v for name, v in variances.items() if _AUXILIARY.search(name)]
        return max(auxiliary, default=0.0) / total if total > 0 else 0.0

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        self._share = value
        return grade(value, self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("share of variance", self._share, self.tuning.warn),)


def parts_of(row: Row) -> Iterator[tuple[str, float, bool]]:
    """A row's reward components: name, value, and whether the value is a standard deviation."""
    for key, raw in row.metrics.items():
        if not key.startswith(("reward", "critic/rewards")):
            continue
        part, value = _PART.match(key), usable(raw)
        if part is not None and value is not None and part[1] not in _WHOLE:
            yield part[1], value, part[2] == "std"


# Collapse, forgetting, plateau and held-out gap.


BLOCKS = 40
"""Number of block means that the slope is computed from."""
LOOK, LOOK_SHARE = 10, 0.02
"""Number of steps between two tests for a plateau: LOOK, or this share of the run if that is
more."""


class RewardCollapse(Detector[Collapse]):
    NAME, TITLE, READS = "reward_collapse", "reward collapse", "reward_mean"
    USUAL = Collapse(hold=10)
    BY_TASKS = True
    MEANING = "The mean reward has fallen clearly below its peak on these tasks."
    ADVICE = (
        "Roll back to the last checkpoint before it and resume with a lower learning rate; "
        "compare its rollouts with current ones to see what was lost."
    )
    WEIGHT, SETTLED = 0.9, 10
    """Weight of the moving average; number of values from which its peak counts."""

    def __init__(self, tuning: Collapse) -> None:
        super().__init__(tuning)
        self._ema, self._start, self._noise = Ema(self.WEIGHT), InitialMedian(5), Window(64)
        self._peak, self._peak_step, self._need = nan, 0, nan
        self._near = self._last_good = 0
        """Last rows whose moving average, and whose value, were near the peak."""

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        if self._ema.seen:
            self._noise.push(value - self._ema.value)
        else:
            self._near = self._last_good = row.index
        smooth = self._ema.push(value)
        self._start.push(value)
        if self._ema.seen < min(self.SETTLED, self.tuning.warmup):
            return 0.0
        if not self._peak >= smooth:
            self._peak, self._peak_step = smooth, row.step
        noise = max(self._noise.sigma if len(self._noise) > 3 else 0.0, self._error(row))
        self._need = max(self.tuning.sigmas * noise, self.tuning.least * abs(self._peak), 1e-9)
        if self._peak - smooth <= self._need / 2:
            self._near = row.index
        if self._peak - value <= self._need / 2:
            self._last_good = row.index
        fall, gained = self._peak - smooth, self._peak - self._start.value
        if fall < self._need:
            return 2 * fall / self._need
        whole = 0.9 * gained if gained > self._need else 2 * self._need
        return 2 + min(1.0, fall / whole)

    def _error(self, row: Row) -> float:
        """Standard error of one value, as far as its number of rollouts tells; 0 if unknown."""
        return 0.0

    def onset(self, episode: Episode) -> int:
        """The row after the reward was last near its peak. The moving average lags behind the
        values, and a single value may be near the peak by chance, so the earlier of the two rows
        counts."""
        near = min(self._near, self._last_good)
        return near + 1 if near < episode.raised else episode.onset

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        name = f"{title(self.READS)} EMA({self.WEIGHT:g})"
        return (
            Evidence(name, self._ema.value, self._peak - self._need),
            Evidence("peak", self._peak),
            Evidence("peak at step", float(self._peak_step)),
            Evidence("initial", self._start.value),
        )


class HeldoutCollapse(RewardCollapse):
    NAME, TITLE, READS = "heldout_collapse", "forgetting", "heldout_reward"
    USUAL = Collapse(sigmas=2.5, warmup=5, hold=3, release=3)
    MEANING = "The held-out reward has fallen clearly below its peak: the policy forgets."
    ADVICE = (
        "Roll back to the last checkpoint before it; train on a wider mix of tasks, with a lower "
        "learning rate or a KL penalty."
    )
    WEIGHT, SETTLED = 0.7, 3

    def _error(self, row: Row) -> float:
        """That of a mean of rewards in [0, 1], at most: binomial at the level of the peak, with two
        successes and two failures added (Agresti & Coull 1998), so that it is never 0."""
        rollouts, level = row.read("num_heldout_traces"), self._peak
        if rollouts is None or rollouts < 1 or not 0 <= level <= 1:
            return 0.0
        share = (level * rollouts + 2) / (rollouts + 4)
        return sqrt(share * (1 - share) / (rollouts + 4))


class RewardPlateau(Detector[Plateau]):
    """The reward has no slope in the last part of the run, and is below the maximum reward."""

    NAME, TITLE, READS = "reward_plateau", "reward plateau", "reward_mean"
    USUAL = Plateau(warmup=6, hold=2, release=2)  # in looks, not steps
    BY_TASKS = True
    MEANING = (
        "The mean reward has been flat for a large part of the run. If entropy or KL change "
        "meanwhile, the policy drifts without improving."
    )
    ADVICE = "Check how many groups still give signal; change the tasks, or stop the run here."
    HAS_LIMIT = False  # it is on the slope

    def __init__(self, tuning: Plateau) -> None:
        super().__init__(tuning)
        self._rewards, self._entropy, self._kl = array("d"), array("d"), array("d")
        self._next, self._began, self._slope, self._moved = 2 * BLOCKS, 0, nan, nan
        self._indexes = array("q")

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        self._rewards.append(value)
        self._indexes.append(row.index)
        self._entropy.append(row.number("entropy"))
        self._kl.append(row.number("kl_reference"))
        seen = len(self._rewards)
        if seen < self._next:
            return None
        self._next = seen + max(LOOK, int(LOOK_SHARE * seen))
        first = len(self._rewards) - int(self.tuning.share * len(self._rewards))
        means = block_means(self._rewards[first:], BLOCKS)
        slope = theil_sen(means)
        middle = sum(means) / len(means)
        line = [middle + slope * (i - (len(means) - 1) / 2) for i in range(len(means))]
        noise = sorted(abs(m - fit) for m, fit in zip(means, line, strict=True))[len(means) // 2]
        self._slope, self._began = slope * (len(means) - 1), self._indexes[first]
        if context.solved or abs(self._slope) > max(self.tuning.gain * abs(middle), 1.5 * noise):
            return 0.0
        self._moved = max(_change(self._entropy[first:]), _change(self._kl[first:]))
        return 3.0 if self._moved > self.tuning.moving else 2.0

    def onset(self, episode: Episode) -> int:
        return self._began

    def skipped(self) -> Skipped | None:
        return None if self._rewards else super().skipped()

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("reward slope", self._slope),
            Evidence("mean reward", context.reward.value),
            Evidence("change of entropy or KL", self._moved, self.tuning.moving),
        )


class HeldoutGap(Detector[Limits]):
    NAME, TITLE, READS = "heldout_gap", "held-out gap", "heldout_reward"
    USUAL = Limits(warn=0.15, critical=0.3, warmup=3, hold=3, release=3)
    BY_TASKS = True
    MEANING = (
        "The reward on training tasks is higher than on held-out tasks: the policy memorises, or "
        "exploits the grader without solving the task (reward hacking)."
    )
    ADVICE = (
        "Read the rollouts with the highest reward; fix the grader, add tasks, and roll back to "
        "the last checkpoint before the gap opened."
    )
    HAS_LIMIT = False  # it is on the gap to the training reward, which changes

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._gap = Ema(0.5)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        if not context.reward.ema.seen:
            return None
        gap = self._gap.push(context.reward.value - context.heldout.value)
        severity = grade(gap, self.tuning)
        if context.heldout.climbing:  # the held-out reward is lower but improves
            return min(severity, BELOW_WARN)
        return severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("gap", self._gap.value, self.tuning.warn),
            Evidence("mean reward", context.reward.value),
            Evidence("held-out reward", context.heldout.value),
        )


def _change(values: "array[float]") -> float:
    """Relative change from the first fifth to the last; 0 if there are too few values."""
    numbers = [value for value in values if value == value]
    if len(numbers) < 10:
        return 0.0
    fifth = len(numbers) // 5
    first, last = sum(numbers[:fifth]) / fifth, sum(numbers[-fifth:]) / fifth
    return abs(last - first) / max(abs(first), 1e-9)


# Groups without a gradient.


PLACES = 3
"""Decimals of a share that is evidence: below that is an average's tail of earlier steps."""


class ZeroVariance(Detector[Limits]):
    """Groups without variance; solved ones are a taskset that is learned, which is no failure, and
    worth an info."""

    NAME, TITLE, READS = "zero_variance", "zero-variance groups", "frac_reward_zero_std"
    USUAL = Limits(info=0.3, warn=0.5, critical=0.75)  # rl-doctor
    MEANING = (
        "In many groups all rewards are equal, so they have no gradient: their rollouts cost "
        "time and tokens without any learning signal."
    )

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._flat, self._good, self._bad = Ema(0.7), Ema(0.7), Ema(0.7)

    def value(self, row: Row) -> float | None:
        return without_variance(row)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        good, bad = row.read("frac_groups_all_solved"), row.read("frac_groups_all_failed")
        if good is not None and bad is not None:
            self._good.push(good)
            self._bad.push(bad)
        flat = self._flat.push(value)
        unsolved = flat - self._good.value if self._good.seen else flat
        return max(grade(unsolved, self.tuning), min(grade(flat, self.tuning), BELOW_WARN))

    @property
    def _too_easy(self) -> bool:
        """Whether most zero-variance groups are solved: the taskset is learned."""
        return self._good.value > self._bad.value

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        limit = None if self._too_easy else self.tuning.warn
        return (
            Evidence("zero-variance groups", self._flat.value, limit),
            Evidence("all solved", round(self._good.value, PLACES)),
            Evidence("all failed", round(self._bad.value, PLACES)),
        )

    def advice(self) -> str:
        if self._too_easy:
            return (
                "Most of them are solved every time: add harder tasks, exclude these, or sample "
                "the others more often (--draw signal)."
            )
        return (
            "Most of them are never solved: add easier tasks, use a larger group size, exclude "
            "these, or sample the others more often (--draw signal). Sampling in preflight shows "
            "which tasks give signal."
        )
