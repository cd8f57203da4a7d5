"""The catalog: the engine's bases, and forks, which can be trained. And tasksets."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hud_tui.rl.checkpoint_tree import slug_of
from hud_tui.service.http import Refused, canonical, named_id, new_id, not_found, now
from hud_tui.service.store import access, checkpoints
from hud_tui.service.store.db import Db, fetched, first, insert
from hud_tui.service.store.seals import intact
from hud_tui.wire import BASE


@dataclass(frozen=True)
class ModelRow:
    """One model as the store knows it."""

    id: str
    slug: str
    name: str
    is_base: bool
    base: str
    state_path: str | None
    """State that it starts from; None for the base's weights."""
    forked_from: str | None
    created_at: float
    checkpoint_count: int
    by: str | None = None
    """Name of the key by which it was forked."""
    protected_by: str | None = None
    """Name of the key that protected it."""


_SELECT = f"""SELECT model.*, {intact("model")}, {access.author("model", "model.id")} AS by,
    {access.PROTECTED_BY} AS protected_by,
    (SELECT coalesce(max(step), 0) FROM checkpoint
    WHERE model_id = model.id) AS checkpoint_count FROM model"""
"""Steps are numbered from 1 without gaps, so the largest number is their count."""


def offer_bases(db: Db, bases: Mapping[str, str]) -> None:
    """Add the engine's bases, key by name. One that has another key now is another base from here
    on; its forks keep the one that they were made from."""
    insert = """INSERT OR IGNORE INTO model (id, slug, name, name_key, is_base, base, created_at)
        VALUES (?, ?, ?, ?, 1, ?, ?)"""
    for name, key in bases.items():
        id_ = named_id("base", name)
        db.execute(insert, (id_, name, name, name.casefold(), key, now()))
        db.execute("UPDATE model SET base = ? WHERE id = ? AND base <> ?", (key, id_, key))


def catalog(db: Db, limit: int, offset: int) -> tuple[list[ModelRow], int]:
    """One page of models, bases first, then forks from oldest to newest; and the total."""
    rows = db.execute(
        f"{_SELECT} ORDER BY is_base DESC, model.rowid LIMIT ? OFFSET ?", (limit, offset)
    )
    [total] = db.execute("SELECT count(*) FROM model").fetchone()
    return [_row(row) for row in rows], int(total)


_TAIL = "substr(lower(slug), -length(:key) - 1) = '/' || :key"


def find(db: Db, ref: str) -> ModelRow:
    """The model with this id, slug, name or slug's tail, case-insensitively. Raises Refused,
    404."""
    id_, key = canonical(ref), ref.casefold()
    for where, value in (
        ("id = :key", id_),
        ("slug = :key", ref),
        ("name_key = :key", key),
        ("lower(slug) = :key", key),
        (_TAIL, key),
    ):
        row = value and db.execute(f"{_SELECT} WHERE {where}", {"key": value}).fetchone()
        if row:
            return _row(row)
    raise not_found("model", ref[:200])


def fork(db: Db, source: ModelRow, name: str, checkpoint: str | None = None) -> ModelRow:
    """Create a model with a tree of its own. `checkpoint`: where it starts, by id, name or sampler
    path; `BASE`; None for the source's head. Raises Refused, 409, the name is taken; 404, the
    source has no such checkpoint; 410, that has expired; 507, the caller may store no more."""
    name = " ".join(name.split())
    if not name:
        raise Refused(422, "the name is blank")
    if _is_called(db, name):
        raise Refused(409, f"a model named {name} exists already: choose another name")
    access.refuse_more_disk(db)
    state, origin = start(db, source, checkpoint)
    id_, slug = new_id(), slug_of(name)
    insert(
        db,
        "model",
        id=id_,
        slug=f"{slug}-{id_[:6]}" if _is_called(db, slug) else slug,
        name=name,
        name_key=name.casefold(),
        is_base=0,
        base=source.base,
        state_path=state,
        forked_from=origin,
        created_at=now(),
    )
    access.sign(db, "model", id_)
    return find(db, id_)


