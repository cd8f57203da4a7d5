"""What choosing a checkpoint by ☆ and ★ loses against the truly best one.

Simulated runs of 20 checkpoints, each evaluated once on 48 tasks, with fixed seeds: one kind rises
and levels off, one rises and falls. In logits, every task has its own difficulty, every checkpoint
its own level, which wanders from step to step. Points are hundredths of the mean reward. Beside the
choice: the highest mean, and the last checkpoint. Then the three likeliest are evaluated on four
fresh rollouts per task, and the choice is made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from statistics import fmean

from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.choice import Choice
from hud_tui.wire import Checkpoint, Evaluation

CHECKPOINTS, TASKS, FRESH, CONFIRMED = 20, 48, 4, 3
RUNS = 400
WANDERS, HARDNESS = 0.05, 1.5
"""Standard deviations, in logits: of the level from step to step, and of the tasks."""


@dataclass(frozen=True)
class Goals:
    """Most points that may be lost, and by which what is shown may be too high."""

    lost: float
    shown: float
    confirmed_lost: float
    confirmed_shown: float = 1.0
    covered: float = 0.94
    """Least share of the intervals of ★ that hold its true reward."""


GOALS = {"rising": Goals(1.4, 2.0, 0.9), "rise, then fall": Goals(1.5, 2.0, 0.9)}


def rising(at: float) -> float:
    return -0.8 + 1.4 * (1 - exp(-3 * at)) / (1 - exp(-3))


def falling(at: float) -> float:
    return 0.6 - 3.2 * (at - 0.5) ** 2


LEVELS: dict[str, Callable[[float], float]] = {"rising": rising, "rise, then fall": falling}


class SimulatedRun:
    """The chance of every checkpoint to solve every task, and rollouts with it."""

    def __init__(self, level: Callable[[float], float], seed: int) -> None:
        self._random = Random(seed)
        hardness = [self._random.gauss(0, HARDNESS) for _ in range(TASKS)]
        wandered, self._chances = 0.0, list[list[float]]()
        for checkpoint in range(CHECKPOINTS):
            wandered += self._random.gauss(0, WANDERS) if checkpoint else 0.0
            logit = level(checkpoint / (CHECKPOINTS - 1)) + wandered
            self._chances.append([1 / (1 + exp(-logit - each)) for each in hardness])
        self.rewards = [fmean(chances) for chances in self._chances]
        """The true ones."""
        nodes = [self._node(checkpoint) for checkpoint in range(CHECKPOINTS)]
        self.tree = Tree.of(nodes)

    def _node(self, checkpoint: int) -> Checkpoint:
        parent = str(checkpoint - 1) if checkpoint else None
        return Checkpoint(
            id=str(checkpoint),
            prev_model_checkpoint_id=parent,
            evaluations=[self.evaluation(checkpoint, 1, "run", 0)],
        )

    def evaluation(self, checkpoint: int, samples: int, job: str | None, seed: int) -> Evaluation:
        solved = (
            self._random.random() < chance
            for chance in self._chances[checkpoint]
            for _ in range(samples)
        )
        return Evaluation(
            mean_reward=sum(solved) / (TASKS * samples),
            num_tasks=TASKS,
            num_traces=TASKS * samples,
            job_id=job,
            seed=seed,
        )

    def confirmed(self) -> Tree:
        """The tree with fresh rollouts of the checkpoints that are most likely the best."""
        tree, choice = self.tree, self.tree.choice
        assert choice is not None
        likeliest = sorted(choice.rewards, key=lambda p: -choice.rewards[p])[:CONFIRMED]
        for position in likeliest:
            fresh = self.evaluation(position, FRESH, None, 1)
            evaluations = [*tree[position].evaluations, fresh]
            tree = tree.add(tree[position].model_copy(update={"evaluations": evaluations}))
        return tree

    def lost(self, checkpoint: int) -> float:
        """Points lost against the best."""
        return 100 * (max(self.rewards) - self.rewards[checkpoint])

    def shown(self, choice: Choice) -> float:
        """Points by which what is shown of the choice is too high."""
        return 100 * (choice.value.value - self.rewards[choice.position])

    def holds(self, choice: Choice) -> bool:
        low, high = choice.value.low, choice.value.high
        assert low is not None
        assert high is not None
        return low <= self.rewards[choice.position] <= high


@dataclass(frozen=True)
class Outcome:
    """Means over simulated runs."""

    highest: float
    last: float
    lost: float
    shown: float
    stars: float
    """Share of the runs in which a checkpoint stands out."""
    confirmed_lost: float
    confirmed_shown: float
    covered: float


def outcome(level: Callable[[float], float], seeds: Sequence[int]) -> Outcome:
    columns = list[tuple[float, ...]]()
    for seed in seeds:
        run = SimulatedRun(level, seed)
        choice = run.tree.choice
        means = [node.evaluations[0].mean_reward for node in run.tree]
        again = run.confirmed().choice
        assert choice is not None
        assert again is not None
        columns.append(
            (
                run.lost(means.index(max(means))),
                run.lost(CHECKPOINTS - 1),
                run.lost(choice.position),
                run.shown(choice),
                choice.star is not None,
                run.lost(again.position),
                run.shown(again),
                run.holds(again),
            )
        )
    return Outcome(*map(fmean, zip(*columns, strict=True)))


def main() -> int:
    missed = False
    for name, level in LEVELS.items():
        goals, made = GOALS[name], outcome(level, range(RUNS))
        print(
            f"{name}: lost {made.lost:.2f} points (goal {goals.lost}; by the highest mean "
            f"{made.highest:.2f}, by the last {made.last:.2f}), shown {made.shown:+.2f} (goal "
            f"{goals.shown}), stands out in {made.stars:.0%}"
        )
        print(
            f"{name}, confirmed: lost {made.confirmed_lost:.2f} (goal {goals.confirmed_lost}), "
            f"shown {made.confirmed_shown:+.2f} (goal {goals.confirmed_shown}), interval true in "
            f"{made.covered:.1%} (goal {goals.covered:.0%})"
        )
        missed |= made.lost > goals.lost or abs(made.shown) > goals.shown
        missed |= made.confirmed_lost > goals.confirmed_lost or made.covered < goals.covered
        missed |= abs(made.confirmed_shown) > goals.confirmed_shown
    return int(missed)
