"""Finished rollouts of managed runs, kept as traces like any other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hud_tui.events import RolloutDone
from hud_tui.service.clock import now
from hud_tui.service.store import Db, checkpoints, events, insert_all, turns
from hud_tui.service.store.traces import COMPLETION_SHOWN
from hud_tui.service.store.turns import TurnRow


@dataclass(frozen=True)
class TraceRow:
    """A finished rollout of a managed run."""

    id: str
    job_id: str
    model: str
    task_slug: str
    group_id: str
    step: int
    """Of the run, from 1."""
    attempt: int | None
    """Which sampling of that step, from 1; None where it evaluates a checkpoint."""
    rollout: int
    reward: float
    stop_reason: str
    heldout: bool
    evaluates: str | None = None
    """Id of the checkpoint that it was sampled from to evaluate it."""
    turns: Sequence[TurnRow] = field(default_factory=tuple)


def add_rollouts(db: Db, model_id: str, rows: Sequence[TraceRow], step: int | None = None) -> None:
    """Keep finished rollouts of a managed run, and log them.

    An iteration that is repeated, after a crash or without its engine, replaces its own.

    Args:
        db: The store's.
        model_id: The model that is trained.
        rows: The rollouts.
        step: The step of the tree that they belong to; None for the one that is taken next.
    """
    at, step = now(), step or checkpoints.next_step(db, model_id)
    insert_all(db, "trace", [_finished(row, at) for row in rows], "INSERT OR REPLACE")
    for row in rows:
        turns.add(db, row.id, row.turns)
    events.append(db, model_id, [_done(row, at, step) for row in rows])


def _finished(row: TraceRow, at: float) -> dict[str, object]:
    return {
        "id": row.id,
        "job_id": row.job_id,
        "status": "completed",
        "created_at": row.turns[0].started_at,
        "ended_at": at,
        "task_slug": row.task_slug,
        "group_id": row.group_id,
        "model": row.model,
        "reward": row.reward,
        "stop_reason": row.stop_reason,
        "step": row.step,
        "attempt": row.attempt,
        "rollout": row.rollout,
        "completion": row.turns[-1].completion[:COMPLETION_SHOWN],
        "num_tokens": _tokens(row.turns),
        "heldout": int(row.heldout),
        "evaluates": row.evaluates,
    }


def _tokens(rows: Iterable[TurnRow]) -> int:
    return sum(len(row.output) for row in rows)


def _done(row: TraceRow, at: float, step: int) -> RolloutDone:
    return RolloutDone(
        at=at,
        job_id=row.job_id,
        trace_id=row.id,
        step=step,
        task_slug=row.task_slug,
        rollout=row.rollout,
        attempt=row.attempt,
        reward=row.reward,
        heldout=row.heldout,
        num_tokens=_tokens(row.turns),
    )
