"""Two checkpoints side by side: what their own weights scored, by task too, how they were made,
and how they are related."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import fmean, variance

from hud_tui.rl.metrics import change, metric, of_weights, ranked
from hud_tui.rl.own import HELDOUT, REWARD, Own
from hud_tui.rl.series import metrics_of
from hud_tui.rl.tree import ROOT, Tree
from hud_tui.wire import Checkpoint, Group

LEAST = 0.02
"""A smaller change of a group's mean is not worth a line."""
ERRORS = 2.0
"""And one of fewer standard errors is noise of the few rollouts."""
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
    """One task that both sampled: its mean rewards."""

    task_slug: str
    left: float
    right: float
    error: float = 0.0
    """Standard error of their difference, from the rollouts' variances; infinite where one of
    them has a single rollout."""
    rollouts: tuple[int, int] = (0, 0)
    """How many the means are of."""

    @property
    def delta(self) -> float:
        """Right minus left, in the taskset's reward unit."""
        return self.right - self.left

    @property
    def is_noise(self) -> bool:
        """Whether so few rollouts may differ so much by chance."""
        return abs(self.delta) < max(LEAST, ERRORS * self.error)


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
    own: tuple[Own, Own]
    """What the weights of each scored."""
    metrics: Sequence[MetricPair]
    """Their own: of the rollouts that were sampled from each. Held-out and mean reward first."""
    steps: Sequence[MetricPair]
    """Of the steps that made them."""
    better: Sequence[GroupPair]
    """Tasks that the right one does better, most first; in training rollouts."""
    worse: Sequence[GroupPair]
    """Tasks that the right one does worse, most first."""
    alike: int
    """Tasks without a difference beyond noise."""
    rollouts: tuple[int, int]
    """Training rollouts of those tasks, of each."""


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
        groups: The rewards by task of rollouts sampled from each, where the steps do not
            carry them.
    """
    meet = tree.common_ancestor(left, right)
    shared = 0 if meet == ROOT else tree.depth(meet)
    pairs = group_pairs(*(groups or (tree.own_groups(left), tree.own_groups(right))))
    better, worse = moved(pairs)
    sizes = [pair.rollouts for pair in pairs]
    return Comparison(
        left=tree[left],
        right=tree[right],
        parted=None if meet == ROOT else tree[meet],
        left_steps=tree.depth(left) - shared,
        right_steps=tree.depth(right) - shared,
        own=(tree.own(left), tree.own(right)),
        metrics=_own_pairs(tree.own_metrics(left), tree.own_metrics(right)),
        steps=_step_pairs(tree[left], tree[right]),
        better=better,
        worse=worse,
        alike=len(pairs) - len(better) - len(worse),
        rollouts=(sum(a for a, _ in sizes), sum(b for _, b in sizes)),
    )


def group_pairs(left: Sequence[Group], right: Sequence[Group]) -> list[GroupPair]:
    """The tasks that both have rewards of."""
    before, after = _rewards(left), _rewards(right)
    return [_pair(slug, before[slug], after[slug]) for slug in before if slug in after]


def moved(pairs: Sequence[GroupPair]) -> tuple[list[GroupPair], list[GroupPair]]:
    """The tasks that got better and those that got worse beyond noise, the most first."""
    told = sorted((pair for pair in pairs if not pair.is_noise), key=lambda p: -abs(p.delta))
    return [p for p in told if p.delta > 0], [p for p in told if p.delta < 0]


def _own_pairs(before: Mapping[str, float], after: Mapping[str, float]) -> list[MetricPair]:
    keys = ranked(list(dict.fromkeys([*before, *after])))
    keys.sort(key=lambda key: key != HELDOUT)
    return [MetricPair(key, before.get(key), after.get(key)) for key in keys]


def _step_pairs(left: Checkpoint, right: Checkpoint) -> list[MetricPair]:
    """What their steps were trained on, and what the updates themselves did."""
    before, after = metrics_of(left), metrics_of(right)
    both = dict.fromkeys([*before, *after])
    keys = ranked([key for key in both if key == REWARD or not of_weights(key)])
    return [MetricPair(key, before.get(key), after.get(key)) for key in keys]


def _rewards(groups: Sequence[Group]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for group in groups:
        found.setdefault(group.task_slug, []).extend(r for r in group.rewards if isfinite(r))
    return {slug: rewards for slug, rewards in found.items() if rewards}


def _pair(slug: str, left: Sequence[float], right: Sequence[float]) -> GroupPair:
    error = inf
    if min(len(left), len(right)) > 1:
        error = sqrt(variance(left) / len(left) + variance(right) / len(right))
    return GroupPair(slug, fmean(left), fmean(right), error, (len(left), len(right)))
