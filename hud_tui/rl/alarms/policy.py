"""Detectors of the update and the policy: gradient, loss, off-policy drift, entropy, KL."""

from math import isfinite, log, nan, sqrt

from hud_tui.rl.alarms.alarm import Evidence, Level
from hud_tui.rl.alarms.detector import BELOW_CRITICAL, BELOW_WARN, LAG, Context, Detector
from hud_tui.rl.alarms.statistics import (
    RESIDUE,
    Ema,
    InitialMedian,
    Lag,
    Row,
    Window,
    grade,
    took_update,
    usable,
    without_variance,
)
from hud_tui.rl.alarms.thresholds import (
    Entropy,
    GradNorm,
    Limits,
    ReferenceKl,
    SamplerKl,
    Staleness,
    Tuning,
)

# The update: gradient norm and non-finite values.


SIZE, LEAST = 64, 16
"""Window of the median norm in steps, and its minimum number of values."""
ADAPT = 50
"""Consecutive outliers after which the window starts over."""


class GradientNorm(Detector[GradNorm]):
    """Spikes of the norm, relative to its usual level where all groups have a gradient.

    The gradient is a sum over groups that pull in nearly independent directions, so its norm grows
    with the root of their number. Where nearly all groups are solved it is the noise of one or two,
    small and uneven, and multiples of its own median say nothing.
    """

    NAME, TITLE, READS = "grad_norm", "gradient norm", "grad_norm"
    USUAL = GradNorm(warmup=20, hold=1)  # rl-doctor
    BY_TASKS = True
    MEANING = (
        "The gradient norm is far above its median, or not finite: one such step can undo many. "
        "Typical causes are a few rollouts with extreme importance ratios or rewards."
    )
    ADVICE = (
        "Clip the gradient norm, lower the learning rate, read the step's rollouts; roll back to "
        "the last checkpoint before it if the reward has fallen since."
    )

    def __init__(self, tuning: GradNorm) -> None:
        super().__init__(tuning)
        self._window, self._outliers, self._norm, self._limit = Window(SIZE), 0, nan, nan
        self._lost = 0

    def value(self, row: Row) -> float | None:
        raw = row.metrics.get("grad_norm")
        return raw if raw is not None and (isfinite(raw) or took_update(row)) else None

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        norm = usable(value)
        if norm is None:
            self._norm, self._lost = nan, self._lost + 1
            return 3.0
        severity, self._norm = self._stands_out(norm), norm
        signal = 1 - (without_variance(row) or 0.0)
        self._outliers = self._outliers + 1 if severity >= 2 else 0
        if self._outliers >= ADAPT:
            self._window, self._outliers = Window(SIZE), 0
        if severity < 2 and signal > 0:  # as it would be if all groups had a gradient
            self._window.push(norm / sqrt(signal))
        return severity

    def _stands_out(self, norm: float) -> float:
        middle = self._window.median
        if len(self._window) < LEAST or not middle > 0:
            return 0.0
        sigma = max(self._window.sigma, 0.05 * middle)  # floor for a nearly constant norm
        tuning = self.tuning
        self._limit = max(middle + tuning.sigmas * sigma, tuning.ratio * middle)
        if norm > tuning.explosion * middle:
            return 3.0
        return min(2 * norm / self._limit, BELOW_CRITICAL)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("gradient norm", self._norm, self._limit),
            Evidence("median of whole batches", self._window.median),
            Evidence("non-finite steps", float(self._lost), 0.0),
        )


class ZeroGradient(Detector[Limits]):
    """Steps without a gradient; one whose groups are solved has nothing to learn from."""

    NAME, TITLE, READS = "zero_gradient", "steps without gradient", "grad_norm"
    USUAL = Limits(info=0.2, warn=0.4, critical=0.7, warmup=20, hold=1)
    MEANING = "Optimizer steps have a gradient of exactly 0: they change nothing."
    ADVICE = "Check the groups: a zero-variance group has no gradient."
    HAS_LIMIT = False  # it is on a share of the steps

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share = Ema(0.95)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        return grade(self._share.push(float(value == 0 and not _is_learned(row))), self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("steps without gradient", self._share.value, self.tuning.warn),)


