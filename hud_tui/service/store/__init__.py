"""Store: the service's SQLite file, one thread that reads and writes it.

The functions beside this file take the connection first; `Store.read` and
`Store.write` run them on the store's own thread, a write in one transaction that is on
disk (WAL, synchronous FULL) when the call returns. So the event loop never waits for
fsync, and a reader never sees half a step.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from hud_tui.service.store.schema import MIGRATIONS

P = ParamSpec("P")
T = TypeVar("T")


class TooNew(Exception):
    """The file's schema is newer than this program's."""


class Db(sqlite3.Connection):
    """A connection that remembers what the open transaction changed."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.appended: set[str] = set()
        """Ids of models with new events."""
        self.touched: dict[str, set[str]] = {}
        """Ids of models, and of the checkpoints in them whose rows are new or changed."""

    def touch(self, model_id: str, *checkpoint_ids: str | None) -> None:
        """Say that the rows of these checkpoints are new, or not what they were."""
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
            path: The SQLite file; made when missing.
            on_events: Called on the event loop, after the commit, with the models whose
                events grew.
            on_rows: As that, with `Db.touched`.
        """
        self._path = path
        self._on_events = on_events
        self._on_rows = on_rows
        self._thread = ThreadPoolExecutor(1, "store")
        self._db: Db | None = None

    async def open(self, id_: str | None = None) -> None:
        """Open the file and bring its tables up to date; `id_` as for `connect`."""
        self._loop = asyncio.get_running_loop()
        self._db = await self._loop.run_in_executor(self._thread, connect, self._path, id_)

    async def close(self) -> None:
        if self._db is not None:
            await self._loop.run_in_executor(self._thread, self._db.close)
            self._db = None
        self._thread.shutdown()

    async def read(
        self, query: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function that only reads."""
        return await self._loop.run_in_executor(
            self._thread, lambda: query(self._open_db(), *args, **kwargs)
        )

    async def write(
        self, change: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function in one transaction: all of it is on disk on return, or none."""
        return await self._loop.run_in_executor(
            self._thread, lambda: self._commit(lambda db: change(db, *args, **kwargs))
        )

    def _commit(self, change: Callable[[Db], T]) -> T:
        db = self._open_db()
        db.execute("BEGIN IMMEDIATE")
        try:
            result = change(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.appended.clear()
            db.touched.clear()
            raise
        if db.touched:
            touched, db.touched = db.touched, {}
            self._loop.call_soon_threadsafe(self._on_rows, touched)
        if db.appended:
            models, db.appended = db.appended, set()
            self._loop.call_soon_threadsafe(self._on_events, models)
        return result

    def _open_db(self) -> Db:
        if self._db is None:
            raise RuntimeError("the store is closed")
        return self._db


def insert(db: Db, table: str, verb: str = "INSERT", **columns: object) -> None:
    """Insert one row; table and column names are the schema's."""
    insert_all(db, table, [columns], verb)


def insert_all(
    db: Db, table: str, rows: Sequence[Mapping[str, object]], verb: str = "INSERT"
) -> None:
    """Insert rows that all have the same columns."""
    if rows:
        names, marks = ", ".join(rows[0]), ", ".join(f":{name}" for name in rows[0])
        db.executemany(f"{verb} INTO {table} ({names}) VALUES ({marks})", rows)


def connect(path: Path, id_: str | None = None) -> Db:
    """Open a store's file and run the migrations it lacks.

    Args:
        path: The file; made when missing.
        id_: Its id where it has none yet. It is then in the file itself, so that a copy without
            the log beside it has it too.
    """
    db = sqlite3.connect(path, isolation_level=None, factory=Db)
    try:
        db.row_factory = sqlite3.Row
        db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
            "PRAGMA busy_timeout=5000"
        )
        _migrate(db, path)
        if id_ and db.execute("SELECT 1 FROM identity").fetchone() is None:
            db.execute("INSERT INTO identity VALUES (?)", (id_,))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: Db, path: Path) -> None:
    [version] = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise TooNew(f"{path.name} was written by a newer hud-tui (schema {version}): update")
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        db.executescript(f"BEGIN; {script}; PRAGMA user_version={number}; COMMIT")
