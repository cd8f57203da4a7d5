"""The head: which checkpoint of a model is served, and who may set it elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.events import HeadMoved
from hud_tui.service.clock import now
from hud_tui.service.refusals import Refused
from hud_tui.service.store import Db, events
from hud_tui.service.store.nodes import Node, find


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
