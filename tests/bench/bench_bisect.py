"""How often bisection finds the step that did the damage, and how many rollouts that takes.

Simulated lineages of 128 steps and 32 tasks, with fixed seeds, whose reward wanders by 2 points
from step to step: one falls by 20 points at some step, one does not fall, one falls by 20 points
over all steps.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from statistics import fmean

from hud_tui.rl.bisect import USUAL_BUDGET, Bisection
from hud_tui.rl.evaluation import Scores
from hud_tui.wire import Group

STEPS, TASKS, RUNS = 128, 32, 100
LEVEL, DROP, WANDERS, HARDNESS = 0.7, 0.2, 0.02, 1.2
WITHIN, SPENT, FALSE, SLOW = 0.9, 1000, 0.05, 0.9
"""Goals: least share that is placed within one step; most rollouts on average for that; most that
are called a drop where there is none; least that are called a slow decline."""


class SimulatedLineage:
    """Rollouts of checkpoints of which one step, none, or all do damage."""

    def __init__(self, kind: str, seed: int) -> None:
        self._random = Random(seed)
        self._hardness = [self._random.gauss(0, HARDNESS) for _ in range(TASKS)]
        self.step = self._random.randrange(1, STEPS + 1)
        """The first bad position."""
        fallen = {"step": lambda at: float(at >= self.step), "none": lambda at: 0.0}
        share = fallen.get(kind, lambda at: at / STEPS)
        self._means = [
            LEVEL - DROP * share(position) + self._random.gauss(0, WANDERS)
            for position in range(STEPS + 1)
        ]
        self._chances: dict[int, list[float]] = {}
        self._groups: dict[int, list[Group]] = {}

    def bisection(self) -> Bisection:
        scores = {position: Scores.of(groups) for position, groups in self._groups.items()}
        return Bisection(STEPS + 1, scores)

    def sample(self, position: int, samples: int) -> None:
        if position not in self._chances:
            self._chances[position] = self._solving(self._means[position])
        groups = self._groups.setdefault(position, [])
        for task, chance in enumerate(self._chances[position]):
            rewards = [float(self._random.random() < chance) for _ in range(samples)]
            groups.append(Group(task_slug=f"{task:02}", rewards=rewards))

    def _solving(self, mean: float) -> list[float]:
        """The chances of the tasks, whose mean is as wanted."""
        low, high = -9.0, 9.0
        for _ in range(30):
            middle = (low + high) / 2
            chances = [1 / (1 + exp(-middle - each)) for each in self._hardness]
            low, high = (middle, high) if fmean(chances) < mean else (low, middle)
        return chances


@dataclass(frozen=True)
class Outcome:
    kind: str
    is_near: bool
    rollouts: int


def outcome(kind: str, seed: int) -> Outcome:
    lineage = SimulatedLineage(kind, seed)
    while asks := lineage.bisection().asks(USUAL_BUDGET):
        for ask in asks:
            lineage.sample(ask.position, ask.samples)
    bisection = lineage.bisection()
    search = bisection.search
    is_near = (
        bisection.kind == "step" and search is not None and abs(search.step - lineage.step) <= 1
    )
    return Outcome(bisection.kind, is_near, bisection.rollouts)


def share(outcomes: Sequence[Outcome], *kinds: str) -> float:
    return fmean(each.kind in kinds for each in outcomes)


def main() -> int:
    outcomes = {kind: [outcome(kind, s) for s in range(RUNS)] for kind in ("step", "none", "slow")}
    for kind, each in outcomes.items():
        called = ", ".join(f"{k} {n}" for k, n in Counter(o.kind for o in each).most_common())
        print(f"{kind}: called {called}; {fmean(o.rollouts for o in each):.0f} rollouts on average")
    near = fmean(each.is_near for each in outcomes["step"])
    spent = fmean(each.rollouts for each in outcomes["step"])
    false = 1 - share(outcomes["none"], "none")
    slow = share(outcomes["slow"], "slow")
    print(f"within one step: {near:.0%} (goal: at least {WITHIN:.0%})")
    print(f"rollouts for that: {spent:.0f} (goal: at most {SPENT})")
    print(f"no drop called a drop: {false:.0%} (goal: at most {FALSE:.0%})")
    print(f"slow decline called that: {slow:.0%} (goal: at least {SLOW:.0%})")
    return near < WITHIN or spent > SPENT or false > FALSE or slow < SLOW
