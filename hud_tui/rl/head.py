"""What setting the head would do, said before it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hud_tui.rl.run import Run
from hud_tui.rl.series import metrics_of
from hud_tui.wire import Checkpoint, JobStatus


class Relation(StrEnum):
    """How the checkpoint that will be served stands to the one served now."""

    SAME = "same"
    ANCESTOR = "ancestor"
    DESCENDANT = "descendant"
    BRANCH = "branch"


@dataclass(frozen=True)
class HeadChange:
    """A set_head that was not sent yet."""

    now: Checkpoint | None
    """Served now; None for the base weights."""
    then: Checkpoint
    relation: Relation
    leaving: int
    """Steps of the lineage served now that the new one does not have; they stay in the tree."""
    joining: int
    """Steps of the new lineage that are not served now."""
    deltas: Mapping[str, float] = field(default_factory=dict)
    """Metric by metric, then minus now, where both have it."""
    training: JobStatus | None = None
    """The run whose next step will branch from the new head."""


def head_change(run: Run, checkpoint_id: str) -> HeadChange:
    """Preview serving a checkpoint of the run's tree.

    Raises:
        KeyError: The tree has no such checkpoint.
    """
    tree = run.tree
    target = tree.find(checkpoint_id)
    if target is None:
        raise KeyError(checkpoint_id)
    meet = tree.common_ancestor(tree.head, target)
    shared = 0 if meet < 0 else tree.depth(meet)
    served = 0 if tree.head is None else tree.depth(tree.head)
    return HeadChange(
        now=tree.served,
        then=tree[target],
        relation=_relation(tree.head, target, meet),
        leaving=served - shared,
        joining=tree.depth(target) - shared,
        deltas=_deltas(tree.served, tree[target]),
        training=run.job if run.training else None,
    )


def _relation(head: int | None, target: int, meet: int) -> Relation:
    if head == target:
        return Relation.SAME
    if meet == target:
        return Relation.ANCESTOR
    return Relation.DESCENDANT if head is None or meet == head else Relation.BRANCH


def _deltas(now: Checkpoint | None, then: Checkpoint) -> dict[str, float]:
    if now is None:
        return {}
    before, after = metrics_of(now), metrics_of(then)
    return {key: after[key] - before[key] for key in after if key in before}
