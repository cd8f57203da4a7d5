"""Store: the service's SQLite file, and the one thread that reads and writes it.

The functions of this package take the connection first. `Store.read` and `Store.write` run them on
the store's thread, a write in one transaction that is on disk (WAL, synchronous FULL) on return.
So the event loop never waits for fsync, and a reader never sees half a step.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from hud_tui.service.caller import CALLER, SERVICE, Caller
from hud_tui.service.http import NO_TEXT, DamagedRow, not_found
from hud_tui.service.store import seals
from hud_tui.service.store.tables import MIGRATIONS

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class TooNew(Exception):
    """The file's schema is newer than this program's."""


class Db(sqlite3.Connection):
    """A connection that knows who asked, and records what the open transaction changed."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.caller = SERVICE
        self.appended: set[str] = set()
        """Ids of models with new events."""
        self.touched: dict[str, set[str]] = {}
        """Ids of checkpoints whose rows are new or changed, by model id."""
        self.damaged: list[str] = []
        """Names of rows that a query has found damaged."""
        self.files = 0
        """Bytes of files that belong to what was written."""
        self.dropped = 0
        """Bytes of this file that `drop` has freed."""
        self.owner = SERVICE.name
        """Name of the key for which was stored what is replaced; empty if nobody knows."""
        self.stored: dict[str, seals.Stored] = {}
        """How each table stores its rows, once one was inserted."""

    def touch(self, model_id: str, *checkpoint_ids: str | None) -> None:
        """Record that the rows of these checkpoints are new or changed."""
        rows = self.touched.setdefault(model_id, set())
        rows.update(id_ for id_ in checkpoint_ids if id_ is not None)


class Store:
    def __init__(
        self,
        path: Path,
        on_events: Callable[[set[str]], None],
        on_rows: Callable[[dict[str, set[str]]], None] = lambda touched: None,
    ) -> None:
        """
        Args:
            path: The SQLite file; created if missing.
            on_events: Called on the event loop, after the commit, with the ids of models that have
                new events.
            on_rows: The same with `Db.touched`.
        """
        self._path = path
        self._on_events = on_events
        self._on_rows = on_rows
        self._thread = ThreadPoolExecutor(1, "store")
        self._db: Db | None = None

    async def open(self, id_: str | None = None) -> None:
        """Open the file and migrate its tables; `id_` as for `connect`."""
        self._loop = asyncio.get_running_loop()
        self._db = await self._on_thread(lambda: connect(self._path, id_))

    async def close(self) -> None:
        if self._db is not None:
            await self._on_thread(self._db.close)
            self._db = None
        self._thread.shutdown()

    async def read(
        self, query: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a read-only function."""
        caller = CALLER.get()
        return await self._on_thread(
            lambda: self._checked(lambda db: query(db, *args, **kwargs), caller)
        )

    async def write(
        self, change: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function in one transaction: on return all of it is on disk, or none."""
        caller = CALLER.get()
        return await self._on_thread(
            lambda: self._commit(lambda db: change(db, *args, **kwargs), caller)
        )

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, work)

    def _commit(self, change: Callable[[Db], T], caller: Caller) -> T:
        db = self._open_db()
        db.owner = caller.name
        db.execute("BEGIN IMMEDIATE")
        try:
            before = _size_of(db)
            result = self._checked(change, caller)
            grown = _size_of(db) - before + db.dropped
            _count(db, caller.name if grown > 0 else db.owner, grown)
            _count(db, caller.name, db.files)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.appended.clear()
            db.touched.clear()
            raise
        finally:
            db.files = db.dropped = 0
        if db.touched:
            touched, db.touched = db.touched, {}
            self._loop.call_soon_threadsafe(self._on_rows, touched)
        if db.appended:
            models, db.appended = db.appended, set()
            self._loop.call_soon_threadsafe(self._on_events, models)
        return result

    def _checked(self, query: Callable[[Db], T], caller: Caller) -> T:
        """Run a function. Raises DamagedRow: a row that it reads is damaged."""
        db = self._open_db()
        db.caller = caller
        try:
            return query(db)
        except sqlite3.OperationalError as error:
            if not db.damaged:
                raise
            raise DamagedRow(db.damaged[0]) from error
        finally:
            db.damaged.clear()

    def _open_db(self) -> Db:
        if self._db is None:
            raise RuntimeError("the store is closed")
        return self._db


