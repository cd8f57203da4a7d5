"""Overlay: another branch, or another model, laid over the run from where the two parted."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hud_tui.rl.axis import Axis, Positions
from hud_tui.rl.run import Run
from hud_tui.rl.series import Series
from hud_tui.rl.tree import ROOT, Tree


@dataclass(frozen=True, eq=False)
class Overlay:
    """A lineage beside the run's own."""

    name: str
    """What it is called on the screen."""
    run: Run
    """The other lineage, its tip as the head."""
    parted: int
    """Steps of the run's own lineage up to where they parted; 0 at its start."""
    shift: int = 0
    """Its step n stands where the run's own step n + shift does."""
    positions: Positions = field(default_factory=Positions, repr=False)

    @property
    def tip(self) -> str | None:
        return self.run.series.tip

    def offset(self, own: Positions, run: Run, axis: Axis) -> float:
        """What to add to its x, so that it stands at the run's own x where they parted."""
        if axis is Axis.STEP:
            return self.shift
        mine, theirs = own.of(run, axis), self.positions.of(self.run, axis)
        return _at(mine, self.parted) - _at(theirs, self.parted - self.shift)


def branch(run: Run, tip: int, name: str) -> Overlay:
    """A branch of the run's own tree up to the node at `tip`; both count from the same base."""
    meet = run.tree.common_ancestor(run.tree.head, tip)
    return Overlay(name, _at_tip(run.tree, tip), 0 if meet == ROOT else run.tree.depth(meet))


def other_model(run: Run, other: Tree, name: str, parted_at: str | None = None) -> Overlay:
    """Another model's lineage, from the checkpoint of the run that it was forked from.

    Args:
        run: The run on the screen.
        other: The other model's tree; its head's lineage is drawn.
        name: What the other model is called.
        parted_at: Name or id of the run's checkpoint that it was forked from; None lays
            the first steps of both on one another.
    """
    found = (p for p in run.tree.lineage(run.tree.head) if _named(run, p, parted_at))
    position = next(found, None) if parted_at else None
    parted = 0 if position is None else run.tree.depth(position)
    return Overlay(name, _at_tip(other, other.head), parted, parted)


def _named(run: Run, position: int, name: str | None) -> bool:
    node = run.tree[position]
    return name in (node.id, node.name)


def _at_tip(tree: Tree, tip: int | None) -> Run:
    tree = tree.with_head(None if tip is None else tree[tip].id)
    return Run(tree=tree, series=Series.of(tree[p] for p in tree.path(tip)), loaded=True)


def _at(xs: Sequence[float], steps: int) -> float:
    """The x after so many steps; that of the first where it is before them."""
    return float(xs[min(steps, len(xs)) - 1]) if steps > 0 and len(xs) else 0.0
