"""What setting the head would do, said before it is done; and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import monotonic

from hud_tui.errors import HudUsage
from hud_tui.events import HeadMoved
from hud_tui.keys import keyed
from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label
from hud_tui.rl.metrics import change
from hud_tui.rl.own_numbers import NONE, Own
from hud_tui.rl.run import Run
from hud_tui.rl.text import age, one_line
from hud_tui.wire import Checkpoint, JobStatus

# Move: somebody set the head from one checkpoint to another.


@dataclass(frozen=True)
class Move:
    """The head was set from one checkpoint to another."""

    before: str | None
    """Id; None where the base weights were served."""
    after: str
    ours: bool = True
    """Whether it was set here, and not by somebody else."""
    at: float = 0.0
    """Unix seconds; 0 where unknown."""


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
    """The own metrics of what is served now (`hud_tui.rl.own_numbers`)."""
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


# Journal: where one model's head was set in this session, so that it can be undone.
#
# A training step moves the head too, but is no entry: undoing it is rolling back.


OURS_S = 60.0
"""Seconds in which the news of our own set_head is taken for ours."""


class Act(StrEnum):
    """What the user pressed; each leaves its own trace in the journal."""

    SET = "set"
    UNDO = "undo"
    REDO = "redo"


class Journal:
    """The moves of one model's head, and those that were undone."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        tell: Callable[[Move], None] = lambda move: None,
    ) -> None:
        """
        Args:
            clock: Seconds.
            tell: Is told of every move of the head, undone and redone ones too.
        """
        self.done: list[Move] = []
        self.undone: list[Move] = []
        self._clock, self._tell = clock, tell
        self._ours: dict[str, tuple[float, bool]] = {}
        """Until when, and whether it is a new move, by the checkpoint it goes to."""
        self._left: dict[str, str | None] = {}
        """What our move left, where the service told so before we took the move down."""

    def expect(self, checkpoint_id: str, new: bool = True) -> None:
        """We are about to set the head to this: the news of it is no news.

        `new` says that it is neither an undoing nor a redoing.
        """
        self._ours[checkpoint_id] = (self._clock() + OURS_S, new)
        self._left.pop(checkpoint_id, None)

    def heard(self, event: HeadMoved) -> Move | None:
        """Take down a move made by somebody else; None for our own and for a step's."""
        target = event.checkpoint_id
        if event.cause != "set" or target is None or target == event.previous:
            return None
        until, new = self._ours.pop(target, (0.0, False))
        if until > self._clock():
            if new and event.at > 0:  # sent by the service, not made of two readings
                self._correct(target, event.previous)
            return None
        move = Move(event.previous, target, ours=False, at=event.at)
        self._push(move)
        return move

    def moved(self, before: str | None, after: str, at: float = 0.0) -> None:
        """We set the head. What we left is what we read last, or what the service says."""
        self._push(Move(self._left.pop(after, before), after, at=at))

    def _correct(self, target: str, left: str | None) -> None:
        """Training may take a step between our last reading and the move."""
        if self.done and self.done[-1].ours and self.done[-1].after == target:
            self.done[-1] = Move(left, target, at=self.done[-1].at)
        else:
            self._left[target] = left

    def undid(self, at: float = 0.0) -> None:
        """The last move was undone."""
        move = self.done.pop()
        self.undone.append(move)
        if move.before is not None:
            self._tell(Move(move.after, move.before, at=at))

    def redid(self, at: float = 0.0) -> None:
        """The last undone move was done again."""
        move = self.undone.pop()
        self.done.append(move)
        self._tell(Move(move.before, move.after, at=at))

    def _push(self, move: Move) -> None:
        self.done.append(move)
        self.undone.clear()
        self._tell(move)


# What a key of the Checkpoints view would make the head, or why it cannot.


@dataclass(frozen=True)
class Wanted:
    """A set_head to preview."""

    target: str
    """Id of the checkpoint to serve."""
    act: Act = Act.SET
    note: str = ""
    """What the user should know first."""


FOLDED = "Several steps are folded here: {^checkpoints.toggle_fold} unfolds them, then choose one."