def _size_of(db: Db) -> int:
    """Bytes of the pages in use."""
    query = """SELECT (page_count - freelist_count) * page_size
        FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""
    return int(db.execute(query).fetchone()[0])


def _count(db: Db, name: str, more: int) -> None:
    """Add to what is stored for a key; what the service writes by itself is nobody's."""
    if name and more:
        query = """INSERT INTO key_disk (name, bytes) VALUES (:name, max(0, :more))
            ON CONFLICT (name) DO UPDATE SET bytes = max(0, bytes + :more)"""
        db.execute(query, {"name": name, "more": more})


def drop(db: Db, table: str, where: str, values: Mapping[str, object]) -> None:
    """Delete old rows of a table whose rows say by whose key they were stored. What that frees is
    credited to these keys, whoever deletes them, by the share of the rows' bytes."""
    query = f"""SELECT name, sum(length(CAST(body AS BLOB))) FROM {table}
        WHERE {where} GROUP BY name"""
    shares = db.execute(query, values).fetchall()
    before = _size_of(db)
    db.execute(f"DELETE FROM {table} WHERE {where}", values)
    freed, total = before - _size_of(db), sum(size for _, size in shares)
    db.dropped += freed
    for name, size in shares:
        _count(db, name, -round(freed * size / total))


@contextmanager
def without_damaged(db: Db, what: str) -> Iterator[None]:
    """Leave out the rest of a block that needs a damaged row, and log that, with what the block
    changes; so one row does not hold up all others."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if not str(error).startswith(NO_TEXT):
            raise
        log.error("%s: %s is damaged", what, db.damaged.pop() if db.damaged else "a text")


def insert(db: Db, table: str, verb: str = "INSERT", /, **columns: object) -> None:
    """Insert one row; table and column names are the schema's."""
    insert_all(db, table, [columns], verb)


def insert_all(
    db: Db, table: str, rows: Sequence[Mapping[str, object]], verb: str = "INSERT"
) -> None:
    """Insert rows with the same columns."""
    if not rows:
        return
    columns: dict[str, Sequence[object]] = {name: [row[name] for row in rows] for name in rows[0]}
    if table in seals.COLUMNS:
        if table not in db.stored:
            db.stored[table] = seals.Stored.of(db, table)
        columns["seal"] = db.stored[table].seals(columns, len(rows))
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    values = zip(*columns.values(), strict=True)
    db.executemany(f"{verb} INTO {table} ({names}) VALUES ({marks})", values)


Values = Sequence[object] | Mapping[str, object]
"""What is bound in a query."""


def first(db: Db, query: str, values: Values) -> sqlite3.Row | None:
    """The first row of a query; None if there is none."""
    row: sqlite3.Row | None = db.execute(query, values).fetchone()
    return row


def value(db: Db, query: str, values: Values = ()) -> Any | None:
    """The first column of a query's first row; None if there is no row."""
    row = first(db, query, values)
    return None if row is None else row[0]


def fetched(db: Db, kind: str, ref: str, query: str, values: Values) -> sqlite3.Row:
    """The row of a query. Raises Refused, 404: there is no such `kind`, called `ref`."""
    row = first(db, query, values)
    if row is None:
        raise not_found(kind, ref)
    return row


def kept(db: Db, change: Callable[..., T], keep: Callable[[Db, T], object], *args: object) -> T:
    """Make a change, and store its reply in the same transaction."""
    reply = change(db, *args)
    keep(db, reply)
    return reply


def connect(path: Path, id_: str | None = None) -> Db:
    """Open a store's file and run the migrations that it lacks.

    Args:
        path: The file; created if missing.
        id_: Its id if it has none yet. It is written to the file itself, so that a copy without
            the write-ahead log has it too.
    """
    db = sqlite3.connect(path, isolation_level=None, factory=Db)
    try:
        db.row_factory = sqlite3.Row
        db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
            "PRAGMA busy_timeout=5000"
        )
        seals.add_functions(db, db.damaged)
        [version] = db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise TooNew(f"{path.name} was written by a newer hud-tui (schema {version}): update")
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            db.executescript(f"BEGIN; {script}; PRAGMA user_version={number}; COMMIT")
        seals.keep(db)
        if id_ and db.execute("SELECT 1 FROM identity").fetchone() is None:
            db.execute("INSERT INTO identity VALUES (?)", (id_,))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        db.close()
        raise
    return db
