"""What is kept of checkpoints: whole states, weights alone, or nothing but the row."""

from collections.abc import Collection

from hud_tui.service.store import Db, checkpoints, nodes
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.weights import File

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
    """Only weights are kept from now on, in this file; False where it is protected by now."""
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
        checkpoints.announce(db, model_id, id_)


def pin(db: Db, model_id: str, ref: str, pinned: bool) -> bytes:
    """Keep a checkpoint as it is whatever the limit, or no longer; its row as JSON.

    Raises:
        Refused: 404; 410, there is nothing left to keep.
    """
    node = nodes.find(db, model_id, ref)
    if pinned:
        node.refuse_expired()
    db.execute("UPDATE checkpoint SET pinned = ? WHERE id = ?", (pinned, node.id))
    return checkpoints.announce(db, model_id, node.id)


def _change(db: Db, model_id: str, node: Node, change: str, values: tuple[object, ...]) -> bool:
    query = f"UPDATE checkpoint AS c SET {change} WHERE id = ? AND NOT ({_PROTECTED})"
    done = db.execute(query, (*values, node.id)).rowcount == 1
    if done:
        checkpoints.announce(db, model_id, node.id)
    return done
