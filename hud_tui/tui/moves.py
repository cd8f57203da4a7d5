"""What a key of the Checkpoints view would make the head, or why it cannot."""

from dataclasses import dataclass, replace

from hud_tui.errors import HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.ages import age
from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.head import name, named, refusal
from hud_tui.rl.moves import Move
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.tui.journal import Act, Journal


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
