"""What setting the head would do, said before it is done; and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hud_tui.rl.metrics import change
from hud_tui.rl.own import NONE, Own
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import ROOT, Tree, label
from hud_tui.wire import Checkpoint, JobStatus

EXPIRED = "expired"
DAMAGED = "damaged"
WEIGHTS = "weights"
"""What a service has of a checkpoint (`Checkpoint.state`): nothing, nothing that can be loaded, or
no optimizer state."""


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
    parted: Checkpoint | None = None
    """The newest checkpoint that both lineages share; None where it is the base weights."""
    before: Mapping[str, float] = field(default_factory=dict)
    """The own metrics of what is served now (`hud_tui.rl.own`)."""
    after: Mapping[str, float] = field(default_factory=dict)
    """The own metrics of what will be."""
    deltas: Mapping[str, float] = field(default_factory=dict)
    """Own metric by metric, then minus now, where both have it; 0 where that cannot be seen."""
    own_now: Own = NONE
    own_then: Own = NONE
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
    head = ROOT if tree.head is None else tree.head
    before, after = tree.own_metrics(head), tree.own_metrics(target)
    return HeadChange(
        now=tree.served,
        then=tree[target],
        relation=_relation(tree.head, target, meet),
        leaving=served - shared,
        joining=tree.depth(target) - shared,
        parted=None if meet < 0 else tree[meet],
        before=before,
        after=after,
        deltas={key: change(before[key], after[key]) for key in after if key in before},
        own_now=tree.own(head),
        own_then=tree.own(target),
        training=run.job if run.training else None,
    )


@dataclass(frozen=True)
class Outcome:
    """What the tree, read after a set_head, says became of it."""

    done: bool
    """Whether the head is the checkpoint that was asked for, or has grown from it since."""
    text: str


def outcome(before: Run, run: Run, checkpoint_id: str, answered: bool) -> Outcome:
    """Judge a set_head by the tree as it is now.

    Args:
        before: With the tree as read before the request.
        run: With the tree as read after it.
        checkpoint_id: What was asked for.
        answered: Whether the service answered the request at all.
    """
    tree, target = run.tree, run.tree.find(checkpoint_id)
    head = name(run.head)
    unsure = "" if answered else "no answer, but "
    if target is not None and tree.head == target:
        return Outcome(True, f"{unsure}head is {head} · verified")
    if target is not None and _grew_from(tree, target, len(before.tree)):
        grown = f"head is {head}, which grew from {named(run, checkpoint_id)}"
        return Outcome(True, f"{unsure}{grown} · verified")
    if answered:
        return Outcome(False, f"the service says the head is {head}")
    return Outcome(False, f"no answer: the service says the head is still {head}")


def only_trained(before: Run, run: Run) -> bool:
    """Whether the head is where it was, or has only grown from there by steps taken since.

    A run that takes steps moves the head all the time; that is not somebody changing what
    is served, and must not keep a person from rolling it back.

    Args:
        before: With the tree as it was seen.
        run: With the tree as it is now.
    """
    seen = None if before.head is None else before.head.id
    if run.head is None or run.head.id == seen:
        return (None if run.head is None else run.head.id) == seen
    start = ROOT if seen is None else run.tree.find(seen)
    return start is not None and _grew_from(run.tree, start, len(before.tree))


def refusal(checkpoint: Checkpoint) -> str:
    """Why a checkpoint cannot be served, in a sentence; empty where it can."""
    if checkpoint.state == DAMAGED:
        return (
            f"{name(checkpoint)} is damaged: its weights are missing or corrupted, so it cannot"
            " serve. Put its file back from a backup and restart the service, or choose another."
        )
    if checkpoint.state == EXPIRED:
        return (
            f"{name(checkpoint)} has expired: its weights are kept no longer, so it cannot serve."
        )
    return ""


def name(checkpoint: Checkpoint | None) -> str:
    """What a checkpoint is called, safe for a line of text."""
    return one_line(label(checkpoint), 40)


def named(run: Run, checkpoint_id: str | None) -> str:
    """What a checkpoint of the run is called, by its id; the id's start where it is unknown."""
    position = run.tree.find(checkpoint_id)
    if position is None and checkpoint_id is not None:
        return one_line(checkpoint_id[:8], 8)
    return name(None if position is None else run.tree[position])


def _grew_from(tree: Tree, start: int, size: int) -> bool:
    """Whether the head descends from `start` by steps that a tree of `size` did not have."""
    if tree.head is None or tree.head < size:
        return False
    return start == next((p for p in tree.lineage(tree.head) if p < size), ROOT)


def _relation(head: int | None, target: int, meet: int) -> Relation:
    if head == target:
        return Relation.SAME
    if meet == target:
        return Relation.ANCESTOR
    return Relation.DESCENDANT if head is None or meet == head else Relation.BRANCH
