"""Access keys and their bounds, who made what, and protected models."""

import sqlite3
from hashlib import sha256

from hud_tui.service.caller import Caller
from hud_tui.service.http import Refused, now
from hud_tui.service.store.db import Db, fetched, insert, value
from hud_tui.service.store.seals import intact
from hud_tui.wire_access import ADMIN_KEY, AccessKey, KeyLimits, NewKey, Role

# Keys. What is stored of one is the SHA-256 of 32 random bytes: with so many there is nothing to
# guess, so a slow hash would only make each request slow.


LIMITS = tuple(KeyLimits.model_fields)


def digest(key: str) -> str:
    """What is stored of a key."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


_KEYS = f"""SELECT access_key.*, {intact("access_key")},
    (SELECT count(*) FROM author JOIN work ON work.id = author.id
        WHERE author.name = access_key.name AND work.run_id IS NULL
            AND work.status IN ('queued', 'running') AND (author.what = 'resumed'
            OR author.what = 'work' AND NOT EXISTS (SELECT 1 FROM author AS later
                WHERE later.what = 'resumed' AND later.id = work.id))) AS work,
    coalesce(key_disk.bytes, 0) AS disk, {intact("key_disk")}
    FROM access_key LEFT JOIN key_disk ON key_disk.name = access_key.name"""


def keys(db: Db) -> list[AccessKey]:
    """All keys that were made, oldest first."""
    return [_key(row) for row in db.execute(f"{_KEYS} ORDER BY access_key.rowid")]


def callers(db: Db) -> dict[str, Caller]:
    """Who holds the keys that are not revoked, by their digest."""
    rows = db.execute(f"SELECT *, {intact('access_key')} FROM access_key WHERE revoked_at IS NULL")
    return {row["digest"]: _caller(row) for row in rows}


def _caller(row: sqlite3.Row) -> Caller:
    limits = KeyLimits(**{name: row[name] for name in LIMITS})
    expires = {} if row["expires_at"] is None else {"expires_at": row["expires_at"]}
    return Caller(row["name"], Role(row["role"]), limits=limits, **expires)


def _key(row: sqlite3.Row) -> AccessKey:
    columns = {name: row[name] for name in AccessKey.model_fields if name in row.keys()}  # noqa: SIM118
    return AccessKey(**{**columns, "by": row["made_by"]})


def _find(db: Db, name: str) -> AccessKey:
    query = f"{_KEYS} WHERE access_key.name = ?"
    return _key(fetched(db, "access key", name[:100], query, (name,)))


def add(db: Db, new: NewKey, key: str) -> AccessKey:
    """Store a new key. Raises Refused, 409: one has had this name; names are not used again, since
    the log and the history say who did something by them."""
    taken = db.execute("SELECT 1 FROM access_key WHERE name = ?", (new.name,)).fetchone()
    if new.name == ADMIN_KEY or taken:
        raise Refused(409, f"a key named {new.name} exists, or has existed: choose another name")
    stamp = now()
    insert(
        db,
        "access_key",
        name=new.name,
        role=new.role,
        digest=digest(key),
        created_at=stamp,
        made_by=db.caller.name,
        expires_at=None if new.expires_s is None else stamp + new.expires_s,
        **{name: getattr(new, name) for name in LIMITS},
    )
    return _find(db, new.name)


def revoke(db: Db, name: str) -> AccessKey:
    """Accept a key no more; said twice, it changes nothing. Raises Refused, 404; 409, the admin's
    key, whose file is in the data directory."""
    if name == ADMIN_KEY:
        raise Refused(
            409, "the admin's key is the file service.key: stop the service, remove it, start again"
        )
    _find(db, name)
    query = "UPDATE access_key SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL"
    db.execute(query, (now(), name))
    return _find(db, name)


# Authors: by whose key a model was forked, work begun and resumed, a step taken, and so on.


def sign(db: Db, what: str, id_: str) -> None:
    """Store who made this, unless somebody has before: what the service does by itself has no
    author."""
    if db.caller.name:
        name = db.caller.name
        insert(db, "author", "INSERT OR IGNORE", what=what, id=id_, name=name, at=now())


def take_over(db: Db, work_id: str) -> None:
    """Store that the caller resumes work: from now on it counts for them, whoever began it."""
    db.execute("DELETE FROM author WHERE what = 'resumed' AND id = ?", (work_id,))
    if db.caller.name != (author_of(db, "work", work_id) or ADMIN_KEY):
        sign(db, "resumed", work_id)


def unpin(db: Db, checkpoint_id: str) -> None:
    """Forget who pinned a checkpoint. Raises Refused, 403: somebody else, and the caller's role
    reaches to its own only."""
    pinned_by = author_of(db, "pin", checkpoint_id) or ADMIN_KEY
    if not db.caller.role.may(Role.STEER) and pinned_by != db.caller.name:
        who = f"key {db.caller.name} ({db.caller.role})"
        raise Refused(
            403, f"{who} may unpin only what it pinned; {pinned_by} pinned this: ask them"
        )
    db.execute("DELETE FROM author WHERE what = 'pin' AND id = ?", (checkpoint_id,))


def author(what: str, id_column: str) -> str:
    """SQL for a column: name of the key by which the row with this id was made; NULL: unknown."""
    return f"""(SELECT iif({intact("author")}, name, NULL) FROM author
        WHERE author.what = '{what}' AND author.id = {id_column})"""


def author_of(db: Db, what: str, id_: str) -> str | None:
    """Name of the key by which this was made; None if unknown."""
    query = f"SELECT name, {intact('author')} FROM author WHERE what = ? AND id = ?"
    return value(db, query, (what, id_))


def refuse_others(db: Db, work_id: str, what: str) -> None:
    """Raises Refused, 403: somebody else began this work, and the caller's role reaches to its own
    only. What nobody signed was begun before there were keys: by the admin."""
    begun_by = author_of(db, "work", work_id) or ADMIN_KEY
    db.owner = begun_by
    if not may_end(db, work_id):
        who = f"key {db.caller.name} ({db.caller.role})"
        raise Refused(403, f"{who} may {what} only what it began; {begun_by} began this: ask them")


def may_end(db: Db, work_id: str) -> bool:
    """Whether the caller began this work, or may end what others began; also if there is none."""
    if db.caller.role.may(Role.STEER):
        return True
    begun_by = author_of(db, "work", work_id)
    if begun_by is not None:
        return begun_by == db.caller.name
    return db.execute("SELECT 1 FROM work WHERE id = ?", (work_id,)).fetchone() is None


# Bounds of a key.


def refuse_too_much_work(db: Db) -> None:
    """Called when work has begun, goes on or was taken over, in the same transaction, so that it is
    counted as it is listed. Raises Refused, 429: now the caller has more runs and evaluations under
    way than it may."""
    most = db.caller.limits.max_work
    if most is not None and _find(db, db.caller.name).work > most:
        why = f"key {db.caller.name} may have {most} runs and evaluations at once"
        raise Refused(429, f"{why}: wait for one, or cancel one (hud-tui jobs)")


def refuse_more_disk(db: Db) -> None:
    """Raises Refused, 507: what is stored for the caller takes all room that it may."""
    most = db.caller.limits.max_disk
    taken = 0 if most is None else stored(db, db.caller.name)
    if most is not None and taken >= most:
        raise Refused(
            507,
            f"what is stored for key {db.caller.name} takes {taken / 1e9:.2f} GB, of at most"
            f" {most / 1e9:.2f}: an admin can give a key with more, or lower --max-disk",
        )


def stored(db: Db, name: str) -> int:
    """Bytes of what is stored for a key."""
    query = f"SELECT bytes, {intact('key_disk')} FROM key_disk WHERE name = ?"
    return value(db, query, (name,)) or 0


# Protected models: their heads move by what one person proposes and another approves.


def protected_by(db: Db, model_id: str) -> str | None:
    """Name of the key that protected a model; None if it is not protected."""
    query = f"SELECT name, {intact('protection')} FROM protection WHERE model_id = ?"
    return value(db, query, (model_id,))


PROTECTED_BY = f"""(SELECT iif({intact("protection")}, name, NULL) FROM protection
    WHERE protection.model_id = model.id)"""
"""SQL for a column of a query of models: `protected_by`."""


def protect(db: Db, model_id: str, on: bool) -> None:
    """Protect a model, or end that. Raises Refused, 409: it is in training, which moves its
    head."""
    if not on:
        db.execute("DELETE FROM protection WHERE model_id = ?", (model_id,))
        return
    query = """SELECT id FROM work WHERE model_id = ? AND kind = 'training'
        AND status IN ('queued', 'running')"""
    run = db.execute(query, (model_id,)).fetchone()
    if run is not None:
        raise Refused(409, f"run {run['id']} trains it, and moves its head: cancel it, or wait")
    row = {"model_id": model_id, "name": db.caller.name, "at": now()}
    insert(db, "protection", "INSERT OR IGNORE", **row)


def overtake(db: Db, model_id: str, but: str | None = None) -> None:
    """End what was proposed for a head that moves, also back to where it was; `but`: id of the
    proposal by which it moves."""
    query = """UPDATE proposal SET status = 'overtaken', decided_at = ?
        WHERE model_id = ? AND status = 'open' AND id IS NOT ?"""
    db.execute(query, (now(), model_id, but))


def refuse_protected(db: Db, model_id: str, what: str) -> None:
    """Raises Refused, 403: the model is protected, so `what` needs another person."""
    name = protected_by(db, model_id)
    if name is not None:
        how = "its head is proposed by one person and approved by another (hud-tui head MODEL"
        why = f"this model is protected by {name}, so nobody may {what}"
        raise Refused(403, f"{why}: {how} --propose ID); or fork it")
