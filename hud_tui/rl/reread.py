"""A tree read again: what is known of it is kept, and what was made of that with it."""

from collections.abc import Sequence

from hud_tui.rl.tree import Tree
from hud_tui.wire import Checkpoint

MOST = 500
"""Rows that are compared with what is known of them; a tree with more is taken as another."""
RETOLD = ("is_active", "state", "pinned", "evaluations")
"""What may be said anew of a step without it being another."""


def reread(tree: Tree, checkpoints: Sequence[Checkpoint]) -> Tree | None:
    """The version of a tree that a reading makes of it.

    Args:
        tree: As it is known.
        checkpoints: As it was read now, oldest first, shape (N,).

    Returns:
        None where it has not only grown: it must be built anew.
    """
    if len(checkpoints) < len(tree):
        return None
    told = [pair for pair in zip(tree, checkpoints, strict=False) if pair[0] is not pair[1]]
    if len(told) > MOST or not all(is_same(*pair) for pair in told):
        return None
    for checkpoint in (*(new for _, new in told), *checkpoints[len(tree) :]):
        tree = tree.add(checkpoint)
    return tree.with_head(next((c.id for c in reversed(checkpoints) if c.is_active), None))


def is_same(old: Checkpoint, new: Checkpoint) -> bool:
    """Whether both are one step, of which something may be said anew."""
    return old is new or old.model_copy(update={name: getattr(new, name) for name in RETOLD}) == new