def _is_learned(row: Row) -> bool:
    """Whether no group of the step has a gradient because most are solved."""
    good, bad = row.read("frac_groups_all_solved"), row.read("frac_groups_all_failed")
    flat = without_variance(row)
    return flat is not None and flat > 1 - RESIDUE and (good or 0.0) > (bad or 0.0)


class NonFinite(Detector[Tuning]):
    NAME, TITLE, NEEDS = "non_finite", "NaN or infinite", "loss:sum or reward_mean"
    USUAL = Tuning(warmup=0, hold=1)
    READS = "loss:sum"
    MEANING = (
        "The loss or the mean reward is NaN or infinite in a step that changed the weights: they "
        "may be corrupted, and so is every checkpoint trained from them."
    )
    ADVICE = (
        "Cancel the run, roll back to the last checkpoint before it, and look for a division by "
        "a zero standard deviation, an overflowing ratio, or a grader that returns NaN."
    )
    HAS_LIMIT = False  # it is on a number of steps

    def __init__(self, tuning: Tuning) -> None:
        super().__init__(tuning)
        self._count = 0

    def _levels(self) -> tuple[Level, ...]:
        return (Level.CRITICAL,)

    def value(self, row: Row) -> float | None:
        values = [row.metrics[key] for key in ("loss:sum", "reward_mean") if key in row.metrics]
        if not values or not took_update(row):
            return None  # services pad rows that only record an evaluation with NaN
        return float(not all(map(isfinite, values)))

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        self._count += value > 0
        return 3.0 * value

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("non-finite steps", float(self._count), 0.0),)


# Off-policy drift: rollouts sampled by another policy than the trained one.


class SamplerDrift(Detector[SamplerKl]):
    NAME, TITLE, READS = "kl_sampler", "off-policy drift", "kl_sample_train"
    USUAL = SamplerKl(warn=0.01, critical=0.05, hold=3)  # tinker-cookbook
    MEANING = (
        "Trainer and sampler assign different probabilities to the sampled tokens: rollouts are "
        "stale, or the two use different weights or precision."
    )
    ADVICE = (
        "Train on fresher rollouts, take fewer updates per batch, lower the learning rate; check "
        "that sampler and trainer use the same weights and precision."
    )

    def __init__(self, tuning: SamplerKl) -> None:
        super().__init__(tuning)
        self._kl, self._smooth, self._growing = nan, Ema(0.5), 0

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        before = self._smooth.value
        self._growing = self._growing + 1 if self._smooth.push(value) > before else 0
        self._kl, severity = value, grade(value, self.tuning)
        grew = self._growing >= self.tuning.growing
        return max(severity, 3.0) if severity >= 2 and grew else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("KL (sampler ‖ trainer)", self._kl, self.tuning.warn),
            Evidence("steps of growth", float(self._growing), float(self.tuning.growing)),
        )


