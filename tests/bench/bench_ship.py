"""How often candidates are told apart that are equal, and what successive halving loses.

Simulated candidates on 48 tasks, with fixed seeds: in logits, every task has its own difficulty,
every candidate its own level and a part of its own on every task. Points are hundredths of the mean
reward.
"""

from collections.abc import Sequence
from math import exp
from random import Random
from statistics import fmean

from hud_tui.rl.evaluation import Scores
from hud_tui.rl.ship import Candidate, Ranking, halving, survivors
from hud_tui.wire import Group

TASKS, RUNS = 48, 1000
HARDNESS, OWN = 1.5, 0.4
"""Standard deviations, in logits: of the tasks, and of what a candidate has of its own on each."""
FALSE, LOST, BUDGET = 0.05, 0.6, 1200
"""Goals: most equals that are told apart, and most points lost, as a share of what is lost where as
many rollouts are spent equally; rollouts that may be spent."""


class Simulated:
    """The chance of every candidate to solve every task, and rollouts with it."""

    def __init__(self, levels: Sequence[float], seed: int, own: float) -> None:
        self._random = Random(seed)
        hardness = [self._random.gauss(0, HARDNESS) for _ in range(TASKS)]
        self.chances = [
            [1 / (1 + exp(-level - each - self._random.gauss(0, own))) for each in hardness]
            for level in levels
        ]
        self.rewards = [fmean(chances) for chances in self.chances]

    def groups(self, candidate: int, samples: int) -> list[Group]:
        return [
            Group(
                task_slug=f"{task:03}",
                rewards=[float(self._random.random() < chance) for _ in range(samples)],
            )
            for task, chance in enumerate(self.chances[candidate])
        ]

    def ranking(self, samples: int) -> Ranking:
        candidates = range(len(self.chances))
        scored = (Scores.of(self.groups(candidate, samples)) for candidate in candidates)
        return Ranking(tuple(Candidate(str(n), scores) for n, scores in enumerate(scored)), 0)


def told_apart(candidates: int, samples: int, runs: int = RUNS) -> float:
    """Share of the simulations in which one of equal candidates is called worse."""
    rankings = (Simulated([0.0] * candidates, seed, OWN).ranking(samples) for seed in range(runs))
    return fmean(bool(ranking.worse) for ranking in rankings)


def halved(levels: Sequence[float], seed: int) -> tuple[float, float]:
    """Points lost by the one that successive halving leaves, and by the best of as many rollouts
    spent equally."""
    simulated = Simulated(levels, seed, OWN)
    groups: dict[str, list[Group]] = {str(number): [] for number in range(len(levels))}
    left = list(groups)
    for each in halving(len(levels), TASKS, BUDGET):
        if len(left) > each.candidates:
            left = survivors({name: Scores.of(groups[name]) for name in left}, each.candidates)
        for name in left:
            groups[name] += simulated.groups(int(name), each.samples)
    [last] = survivors({name: Scores.of(groups[name]) for name in left}, 1)
    equally = simulated.ranking(BUDGET // TASKS // len(levels)).order[0]
    best = max(simulated.rewards)
    return 100 * (best - simulated.rewards[int(last)]), 100 * (best - simulated.rewards[equally])


def main() -> int:
    apart = {n: told_apart(n, samples) for n, samples in ((2, 4), (5, 4), (8, 1))}
    for count, share in apart.items():
        print(f"{count} equal candidates told apart: {share:.1%} (goal: at most {FALSE:.0%})")
    eight = [0.1 * number for number in range(8)]
    losses = [halved(eight, seed) for seed in range(RUNS)]
    lost, equally = (fmean(points) for points in zip(*losses, strict=True))
    print(f"halving of 8 with {BUDGET} rollouts loses {lost:.2f} points, spent equally")
    print(f"they lose {equally:.2f}: {lost / equally:.2f} of it (goal: at most {LOST})")
    return max(apart.values()) > FALSE or lost > LOST * equally
