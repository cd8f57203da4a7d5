"""The files that checkpoints' weights are in: their checksums, and what is wrong with them."""

from dataclasses import dataclass

from hud_tui.service.store import Db, checkpoints


@dataclass(frozen=True)
class File:
    """A checkpoint's file, as it was saved."""

    path: str
    """Relative to the data directory; a URL where it is kept elsewhere."""
    bytes: int
    """Of all that was saved with it."""
    sha256: str | None
    """None where it is not on this machine, or was saved by an older version."""


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


_SELECT = """SELECT slug, c.model_id, step, c.name, c.state_path, sha256, damage,
    c.id IS head.checkpoint_id FROM checkpoint AS c JOIN model ON model.id = c.model_id
    LEFT JOIN head ON head.model_id = c.model_id WHERE c.state != 'expired'"""


def row(db: Db, state_path: str) -> Row | None:
    """The checkpoint whose weights are there."""
    found = db.execute(f"{_SELECT} AND c.state_path = ?", (state_path,)).fetchone()
    return None if found is None else Row(*found)


def rows(db: Db) -> list[Row]:
    """Every checkpoint that has a file, heads first."""
    order = "ORDER BY c.id IS head.checkpoint_id DESC, c.rowid DESC"
    return [Row(*found) for found in db.execute(f"{_SELECT} {order}")]


def mark(db: Db, state_path: str, damage: str | None) -> None:
    """Say what is wrong with a checkpoint's file, or that nothing is."""
    change = """UPDATE checkpoint SET damage = :damage WHERE state_path = :path
        AND state != 'expired' AND damage IS NOT :damage RETURNING model_id, id"""
    changed = db.execute(change, {"damage": damage, "path": state_path})
    for model_id, id_ in changed.fetchall():
        checkpoints.announce(db, model_id, id_)


def whole(db: Db, near: Row) -> list[str]:
    """Names of up to three checkpoints of the same model that can be loaded, the nearest first."""
    query = """SELECT name FROM checkpoint WHERE model_id = ? AND state != 'expired'
        AND damage IS NULL ORDER BY abs(step - ?) LIMIT 3"""
    return [name for [name] in db.execute(query, (near.model_id, near.step))]
