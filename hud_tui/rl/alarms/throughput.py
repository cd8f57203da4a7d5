"""Detectors of rollouts (length, truncation, errors) and of time (slower steps, waiting, stalled
runs)."""

from math import nan

from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level
from hud_tui.rl.alarms.detector import BELOW_WARN, Context, Detector
from hud_tui.rl.alarms.statistics import Correlation, Ema, InitialMedian, Lag, Row, Window, grade
from hud_tui.rl.alarms.thresholds import Length, Limits, Stall, Waiting


class LengthBlowUp(Detector[Length]):
    NAME, TITLE, READS = "length_blow_up", "length blow-up", "completion_length_mean"
    USUAL = Length(warmup=30)  # rl-doctor
    BY_TASKS = True
    MEANING = (
        "Rollouts get longer, the reward correlates with length, and the held-out reward does "
        "not rise: the policy is rewarded for length."
    )
    ADVICE = (
        "Read the longest rollouts with the highest reward; penalise length in the grader, and "
        "roll back to the last checkpoint before it."
    )

    def __init__(self, tuning: Length) -> None:
        super().__init__(tuning)
        self._length, self._start = Ema(0.9), InitialMedian(10)
        self._with_reward = Correlation(0.98)
        self._truncated = nan

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        reward = row.read("reward_mean")
        self._truncated = row.number("truncated_share")
        smooth, start = self._length.push(value), self._start.push(value)
        if reward is not None:
            self._with_reward.push(value, reward)
        if not start > 0:
            return 0.0
        severity = 2 * (smooth / start - 1) / self.tuning.growth
        paid = self._with_reward.value > self.tuning.correlation and not context.heldout.climbing
        if not paid:
            return min(severity, BELOW_WARN)
        if severity >= 2 and self._truncated > self.tuning.truncated:
            return 3.0
        return min(severity, 2.0)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        limit = self._start.value * (1 + self.tuning.growth)
        return (
            Evidence("mean length EMA(0.9)", self._length.value, limit),
            Evidence("initial", self._start.value),
            Evidence("correlation with reward", self._with_reward.value, self.tuning.correlation),
            Evidence("held-out reward", context.heldout.value),
            Evidence("truncated", self._truncated, self.tuning.truncated),
        )


class Truncation(Detector[Limits]):
    """Rollouts cut off at the token limit; no warning while their share falls."""

    NAME, TITLE, READS = "truncation", "truncated rollouts", "truncated_share"
    USUAL = Limits(warn=0.05, critical=0.15, warmup=20)  # rl-doctor
    MEANING = (
        "Rollouts are cut off at max_tokens and graded on an incomplete answer, so length is "
        "penalised or rewarded by accident."
    )
    ADVICE = (
        "Raise max_tokens, or penalise length; if it began suddenly, roll back to the last "
        "checkpoint before it and lower the learning rate."
    )

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share, self._lag = Ema(0.8), Lag(10)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        smooth = self._share.push(value)
        falling = smooth < 0.8 * self._lag.push(smooth)
        severity = grade(smooth, self.tuning)
        return min(severity, BELOW_WARN) if falling else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("truncated", self._share.value, self.tuning.warn),)


class ErroredRollouts(Detector[Limits]):
    """Rollouts that ended in an error or could not be trained on."""

    NAME, TITLE, READS = "errored_rollouts", "errored rollouts", "errored_share"
    USUAL = Limits(warn=0.05, critical=0.2, warmup=3, hold=3)  # prime-rl
    MEANING = (
        "Rollouts fail instead of being graded. The rest of their group is a biased sample, and "
        "a partial group must not be trained on."
    )
    ADVICE = "Read the failed rollouts in Jobs; fix the environment before resuming."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share = nan

    def value(self, row: Row) -> float | None:
        shares = row.read("errored_share"), _lost(row)
        return max((share for share in shares if share is not None), default=None)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        self._share = max(0.0, min(1.0, value))
        return grade(self._share, self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("errored", self._share, self.tuning.warn),)


def _lost(row: Row) -> float | None:
    """Traces without samples, relative to the trained ones."""
    lost, trained = row.read("traces_without_samples"), row.read("num_traces")
    return lost / trained if lost is not None and trained is not None and trained > 0 else None


