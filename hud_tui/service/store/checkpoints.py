"""The checkpoint tree: steps that are put into it, and its rows as they are sent."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.events import CheckpointAdded, HeadMoved, StepTaken
from hud_tui.service.http import Refused, iso, not_found, now
from hud_tui.service.store import events, runs
from hud_tui.service.store.db import Db, insert
from hud_tui.wire import Checkpoint

# Nodes: single checkpoints, as training and sampling need them.


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
    """What is kept of it: full, weights or expired; damaged, where its file is not whole."""

    def refuse_expired(self) -> None:
        """Raises Refused, 410, if its weights were deleted."""
        if self.state == "expired":
            raise Refused(
                410,
                f"{self.name} has expired: its weights were deleted, by the disk"
                " limit here or by the server that stored them. Choose another; pin those"
                " that must be kept",
            )


def find(db: Db, model_id: str, ref: str) -> Node:
    """One of the model's checkpoints by id, name or sampler path.

    Raises:
        Refused: 404.
    """
    # By id first: a long tree is then not looked through.
    for which in ("id = :ref", ":ref IN (name, sampler_path)"):
        query = f"{_SELECT} WHERE model_id = :model AND {which}"
        row = db.execute(query, {"model": model_id, "ref": ref}).fetchone()
        if row is not None:
            return Node(*row)
    raise not_found("checkpoint", ref[:200])


STATE = "iif(damage IS NOT NULL AND state != 'expired', 'damaged', state)"
"""What a checkpoint's row says of its files."""
_SELECT = f"SELECT id, step, name, sampler_path, state_path, {STATE} FROM checkpoint"


# The head: which checkpoint of a model is served, and who may set it elsewhere.


@dataclass(frozen=True)
class Seen:
    """A head as somebody saw it."""

    checkpoint_ids: Sequence[str | None]
    """Any of these; None is the weights that the model started from."""


def head_id(db: Db, model_id: str) -> str | None:
    """The head; None while the model serves the weights it started from."""
    query = "SELECT checkpoint_id FROM head WHERE model_id = ?"
    row = db.execute(query, (model_id,)).fetchone()
    return row["checkpoint_id"] if row else None


def head(db: Db, model_id: str) -> Node | None:
    """The head as a node; None as `head_id`."""
    id_ = head_id(db, model_id)
    return find(db, model_id, id_) if id_ else None


def set_head(db: Db, model_id: str, checkpoint_id: str, seen: Seen | None = None) -> bool:
    """Point the head at one of the model's checkpoints; False if it already was there.

    Args:
        db: The store's.
        model_id: Whose head.
        checkpoint_id: The new one.
        seen: What the caller takes for the head; None if it does not say.

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


def _refuse_moved(db: Db, model_id: str, seen: Seen) -> None:
    if any(_only_trained(db, model_id, one) for one in seen.checkpoint_ids):
        return
    now, was = head(db, model_id), " or ".join(one or "none" for one in seen.checkpoint_ids)
    place = f"{now.name} ({now.id})" if now else "none"
    raise Refused(409, f"the head is {place} now, not {was[:200]}: check the head, then retry")


def _only_trained(db: Db, model_id: str, seen: str | None) -> bool:
    """Whether the head is the one seen, or steps have led from there to it and nothing else.

    Up the head's lineage, to where it was last set and no further.
    """
    query = """WITH RECURSIVE above (id, parent_id, last) AS (
            SELECT checkpoint.id, parent_id, checkpoint.id IS head.set_to FROM head
                JOIN checkpoint ON checkpoint.id = head.checkpoint_id WHERE head.model_id = :model
            UNION ALL
            SELECT up.id, up.parent_id, up.id IS head.set_to FROM above
                JOIN checkpoint AS up ON up.id = above.parent_id
                JOIN head ON head.model_id = :model
            WHERE NOT above.last AND above.id IS NOT :seen
        )
        SELECT 1 FROM above
        WHERE id IS :seen OR (:seen IS NULL AND parent_id IS NULL AND NOT last)"""
    if seen is None and head_id(db, model_id) is None:
        return True
    return db.execute(query, {"model": model_id, "seen": seen}).fetchone() is not None


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

    model_id: str
    row: Checkpoint
    """As the wire has it, but for what only the tree knows: its step, name and time."""
    state_path: str
    trace_ids: Sequence[str] = ()
    """Of all rollouts that it was trained on."""
    bytes: int = 0
    """Of its files here."""
    sha256: str | None = None
    """Of the file at state_path; None if it is not on this machine."""


class HeadHasMoved(Exception):
    """The head is no longer the node that the step started from."""


def append(db: Db, new: NewCheckpoint) -> Node:
    """Put a step into the tree as the head, and log it.

    Raises:
        HeadHasMoved: Its parent is not the head.
    """
    parent_id = new.row.prev_model_checkpoint_id
    if head_id(db, new.model_id) != parent_id:
        raise HeadHasMoved
    step = next_step(db, new.model_id)
    name, sampler_path = f"step-{step:06d}", new.row.checkpoint_name or ""
    row = new.row.model_copy(
        update={
            **{"step": step, "name": name, "created_at": iso(now())},
            **{"is_active": True, "state": "full"},
        }
    )
    insert(
        db,
        "checkpoint",
        id=row.id,
        model_id=new.model_id,
        parent_id=parent_id,
        step=step,
        name=name,
        sampler_path=sampler_path,
        state_path=new.state_path,
        job_id=row.job_id,
        bytes=new.bytes,
        sha256=new.sha256,
        reward=row.mean_reward,
        body=row.model_dump_json(exclude=UNKEPT),
    )
    db.execute(
        "INSERT INTO head (model_id, checkpoint_id) VALUES (?, ?)"
        " ON CONFLICT (model_id) DO UPDATE SET checkpoint_id = excluded.checkpoint_id",
        (new.model_id, row.id),
    )
    link = "UPDATE trace SET checkpoint_id = ? WHERE id = ?"
    db.executemany(link, [(row.id, trace_id) for trace_id in new.trace_ids])
    _count(db, new.model_id, row, new.trace_ids)
    db.touch(new.model_id, row.id, parent_id)
    _log(db, new.model_id, row)
    return Node(row.id, step, name, sampler_path, new.state_path)


def _count(db: Db, model_id: str, row: Checkpoint, trace_ids: Sequence[str]) -> None:
    """Add the step to its run."""
    runs.stepped(
        db,
        runs.Step(
            checkpoint_id=row.id,
            model_id=model_id,
            parent_id=row.prev_model_checkpoint_id,
            job_id=row.job_id,
            trace_ids=trace_ids,
            at=now(),
            reward=row.mean_reward or 0.0,
            learning_rate=row.learning_rate,
            loss_fn=row.loss_fn,
            tokens=row.num_tokens or 0,
            rollouts=row.num_traces or 0,
            groups=row.groups,
            heldout=row.metrics.get("heldout_reward"),
        ),
    )


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


_ROW = f"""SELECT step, body, {STATE} AS state, pinned, evaluations,
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
    find(db, model_id, checkpoint_id)
    query = "SELECT * FROM trace WHERE checkpoint_id = ? ORDER BY rowid LIMIT ? OFFSET ?"
    return db.execute(query, (checkpoint_id, limit, offset)).fetchall()


