"""Detectors of the reward: collapse, plateau, and what is only rewarded in training."""

from array import array
from math import nan

from hud_tui.rl.alarms.alarm import Evidence, Skipped
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import BELOW_WARN, Detector
from hud_tui.rl.alarms.gate import Episode
from hud_tui.rl.alarms.rows import ENTROPY, HELDOUT, KL_REFERENCE, REWARD, Row
from hud_tui.rl.alarms.statistics import Early, Ema, Window, block_means, grade, theil_sen
from hud_tui.rl.alarms.thresholds import Collapse, Limits, Plateau

BLOCKS = 40
"""Parts of a plateau whose slope is looked at."""
LOOK, LOOK_SHARE = 10, 0.02
"""Steps from one look for a plateau to the next: so many, or this share of the run."""


class RewardCollapse(Detector[Collapse]):
    """A reward that fell clearly below its best."""

    NAME, TITLE, NEEDS = "reward_collapse", "reward collapse", "reward_mean"
    READS = REWARD
    MEANING = "The reward has fallen clearly below the best that this run had reached."
    ADVICE = (
        "Set the head to the last checkpoint before it and go on with a lower learning rate; "
        "compare its rollouts with today's to see what was lost."
    )
    WEIGHT, SETTLED = 0.9, 10
    """Of the moving average; and values after which its peak counts."""

    def __init__(self, tuning: Collapse) -> None:
        super().__init__(tuning)
        self._ema, self._start, self._noise = Ema(self.WEIGHT), Early(5), Window(64)
        self._peak, self._peak_step, self._need = nan, 0, nan
        self._near = self._last_good = 0
        """The last row whose average, and whose value, was near the peak."""

    def judge(self, row: Row, context: Context) -> float | None:
        value = self.READS.read(row)
        if value is None:
            return None
        if self._ema.seen:
            self._noise.push(value - self._ema.value)
        smooth = self._ema.push(value)
        self._start.push(value)
        if self._ema.seen < min(self.SETTLED, self.tuning.warmup):
            return 0.0
        if not self._peak >= smooth:
            self._peak, self._peak_step = smooth, row.step
        noise = self._noise.sigma if len(self._noise) > 3 else 0.0
        self._need = max(self.tuning.sigmas * noise, self.tuning.least * abs(self._peak), 1e-9)
        if self._peak - smooth <= self._need / 2:
            self._near = row.place
        if self._peak - value <= self._need / 2:
            self._last_good = row.place
        return self._fall(smooth)

    def _fall(self, smooth: float) -> float:
        """2 where it has fallen as far as to warn, 3 where it is back at its start."""
        fall, gained = self._peak - smooth, self._peak - self._start.value
        if fall < self._need:
            return 2 * fall / self._need
        whole = 0.9 * gained if gained > self._need else 2 * self._need
        return 2 + min(1.0, fall / whole)

    def onset(self, episode: Episode) -> int:
        """The row after it was last near its peak: an average falls later than what it is of,
        and one value may be near the peak by chance."""
        near = min(self._near, self._last_good)
        return near + 1 if near < episode.raised else episode.onset

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence(f"{self.NEEDS} (ema)", self._ema.value, self._peak - self._need),
            Evidence("peak", self._peak),
            Evidence("at step", float(self._peak_step)),
            Evidence("at the start", self._start.value),
        )


class HeldoutCollapse(RewardCollapse):
    """Tasks that are never trained on get worse: the policy forgets."""

    NAME, TITLE, NEEDS = "heldout_collapse", "forgetting", "heldout_reward"
    READS = HELDOUT
    MEANING = "The held-out reward has fallen clearly below its best: what was learnt is lost."
    ADVICE = (
        "Set the head to the last checkpoint before it; train on a wider mix of tasks, with a "
        "lower learning rate or a KL penalty."
    )
    WEIGHT, SETTLED = 0.7, 3