def to_selected(run: Run, position: int, folded: bool) -> Wanted:
    """Serve what is under the cursor.

    Raises:
        HudUsage: It is no single checkpoint, or has expired.
    """
    if folded:
        raise HudUsage(keyed(FOLDED))
    if position == ROOT:
        raise HudUsage("Only a step's weights can be made the head, not the base weights.")
    return _served(run, position)


def to_known(run: Run, checkpoint_id: str) -> Wanted:
    """Serve a checkpoint by its id.

    Raises:
        HudUsage: The tree does not have it, or it has expired.
    """
    position = run.tree.find(checkpoint_id)
    if position is None:
        raise HudUsage("That checkpoint is not in the tree any more.")
    return _served(run, position)


def to_parent(run: Run) -> Wanted:
    """Serve the head's parent.

    Raises:
        HudUsage: It has none, or that has expired.
    """
    tree = run.tree
    if tree.head is None:
        raise HudUsage("The base weights are served: there is nothing to roll back to.")
    parent = tree.parent(tree.head)
    if parent == ROOT:
        raise HudUsage(f"{name(run.head)} is a first step: it has no parent to roll back to.")
    return _served(run, parent)


def to_before(run: Run, alarm: Alarm) -> Wanted:
    """Serve the last checkpoint before an alarm began.

    Raises:
        HudUsage: There is none, or it has expired.
    """
    position = run.tree.find(alarm.before_id)
    if position is None:
        raise HudUsage("It began with the first step: there is no checkpoint before it.")
    wanted = _served(run, position)
    return replace(wanted, note=f"{alarm.title} began with step {alarm.onset}.")


def to_undo(run: Run, journal: Journal) -> Wanted:
    """Serve what was served before the last move, ours or somebody else's.

    Raises:
        HudUsage: There was none, or base weights were served before it.
    """
    if not journal.done:
        raise HudUsage("The head was not set in this session: there is nothing to undo.")
    move = journal.done[-1]
    if move.before is None:
        raise HudUsage("Base weights were served before that, and only a step can be the head.")
    return Wanted(move.before, Act.UNDO, undo_note(run, move))


def to_redo(journal: Journal) -> Wanted:
    """Serve what the move that was undone last had made the head.

    Raises:
        HudUsage: Nothing was undone.
    """
    if not journal.undone:
        raise HudUsage("Nothing was undone: there is nothing to do again.")
    return Wanted(journal.undone[-1].after, Act.REDO)


def undo_note(run: Run, move: Move) -> str:
    """What the user should know before undoing: who moved the head, and what came since."""
    set_to, now = named(run, move.after), name(run.head)
    by = "" if move.ours else f"Somebody else set the head to {set_to}. "
    if run.head is not None and run.head.id == move.after:
        return by.strip()
    if _carries(run, move):
        return f"{by}Training went on since: {now} grew from {set_to}."
    return f"{by}The head was moved elsewhere since it was set to {set_to}: it is {now} now."


def moved_note(seen: Run, run: Run, journal: Journal, now: float) -> str:
    """That the head is not where it was seen: who set it to what and when, as far as known.

    Args:
        seen: With the head as the user saw it.
        run: With the head as it is.
        journal: The moves that were heard of.
        now: Unix seconds.
    """
    head, was = name(run.head), name(seen.head)
    move = journal.done[-1] if journal.done else None
    if move is None or not _carries(run, move):
        return f"The head is {head} now; it was {was} when you last saw it."
    who = "You" if move.ours else "Somebody else"
    when = f" {age(move.at, now)} ago" if move.at else ""
    said = f"{who} set the head to {named(run, move.after)}{when}; it was {was}."
    grown = run.head is not None and run.head.id != move.after
    return f"{said} Training went on to {head}." if grown else said


def _carries(run: Run, move: Move) -> bool:
    """Whether the head is what this move made it, or has grown from there."""
    position = run.tree.find(move.after)
    return position is not None and run.tree.is_ancestor(position, run.tree.head)


def _served(run: Run, position: int) -> Wanted:
    if why := refusal(run.tree[position]):
        raise HudUsage(why)
    return Wanted(run.tree[position].id)
