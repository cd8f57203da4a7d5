"""Moves of the head: preview, outcome, undo and redo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hud_tui.errors import HudUsage
from hud_tui.events import Act, HeadMoved
from hud_tui.keys import keyed
from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.checkpoint_tree import DAMAGED, EXPIRED, ROOT, label
from hud_tui.rl.history import who
from hud_tui.rl.metrics import change
from hud_tui.rl.own_numbers import NONE, Own
from hud_tui.rl.run import Run
from hud_tui.rl.text import age, one_line
from hud_tui.wire import BASE, Checkpoint, Evaluation, WorkState

WEIGHTS = "weights"
"""Value of `Checkpoint.state`: weights without optimizer state."""


class Relation(StrEnum):
    """Relation of the target checkpoint to the head."""

    SAME = "same"
    ANCESTOR = "ancestor"
    DESCENDANT = "descendant"
    BRANCH = "branch"


@dataclass(frozen=True)
class HeadChange:
    """Preview of a head move."""

    now: Checkpoint | None
    """Served now; None for the base weights."""
    then: Checkpoint
    relation: Relation
    leaving: int
    """Number of steps of the current lineage that are not in the new one; they stay in the tree."""
    joining: int
    """Number of steps of the new lineage that are not in the current one."""
    common: Checkpoint | None = None
    """Newest common ancestor of both; None for the base weights."""
    before: Mapping[str, float] = field(default_factory=dict)
    """Own metrics of the current head (`hud_tui.rl.own_numbers`)."""
    after: Mapping[str, float] = field(default_factory=dict)
    """Own metrics of the target."""
    deltas: Mapping[str, float] = field(default_factory=dict)
    """`after` − `before` for metrics that both have; 0 if both print alike."""
    own_now: Own = NONE
    own_then: Own = NONE
    evaluated_now: Evaluation | None = None
    """The current head's held-out evaluation."""
    evaluated_then: Evaluation | None = None
    training: WorkState | None = None
    """The active run whose next step will branch from the new head."""


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
    head = ROOT if tree.head is None else tree.head
    before, after = tree.own_metrics(head), tree.own_metrics(target)
    return HeadChange(
        now=tree.served,
        then=tree[target],
        relation=_relation(tree.head, target, meet),
        leaving=tree.depth(head) - tree.depth(meet),
        joining=tree.depth(target) - tree.depth(meet),
        common=tree.node(meet),
        before=before,
        after=after,
        deltas={key: change(before[key], after[key], key) for key in after if key in before},
        evaluated_now=tree.evaluation(head),
        evaluated_then=tree.evaluation(target),
        own_now=tree.own(head),
        own_then=tree.own(target),
        training=run.job if run.training else None,
    )


@dataclass(frozen=True)
class Outcome:
    """Outcome of a head move, according to the tree read after it."""

    done: bool
    """Whether the head is the target, or descends from it by steps taken since."""
    text: str


def outcome(before: Run, run: Run, checkpoint_id: str, answered: bool) -> Outcome:
    """Check a head move against the tree as it is now.

    Args:
        before: The run with the tree as read before the request.
        run: The run with the tree as read after it.
    """
    tree, target = run.tree, run.tree.find(checkpoint_id)
    head = name(run.head)
    unsure = "" if answered else "no answer, but "
    if target is not None and tree.head == target:
        return Outcome(True, f"{unsure}head is {head} · verified")
    if target is not None and tree.grew_from(target, len(before.tree)):
        grown = f"head is {head}, trained on from {named(run, checkpoint_id)}"
        return Outcome(True, f"{unsure}{grown} · verified")
    if answered:
        return Outcome(False, f"the service says the head is {head}")
    return Outcome(False, f"no answer: the service says the head is still {head}")


def only_trained(before: Run, run: Run) -> bool:
    """Whether the head is unchanged, or moved only by training steps taken since.

    A run moves the head with every step; that must not count as somebody else's move and block a
    rollback.

    Args:
        before: The run as the user saw it.
    """
    seen = None if before.head is None else before.head.id
    if run.head is None or run.head.id == seen:
        return (None if run.head is None else run.head.id) == seen
    start = ROOT if seen is None else run.tree.find(seen)
    return start is not None and run.tree.grew_from(start, len(before.tree))


def refusal(checkpoint: Checkpoint) -> str:
    """Why a checkpoint cannot be served, as a sentence; empty if it can."""
    if checkpoint.state == DAMAGED:
        return (
            f"{name(checkpoint)} is damaged: its weights are missing or corrupted, so it cannot"
            " be served. Restore its file from a backup and restart the service, or choose another."
        )
    if checkpoint.state == EXPIRED:
        return f"{name(checkpoint)} has expired: its weights were deleted, so it cannot be served."
    return ""


def name(checkpoint: Checkpoint | None) -> str:
    """A checkpoint's label, safe to print in one line."""
    return one_line(label(checkpoint), 40)


def named(run: Run, checkpoint_id: str | None) -> str:
    """A checkpoint's label by its id; the first characters of the id if it is unknown."""
    position = run.tree.find(checkpoint_id)
    if position is None and checkpoint_id is not None:
        return one_line(checkpoint_id[:8], 8)
    return name(run.tree.node(position))