class ClipFraction(Detector[Limits]):
    NAME, TITLE, READS = "clip_fraction", "clip fraction", "clip_fraction"
    USUAL = Limits(warn=0.2, critical=0.4)  # rl-doctor, rlprobe
    MEANING = (
        "A large share of tokens has an importance ratio outside the clip bounds: a loss that "
        "clips drops their gradient, and each step moves the policy too far."
    )
    ADVICE = "Lower the learning rate, or take fewer updates per batch. Healthy: .05 to .15."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._clip, self._low, self._high = Ema(0.8), nan, nan

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        """By the ratios outside the bounds on either side, where they are reported: a loss may
        clip one side, or none."""
        self._low, self._high = row.number("clip_fraction_low"), row.number("clip_fraction_high")
        outside = row.read("ratio_outside")
        return grade(self._clip.push(value if outside is None else outside), self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        ratio = self._low / self._high if self._high > 0 else nan
        return (
            Evidence("clip fraction EMA(0.8)", self._clip.value, self.tuning.warn),
            Evidence("clipped low / high", ratio, 3.0),
        )


class StaleRollouts(Detector[Staleness]):
    NAME, TITLE, READS = "staleness", "stale rollouts", "staleness_mean"
    USUAL = Staleness(warn=4.0, critical=8.0, hold=3)  # prime-rl
    MEANING = "Rollouts are trained on many steps after they were sampled: importance ratios drift."
    ADVICE = "Sample faster or train slower: more samplers, smaller batches in flight."

    def __init__(self, tuning: Staleness) -> None:
        super().__init__(tuning)
        self._age = self._dropped = nan

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        dropped, trained = row.number("off_policy/dropped"), row.number("num_traces")
        self._age = value
        self._dropped = dropped / (dropped + trained) if dropped + trained > 0 else nan
        severity = grade(value, self.tuning)
        return max(severity, 3.0) if self._dropped > self.tuning.dropped else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("mean staleness, steps", self._age, self.tuning.warn),
            Evidence("dropped", self._dropped, self.tuning.dropped),
        )


class EntropyCollapse(Detector[Entropy]):
    NAME, TITLE, READS = "entropy_collapse", "entropy collapse", "entropy"
    USUAL = Entropy(warmup=40)  # rl-doctor
    BY_TASKS = True
    MEANING = (
        "Entropy falls and the reward does not rise: the policy stops exploring, its groups lose "
        "their variance, and with it the learning signal."
    )
    ADVICE = (
        "Roll back to the last checkpoint before it and resume with a lower learning rate or a "
        "higher temperature; collapsed entropy does not recover by itself."
    )

    def __init__(self, tuning: Entropy) -> None:
        super().__init__(tuning)
        self._entropy, self._start, self._lag = Ema(0.9), InitialMedian(10), Lag(LAG)
        self._left = nan
        """Steps until the floor at the current rate."""

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        smooth, start = self._entropy.push(value), self._start.push(value)
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
        limit = self.tuning.floor * self._start.value
        return (
            Evidence("entropy EMA(0.9)", self._entropy.value, limit),
            Evidence("initial", self._start.value),
            Evidence("steps until collapse", self._left),
            Evidence("mean reward", context.reward.value),
            Evidence("mean reward, earlier", context.reward.before),
        )


class ReferenceDrift(Detector[ReferenceKl]):
    NAME, TITLE, READS = "kl_reference", "KL to reference", "kl_reference"
    USUAL = ReferenceKl(warn=0.5, critical=2.0)  # rl-doctor, rlprobe
    MEANING = (
        "The policy is far from the reference model: it may exploit the grader, and it forgets "
        "abilities of the reference."
    )
    ADVICE = (
        "Read the rollouts with the highest reward; roll back to the last checkpoint before it "
        "and resume with a higher KL penalty or a lower learning rate."
    )

    def __init__(self, tuning: ReferenceKl) -> None:
        super().__init__(tuning)
        self._kl, self._early, self._lag = Ema(0.8), InitialMedian(20), Lag(10)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        if value == 0 and not self.gate.seen:
            return None  # not measured without a KL penalty
        smooth, early = self._kl.push(value), self._early.push(value)
        rising = smooth > self._lag.push(smooth)
        far = rising and early > 0 and smooth > self.tuning.ratio * early
        severity = grade(smooth, self.tuning)
        if far and smooth > self.tuning.warn / 10:
            return max(severity, 2.0)
        return severity if rising or severity >= 3 else min(severity, BELOW_WARN)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("KL to reference EMA(0.8)", self._kl.value, self.tuning.warn),
            Evidence("early median", self._early.value),
        )
