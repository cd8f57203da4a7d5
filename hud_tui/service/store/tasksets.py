"""Tasksets: named lists of task rows, given back exactly as they were uploaded."""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from hud_tui.service.clock import now
from hud_tui.service.ids import named_id, new_id
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.store import Db

_SELECT = """SELECT taskset.*, (SELECT count(*) FROM task WHERE taskset_id = taskset.id)
    AS task_count FROM taskset"""


def offer(db: Db, name: str, description: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Put a built-in taskset of (slug, row) pairs in place, unless its name is there already:
    it may have been edited."""
    if by_name(db, name) is None:
        id_ = named_id("taskset", name)
        _create(db, id_, name, description)
        put(db, id_, rows)


def create(db: Db, name: str) -> sqlite3.Row:
    """A new, empty taskset.

    Raises:
        Refused: 422, the name is blank.
    """
    if not name.strip():
        raise Refused(422, "taskset_name is blank")
    id_ = new_id()
    _create(db, id_, name.strip(), None)
    return get(db, id_)


def put(db: Db, taskset_id: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> tuple[int, int]:
    """Create or replace rows by their slugs; how many were created and how many replaced."""
    created = updated = 0
    for slug, row in rows:
        changed = db.execute(
            "UPDATE task SET row = ? WHERE taskset_id = ? AND slug = ?",
            (json.dumps(row), taskset_id, slug),
        ).rowcount
        updated += changed
        if not changed:
            insert = "INSERT INTO task (taskset_id, slug, row) VALUES (?, ?, ?)"
            db.execute(insert, (taskset_id, slug, json.dumps(row)))
            created += 1
    return created, updated


def by_name(db: Db, name: str) -> sqlite3.Row | None:
    """The taskset of a name, case-blind."""
    key = " ".join(name.split()).casefold()
    row: sqlite3.Row | None = db.execute(f"{_SELECT} WHERE name_key = ?", (key,)).fetchone()
    return row


def get(db: Db, taskset_id: str) -> sqlite3.Row:
    """One taskset.

    Raises:
        Refused: 404.
    """
    row = db.execute(f"{_SELECT} WHERE id = ?", (taskset_id,)).fetchone()
    if row is None:
        raise not_found("taskset", taskset_id)
    found: sqlite3.Row = row
    return found


def rows(db: Db, taskset_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Slugs and rows in the order they were first uploaded."""
    query = "SELECT slug, row FROM task WHERE taskset_id = ? ORDER BY id"
    return [(row["slug"], json.loads(row["row"])) for row in db.execute(query, (taskset_id,))]


def page(db: Db, limit: int, offset: int) -> tuple[list[sqlite3.Row], int]:
    """One page of tasksets by age, and the true total."""
    query = f"{_SELECT} ORDER BY created_at, rowid LIMIT ? OFFSET ?"
    [total] = db.execute("SELECT count(*) FROM taskset").fetchone()
    return db.execute(query, (limit, offset)).fetchall(), int(total)


def _create(db: Db, id_: str, name: str, description: str | None) -> None:
    key = " ".join(name.split()).casefold()
    insert = "INSERT INTO taskset VALUES (?, ?, ?, ?, ?)"
    db.execute(insert, (id_, name, key, description, now()))


def holding(db: Db, slugs: list[str]) -> str | None:
    """The name of a taskset that is made of exactly these slugs, if there is one."""
    query = """SELECT taskset.name FROM taskset JOIN task ON taskset_id = taskset.id
        GROUP BY taskset.id HAVING count(*) = :count
        AND sum(task.slug IN (SELECT value FROM json_each(:slugs))) = :count LIMIT 1"""
    row = db.execute(query, {"count": len(slugs), "slugs": json.dumps(slugs)}).fetchone()
    return row["name"] if row else None