def _relation(head: int | None, target: int, meet: int) -> Relation:
    if head == target:
        return Relation.SAME
    if meet == target:
        return Relation.ANCESTOR
    return Relation.DESCENDANT if head is None or meet == head else Relation.BRANCH


# The head move that each command asks for; HudUsage says why one is not possible.


@dataclass(frozen=True)
class HeadMove:
    target: str
    """Id of the checkpoint to serve."""
    act: Act = Act.SET
    note: str = ""
    """Shown in the preview."""


FOLDED = "This row folds several steps: {^checkpoints.open} unfolds them."


def to_selected(run: Run, position: int, folded: bool) -> HeadMove:
    """Serve the checkpoint under the cursor.

    Raises:
        HudUsage: The row is not a single checkpoint, or it has expired.
    """
    if folded:
        raise HudUsage(keyed(FOLDED))
    return _served(run, position)


def to_known(run: Run, checkpoint_id: str) -> HeadMove:
    """Serve a checkpoint by its id; `BASE` is refused as in `to_selected`.

    Raises:
        HudUsage: The tree does not have it, or it has expired.
    """
    position = ROOT if checkpoint_id == BASE else run.tree.find(checkpoint_id)
    if position is None:
        raise HudUsage("That checkpoint is no longer in the tree.")
    return _served(run, position)


def to_parent(run: Run) -> HeadMove:
    """Serve the head's parent.

    Raises:
        HudUsage: It has none, or that has expired.
    """
    tree = run.tree
    if tree.head is None:
        raise HudUsage("The base weights are served: nothing to roll back to.")
    parent = tree.parent(tree.head)
    if parent == ROOT:
        raise HudUsage(f"{name(run.head)} is a first step: it has no parent to roll back to.")
    return _served(run, parent)


def to_before(run: Run, alarm: Alarm) -> HeadMove:
    """Serve the last checkpoint before an alarm began.

    Raises:
        HudUsage: There is none, or it has expired.
    """
    position = run.tree.find(alarm.before_id)
    if position is None:
        raise HudUsage("The alarm began with the first step: there is no checkpoint before it.")
    move = _served(run, position)
    return replace(move, note=f"{alarm.title} began with step {alarm.onset}.")


def to_undo(run: Run) -> HeadMove:
    """Undo the last move of the head, whoever made it, and whenever.

    Raises:
        HudUsage: There was no move, or the base weights were served before it.
    """
    move = run.history.to_undo
    if move is None:
        raise HudUsage(f"Nothing to undo. The head's history: {run.history.completeness}.")
    if move.previous is None:
        raise HudUsage(
            "Cannot undo: the base weights were served before, and they cannot be the head."
        )
    return HeadMove(move.previous, Act.UNDO, undo_note(run, move))


def to_redo(run: Run) -> HeadMove:
    """Redo the move that was undone last.

    Raises:
        HudUsage: Nothing was undone.
    """
    move = run.history.to_redo
    if move is None or move.checkpoint_id is None:
        raise HudUsage("Nothing to redo.")
    return HeadMove(move.checkpoint_id, Act.REDO)


def move_text(run: Run, move: HeadMoved) -> str:
    """A move in words, e.g. ``step-000060 → step-000045, by app on laptop``."""
    ends = f"{named(run, move.previous)} → {named(run, move.checkpoint_id)}"
    return f"{ends}, by {who(move.by)}" if move.by else ends


def undo_note(run: Run, move: HeadMoved) -> str:
    """Text for the undo preview: which move it undoes, and what happened since."""
    undoes, set_to, now = move_text(run, move), named(run, move.checkpoint_id), name(run.head)
    text = f"Undoes {undoes}."
    if run.head is not None and run.head.id == move.checkpoint_id:
        return text
    if _carries(run, move):
        return f"{text} Training has continued since: {now} descends from {set_to}."
    return f"{text} The head has moved since: it is now {now}."


def moved_note(seen: Run, run: Run, now: float) -> str:
    """Text saying that the head has moved: to what, by whom and when, as far as known.

    Args:
        seen: The run as the user saw it.
        now: Unix seconds.
    """
    head, was = name(run.head), name(seen.head)
    moves = run.history.moves
    if not moves or not _carries(run, moves[-1]):
        return f"The head is now {head}; it was {was} when you last saw it."
    move = moves[-1]
    when = f" {age(move.at, now)} ago" if move.at else ""
    text = f"The head moved{when}: {move_text(run, move)}."
    grown = run.head is not None and run.head.id != move.checkpoint_id
    return f"{text} Training has continued to {head}." if grown else text


def _carries(run: Run, move: HeadMoved) -> bool:
    """Whether the head is the move's target, or descends from it."""
    position = run.tree.find(move.checkpoint_id)
    return position is not None and run.tree.is_ancestor(position, run.tree.head)


def _served(run: Run, position: int) -> HeadMove:
    if position == ROOT:
        raise HudUsage("The base weights cannot be the head, only a checkpoint can.")
    if why := refusal(run.tree[position]):
        raise HudUsage(why)
    return HeadMove(run.tree[position].id)
