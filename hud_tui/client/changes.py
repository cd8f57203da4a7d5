"""What happened between two readings of a tree, as the events a service would have sent."""

import re
from collections.abc import Sequence

from hud_tui.events import CheckpointAdded, Event, HeadMoved, StepTaken, TreeRead
from hud_tui.rl.reread import is_same
from hud_tui.wire import Checkpoint

_NUMBER = re.compile(r"(\d{1,15})$")


def changes(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> list[Event]:
    """Events that lead from one tree to the other, in the order of `hud_tui.events`.

    Args:
        old: The tree as it was read before, oldest first, shape (N,).
        new: The tree as it was read now, shape (M,).

    Returns:
        One `TreeRead` where more happened than steps, moves of the head, and what is said
        anew of a checkpoint.
    """
    if not _grew(old, new):
        return [TreeRead(checkpoints=tuple(new))]
    before, after = _head(old), _head(new)
    fresh = new[len(old) :]
    events: list[Event] = [
        CheckpointAdded(checkpoint=now)
        for was, now in zip(old, new, strict=False)
        if _is_retold(was, now)
    ]
    for position, checkpoint in enumerate(fresh, len(old) + 1):
        events.append(CheckpointAdded(checkpoint=checkpoint))
        if checkpoint.id == after and before != after:
            events.append(HeadMoved(checkpoint_id=after, previous=before, cause="step"))
        events.append(step_taken(checkpoint, position))
    if before != after and all(checkpoint.id != after for checkpoint in fresh):
        events.append(HeadMoved(checkpoint_id=after, previous=before, cause="set"))
    return events


def step_taken(checkpoint: Checkpoint, position: int) -> StepTaken:
    """The step that made a checkpoint, numbered by the service, its name or its place."""
    return StepTaken(
        step=checkpoint.step or _number(checkpoint.name) or position,
        checkpoint_id=checkpoint.id,
        job_id=checkpoint.job_id,
        metrics=_metrics(checkpoint),
        groups=checkpoint.groups,
    )


def _metrics(checkpoint: Checkpoint) -> dict[str, float]:
    """The checkpoint's metrics, with the typed fields of the same meaning where absent."""
    typed = {"reward_mean": checkpoint.mean_reward, "learning_rate": checkpoint.learning_rate}
    return {k: v for k, v in typed.items() if v is not None} | checkpoint.metrics


def _grew(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> bool:
    """Whether `new` is `old`, but for what is said anew, with rows added at its end."""
    return len(new) >= len(old) and all(is_same(a, b) for a, b in zip(old, new, strict=False))


def _is_retold(was: Checkpoint, now: Checkpoint) -> bool:
    """Whether a row says something else than before, beside whether it is the head."""
    return was is not now and was.model_copy(update={"is_active": now.is_active}) != now


def _head(tree: Sequence[Checkpoint]) -> str | None:
    return next((c.id for c in reversed(tree) if c.is_active), None)


def _number(name: str | None) -> int | None:
    found = _NUMBER.search(name or "")
    return int(found.group(1)) if found else None
