"""The checkpoint tree: appending steps, the head, and the tree's rows."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hud_tui.events import Act, Actor, CheckpointAdded, HeadMoved, StepTaken
from hud_tui.service.http import Refused, canonical, iso, not_found, now
from hud_tui.service.store import access, events, runs, times
from hud_tui.service.store.db import Db, insert, value
from hud_tui.service.store.seals import INTACT_BODY, checksum, intact, is_intact, resealed
from hud_tui.wire import BASE, Checkpoint
from hud_tui.wire_time import StepTime

# Nodes: single checkpoints, as training and sampling need them.


@dataclass(frozen=True)
class Node:
    """A checkpoint as training and sampling need it."""

    id: str
    step: int
    name: str
    sampler_path: str
    """Its name for samplers; never changes."""
    state_path: str
    """Path of its weights."""
    state: str = "full"
    """What is kept of it: full, weights or expired; damaged if its file is missing or
    incomplete."""


def id_of(node: Node | None) -> str:
    """A checkpoint's id, or `BASE` for the weights that the model started from."""
    return node.id if node else BASE


def find(db: Db, model_id: str, ref: str) -> Node:
    """One of the model's checkpoints by id, in either spelling, name or sampler path. Raises
    Refused, 404."""
    # By id first, which does not search a long tree.
    for which in ("id = :id", ":ref IN (name, sampler_path)"):
        query = f"{_SELECT} WHERE model_id = :model AND {which}"
        bound = {"model": model_id, "ref": ref, "id": canonical(ref)}
        row = db.execute(query, bound).fetchone()
        if row is not None:
            return Node(*row[:-1])
    raise not_found("checkpoint", ref[:200])


def loadable(db: Db, model_id: str, ref: str) -> Node:
    """`find`, for one whose weights are needed. Raises Refused, 404; 410, they were deleted."""
    node = find(db, model_id, ref)
    if node.state == "expired":
        raise Refused(
            410,
            f"{node.name} has expired: its weights were deleted, by the disk limit here or by the"
            " server that stored them. Choose another; pin those that must be kept",
        )
    return node


STATE = "iif(damage IS NOT NULL AND state != 'expired', 'damaged', state)"
"""SQL for a checkpoint's `state`."""
_SELECT = f"""SELECT id, step, name, sampler_path, state_path, {STATE}, {intact("checkpoint")}
    FROM checkpoint"""


# The head: which checkpoint of a model is served, and who may move it.


@dataclass(frozen=True)
class HeadRequest:
    """A move of the head that a client asks for."""

    checkpoint_id: str
    seen: Sequence[str | None] | None
    """The head as the client saw it: any of these, of which None is the weights that the model
    started from. None if the client does not say."""
    by: Actor
    act: Act = Act.SET
    approved: str | None = None
    """Id of the proposal that another person approved, as the head of a protected model needs."""


def head_id(db: Db, model_id: str) -> str | None:
    """The head's id; None while the model serves the weights that it started from."""
    query = f"SELECT checkpoint_id, {intact('head')} FROM head WHERE model_id = ?"
    return value(db, query, (model_id,))


def head(db: Db, model_id: str) -> Node | None:
    """The head as a node; None as in `head_id`."""
    id_ = head_id(db, model_id)
    return find(db, model_id, id_) if id_ else None


def set_head(db: Db, model_id: str, move: HeadRequest) -> tuple[Node, HeadMoved | None]:
    """Set the head to one of the model's checkpoints; returns it, and the event, None if it was
    the head already.

    Raises:
        Refused: 404, the model has no such checkpoint; 410, it has expired; 409, the
            head was set elsewhere since it was seen. Steps taken from there do not
            count as a move. 403, the model is protected.
    """
    node = loadable(db, model_id, move.checkpoint_id)
    if move.approved is None:
        access.refuse_protected(db, model_id, "set its head")
    if move.seen is not None and not any(_only_trained(db, model_id, id_) for id_ in move.seen):
        was = " or ".join(id_ or "none" for id_ in move.seen)[:200]
        shown = _shown_head(db, model_id, "none")
        raise Refused(409, f"the head is {shown} now, not {was}: check the head, then retry")
    previous = head_id(db, model_id)
    if previous == move.checkpoint_id:
        return node, None
    set_to = {"checkpoint_id": move.checkpoint_id, "set_to": move.checkpoint_id}
    insert(db, "head", "INSERT OR REPLACE", model_id=model_id, **set_to)
    access.overtake(db, model_id, move.approved)
    moved = HeadMoved(
        at=now(),
        checkpoint_id=move.checkpoint_id,
        previous=previous,
        cause="set",
        act=move.act,
        by=move.by,
    )
    events.append(db, model_id, [moved])
    db.touch(model_id, move.checkpoint_id, previous)
    return node, moved


