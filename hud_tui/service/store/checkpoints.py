"""The checkpoint tree: steps that are put into it, and its rows as they are sent."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hud_tui.events import CheckpointAdded, HeadMoved, StepTaken
from hud_tui.service.clock import iso, now
from hud_tui.service.store import Db, events, heads, insert, nodes
from hud_tui.service.store.nodes import Node
from hud_tui.wire import Checkpoint, Group

UNKEPT: Mapping[str, Any] = {
    "is_active": True,
    "state": True,
    "pinned": True,
    "evaluations": True,
    "groups": {"__all__": {"trace_ids"}},
}
"""Of a row: columns say what changes; the step's event names the traces."""


@dataclass(frozen=True)
class NewCheckpoint:
    """One optimizer step that was taken and saved, before it is in the tree."""

    id: str
    model_id: str
    parent_id: str | None
    sampler_path: str
    state_path: str
    learning_rate: float
    loss_fn: str
    num_traces: int
    num_datums: int
    num_tokens: int
    mean_reward: float
    metrics: dict[str, float]
    groups: list[Group] = field(default_factory=list)
    trace_ids: Sequence[str] = ()
    job_id: str | None = None
    bytes: int = 0
    """Of its files here."""
    sha256: str | None = None
    """Of the file at state_path; None where it is not on this machine."""


class HeadHasMoved(Exception):
    """The head is no longer the node that the step started from."""


def append(db: Db, new: NewCheckpoint) -> Node:
    """Put a step into the tree as the head, and log it.

    Raises:
        HeadHasMoved: Its parent is not the head.
    """
    if heads.head_id(db, new.model_id) != new.parent_id:
        raise HeadHasMoved
    step = next_step(db, new.model_id)
    row = _wire(new, step)
    insert(
        db,
        "checkpoint",
        id=new.id,
        model_id=new.model_id,
        parent_id=new.parent_id,
        step=step,
        name=row.name,
        sampler_path=new.sampler_path,
        state_path=new.state_path,
        job_id=new.job_id,
        bytes=new.bytes,
        sha256=new.sha256,
        reward=new.mean_reward,
        body=row.model_dump_json(exclude=UNKEPT),
    )
    db.execute(
        "INSERT INTO head (model_id, checkpoint_id) VALUES (?, ?)"
        " ON CONFLICT (model_id) DO UPDATE SET checkpoint_id = excluded.checkpoint_id",
        (new.model_id, new.id),
    )
    link = "UPDATE trace SET checkpoint_id = ? WHERE id = ?"
    db.executemany(link, [(new.id, trace_id) for trace_id in new.trace_ids])
    db.touch(new.model_id, new.id, new.parent_id)
    _log(db, new, row)
    return Node(new.id, step, row.name or "", new.sampler_path, new.state_path)


def next_step(db: Db, model_id: str) -> int:
    """The number of the step that is taken next, counted over the whole tree from 1."""
    query = "SELECT coalesce(max(step), 0) + 1 FROM checkpoint WHERE model_id = ?"
    [step] = db.execute(query, (model_id,)).fetchone()
    return int(step)


def tree(db: Db, model_id: str) -> list[bytes]:
    """The wire's rows as JSON, oldest first: the one of step N is at N − 1."""
    rows = db.execute(f"{_ROW} WHERE checkpoint.model_id = ? ORDER BY step", (model_id,))
    return [_dump(row) for row in rows]


def rows(db: Db, model_id: str, ids: Iterable[str]) -> list[tuple[int, bytes]]:
    """Some of the tree's rows, each with its step, oldest first."""
    query = f"{_ROW} WHERE checkpoint.model_id = ? AND checkpoint.id = ?"
    found = [row for id_ in ids for row in db.execute(query, (model_id, id_))]
    return sorted((row["step"], _dump(row)) for row in found)


_ROW = f"""SELECT step, body, {nodes.STATE} AS state, pinned, evaluations,
    checkpoint.id IS head.checkpoint_id AS is_active
    FROM checkpoint LEFT JOIN head ON head.model_id = checkpoint.model_id"""
_FLAGS = ("false", "true")


def _dump(row: sqlite3.Row) -> bytes:
    """A stored body with what changes put before it."""
    active, pinned, body = _FLAGS[row["is_active"]], _FLAGS[row["pinned"]], str(row["body"])
    scored = f'"evaluations":{row["evaluations"]},' if row["evaluations"] else ""
    now = f'{{"is_active":{active},"state":"{row["state"]}","pinned":{pinned},{scored}'
    return (now + body[1:]).encode()


def announce(db: Db, model_id: str, checkpoint_id: str) -> bytes:
    """Tell who follows the model what a row is now; the row as JSON."""
    db.touch(model_id, checkpoint_id)
    [(_, row)] = rows(db, model_id, [checkpoint_id])
    changed = CheckpointAdded(at=now(), checkpoint=Checkpoint.model_validate_json(row))
    events.append(db, model_id, [changed])
    return row


def traces(db: Db, model_id: str, checkpoint_id: str, limit: int, offset: int) -> list[sqlite3.Row]:
    """The traces that one step was trained on, in the order they were sampled.

    Raises:
        Refused: 404.
    """
    nodes.find(db, model_id, checkpoint_id)
    query = "SELECT * FROM trace WHERE checkpoint_id = ? ORDER BY rowid LIMIT ? OFFSET ?"
    return db.execute(query, (checkpoint_id, limit, offset)).fetchall()


def _wire(new: NewCheckpoint, step: int) -> Checkpoint:
    plain = [
        Group(task_slug=g.task_slug, rewards=g.rewards, num_tokens=g.num_tokens) for g in new.groups
    ]
    return Checkpoint(
        id=new.id,
        name=f"step-{step:06d}",
        checkpoint_name=new.sampler_path,
        prev_model_checkpoint_id=new.parent_id,
        is_active=True,
        state="full",
        created_at=iso(now()),
        num_traces=new.num_traces,
        num_datums=new.num_datums,
        num_tokens=new.num_tokens,
        mean_reward=new.mean_reward,
        learning_rate=new.learning_rate,
        loss_fn=new.loss_fn,
        metrics=new.metrics,
        step=step,
        job_id=new.job_id,
        groups=plain,
    )


def _log(db: Db, new: NewCheckpoint, row: Checkpoint) -> None:
    at, step = now(), row.step or 0
    taken = StepTaken(
        at=at,
        step=step,
        checkpoint_id=new.id,
        job_id=new.job_id,
        metrics=new.metrics,
        groups=new.groups,
    )
    moved = HeadMoved(at=at, checkpoint_id=new.id, previous=new.parent_id, cause="step")
    events.append(db, new.model_id, [CheckpointAdded(at=at, checkpoint=row), moved, taken])
