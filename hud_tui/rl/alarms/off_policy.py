"""Detectors of rollouts that are not of the policy that is trained on them."""

from math import nan

from hud_tui.rl.alarms.alarm import Evidence
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import Detector
from hud_tui.rl.alarms.rows import (
    CLIP,
    CLIP_HIGH,
    CLIP_LOW,
    DROPPED,
    KL_SAMPLER,
    STALENESS,
    TRACES,
    Row,
)
from hud_tui.rl.alarms.statistics import Ema, grade
from hud_tui.rl.alarms.thresholds import Limits, SamplerKl, Staleness


class SamplerDrift(Detector[SamplerKl]):
    """The policy that is trained is not the one that sampled."""

    NAME, TITLE, NEEDS = "kl_sampler", "off-policy drift", "kl_sample_train"
    READS = KL_SAMPLER
    MEANING = (
        "The policy that is trained gives the sampled tokens other probabilities than the one "
        "that sampled them: rollouts are stale, or sampler and trainer compute differently."
    )
    ADVICE = (
        "Train on fresher rollouts, take fewer updates a batch, lower the learning rate; check "
        "that sampler and trainer use the same weights and precision."
    )

    def __init__(self, tuning: SamplerKl) -> None:
        super().__init__(tuning)
        self._kl, self._smooth, self._growing = nan, Ema(0.5), 0

    def judge(self, row: Row, context: Context) -> float | None:
        kl = KL_SAMPLER.read(row)
        if kl is None:
            return None
        before = self._smooth.value
        self._growing = self._growing + 1 if self._smooth.push(kl) > before else 0
        self._kl = kl
        severity = grade(kl, self.tuning)
        return max(severity, 3.0) if severity >= 2 and self._grew else severity

    @property
    def _grew(self) -> bool:
        return self._growing >= self.tuning.growing

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("kl sample-train", self._kl, self.tuning.warn),
            Evidence("steps of growth", float(self._growing), float(self.tuning.growing)),
        )


class ClipFraction(Detector[Limits]):
    """Too many updates run into the clip."""

    NAME, TITLE, NEEDS = "clip_fraction", "clip fraction", "clip_fraction"
    READS = CLIP
    MEANING = (
        "A large share of tokens has an importance ratio beyond the clip: their gradient is cut "
        "off, and each step moves the policy further than it should."
    )
    ADVICE = "Lower the learning rate, or take fewer updates a batch. Healthy is .05 to .15."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._clip, self._low, self._high = Ema(0.8), nan, nan

    def judge(self, row: Row, context: Context) -> float | None:
        clip = CLIP.read(row)
        if clip is None:
            return None
        low, high = CLIP_LOW.read(row), CLIP_HIGH.read(row)
        self._low, self._high = nan if low is None else low, nan if high is None else high
        return grade(self._clip.push(clip), self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        ratio = self._low / self._high if self._high > 0 else nan
        return (
            Evidence("clipped (ema)", self._clip.value, self.tuning.warn),
            Evidence("low to high", ratio, 3.0),
        )


class StaleRollouts(Detector[Staleness]):
    """Rollouts sampled by a policy of many steps ago."""

    NAME, TITLE, NEEDS = "staleness", "stale rollouts", "staleness_mean"
    READS = STALENESS
    MEANING = "Rollouts are trained on many steps after they were sampled: the ratios drift."
    ADVICE = "Sample faster or train slower: more samplers, smaller batches in flight."

    def __init__(self, tuning: Staleness) -> None:
        super().__init__(tuning)
        self._age = self._dropped = nan

    def judge(self, row: Row, context: Context) -> float | None:
        age = STALENESS.read(row)
        if age is None:
            return None
        dropped, kept = DROPPED.read(row), TRACES.read(row)
        self._age, self._dropped = age, nan
        if dropped is not None and kept is not None and dropped + kept > 0:
            self._dropped = dropped / (dropped + kept)
        severity = grade(age, self.tuning)
        return max(severity, 3.0) if self._dropped > self.tuning.dropped else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("steps of age, mean", self._age, self.tuning.warn),
            Evidence("dropped", self._dropped, self.tuning.dropped),
        )