class Throughput(Detector[Limits]):
    NAME, TITLE, NEEDS = "throughput", "slower steps", "rollout_s and train_s, or created_at"
    USUAL = Limits(warn=1.4, critical=2.5, warmup=30)  # rlprobe
    READS = "step_s"
    BY_TASKS = True
    MEANING = "A step takes much longer than at the start of the run."
    ADVICE = (
        "Check whether rollouts got longer, the environment slowed down, or another run shares "
        "the machine."
    )

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._early, self._recent = InitialMedian(20), Window(9)
        self._before: float | None = None

    def value(self, row: Row) -> float | None:
        """Step time as reported; otherwise the time since the previous step."""
        before, self._before = self._before, row.at if row.at is not None else self._before
        step_s = row.read("step_s")
        if step_s is not None:
            return step_s
        rollout, train = row.read("rollout_s"), row.read("train_s")
        if rollout is not None and train is not None:
            return rollout + train
        return None if before is None or row.at is None else row.at - before

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        if value <= 0:
            return None
        self._recent.push(value)
        ratio = self._recent.median / self._early.push(value)
        return grade(ratio, self.tuning) if ratio == ratio else 0.0

    def limit(self, context: Context) -> float | None:
        return self._early.value * self.tuning.warn

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        recent, early = self._recent.median, self._early.value
        ratio = recent / early if early else nan
        return (
            Evidence("seconds per step", recent),
            Evidence("initial", early),
            Evidence("ratio", ratio, self.tuning.warn),
        )


WAITS = {
    "engine": (
        "The engine is busy, or starts again: more cores (--cores), or fewer callers at once."
    ),
    "queue": "The engine's server has no room: fewer runs at once, or another machine.",
    "tunnel": "The machine with the engine does not answer: check the line, or use another one.",
    "disk": "Storing takes the time: a faster disk for the data directory, or larger batches.",
    "evaluation": "An evaluation has the engine: evaluate less often, or on another machine.",
}
"""What to change, by what is waited for."""


class WaitingSteps(Detector[Waiting]):
    """Steps in which nothing of the loop's own is done for most of the time."""

    NAME, TITLE, READS = "waiting", "waiting", "wait_share"
    USUAL = Waiting(warn=0.5, critical=0.8, warmup=3, hold=3)
    MEANING = "More than half of a step passes without sampling, training or evaluating."
    ADVICE = (
        "Look at what it waits for: more cores (--cores), more rollouts at a time (--at-once), the"
        " next batch sampled ahead (--max-staleness 1), or another machine."
    )

    def __init__(self, tuning: Waiting) -> None:
        super().__init__(tuning)
        self._share, self._causes = nan, dict[str, float]()

    def value(self, row: Row) -> float | None:
        """The share; None of a step that is short."""
        step_s = row.read("step_s")
        is_short = step_s is not None and step_s < self.tuning.least_s
        return None if is_short else super().value(row)

    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        self._share = max(0.0, min(1.0, value))
        shares = {cause: row.read(f"wait/{cause}") for cause in WAITS}
        self._causes = {cause: share for cause, share in shares.items() if share}
        return grade(self._share, self.tuning)

    @property
    def _cause(self) -> str | None:
        """What was waited for the longest."""
        return max(self._causes, key=self._causes.__getitem__, default=None)

    def advice(self) -> str:
        return self.ADVICE if self._cause is None else WAITS[self._cause]

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        share = Evidence("waiting", self._share, self.tuning.warn)
        cause = self._cause
        if cause is None:
            return (share,)
        return share, Evidence(f"for the {cause}", self._causes[cause])


# Stalled runs, which send nothing. Evaluated by the clock, not by rows.


STALL = "stall"
MEANING = "The run's status is running, but it has sent nothing for far longer than a usual step."
ADVICE = (
    "Check the job's status and its newest rollouts; if they hang, cancel the run and resume it."
)


def stall(last: Row | None, silent_s: float, step_s: float | None, tuning: Stall) -> Alarm | None:
    """The alarm of a silent run; None if it is not stalled.

    Args:
        last: The newest step; None before the first.
        silent_s: Seconds since the run's last event.
        step_s: Median seconds per step; None before two steps.
    """
    if not tuning.enabled or silent_s < tuning.floor_s:
        return None
    severity = grade(silent_s / step_s, tuning) if step_s else 0.0
    if silent_s >= tuning.critical_s:
        severity = 3.0
    if severity < 2:
        return None
    row = last or Row(0, {}, 0)
    evidence = [Evidence("seconds without an event", silent_s)]
    if step_s:
        evidence.append(Evidence("median seconds per step", step_s))
        evidence.append(Evidence("ratio", silent_s / step_s, tuning.warn))
    return Alarm(
        name=STALL,
        title="stalled",
        level=Level.CRITICAL if severity >= 3 else Level.WARN,
        active=True,
        row=row.index,
        onset=row.step,
        checkpoint_id=row.checkpoint_id,
        before_id=row.checkpoint_id,
        shown=row.step,
        shown_id=row.checkpoint_id,
        raised=row.step,
        ended=None,
        evidence=tuple(evidence),
        meaning=MEANING,
        advice=ADVICE,
    )
