"""Two checkpoints side by side: what their own weights scored, by task too, how they were made,
and how they are related."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf, isfinite, sqrt
from statistics import fmean, variance

from hud_tui.rl.axes import Axis, Positions
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label
from hud_tui.rl.metrics import Series, change, metric, metrics_of, of_weights, ranked, short
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, Group, Model

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


# Overlay: another branch, or another model, laid over the run from where the two parted.


@dataclass(frozen=True, eq=False)
class Overlay:
    """A lineage beside the run's own."""

    name: str
    """What it is called on the screen."""
    run: Run
    """The other lineage, its tip as the head."""
    shift: int = 0
    """Its step n stands where the run's own step n + shift does."""
    positions: Positions = field(default_factory=Positions, repr=False)

    def offset(self, own: Positions, run: Run, axis: Axis) -> float:
        """What to add to its x, so that both stand at the same x where they parted."""
        if axis is Axis.STEP or not self.shift:
            return self.shift
        mine, theirs = own.of(run, axis), self.positions.of(self.run, axis)
        return _after(mine, self.shift) - _after(theirs, -self.shift)


@dataclass(frozen=True)
class Branch:
    """A lineage of the run's own tree that left the head's."""

    tip: int
    """Position of its newest checkpoint."""
    name: str
    steps: int
    """Since it left."""
    parted: str
    """The newest checkpoint that both have."""
    reward: str
    """The own mean reward of its tip, or of the newest before it that has one, since it left."""


def branches(run: Run) -> list[Branch]:
    """The branches that the head is not on, newest first; O(size of the tree)."""
    tree = run.tree
    parents = {tree.parent(position) for position in range(len(tree))}
    tips = (position for position in range(len(tree) - 1, -1, -1) if position not in parents)
    own = set(tree.lineage(tree.head))
    return [_branch(tree, tip) for tip in tips if tip not in own]


def _branch(tree: Tree, tip: int) -> Branch:
    meet = tree.common_ancestor(tree.head, tip)
    shared = 0 if meet == ROOT else tree.depth(meet)
    parted = label(None if meet == ROOT else tree[meet])
    left = islice(tree.lineage(tip), tree.depth(tip) - shared)
    reward = next((r for r in map(tree.reward, left) if r is not None), None)
    return Branch(tip, label(tree[tip]), tree.depth(tip) - shared, parted, short(reward))


def over_branch(run: Run, tip: int) -> Overlay:
    """A branch of the run's own tree: it counts from the same base, so nothing is shifted."""
    return Overlay(label(run.tree[tip]), _at_tip(run.tree, tip))


def over_model(run: Run, model: Model, tree: Tree) -> Overlay:
    """Another model's head lineage, from where one was forked from the other.

    Args:
        run: The run on the screen.
        model: The other model.
        tree: The other model's tree.
    """
    own = run.model
    shift = 0
    if own is not None:
        shift = _depth(run.tree, _source(model, own)) - _depth(tree, _source(own, model))
    return Overlay(model.model_name, _at_tip(tree, tree.head), shift)


def _source(fork: Model, origin: Model) -> str:
    """Name of the origin's checkpoint that a model was forked from; empty where it was not."""
    slug, _, name = (fork.forked_from or "").rpartition("@")
    return name if slug == origin.model_name else ""


def _depth(tree: Tree, name: str) -> int:
    """Steps up to a checkpoint of the head's lineage; 0 where it has none of this name."""
    lineage = tree.lineage(tree.head) if name else ()
    return next((tree.depth(at) for at in lineage if tree[at].name == name), 0)


def _at_tip(tree: Tree, tip: int | None) -> Run:
    tree = tree.with_head(None if tip is None else tree[tip].id)
    return Run(tree=tree, series=Series.of(tree[p] for p in tree.path(tip)), loaded=True)


def _after(xs: Sequence[float], steps: int) -> float:
    """The x after so many steps; 0 where that is before the first."""
    return float(xs[min(steps, len(xs)) - 1]) if steps > 0 and len(xs) else 0.0
