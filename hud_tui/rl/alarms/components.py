"""The detector of one part of the reward that drowns the others."""

import re
from collections.abc import Iterator
from math import nan

from hud_tui.rl.alarms.alarm import Evidence
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import Detector
from hud_tui.rl.alarms.rows import REWARD, Row
from hud_tui.rl.alarms.statistics import Ema, bounded, grade
from hud_tui.rl.alarms.thresholds import Limits

_PART = re.compile(r"^(?:rewards?|reward_component|critic/rewards)/([^/]{1,80})(?:/(mean|std))?$")
_WHOLE = frozenset({"total", "mean", "std", "min", "max"})
_AUXILIARY = re.compile(r"format|length|len_|style|penalty|bonus|brevity|verbos|syntax", re.I)
"""Parts that only help; that correctness dominates is as it should be."""
WEIGHT = 0.99


class _Part:
    """One part's variance: between rollouts where that is told, else between steps."""

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
        told = self._within if self._within.seen else self._between
        return max(0.0, told.value) if told.seen else 0.0


class ComponentDominance(Detector[Limits]):
    """An auxiliary part of the reward makes up most of its variance."""

    NAME, TITLE = "component_dominance", "one reward part dominates"
    NEEDS = "reward/<part> for two parts or more"
    READS = REWARD
    MEANING = (
        "Most of what tells a good rollout from a bad one is an auxiliary part of the reward "
        "(format, length, style), so that is what is learnt."
    )
    ADVICE = "Give that part a smaller weight, or end it once it is learnt."

    def __init__(self, tuning: Limits) -> None:
        super().__init__(tuning)
        self._parts: dict[str, _Part] = {}
        self._share = nan

    def judge(self, row: Row, context: Context) -> float | None:
        for name, value, is_std in parts_of(row):
            self._parts.setdefault(name, _Part()).push(value, is_std)
        if len(self._parts) < 2:
            return None
        variances = {name: part.variance for name, part in self._parts.items()}
        total = sum(variances.values())
        auxiliary = [v for name, v in variances.items() if _AUXILIARY.search(name)]
        self._share = max(auxiliary, default=0.0) / total if total > 0 else 0.0
        return grade(self._share, self.tuning)

    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        return (Evidence("share of the variance", self._share, self.tuning.warn),)


def parts_of(row: Row) -> Iterator[tuple[str, float, bool]]:
    """A row's reward parts: name, value, and whether the value is a standard deviation."""
    for key, raw in row.metrics.items():
        if not key.startswith(("reward", "critic/rewards")):
            continue
        found, value = _PART.match(key), bounded(raw)
        if found is not None and value is not None and found[1] not in _WHOLE:
            yield found[1], value, found[2] == "std"
