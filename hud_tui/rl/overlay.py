"""Overlay: another branch, or another model, laid over the run from where the two parted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from hud_tui.rl.axis import Axis, Positions
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.series import Series
from hud_tui.rl.tree import ROOT, Tree, label
from hud_tui.wire import Model


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