class RewardPlateau(Detector[Plateau]):
    """No slope in the last part of the run, although there is more to be had."""

    NAME, TITLE, NEEDS = "reward_plateau", "reward plateau", "reward_mean"
    READS = REWARD
    MEANING = (
        "The reward has not moved for a good part of the run. Where entropy or KL move "
        "meanwhile, the policy is changing without getting better."
    )
    ADVICE = "See how many groups still have spread; give other tasks, or end the run here."

    def __init__(self, tuning: Plateau) -> None:
        super().__init__(tuning)
        self._rewards, self._entropy, self._kl = array("d"), array("d"), array("d")
        self._next, self._began, self._drift, self._moved = 2 * BLOCKS, 0, nan, nan
        self._places = array("q")

    def judge(self, row: Row, context: Context) -> float | None:
        reward = REWARD.read(row)
        if reward is None:
            return None
        self._rewards.append(reward)
        self._places.append(row.place)
        for role, column in ((ENTROPY, self._entropy), (KL_REFERENCE, self._kl)):
            value = role.read(row)
            column.append(nan if value is None else value)
        seen = len(self._rewards)
        if seen < self._next:
            return None
        self._next = seen + max(LOOK, int(LOOK_SHARE * seen))
        return self._look(context)

    def _look(self, context: Context) -> float:
        first = len(self._rewards) - int(self.tuning.share * len(self._rewards))
        means = block_means(self._rewards[first:], BLOCKS)
        slope = theil_sen(means)
        middle = sum(means) / len(means)
        line = [middle + slope * (i - (len(means) - 1) / 2) for i in range(len(means))]
        noise = sorted(abs(m - at) for m, at in zip(means, line, strict=True))[len(means) // 2]
        self._drift, self._began = slope * (len(means) - 1), self._places[first]
        if context.solved or abs(self._drift) > max(self.tuning.gain * abs(middle), 1.5 * noise):
            return 0.0
        self._moved = max(_change(self._entropy[first:]), _change(self._kl[first:]))
        return 3.0 if self._moved > self.tuning.moving else 2.0

    def onset(self, episode: Episode) -> int:
        return self._began

    def skipped(self) -> Skipped | None:
        return None if self._rewards else super().skipped()

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("drift of the reward", self._drift),
            Evidence("mean reward", context.reward.value),
            Evidence("entropy or KL moved by", self._moved, self.tuning.moving),
        )


class HeldoutGap(Detector[Limits]):
    """The reward in training runs away from that on tasks that are never trained on."""

    NAME, TITLE, NEEDS = "heldout_gap", "train and held-out part", "heldout_reward"
    READS = HELDOUT
    MEANING = (
        "Training tasks are rewarded better than held-out ones: the policy memorises, or it has "
        "found what the grader pays for without doing the task (reward hacking)."
    )
    ADVICE = (
        "Read the rollouts with the highest reward; tighten the grader, add tasks, and go back "
        "to the last checkpoint before the gap opened."
    )

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._gap = Ema(0.5)

    def judge(self, row: Row, context: Context) -> float | None:
        if HELDOUT.read(row) is None or not context.reward.known:
            return None
        gap = self._gap.push(context.reward.value - context.heldout.value)
        severity = grade(gap, self.tuning)
        if context.heldout.climbing:  # it is behind, and follows
            return min(severity, BELOW_WARN)
        return severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("gap", self._gap.value, self.tuning.warn),
            Evidence("mean reward", context.reward.value),
            Evidence("held-out", context.heldout.value),
        )


def _change(values: "array[float]") -> float:
    """Relative change from the first fifth to the last; 0 where it is not known."""
    known = [value for value in values if value == value]
    if len(known) < 10:
        return 0.0
    fifth = len(known) // 5
    first, last = sum(known[:fifth]) / fifth, sum(known[-fifth:]) / fifth
    return abs(last - first) / max(abs(first), 1e-9)
