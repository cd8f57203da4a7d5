"""Detectors of the policy: how sure it is, and how far it has gone from its reference."""

from math import log, nan

from hud_tui.rl.alarms.alarm import Evidence
from hud_tui.rl.alarms.context import LAG, Context
from hud_tui.rl.alarms.detector import BELOW_WARN, Detector
from hud_tui.rl.alarms.rows import (
    ENTROPY,
    KL_REFERENCE,
    Row,
)
from hud_tui.rl.alarms.statistics import Early, Ema, Lag, grade
from hud_tui.rl.alarms.thresholds import Entropy, ReferenceKl


class EntropyCollapse(Detector[Entropy]):
    """Entropy on its way to nothing while the reward does not climb."""

    NAME, TITLE, NEEDS = "entropy_collapse", "entropy collapse", "entropy"
    READS = ENTROPY
    MEANING = (
        "The policy is getting sure of itself without getting better: it stops exploring, its "
        "groups lose their spread, and soon nothing is left to learn from."
    )
    ADVICE = (
        "Lower the learning rate or raise the temperature, and go on from the last checkpoint "
        "before it began; what has collapsed does not come back by itself."
    )

    def __init__(self, tuning: Entropy) -> None:
        super().__init__(tuning)
        self._entropy, self._start, self._lag = Ema(0.9), Early(10), Lag(LAG)
        self._left = nan
        """Steps until the floor, as it goes now."""

    def judge(self, row: Row, context: Context) -> float | None:
        entropy = ENTROPY.read(row)
        if entropy is None:
            return None
        smooth, start = self._entropy.push(entropy), self._start.push(entropy)
        before, floor = self._lag.push(smooth), self.tuning.floor * start
        if not floor > 0:
            return 0.0
        if smooth <= floor:
            self._left = 0.0
            severity = 3.0
        else:
            rate = (log(before) - log(smooth)) / LAG if before > 0 else nan
            self._left = (log(smooth) - log(floor)) / rate if rate > 0 else nan
            severity = 2.0 if self._left <= context.remaining(self.tuning.horizon) else 0.0
        healthy = context.reward.climbing or context.solved
        return min(severity, BELOW_WARN) if healthy else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("entropy (ema)", self._entropy.value, self.tuning.floor * self._start.value),
            Evidence("at the start", self._start.value),
            Evidence("steps to the limit", self._left),
            Evidence("mean reward", context.reward.value),
            Evidence("before", context.reward.before),
        )


class ReferenceDrift(Detector[ReferenceKl]):
    """The policy goes far from where it started."""

    NAME, TITLE, NEEDS = "kl_reference", "KL to the reference", "kl_reference"
    READS = KL_REFERENCE
    MEANING = (
        "The policy is far from the reference model: it may have found answers that the grader "
        "likes and nobody else does, and it forgets what it could."
    )
    ADVICE = (
        "Raise the KL penalty or lower the learning rate, read the rollouts with the highest "
        "reward, and go on from the last checkpoint before it began."
    )

    def __init__(self, tuning: ReferenceKl) -> None:
        super().__init__(tuning)
        self._kl, self._early, self._lag = Ema(0.8), Early(20), Lag(10)
        self._zeros = 0

    def judge(self, row: Row, context: Context) -> float | None:
        kl = KL_REFERENCE.read(row)
        if kl is None:
            return None
        if kl == 0 and not self.gate.seen:
            self._zeros += 1  # without a penalty it is not measured, which is no good sign
            return None
        smooth, early = self._kl.push(kl), self._early.push(kl)
        rising = smooth > self._lag.push(smooth)
        far = rising and early > 0 and smooth > self.tuning.ratio * early
        severity = grade(smooth, self.tuning)
        if far and smooth > self.tuning.warn / 10:
            return max(severity, 2.0)
        return severity if rising or severity >= 3 else min(severity, BELOW_WARN)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("kl to the reference (ema)", self._kl.value, self.tuning.warn),
            Evidence("early median", self._early.value),
        )