def _shown_head(db: Db, model_id: str, without: str) -> str:
    node = head(db, model_id)
    return f"{node.name} ({node.id})" if node else without


def refuse_other_start(db: Db, model_id: str, start: str) -> None:
    """Raises Refused, 409: the head is not where a run is to start, by its id, or `BASE` for a
    model without steps."""
    if start != (head_id(db, model_id) or BASE):
        shown = _shown_head(db, model_id, BASE)
        raise Refused(409, f"the head is {shown}, not {start[:100]}, where the run was to start")


def _only_trained(db: Db, model_id: str, seen: str | None) -> bool:
    """Whether the head is the one seen, or only steps have led from there to it.

    Searches the head's lineage back to where the head was last set.
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
    "pinned_by": True,
    "evaluations": True,
    "groups": {"__all__": {"trace_ids"}},
}
"""Fields of a row that are not in its stored body: columns have what changes, and the step's event
has the trace ids."""


@dataclass(frozen=True)
class File:
    """A checkpoint's file, when it was saved."""

    path: str
    """Relative to the data directory; a URL if it is stored on a server."""
    bytes: int
    """Total size of what was saved with it on this machine."""
    sha256: str | None
    """None if it is not on this machine, or was saved by an older version."""


@dataclass(frozen=True)
class NewCheckpoint:
    """A saved optimizer step that is not in the tree yet."""

    model_id: str
    row: Checkpoint
    """In the wire's format, without what only the tree knows: its step, name and time."""
    file: File
    trace_ids: Sequence[str] = ()
    """All rollouts that it was trained on."""
    time: StepTime | None = None
    """Where its time went."""
    failed: times.Reasons = field(default_factory=dict)
    """Rollouts that failed since the step before, and are not known to be discarded yet."""


class HeadHasMoved(Exception):
    """The head is no longer the node that the step started from."""


def append(db: Db, new: NewCheckpoint) -> Node:
    """Append a step to the tree as the head, and log it. Raises HeadHasMoved: its parent is not the
    head."""
    parent_id = new.row.prev_model_checkpoint_id
    if head_id(db, new.model_id) != parent_id:
        raise HeadHasMoved
    access.refuse_more_disk(db)
    step = next_step(db, new.model_id)
    name = f"step-{step:06d}"
    names = {"step": step, "name": name, "created_at": iso(now())}
    run_id = runs.run_of(db, new.model_id, new.row, new.trace_ids)
    own = {"is_active": True, "state": "full", "num_discarded": runs.discarded(db, run_id)}
    row = new.row.model_copy(update={**names, **own})
    _insert(db, new, row)
    db.execute(
        "INSERT INTO head (model_id, checkpoint_id) VALUES (?, ?)"
        " ON CONFLICT (model_id) DO UPDATE SET checkpoint_id = excluded.checkpoint_id",
        (new.model_id, row.id),
    )
    access.overtake(db, new.model_id)
    trained = "SELECT 1 FROM trace WHERE id = ? AND checkpoint_id IS NOT NULL"
    is_again = bool(new.trace_ids) and value(db, trained, (new.trace_ids[0],)) is not None
    idle = {} if is_again else times.flat(row.groups, row.loss_fn)
    number = runs.stepped(db, run_id, new.model_id, row, now())
    traces = json.dumps(list(new.trace_ids))
    db.execute(_RENUMBER, {"traces": traces, "run": run_id, "number": number})
    db.execute(_LINK, {"traces": traces, "id": row.id})
    times.discard(db, run_id, number, {**new.failed, **idle})
    time = new.time
    if time is not None:
        ids = {"run_id": run_id, "step": number, "checkpoint_id": row.id}
        time = time.model_copy(update=ids)
        times.keep(db, time)
    db.touch(new.model_id, row.id, parent_id)
    _log(db, new.model_id, row, time)
    return Node(row.id, step, name, row.checkpoint_name or "", new.file.path)


