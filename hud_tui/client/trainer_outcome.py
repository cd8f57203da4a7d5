"""What became of a training write whose answer was lost.

A service that keeps keys knows it of every call. Else the checkpoint tree tells: a step
that landed is a node that was not there before, below the head that was known before.
With one trainer a model that is certain; a second one's step looks the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.wire import Checkpoint, Settled


@dataclass(frozen=True)
class Seen:
    """The tree's head, as it was last known."""

    head: str | None
    """Its id; None for the base weights."""
    below: frozenset[str] = frozenset()
    """Ids of the nodes that branch from it already."""


@dataclass(frozen=True)
class Lost:
    """A write without an answer."""

    call: str
    """E.g. ``optim_step``."""
    asked: str | None = None
    """The checkpoint that a set_head named."""
    key: str = ""
    """The Idempotency-Key it was sent with."""


@dataclass(frozen=True)
class Resumed:
    """Where training stands, read from the service."""

    landed: bool | None
    """Whether the write took effect, and for a gradient pass, whether its gradients still wait
    or were stepped on. None where nothing was lost, or where it cannot be known because the
    service keeps no keys of it: a pass leaves no trace in the tree, and a step or a head that is
    not there may still be under way, so it can be asked for again."""
    checkpoint: Checkpoint | None
    """The step's checkpoint where one landed, else the head; None for the base weights."""
    call: str | None
    """The write that was lost, e.g. ``optim_step``; None where none was."""


def look(tree: Sequence[Checkpoint]) -> Seen:
    """What there is to remember of a tree, to know a later step by."""
    head = head_of(tree)
    id_ = None if head is None else head.id
    return Seen(id_, frozenset(c.id for c in tree if c.prev_model_checkpoint_id == id_))


def judge(
    lost: Lost | None,
    before: Seen | None,
    tree: Sequence[Checkpoint],
    settled: Settled | None = None,
) -> Resumed:
    """Tell what became of a write by what the service knows of it, else by the tree, read now."""
    head = head_of(tree)
    if lost is None:
        return Resumed(None, head, None)
    if settled is not None:
        made = (settled.reply or {}).get("checkpoint_id")
        step = next((c for c in tree if c.id == made), head)
        return Resumed(settled.state == "done", step, lost.call)
    if lost.call == "set_head":
        landed = head is not None and head.id == lost.asked
        return Resumed(landed or None, head, lost.call)  # it may yet arrive
    if lost.call != "optim_step" or before is None:
        return Resumed(None, head, lost.call)
    grown = (
        c
        for c in reversed(tree)
        if c.prev_model_checkpoint_id == before.head and c.id not in before.below
    )
    step = next(grown, None)
    return Resumed(True if step else None, step or head, lost.call)


def advice(call: str) -> str:
    """What to do about a lost write, instead of sending it again."""
    if call == "optim_step":
        return "do not repeat it: `await trainer.resume()` says whether the step landed"
    if call == "set_head":
        return "`await trainer.resume()` says which checkpoint is the head"
    return (
        "its gradients may wait on the service: `await trainer.resume()` says whether they do;"
        " where it cannot, set_head to the head drops them, and the whole step can be repeated"
    )


def head_of(tree: Sequence[Checkpoint]) -> Checkpoint | None:
    """The checkpoint that is served; None for the base weights."""
    return next((c for c in reversed(tree) if c.is_active), None)
