"""Which tasks a batch of a run is made of: all in turn, or by what they are expected to teach.

Pure, so that the rules are the same wherever rollouts are made. A draw depends on the seed, the
iteration and the groups of the iterations before it, so a resumed run draws the same tasks again.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import log
from random import Random
from typing import Any, TypeVar

from hud_tui.rl.groups import CROSS_ENTROPY, group_stats, has_gradient
from hud_tui.rl.metrics import SIGNAL, TASK_COUNTS
from hud_tui.rl.plan import Splittable, tasks_of_iteration
from hud_tui.rl.tasks.signal import zero_gradient

T = TypeVar("T", bound=Splittable)

GROUPS = 2
"""Last groups of a task by which it is judged."""
UNSEEN = 1.0
"""Weight of a task without a group: that of one whose groups all have a gradient."""
FLOOR = 0.05
"""Least weight of a task: a hopeless one may come into reach, a solved one may be forgotten."""
BEFORE = -1
"""Iteration of what was sampled before the run."""


def expected_signal(rewards: Sequence[float], size: int, loss_fn: str) -> float:
    """The expected share of a task's groups that have a gradient, from 0 to 1.

    Args:
        rewards: Of its last groups, shape (N,), N ≥ 1.
        size: Rollouts per group.
    """
    if not has_gradient(rewards, loss_fn):
        return 0.0
    if loss_fn == CROSS_ENTROPY:
        return 1.0 - (sum(not reward for reward in rewards) / len(rewards)) ** size
    return 1.0 - zero_gradient(rewards, size)


def draw(tasks: Sequence[T], weights: Sequence[float], count: int, random: Random) -> list[T]:
    """Some of the tasks without duplicates, one after the other, with chances in proportion to
    their weights, which are above 0.

    Source: Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir.
    """
    keys = [log(1.0 - random.random()) / weight for weight in weights]
    order = sorted(range(len(tasks)), key=keys.__getitem__, reverse=True)
    return [tasks[i] for i in order[:count]]


class Drawing:
    """How the tasks of a run's batches are drawn, and what the last groups of each task earned."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """`parameters`: of the run, by wire name."""
        self._per_step = int(parameters["tasks_per_step"])
        self._size = int(parameters["group_size"])
        self._seed = int(parameters.get("seed") or 0)
        self._loss_fn = str(parameters.get("loss_fn"))
        self.by = SIGNAL if parameters.get("draw") == SIGNAL else None
        """As in `Checkpoint.draw`."""
        self._kept = GROUPS + int(parameters.get("max_staleness") or 0) + 1
        """Groups of a task that are kept: those of iterations that are sampled again are
        forgotten."""
        self._seen: dict[str, deque[tuple[int, Sequence[float]]]] = {}
        """The last groups of each task, oldest first, with their iterations."""
        self._weights: dict[str, float] = {}
        self._kinds: dict[str, str] = {}
        """What was computed from them: a taskset may have ten thousand tasks."""

    def tasks_of(self, tasks: Sequence[T], iteration: int) -> list[T]:
        """Those of the training tasks that an iteration, from 0, samples, without duplicates. What
        was seen in it, and in later ones, is forgotten."""
        self._forget(iteration)
        if self.by is None:
            return tasks_of_iteration(tasks, self._per_step, self._seed, iteration)
        weights = [self.weight(task.slug) for task in tasks]
        return draw(tasks, weights, self._per_step, Random(f"{self._seed} {iteration}"))

    def saw(self, iteration: int, groups: Iterable[tuple[str, Sequence[float]]]) -> None:
        """An iteration was sampled: the task of each group, and its rewards, shape (G,). What was
        seen in it, and in later ones, before is forgotten."""
        self._forget(iteration)
        for slug, rewards in groups:
            if rewards:
                seen = self._seen.setdefault(slug, deque(maxlen=self._kept))
                seen.append((iteration, rewards))
                self._changed(slug)

    def _forget(self, iteration: int) -> None:
        for slug, seen in self._seen.items():
            while seen and seen[-1][0] >= iteration:
                seen.pop()
                self._changed(slug)

    def _changed(self, slug: str) -> None:
        self._weights.pop(slug, None)
        self._kinds.pop(slug, None)

    def weight(self, slug: str) -> float:
        """What a task's chance to be drawn is in proportion to, from FLOOR to 1."""
        if slug not in self._weights:
            rewards, weight = self._last(slug), UNSEEN
            if rewards:
                weight = max(FLOOR, expected_signal(rewards, self._size, self._loss_fn))
            self._weights[slug] = weight
        return self._weights[slug]

    def _last(self, slug: str) -> list[float]:
        """The rewards of a task's last groups."""
        groups = list(self._seen.get(slug, ()))[-GROUPS:]
        return [reward for _, rewards in groups for reward in rewards]

    def counts(self, tasks: Sequence[Splittable]) -> dict[str, float]:
        """How many of the training tasks are solved, learnable, out of reach, or not seen yet, as
        metrics."""
        counts = dict.fromkeys(TASK_COUNTS, 0.0)
        for task in tasks:
            if task.slug not in self._kinds:
                self._kinds[task.slug] = self._kind(task.slug)
            counts[self._kinds[task.slug]] += 1
        return counts

    def _kind(self, slug: str) -> str:
        solved, learnable, out_of_reach, unseen = TASK_COUNTS
        rewards = self._last(slug)
        if not rewards:
            return unseen
        stats = group_stats(rewards)
        if stats.has_signal:
            return learnable
        return solved if stats.all_solved else out_of_reach
