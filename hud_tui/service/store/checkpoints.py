"""The checkpoint tree and the head."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hud_tui.events import CheckpointAdded, HeadMoved, StepTaken
from hud_tui.service.clock import iso, now
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.store import Db, events, insert
from hud_tui.wire import Checkpoint, Group

UNKEPT: Mapping[str, Any] = {
    "is_active": True,
    "state": True,
    "pinned": True,
    "groups": {"__all__": {"trace_ids"}},
}
"""Of a row: columns say what changes; the step's event names the traces."""


@dataclass(frozen=True)
class Node:
    """A checkpoint as training and sampling need it."""

    id: str
    step: int
    name: str
    sampler_path: str
    """Its name for samplers; does not change."""
    state_path: str
    """Where its weights are."""
    state: str = "full"
    """What is kept of it: full, weights or expired."""

    def refuse_expired(self) -> None:
        """Raises Refused, 410, where its weights are gone."""
        if self.state == "expired":
            raise Refused(
                410,
                f"{self.name} has expired: its weights were removed to keep within the disk"
                " limit. Choose one that is kept; pin those that must stay",
            )


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


@dataclass(frozen=True)
class Seen:
    """A head as somebody saw it."""

    checkpoint_ids: Sequence[str | None]
    """Any of these; None is the weights that the model started from."""


class HeadHasMoved(Exception):
    """The head is no longer the node that the step started from."""


def append(db: Db, new: NewCheckpoint) -> Node:
    """Put a step into the tree as the head, and log it.

    Raises:
        HeadHasMoved: Its parent is not the head.
    """
    if head_id(db, new.model_id) != new.parent_id:
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


_ROW = """SELECT step, body, state, pinned, checkpoint.id IS head.checkpoint_id AS is_active
    FROM checkpoint LEFT JOIN head ON head.model_id = checkpoint.model_id"""
_FLAGS = ("false", "true")


def _dump(row: sqlite3.Row) -> bytes:
    """A stored body with what changes put before it."""
    active, pinned, body = _FLAGS[row["is_active"]], _FLAGS[row["pinned"]], str(row["body"])
    now = f'{{"is_active":{active},"state":"{row["state"]}","pinned":{pinned},'
    return (now + body[1:]).encode()


def head_id(db: Db, model_id: str) -> str | None:
    """The head; None while the model serves the weights it started from."""
    query = "SELECT checkpoint_id FROM head WHERE model_id = ?"
    row = db.execute(query, (model_id,)).fetchone()
    return row["checkpoint_id"] if row else None


def head(db: Db, model_id: str) -> Node | None:
    """The head as a node; None as `head_id`."""
    id_ = head_id(db, model_id)
    return find(db, model_id, id_) if id_ else None


def find(db: Db, model_id: str, ref: str) -> Node:
    """One of the model's checkpoints by id, name or sampler path.

    Raises:
        Refused: 404.
    """
    query = """SELECT id, step, name, sampler_path, state_path, state FROM checkpoint
        WHERE model_id = ? AND ? IN (id, name, sampler_path)"""
    row = db.execute(query, (model_id, ref)).fetchone()
    if row is None:
        raise not_found("checkpoint", ref[:200])
    return Node(*row)


def set_head(db: Db, model_id: str, checkpoint_id: str, seen: Seen | None = None) -> bool:
    """Point the head at one of the model's checkpoints; False where it already was there.

    Args:
        db: The store's.
        model_id: Whose head.
        checkpoint_id: The new one.
        seen: What the caller takes for the head; None where it does not say.

    Raises:
        Refused: 404, the model has no such checkpoint; 410, it has expired; 409, the
            head has been set elsewhere since it was seen. Steps taken from there do not
            count as a move.
    """
    find(db, model_id, checkpoint_id).refuse_expired()
    if seen is not None:
        _refuse_moved(db, model_id, seen)
    previous = head_id(db, model_id)
    if previous == checkpoint_id:
        return False
    db.execute(
        "INSERT OR REPLACE INTO head VALUES (?, ?, ?)", (model_id, checkpoint_id, checkpoint_id)
    )
    moved = HeadMoved(at=now(), checkpoint_id=checkpoint_id, previous=previous, cause="set")
    events.append(db, model_id, [moved])
    db.touch(model_id, checkpoint_id, previous)
    return True


def traces(db: Db, model_id: str, checkpoint_id: str, limit: int, offset: int) -> list[sqlite3.Row]:
    """The traces that one step was trained on, in the order they were sampled.

    Raises:
        Refused: 404.
    """
    find(db, model_id, checkpoint_id)
    query = "SELECT * FROM trace WHERE checkpoint_id = ? ORDER BY rowid LIMIT ? OFFSET ?"
    return db.execute(query, (checkpoint_id, limit, offset)).fetchall()


def _refuse_moved(db: Db, model_id: str, seen: Seen) -> None:
    if any(_only_trained(db, model_id, one) for one in seen.checkpoint_ids):
        return
    now, was = head(db, model_id), " or ".join(one or "none" for one in seen.checkpoint_ids)
    place = f"{now.name} ({now.id})" if now else "none"
    raise Refused(409, f"the head is {place} now, not {was[:200]}: look again, then decide")


def _only_trained(db: Db, model_id: str, seen: str | None) -> bool:
    """Whether the head is the one seen, or steps have led from there to it and nothing else.

    Up the head's lineage, to where it was last set and no further.
    """
    query = """WITH RECURSIVE above (id, parent_id, last) AS (
            SELECT checkpoint.id, parent_id, checkpoint.id IS head.set_to FROM head
                JOIN checkpoint ON checkpoint.id = head.checkpoint_id WHERE head.model_id = ?1
            UNION ALL
            SELECT up.id, up.parent_id, up.id IS head.set_to FROM above
                JOIN checkpoint AS up ON up.id = above.parent_id
                JOIN head ON head.model_id = ?1
            WHERE NOT above.last AND above.id IS NOT ?2
        )
        SELECT 1 FROM above WHERE id IS ?2 OR (?2 IS NULL AND parent_id IS NULL AND NOT last)"""
    if seen is None and head_id(db, model_id) is None:
        return True
    return db.execute(query, (model_id, seen)).fetchone() is not None


def _wire(new: NewCheckpoint, step: int) -> Checkpoint:
    plain = [Group(task_slug=g.task_slug, rewards=g.rewards) for g in new.groups]
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
