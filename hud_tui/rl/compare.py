"""Two checkpoints side by side: metrics, how they were made, how they are related, groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from hud_tui.rl.metrics import change, metric, ranked
from hud_tui.rl.series import metrics_of
from hud_tui.rl.tree import ROOT, Tree
from hud_tui.wire import Checkpoint, Group

LEAST = 0.02
"""A smaller change of a group's mean is not worth a line."""
NOISE = 0.01
"""A smaller share of a metric's healthy range makes neither checkpoint the better one."""


@dataclass(frozen=True)
class MetricPair:
    """One metric of both; None where one has it not."""

    key: str
    left: float | None
    right: float | None

    @property
    def delta(self) -> float | None:
        """Right minus left; 0 where that cannot be seen."""
        if self.left is None or self.right is None:
            return None
        return change(self.left, self.right)

    @property
    def better(self) -> int:
        """1 where the right one is better, −1 where the left one is, 0 where neither.

        Neither is where they differ by next to nothing of what is healthy.
        """
        delta, known = self.delta or 0.0, metric(self.key)
        low, high = known.healthy or (0.0, 0.0)
        if isfinite(high - low) and abs(delta) < NOISE * (high - low):
            return 0
        return known.better * ((delta > 0) - (delta < 0))


@dataclass(frozen=True)
class GroupPair:
    """One task that both were trained on: its mean rewards."""

    task_slug: str
    left: float
    right: float

    @property
    def delta(self) -> float:
        """Right minus left, in the taskset's reward unit."""
        return self.right - self.left


@dataclass(frozen=True)
class Comparison:
    """What tells two checkpoints of one tree apart."""

    left: Checkpoint
    right: Checkpoint
    parted: Checkpoint | None
    """The newest that both descend from; None for the base weights."""
    left_steps: int
    """Steps from there to the left one; 0 where the right one descends from it."""
    right_steps: int
    metrics: Sequence[MetricPair]
    better: Sequence[GroupPair]
    """Tasks that the right one does better, most first."""
    worse: Sequence[GroupPair]
    """Tasks that the right one does worse, most first."""
    alike: int
    """Tasks that both do about as well."""


def compare(
    tree: Tree,
    left: int,
    right: int,
    groups: tuple[Sequence[Group], Sequence[Group]] | None = None,
) -> Comparison:
    """Compare two checkpoints of a tree.

    Args:
        tree: Holds both.
        left: One's position.
        right: The other's.
        groups: Their rewards by task, where the checkpoints do not carry them.
    """
    meet = tree.common_ancestor(left, right)
    shared = 0 if meet == ROOT else tree.depth(meet)
    pairs = group_pairs(*(groups or (tree[left].groups, tree[right].groups)))
    better, worse = moved(pairs)
    return Comparison(
        left=tree[left],
        right=tree[right],
        parted=None if meet == ROOT else tree[meet],
        left_steps=tree.depth(left) - shared,
        right_steps=tree.depth(right) - shared,
        metrics=_metrics(tree[left], tree[right]),
        better=better,
        worse=worse,
        alike=len(pairs) - len(better) - len(worse),
    )


def group_pairs(left: Sequence[Group], right: Sequence[Group]) -> list[GroupPair]:
    """The tasks that both have rewards of."""
    before, after = _means(left), _means(right)
    return [GroupPair(slug, before[slug], after[slug]) for slug in before if slug in after]


def moved(pairs: Sequence[GroupPair]) -> tuple[list[GroupPair], list[GroupPair]]:
    """The tasks that got better and those that got worse, the most first."""
    better = sorted((p for p in pairs if p.delta >= LEAST), key=lambda p: -p.delta)
    worse = sorted((p for p in pairs if p.delta <= -LEAST), key=lambda p: p.delta)
    return better, worse


def _metrics(left: Checkpoint, right: Checkpoint) -> list[MetricPair]:
    before, after = metrics_of(left), metrics_of(right)
    keys = ranked(list(dict.fromkeys([*before, *after])))
    return [MetricPair(key, before.get(key), after.get(key)) for key in keys]


def _means(groups: Sequence[Group]) -> dict[str, float]:
    return {group.task_slug: fmean(group.rewards) for group in groups if group.rewards}
