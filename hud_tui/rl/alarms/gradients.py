"""Detectors of the update itself: its size, and whether it is a number at all."""

from math import isfinite, nan

from hud_tui.rl.alarms.alarm import Evidence, Level
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import BELOW_CRITICAL, Detector
from hud_tui.rl.alarms.rows import GRAD_NORM, LOSS, REWARD, Row, took_update
from hud_tui.rl.alarms.statistics import Ema, Window, bounded, grade
from hud_tui.rl.alarms.thresholds import Finite, GradNorm, Limits

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