_TRAINED = "id IN (SELECT value FROM json_each(:traces))"
_LINK = f"UPDATE trace SET {resealed('trace', checkpoint_id=':id')} WHERE {_TRAINED}"
# a rollout is of the first step that it trains, whichever it was sampled for
_RENUMBER = f"""UPDATE trace SET step = :number WHERE {_TRAINED} AND +job_id IS :run
    AND +checkpoint_id IS NULL AND step IS NOT :number"""  # +: by id, not through all of the run's


def _insert(db: Db, new: NewCheckpoint, row: Checkpoint) -> None:
    body = row.model_dump_json(exclude=UNKEPT)
    insert(
        db,
        "checkpoint",
        id=row.id,
        model_id=new.model_id,
        parent_id=row.prev_model_checkpoint_id,
        step=row.step,
        name=row.name,
        sampler_path=row.checkpoint_name or "",
        state_path=new.file.path,
        job_id=row.job_id,
        bytes=new.file.bytes,
        sha256=new.file.sha256,
        reward=row.mean_reward,
        body=body,
        body_crc=checksum(body),
    )
    access.sign(db, "checkpoint", row.id)
    db.files += new.file.bytes


MOST_ABOVE = 10_000
"""Most ancestors of a checkpoint that are searched."""


def ages(db: Db, id_: str | None, sources: Collection[str]) -> dict[str, int]:
    """The number of steps from each of these checkpoints, or `BASE`, to a later one; without those
    that are no ancestors of it. `id_`: None for the weights that the model started from."""
    if id_ is None:
        return {BASE: 0} if BASE in sources else {}
    query = """WITH RECURSIVE above (id, parent_id, age) AS (
            SELECT id, parent_id, 0 FROM checkpoint WHERE id = ?
            UNION ALL
            SELECT up.id, up.parent_id, age + 1 FROM above
                JOIN checkpoint AS up ON up.id = above.parent_id LIMIT ?
        )
        SELECT id, parent_id, age FROM above"""
    steps = dict[str, int]()
    for row in db.execute(query, (id_, MOST_ABOVE)):
        if row["id"] in sources:
            steps[row["id"]] = row["age"]
        if row["parent_id"] is None and BASE in sources:
            steps[BASE] = row["age"] + 1
        if len(steps) == len(sources):
            break
    return steps


def next_step(db: Db, model_id: str) -> int:
    """The number of the next step, counted over the whole tree from 1."""
    query = "SELECT max(step) FROM checkpoint WHERE model_id = ?"
    return 1 + (value(db, query, (model_id,)) or 0)


def tree(db: Db, model_id: str) -> list[bytes]:
    """The rows in the wire's JSON, oldest first: that of step N at N − 1."""
    rows = db.execute(f"{_ROW} WHERE checkpoint.model_id = ? ORDER BY step", (model_id,))
    return [_dump(row) for row in rows]


def rows(db: Db, model_id: str, ids: Iterable[str]) -> list[tuple[int, bytes]]:
    """Some of the tree's rows, each with its step, oldest first."""
    query = f"{_ROW} WHERE checkpoint.model_id = ? AND checkpoint.id = ?"
    rows = [row for id_ in ids for row in db.execute(query, (model_id, id_))]
    return sorted((row["step"], _dump(row)) for row in rows)