def _log(db: Db, model_id: str, row: Checkpoint) -> None:
    """The events of a step; only its own names the groups' traces."""
    at, plain = now(), [group.model_copy(update={"trace_ids": []}) for group in row.groups]
    added = CheckpointAdded(at=at, checkpoint=row.model_copy(update={"groups": plain}))
    moved = HeadMoved(
        at=at, checkpoint_id=row.id, previous=row.prev_model_checkpoint_id, cause="step"
    )
    taken = StepTaken(
        at=at,
        step=row.step or 0,
        checkpoint_id=row.id,
        job_id=row.job_id,
        metrics=row.metrics,
        groups=row.groups,
    )
    events.append(db, model_id, [added, moved, taken])


# The files that checkpoints' weights are in: their checksums, and what is wrong with them.


@dataclass(frozen=True)
class File:
    """A checkpoint's file, as it was saved."""

    path: str
    """Relative to the data directory; a URL where it is kept elsewhere."""
    bytes: int
    """Of all that was saved with it."""
    sha256: str | None
    """None if it is not on this machine, or was saved by an older version."""


@dataclass(frozen=True)
class Row:
    """A checkpoint that has a file."""

    model: str
    """The slug of its model."""
    model_id: str
    step: int
    name: str
    path: str
    sha256: str | None
    damage: str | None
    is_head: bool


_WEIGHTS_SELECT = """SELECT slug, c.model_id, step, c.name, c.state_path, sha256, damage,
    c.id IS head.checkpoint_id FROM checkpoint AS c JOIN model ON model.id = c.model_id
    LEFT JOIN head ON head.model_id = c.model_id WHERE c.state != 'expired'"""


def row(db: Db, state_path: str) -> Row | None:
    """The checkpoint whose weights are there."""
    found = db.execute(f"{_WEIGHTS_SELECT} AND c.state_path = ?", (state_path,)).fetchone()
    return None if found is None else Row(*found)


def weights_rows(db: Db) -> list[Row]:
    """Every checkpoint that has a file, heads first."""
    order = "ORDER BY c.id IS head.checkpoint_id DESC, c.rowid DESC"
    return [Row(*found) for found in db.execute(f"{_WEIGHTS_SELECT} {order}")]


