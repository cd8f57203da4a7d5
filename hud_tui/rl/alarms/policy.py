"""Detectors of the policy: how sure it is, and how far it has gone from its reference."""

from math import isfinite, log, nan

from hud_tui.rl.alarms.alarm import Evidence, Level
from hud_tui.rl.alarms.detector import BELOW_CRITICAL, BELOW_WARN, LAG, Context, Detector
from hud_tui.rl.alarms.statistics import (
    CLIP,
    CLIP_HIGH,
    CLIP_LOW,
    DROPPED,
    ENTROPY,
    GRAD_NORM,
    KL_REFERENCE,
    KL_SAMPLER,
    LOSS,
    REWARD,
    STALENESS,
    TRACES,
    Early,
    Ema,
    Lag,
    Row,
    Window,
    bounded,
    grade,
    took_update,
)
from hud_tui.rl.alarms.thresholds import (
    Entropy,
    Finite,
    GradNorm,
    Limits,
    ReferenceKl,
    SamplerKl,
    Staleness,
)

# Detectors of the update itself: its size, and whether it is a number at all.


SIZE, LEAST = 64, 16
"""Steps that the usual norm is of, and how many there must be."""
ADAPT = 50
"""Norms out of line in a row that are the new usual."""


class GradientNorm(Detector[GradNorm]):
    """A gradient that stands out of the usual ones, or is none."""

    NAME, TITLE, NEEDS = "grad_norm", "gradient norm", "grad_norm"
    READS = GRAD_NORM
    MEANING = (
        "The gradient is far larger than usual, or not a number: one such step can undo many. "
        "Typical causes are a few rollouts with extreme ratios or rewards."
    )
    ADVICE = (
        "Clip the gradient norm, lower the learning rate, look at the step's rollouts; set the "
        "head to the last checkpoint before it if the reward fell since."
    )

    def __init__(self, tuning: GradNorm) -> None:
        super().__init__(tuning)
        self._window, self._outliers, self._norm, self._limit = Window(SIZE), 0, nan, nan
        self._lost = 0

    def judge(self, row: Row, context: Context) -> float | None:
        raw = GRAD_NORM.raw(row)
        if raw is None or (not isfinite(raw) and not took_update(row)):
            return None
        norm = bounded(raw)
        if norm is None:
            self._norm, self._lost = nan, self._lost + 1
            return 3.0
        severity, self._norm = self._stands_out(norm), norm
        self._adapt(norm, severity)
        return severity

    def _stands_out(self, norm: float) -> float:
        middle = self._window.median
        if len(self._window) < LEAST or not middle > 0:
            return 0.0
        sigma = max(self._window.sigma, 0.05 * middle)  # a steady norm is not exact
        tuning = self.tuning
        self._limit = max(middle + tuning.sigmas * sigma, tuning.ratio * middle)
        if norm > tuning.explosion * middle:
            return 3.0
        return min(2 * norm / self._limit, BELOW_CRITICAL)

    def _adapt(self, norm: float, severity: float) -> None:
        """The usual is of norms that are in line; what stays out of line becomes the usual."""
        self._outliers = self._outliers + 1 if severity >= 2 else 0
        if self._outliers >= ADAPT:
            self._window, self._outliers = Window(SIZE), 0
        if severity < 2:
            self._window.push(norm)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("gradient norm", self._norm, self._limit),
            Evidence("usual", self._window.median),
            Evidence("steps that are not finite", float(self._lost), 0.0),
        )


class ZeroGradient(Detector[Limits]):
    """Steps whose gradient is exactly 0."""

    NAME, TITLE, NEEDS = "zero_gradient", "steps without gradient", "grad_norm"
    READS = GRAD_NORM
    MEANING = "Optimizer steps are taken with a gradient of exactly 0: they change nothing."
    ADVICE = "See the groups: without spread in their rewards there is no gradient."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share = Ema(0.95)

    def judge(self, row: Row, context: Context) -> float | None:
        norm = GRAD_NORM.read(row)
        if norm is None:
            return None
        return grade(self._share.push(1.0 if norm == 0 else 0.0), self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("steps without gradient", self._share.value, self.tuning.warn),)


class NonFinite(Detector[Finite]):
    """A loss or a reward that is no number, in a step that was trained."""

    NAME, TITLE, NEEDS = "non_finite", "NaN or infinite", "loss:sum or reward_mean"
    READS = LOSS
    MEANING = (
        "The loss or the mean reward is NaN or infinite in a step that changed the weights: "
        "they may be spoilt, and everything trained from them with them."
    )
    ADVICE = (
        "Stop the run, set the head to the last checkpoint before it, and look for a division "
        "by a zero spread, an overflow of a ratio, or a grader that returns NaN."
    )

    def __init__(self, tuning: Finite) -> None:
        super().__init__(tuning)
        self._count = 0

    def _levels(self) -> tuple[Level, ...]:
        return (Level.CRITICAL,)

    def judge(self, row: Row, context: Context) -> float | None:
        values = [role.raw(row) for role in (LOSS, REWARD)]
        known = [value for value in values if value is not None]
        if not known or not took_update(row):
            return None  # a row of an evaluation alone is padded with NaN
        bad = any(not isfinite(value) for value in known)
        self._count += bad
        return 3.0 if bad else 0.0

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("steps that are not finite", float(self._count), 0.0),)


# Detectors of rollouts that are not of the policy that is trained on them.


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