def start(db: Db, source: ModelRow, checkpoint: str | None) -> tuple[str | None, str]:
    """The state that a fork starts from (None for the base's weights), and its name. Raises
    Refused, 404, the source has no such checkpoint; 410, that has expired."""
    if checkpoint == BASE:
        return source.state_path, source.slug
    if checkpoint is not None:
        node = checkpoints.loadable(db, source.id, checkpoint)
        return node.state_path, f"{source.slug}@{node.name}"
    head = db.execute(
        f"SELECT name, state_path, {intact('head')}, {intact('checkpoint')}"
        " FROM head JOIN checkpoint ON id = checkpoint_id WHERE head.model_id = ?",
        (source.id,),
    ).fetchone()
    if head is None:
        return source.state_path, source.slug
    return head["state_path"], f"{source.slug}@{head['name']}"


def _is_called(db: Db, name: str) -> bool:
    """Whether a model is found by this name, or by the tail of its slug: a fork must not be taken
    for another."""
    key = name.casefold()
    query = f"""SELECT 1 FROM model WHERE name_key = :key OR lower(slug) = :key OR {_TAIL}"""
    return db.execute(query, {"key": key}).fetchone() is not None


def _row(row: sqlite3.Row) -> ModelRow:
    columns = {field.name: row[field.name] for field in fields(ModelRow)}
    return ModelRow(**{**columns, "is_base": bool(row["is_base"])})


# Tasksets: named lists of task rows, returned exactly as they were uploaded.


_SELECT_TASKSET = f"""SELECT taskset.*, {intact("taskset")},
    (SELECT count(*) FROM task WHERE taskset_id = taskset.id) AS task_count FROM taskset"""


def offer(db: Db, name: str, description: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Add a built-in taskset of (slug, row) pairs, unless it or another one with its name exists:
    users may edit it."""
    id_, query = named_id("taskset", name), "SELECT 1 FROM taskset WHERE name_key = ? OR id = ?"
    if db.execute(query, (_key(name), id_)).fetchone() is None:
        _create(db, id_, name, description)
        put(db, id_, rows)


def create(db: Db, name: str) -> sqlite3.Row:
    """Create an empty taskset. Raises Refused, 422: the name is blank."""
    if not name.strip():
        raise Refused(422, "taskset_name is blank")
    id_ = new_id()
    _create(db, id_, name.strip(), None)
    return get(db, id_)


def put(db: Db, taskset_id: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> tuple[int, int]:
    """Create or replace rows by their slugs; returns the numbers of created and of replaced
    rows."""
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
    """The taskset with this name, case-insensitively."""
    return first(db, f"{_SELECT_TASKSET} WHERE name_key = ?", (_key(name),))


def _key(name: str) -> str:
    return " ".join(name.split()).casefold()


def get(db: Db, taskset_id: str) -> sqlite3.Row:
    """One taskset. Raises Refused, 404."""
    return fetched(db, "taskset", taskset_id, f"{_SELECT_TASKSET} WHERE id = ?", (taskset_id,))


def rows(db: Db, taskset_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Slugs and rows in the order they were first uploaded."""
    query = f"SELECT slug, row, {intact('task')} FROM task WHERE taskset_id = ? ORDER BY id"
    return [(row["slug"], json.loads(row["row"])) for row in db.execute(query, (taskset_id,))]


def page(db: Db, limit: int, offset: int) -> tuple[list[sqlite3.Row], int]:
    """One page of tasksets by age, and the total."""
    query = f"{_SELECT_TASKSET} ORDER BY rowid LIMIT ? OFFSET ?"
    [total] = db.execute("SELECT count(*) FROM taskset").fetchone()
    return db.execute(query, (limit, offset)).fetchall(), int(total)


def _create(db: Db, id_: str, name: str, description: str | None) -> None:
    about = {"name": name, "name_key": _key(name), "description": description}
    insert(db, "taskset", id=id_, **about, created_at=now())


def holding(db: Db, slugs: list[str]) -> sqlite3.Row | None:
    """Id and name of the taskset with exactly these slugs, if there is one."""
    query = f"""SELECT taskset.id, taskset.name, {intact("taskset")}
        FROM taskset JOIN task ON taskset_id = taskset.id GROUP BY taskset.id
        HAVING count(*) = :count
        AND sum(task.slug IN (SELECT value FROM json_each(:slugs))) = :count LIMIT 1"""
    return first(db, query, {"count": len(slugs), "slugs": json.dumps(slugs)})