def mark(db: Db, state_path: str, damage: str | None) -> None:
    """Say what is wrong with a checkpoint's file, or that nothing is."""
    change = """UPDATE checkpoint SET damage = :damage WHERE state_path = :path
        AND state != 'expired' AND damage IS NOT :damage RETURNING model_id, id"""
    changed = db.execute(change, {"damage": damage, "path": state_path})
    for model_id, id_ in changed.fetchall():
        announce(db, model_id, id_)


def whole(db: Db, near: Row) -> list[str]:
    """Names of up to three checkpoints of the same model that can be loaded, the nearest first."""
    query = """SELECT name FROM checkpoint WHERE model_id = ? AND state != 'expired'
        AND damage IS NULL ORDER BY abs(step - ?) LIMIT 3"""
    return [name for [name] in db.execute(query, (near.model_id, near.step))]


# What is kept of checkpoints: whole states, weights alone, or nothing but the row.


_PROTECTED = """c.pinned
    OR EXISTS (SELECT 1 FROM head WHERE head.model_id = c.model_id AND checkpoint_id = c.id)
    OR (SELECT count(*) FROM checkpoint AS below WHERE below.parent_id = c.id) > 1
    OR EXISTS (SELECT 1 FROM model WHERE model.state_path = c.state_path)
    OR c.id IS (SELECT best.id FROM checkpoint AS told JOIN checkpoint AS best
            ON best.id = told.parent_id
        WHERE told.model_id = c.model_id AND best.damage IS NULL
            AND told.reward > (SELECT min(reward) FROM checkpoint WHERE model_id = c.model_id)
        ORDER BY told.reward DESC, told.step DESC LIMIT 1)"""
"""Never thinned: what is pinned, a head, a branch point, a fork's origin, the best of a model.
A step's rollouts were sampled by its parent, so the best is the parent of the best step; where
all are equal there is none."""


def used(db: Db) -> int:
    """Bytes of all checkpoints' files."""
    [total] = db.execute("SELECT bytes FROM disk").fetchone()
    return int(total)


def measured(db: Db, base: str) -> int | None:
    """Bytes of the newest whole checkpoint of any model of a base; None before the first."""
    query = """SELECT c.bytes FROM checkpoint AS c JOIN model ON model.id = c.model_id
        WHERE c.state = 'full' AND c.bytes > 0 AND model.base = ? ORDER BY c.rowid DESC LIMIT 1"""
    row = db.execute(query, (base,)).fetchone()
    return None if row is None else int(row["bytes"])


def next_to_thin(db: Db, opened: Collection[str]) -> tuple[str, Node] | None:
    """The oldest checkpoint that may be thinned, with its model's id: whole states before weights.

    Args:
        db: The store's.
        opened: State paths that are in use, which are left alone.
    """
    for state in ("full", "weights"):
        query = f"""SELECT model_id, id, step, name, sampler_path, state_path, state
            FROM checkpoint AS c
            WHERE state = ? AND bytes > 0 AND damage IS NULL AND NOT ({_PROTECTED})
            ORDER BY rowid"""
        for model_id, *node in db.execute(query, (state,)):
            if node[4] not in opened:
                return model_id, Node(*node)
    return None


def slimmed(db: Db, model_id: str, node: Node, saved: File) -> bool:
    """Only weights are kept from now on, in this file; False if it is protected by now."""
    change = "state = 'weights', state_path = ?, bytes = ?, sha256 = ?"
    return _change(db, model_id, node, change, (saved.path, saved.bytes, saved.sha256))


def expired(db: Db, model_id: str, node: Node) -> bool:
    """Nothing is kept of its weights; its rollouts stay. False as `slimmed`."""
    return _change(db, model_id, node, "state = 'expired', bytes = 0", ())


def gone(db: Db, state_path: str) -> None:
    """The engine's server no longer has this state: whoever shows it says that it expired."""
    query = "SELECT model_id, id FROM checkpoint WHERE state_path = ? AND state != 'expired'"
    for model_id, id_ in db.execute(query, (state_path,)).fetchall():
        db.execute("UPDATE checkpoint SET state = 'expired', bytes = 0 WHERE id = ?", (id_,))
        announce(db, model_id, id_)


def pin(db: Db, model_id: str, ref: str, pinned: bool) -> bytes:
    """Keep a checkpoint as it is whatever the limit, or no longer; its row as JSON.

    Raises:
        Refused: 404; 410, there is nothing left to keep.
    """
    node = find(db, model_id, ref)
    if pinned:
        node.refuse_expired()
    db.execute("UPDATE checkpoint SET pinned = ? WHERE id = ?", (pinned, node.id))
    return announce(db, model_id, node.id)


def _change(db: Db, model_id: str, node: Node, change: str, values: tuple[object, ...]) -> bool:
    query = f"UPDATE checkpoint AS c SET {change} WHERE id = ? AND NOT ({_PROTECTED})"
    done = db.execute(query, (*values, node.id)).rowcount == 1
    if done:
        announce(db, model_id, node.id)
    return done
