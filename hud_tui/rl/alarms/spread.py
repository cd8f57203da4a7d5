"""Detectors of the groups and rollouts that a step is trained on."""

from math import nan

from hud_tui.rl.alarms.alarm import Evidence
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import BELOW_CRITICAL, BELOW_WARN, Detector
from hud_tui.rl.alarms.rows import (
    ALL_BAD,
    ALL_GOOD,
    ERRORED,
    LEFT_OUT,
    MIXED,
    REWARD_STD,
    TRACES,
    TRUNCATED,
    ZERO_SPREAD,
    Row,
)
from hud_tui.rl.alarms.statistics import Ema, Lag, grade
from hud_tui.rl.alarms.thresholds import Limits

RESIDUE = 1e-3
"""A standard deviation below this is rounding, not spread (NVIDIA-NeMo/RL#4161)."""


class ZeroSpread(Detector[Limits]):
    """Groups whose rewards are all equal: their advantages are 0, so they teach nothing."""

    NAME, TITLE = "zero_spread", "zero-spread groups"
    NEEDS = "frac_groups_zero_spread"
    READS = ZERO_SPREAD
    MEANING = (
        "Many groups have rewards that are all equal, so they carry no gradient: the rollouts "
        "are paid for and teach nothing."
    )
    ADVICE = ""

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._flat, self._good, self._bad = Ema(0.7), Ema(0.7), Ema(0.7)

    def judge(self, row: Row, context: Context) -> float | None:
        good, bad = ALL_GOOD.read(row), ALL_BAD.read(row)
        flat = _share(row)
        if flat is None:
            return None
        if good is not None and bad is not None:
            self._good.push(good)
            self._bad.push(bad)
        severity = grade(self._flat.push(flat), self.tuning)
        return min(severity, BELOW_CRITICAL) if self._too_easy else severity

    @property
    def _too_easy(self) -> bool:
        """Whether most flat groups are solved: that is the end of learning, not harm."""
        return self._good.value > self._bad.value

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (
            Evidence("groups without spread", self._flat.value, self.tuning.warn),
            Evidence("all good", self._good.value),
            Evidence("all bad", self._bad.value),
        )

    def advice(self) -> str:
        if self._too_easy:
            return "Most of them are solved every time: give harder tasks, or leave these out."
        return (
            "Most of them are never solved: give easier tasks, a larger group, or leave these "
            "out. Preflight's sampling shows which tasks teach."
        )


def _share(row: Row) -> float | None:
    """The share of groups without spread, by whatever says it."""
    flat, mixed, spread = ZERO_SPREAD.read(row), MIXED.read(row), REWARD_STD.read(row)
    good, bad = ALL_GOOD.read(row), ALL_BAD.read(row)
    if flat is not None:
        return flat
    if good is not None and bad is not None:
        return good + bad
    if mixed is not None:
        return 1 - mixed
    return None if spread is None else float(spread < RESIDUE)


class Truncation(Detector[Limits]):
    """Rollouts cut off at the token limit; not while their share falls by itself."""

    NAME, TITLE, NEEDS = "truncation", "truncated rollouts", "truncated_share"
    READS = TRUNCATED
    MEANING = (
        "Rollouts are cut off before they end, so they are graded on an answer that is not "
        "finished, and length is punished or rewarded by accident."
    )
    ADVICE = (
        "Raise max_tokens, or penalise length; if it began at once, set the head to the last "
        "checkpoint before it and lower the learning rate."
    )

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share, self._lag = Ema(0.8), Lag(10)

    def judge(self, row: Row, context: Context) -> float | None:
        share = TRUNCATED.read(row)
        if share is None:
            return None
        smooth = self._share.push(share)
        falling = smooth < 0.8 * self._lag.push(smooth)
        severity = grade(smooth, self.tuning)
        return min(severity, BELOW_WARN) if falling else severity

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("truncated", self._share.value, self.tuning.warn),)


class ErroredRollouts(Detector[Limits]):
    """Rollouts that ended in an error or could not be trained on."""

    NAME, TITLE, NEEDS = "errored_rollouts", "errored rollouts", "errored_share"
    READS = ERRORED
    MEANING = (
        "Rollouts fail instead of being graded. What is left of their groups is a biased "
        "sample, and a partial group must not be trained on."
    )
    ADVICE = "Read the failed rollouts in Jobs; mend the environment before going on."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._share = nan

    def judge(self, row: Row, context: Context) -> float | None:
        shares = [share for share in (ERRORED.read(row), _lost(row)) if share is not None]
        if not shares:
            return None
        self._share = max(0.0, min(1.0, max(shares)))
        return grade(self._share, self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("errored", self._share, self.tuning.warn),)


def _lost(row: Row) -> float | None:
    """Traces that could not be trained on, by those that were."""
    lost, kept = LEFT_OUT.read(row), TRACES.read(row)
    return lost / kept if lost is not None and kept is not None and kept > 0 else None