_ROW = f"""SELECT step, body, {STATE} AS state, pinned, evaluations,
    iif(pinned, {access.author("pin", "checkpoint.id")}, NULL) AS pinned_by,
    checkpoint.id IS head.checkpoint_id AS is_active, {INTACT_BODY}, {intact("head")}
    FROM checkpoint LEFT JOIN head ON head.model_id = checkpoint.model_id"""
_FLAGS = ("false", "true")


def _dump(row: sqlite3.Row) -> bytes:
    """A stored body, with the changeable fields in front."""
    active, pinned, body = _FLAGS[row["is_active"]], _FLAGS[row["pinned"]], str(row["body"])
    scored = f'"evaluations":{row["evaluations"]},' if row["evaluations"] else ""
    by = f'"pinned_by":"{row["pinned_by"]}",' if row["pinned_by"] else ""
    now = f'{{"is_active":{active},"state":"{row["state"]}","pinned":{pinned},{by}{scored}'
    return (now + body[1:]).encode()


def announce(db: Db, model_id: str, checkpoint_id: str) -> bytes:
    """Log a row's change as an event; returns the row as JSON."""
    db.touch(model_id, checkpoint_id)
    [(_, row)] = rows(db, model_id, [checkpoint_id])
    changed = CheckpointAdded(at=now(), checkpoint=Checkpoint.model_validate_json(row))
    events.append(db, model_id, [changed])
    return row


def _log(db: Db, model_id: str, row: Checkpoint, time: StepTime | None) -> None:
    """Log the events of a step; only its own event has the groups' trace ids."""
    stamp, plain = now(), [group.model_copy(update={"trace_ids": []}) for group in row.groups]
    added = CheckpointAdded(at=stamp, checkpoint=row.model_copy(update={"groups": plain}))
    moved = HeadMoved(
        at=stamp, checkpoint_id=row.id, previous=row.prev_model_checkpoint_id, cause="step"
    )
    taken = StepTaken(
        at=stamp,
        step=row.step or 0,
        checkpoint_id=row.id,
        job_id=row.job_id,
        metrics=dict(row.metrics),
        groups=list(row.groups),
        time=time,
    )
    events.append(db, model_id, [added, moved, taken])


# The files with checkpoints' weights: their checksums, and what is wrong with them.


@dataclass(frozen=True)
class Row:
    """A checkpoint with a file."""

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
    """The checkpoint whose weights are at this path."""
    columns = db.execute(f"{_WEIGHTS_SELECT} AND c.state_path = ?", (state_path,)).fetchone()
    return None if columns is None else Row(*columns)


def weights_rows(db: Db) -> list[Row]:
    """Every checkpoint with a file, heads first."""
    order = "ORDER BY c.id IS head.checkpoint_id DESC, c.rowid DESC"
    return [Row(*columns) for columns in db.execute(f"{_WEIGHTS_SELECT} {order}")]


def mark(db: Db, state_path: str, damage: str | None) -> None:
    """Record what is wrong with a checkpoint's file; None for nothing."""
    change = """UPDATE checkpoint SET damage = :damage WHERE state_path = :path
        AND state != 'expired' AND damage IS NOT :damage RETURNING model_id, id"""
    changed = db.execute(change, {"damage": damage, "path": state_path})
    for model_id, id_ in changed.fetchall():
        announce(db, model_id, id_)


def whole(db: Db, near: Row) -> list[str]:
    """Names of up to three loadable checkpoints of the same model, the nearest first."""
    query = """SELECT name FROM checkpoint WHERE model_id = ? AND state != 'expired'
        AND damage IS NULL ORDER BY abs(step - ?) LIMIT 3"""
    return [name for [name] in db.execute(query, (near.model_id, near.step))]


# What is kept of checkpoints: full states, weights only, or nothing but the row.


_PROTECTED = """c.pinned
    OR EXISTS (SELECT 1 FROM head WHERE head.model_id = c.model_id AND checkpoint_id = c.id)
    OR (SELECT count(*) FROM checkpoint AS below WHERE below.parent_id = c.id) > 1
    OR EXISTS (SELECT 1 FROM model WHERE model.state_path = c.state_path)
    OR c.id IS (SELECT best.id FROM checkpoint AS told JOIN checkpoint AS best
            ON best.id = told.parent_id
        WHERE told.model_id = c.model_id AND best.damage IS NULL
            AND told.reward > (SELECT min(reward) FROM checkpoint WHERE model_id = c.model_id)
        ORDER BY told.reward DESC, told.step DESC LIMIT 1)"""
