"""The event log: what happened to each model, under ids that grow and survive a restart."""

from collections.abc import Iterable
from dataclasses import dataclass

from hud_tui.events import CheckpointAdded, HeadMoved, JobChanged, RolloutDone, StepTaken
from hud_tui.service.store.db import Db

KEPT = 50_000
"""Events kept a model; a reader that is further behind is told to read the tree."""
PRUNE_EVERY = 1_000
FAR = 20_000
"""Events from which on a reader that is so many behind is spared some: half a minute of a run."""

Sent = CheckpointAdded | HeadMoved | RolloutDone | StepTaken | JobChanged


@dataclass(frozen=True)
class Logged:
    """One event as it is kept and sent."""

    id: int
    type: str
    body: str


def append(db: Db, model_id: str, events: Iterable[Sent]) -> None:
    """Log events; readers are woken once the transaction is on disk."""
    insert = "INSERT INTO event (model_id, type, body) VALUES (?, ?, ?)"
    newest = 0
    for event in events:
        row = (model_id, event.type, event.model_dump_json())
        newest = db.execute(insert, row).lastrowid or 0
        db.appended.add(model_id)
        if newest % PRUNE_EVERY == 0:
            _prune(db, model_id)


def after(db: Db, model_id: str, last: int, limit: int = 500) -> list[Logged]:
    """The model's events after one id, oldest first.

    A reader that is far behind is spared the rollouts of steps that are over, whose rewards are
    in the events of those steps: over a line that carries less than a run says, it would never
    catch up with it.
    """
    query = """SELECT id, type, body FROM event WHERE model_id = ? AND id > ?
        AND (type != 'rollout' OR id > ?) ORDER BY id LIMIT ?"""
    over = _newest_step(db, model_id) if _is_far(db, model_id, last) else last
    return [Logged(*row) for row in db.execute(query, (model_id, last, over, limit))]


def _is_far(db: Db, model_id: str, last: int) -> bool:
    query = "SELECT 1 FROM event WHERE model_id = ? AND id > ? LIMIT 1 OFFSET ?"
    return db.execute(query, (model_id, last, FAR)).fetchone() is not None


def _newest_step(db: Db, model_id: str) -> int:
    query = "SELECT id FROM event WHERE model_id = ? AND type = 'step' ORDER BY id DESC LIMIT 1"
    row = db.execute(query, (model_id,)).fetchone()
    return 0 if row is None else int(row["id"])


def newest(db: Db) -> int:
    """The newest id ever given, to whatever model; 0 before the first."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return int(row["seq"]) if row else 0


def can_resume(db: Db, model_id: str, last: int) -> bool:
    """Whether all that came after this id is still kept, and the id was ever given."""
    row = db.execute("SELECT pruned_to FROM model WHERE id = ?", (model_id,)).fetchone()
    return row is not None and int(row["pruned_to"]) <= last <= newest(db)


def _prune(db: Db, model_id: str) -> None:
    query = "SELECT id FROM event WHERE model_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    row = db.execute(query, (model_id, KEPT)).fetchone()
    if row is not None:
        db.execute("DELETE FROM event WHERE model_id = ? AND id <= ?", (model_id, row["id"]))
        db.execute("UPDATE model SET pruned_to = ? WHERE id = ?", (row["id"], model_id))