"""Never thinned: pinned checkpoints, heads, branch points, origins of forks, and the best of a
model. A step's rollouts were sampled by its parent, so the best is the parent of the best step; if
all rewards are equal, there is none."""


def used(db: Db) -> int:
    """Total size of all checkpoints' files, bytes."""
    return value(db, f"SELECT bytes, {intact('disk')} FROM disk") or 0


def measured(db: Db, base: str) -> int | None:
    """Size of the newest full checkpoint of any model of a base; None before the first. Damaged
    rows are left out, so that one does not hold up the catalog."""
    query = f"""SELECT c.bytes FROM checkpoint AS c JOIN model ON model.id = c.model_id
        WHERE c.state = 'full' AND c.bytes > 0 AND model.base = ? AND {is_intact("checkpoint", "c")}
        ORDER BY c.rowid DESC LIMIT 1"""
    return value(db, query, (base,))


def next_to_thin(db: Db, opened: Collection[str]) -> tuple[str, Node] | None:
    """The oldest checkpoint that may be thinned, with its model's id: full states before weights.
    State paths that are `opened` are left alone."""
    for state in ("full", "weights"):
        query = f"""SELECT model_id, id, step, name, sampler_path, state_path, state
            FROM checkpoint AS c
            WHERE state = ? AND bytes > 0 AND damage IS NULL AND NOT ({_PROTECTED})
                AND {is_intact("checkpoint", "c")}
            ORDER BY rowid"""
        for model_id, *node in db.execute(query, (state,)):
            if node[4] not in opened:
                return model_id, Node(*node)
    return None


def slimmed(db: Db, model_id: str, node: Node, saved: File) -> bool:
    """Record that only weights are kept, in this file; returns False if it is protected
    meanwhile."""
    change = "state = 'weights', state_path = ?, bytes = ?, sha256 = ?"
    return _change(db, model_id, node, change, (saved.path, saved.bytes, saved.sha256))


def expired(db: Db, model_id: str, node: Node) -> bool:
    """Record that its weights were deleted; its rollouts stay. False as in `slimmed`."""
    return _change(db, model_id, node, "state = 'expired', bytes = 0", ())


def gone(db: Db, state_path: str) -> None:
    """Record that the engine's server no longer has this state: it has expired."""
    query = "SELECT model_id, id FROM checkpoint WHERE state_path = ? AND state != 'expired'"
    for model_id, id_ in db.execute(query, (state_path,)).fetchall():
        db.execute("UPDATE checkpoint SET state = 'expired', bytes = 0 WHERE id = ?", (id_,))
        announce(db, model_id, id_)


def pin(db: Db, model_id: str, ref: str, pinned: bool) -> bytes:
    """Exempt a checkpoint from the disk limit, or end that; returns its row as JSON. Raises
    Refused, 404; 403, another pinned it, and the caller only trains; 410, its weights are gone
    already."""
    look_up = loadable if pinned else find
    node = look_up(db, model_id, ref)
    was = value(db, "SELECT pinned FROM checkpoint WHERE id = ?", (node.id,))
    if bool(was) != pinned:
        db.execute("UPDATE checkpoint SET pinned = ? WHERE id = ?", (pinned, node.id))
        if pinned:
            access.sign(db, "pin", node.id)
        else:
            access.unpin(db, node.id)
    return announce(db, model_id, node.id)


def _change(db: Db, model_id: str, node: Node, change: str, values: tuple[object, ...]) -> bool:
    query = f"UPDATE checkpoint AS c SET {change} WHERE id = ? AND NOT ({_PROTECTED})"
    done = db.execute(query, (*values, node.id)).rowcount == 1
    if done:
        announce(db, model_id, node.id)
    return done
