"""The data directory: whether its database and its checkpoints belong together.

Both hold the same id, made when the directory is first served. A database that is empty, damaged,
another program's or another directory's is refused before anything is changed. Files that the
database does not know (after a crash, or with an older database) are not deleted but moved into
``leftovers-DATE`` beside it.
"""

import asyncio
import errno
import logging
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain, count
from pathlib import Path
from time import monotonic
from urllib.parse import quote
from uuid import uuid4

from hud_tui.rl.findings import Finding
from hud_tui.rl.text import counted, one_line
from hud_tui.service.caller import SERVICE, called_by
from hud_tui.service.engines.base import Base, DiskFull, Engine, EngineError, EngineLost
from hud_tui.service.http import FULL, RESTORE, Refused, canonical, free_bytes, new_id, refusal
from hud_tui.service.policies import Policies, Weights, saved_file
from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.db import Store, TooNew
from hud_tui.service.store.tables import MIGRATIONS
from hud_tui.storage import NotPrivate, check_regular, read_private, write_atomic
from hud_tui.wire import Disk

# Which checkpoint directory a database belongs to, and what it says of the files there.


HAS_STATES = 4
"""First version of the database whose rows say what is kept of a checkpoint's files."""


def directories(db: sqlite3.Connection, version: int) -> tuple[set[str], set[str]]:
    """Names of the directories that a database of this version needs, and of those whose files were
    deleted to save space."""
    state = "state" if version >= HAS_STATES else "'full' AS state"
    whole: set[str] = set()
    all_: set[str] = set()
    for row in db.execute(f"SELECT id, sampler_path, state_path, {state} FROM checkpoint"):
        names = {_directory(row["state_path"]) or row["id"]}
        all_ |= {*names, _directory(row["sampler_path"]) or row["id"]}
        if row["state"] != "expired":
            whole |= names
    for [path] in db.execute("SELECT state_path FROM model WHERE state_path IS NOT NULL"):
        whole.add(_directory(path))
    whole.discard("")
    return whole, all_ - whole


def _directory(path: str) -> str:
    """NAME of ``checkpoints/NAME/FILE``; empty for other paths."""
    parts = path.split("/")
    return parts[1] if len(parts) > 1 and parts[0] == "checkpoints" else ""


log = logging.getLogger(__name__)

DATABASE = "service.db"
CHECKPOINTS = "checkpoints"
MARK = "service.id"
"""File in the checkpoints' directory: the id of the database that it belongs to."""
KEY = re.compile(r"hud-local-[\w-]{32}", re.ASCII)
MOST_BYTES = 1 << 12
"""Maximum size of the file with the key."""
SEEN = (
    "Whoever could read it may have the key: remove it, and a new one is made; or, where nobody"
    " else is on this machine, chmod 600"
)
LEFTOVERS = "leftovers"
OURS = {"model", "checkpoint", "head", "event"}
"""Tables that every version of the database has."""
CHECK_S = 10.0
"""Longest check of a database at start-up, seconds: enough for about 10 GB in memory, 2 GB on a
slow disk."""
BELONG = (
    "Nothing was changed. Restore the service.db or the checkpoints that match,"
    " or serve another directory: --data-dir"
)


class Unusable(Exception):
    """The data directory cannot be served; the message says what to change."""


@dataclass(frozen=True)
class Known:
    """What a database says of the checkpoints' directory."""

    id: str | None = None
    """None if an older version wrote the database, or if there is none."""
    is_new: bool = True
    """Whether the database is empty."""
    kept: frozenset[str] = frozenset()
    """Names of the directories whose files are needed."""
    thinned: frozenset[str] = frozenset()
    """Names of the directories whose files were deleted to save space."""
    damaged: frozenset[str] = frozenset()
    """Names of the directories whose file was missing or damaged at the last check."""


@dataclass(frozen=True)
class Contents:
    """Content of the checkpoints' directory."""

    id: str | None = None
    steps: frozenset[str] = frozenset()
    """Directories named like those of checkpoints."""
    others: frozenset[str] = frozenset()
    """Other entries; they are not touched."""


@dataclass(frozen=True)
class Prepared:
    """A data directory that can be served."""

    key: str
    """The service's bearer key."""
    id: str
    """Id shared by database and checkpoints."""
    known: Known


def prepare(data_dir: Path) -> Prepared:
    """Prepare a data directory for a service, creating what is missing. Raises Unusable: its
    database cannot be used, or belongs to other checkpoints; OSError: it cannot be written to."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    stored, held = refuse_foreign(data_dir)
    (data_dir / CHECKPOINTS).mkdir(exist_ok=True, mode=0o700)
    key = load_key(data_dir / "service.key")
    database = data_dir / DATABASE
    database.touch(mode=0o600)
    for path in database.parent.glob(f"{database.name}*"):
        path.chmod(0o600)
    adopted = held.id if held.steps else None
    return Prepared(key, stored.id or adopted or str(uuid4()), stored)


def refuse_foreign(data_dir: Path) -> tuple[Known, Contents]:
    """Check that database and directory belong together; nothing is changed. Raises Unusable: they
    do not belong together, or the database cannot be used."""
    database, held = data_dir / DATABASE, _read_contents(data_dir / CHECKPOINTS)
    if not database.exists():
        if held.steps or held.others:
            raise Unusable(f"{data_dir / CHECKPOINTS} has no {DATABASE} beside it. {BELONG}")
        return Known(), held
    stored = read_database(database)
    if why := _apart(stored, held):
        raise Unusable(f"{database} and {data_dir / CHECKPOINTS} do not match: {why}")
    return stored, held


def read_database(path: Path) -> Known:
    """Check a database, and read what it says of the checkpoints. Nothing is written. Raises
    Unusable: it is damaged, another program's, or a newer version's."""
    check_regular(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            return _known(db, path)
    except TooNew as error:
        raise Unusable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        raise Unusable(f"{path} is damaged, or no database: {error}. {RESTORE}") from error


def mark(data_dir: Path, id_: str) -> None:
    """Write the database's id into the checkpoints' directory, if it is not there yet."""
    if _read_contents(data_dir / CHECKPOINTS).id != id_:
        write_atomic(data_dir / CHECKPOINTS / MARK, f"{id_}\n")


def tidy(data_dir: Path, stored: Known) -> None:
    """Finish deletions that the database has recorded; move unknown files aside."""
    directory = data_dir / CHECKPOINTS
    unknown = []
    for name in sorted(_read_contents(directory).steps - stored.kept):
        path = directory / name
        if name in stored.thinned:
            shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            path.rmdir()
        except OSError:  # it is not empty
            unknown.append(path)
    _set_aside(data_dir, unknown)


def examine(data_dir: Path) -> list[Finding]:
    """The problems that a start would report for a directory that is not being served."""
    try:
        stored, held = refuse_foreign(data_dir)
        if (key := data_dir / "service.key").exists():
            load_key(key)
    except (Unusable, OSError, sqlite3.Error) as error:
        what, _, fix = one_line(error, 1000).partition(". ")
        return [Finding("service", "failure", f"the service would not start: {what}", fix=fix)]
    problems: list[Finding] = []
    if damaged := len(stored.damaged | (stored.kept - held.steps)):
        message = f"{counted(damaged, 'damaged checkpoint')}: files are missing or corrupted"
        fix = "restore them from a backup; is:damaged in Checkpoints (/) lists them"
        problems.append(Finding("service", "warning", message, fix=fix))
    strays = held.steps - stored.kept - stored.thinned
    if unknown := sum(any((data_dir / CHECKPOINTS / name).iterdir()) for name in strays):
        message = f"files of {counted(unknown, 'checkpoint')} that service.db does not know"
        fix = (
            "a crash left them, or service.db is an older copy: put the newer one back before the"
            " next start, which moves them to leftovers-DATE in the data directory"
        )
        problems.append(Finding("service", "warning", message, fix=fix))
    return problems or [Finding("service", "ok", "database and checkpoints match")]


def load_key(path: Path) -> str:
    """The bearer key of a data directory, created if missing; only the user can read it. Raises
    Unusable: the file has other content, is not a regular file, or others can access it."""
    try:
        key = read_private(path, MOST_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        key = f"hud-local-{secrets.token_urlsafe(24)}"
        write_atomic(path, key)
        return key
    except NotPrivate as error:
        raise Unusable(f"{path}: {error.strerror}. {SEEN}") from error
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}. Remove it, and a new one is made") from error
    if not KEY.fullmatch(key):
        raise Unusable(f"{path} holds no key of hud-tui: remove it, and a new one is made")
    return key


def _known(db: sqlite3.Connection, path: Path) -> Known:
    [version] = db.execute("PRAGMA user_version").fetchone()
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if version > len(MIGRATIONS):
        raise TooNew(f"written by a newer hud-tui (schema {version}): update")
    if not tables and version == 0:
        return Known()
    if OURS - tables:
        raise Unusable(f"{path} is another program's database. {BELONG}")
    _quick_check(db, path)
    whole, thinned = directories(db, version)
    known = Known(None, False, frozenset(whole), frozenset(thinned))
    if "identity" not in tables:
        return known
    query = "SELECT state_path FROM checkpoint WHERE damage IS NOT NULL AND state != 'expired'"
    damaged = frozenset(_directory(path) for [path] in db.execute(query)) - {""}
    row = db.execute("SELECT id FROM identity").fetchone()
    return replace(known, id=row[0] if row else None, damaged=damaged)


def _quick_check(db: sqlite3.Connection, path: Path) -> None:
    """Check the pages of the database, for a limited time. Raises Unusable: one is damaged."""
    until = monotonic() + CHECK_S
    db.set_progress_handler(lambda: monotonic() > until, 100_000)
    try:
        [answer] = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        log.warning("%s is large: only what was read in %.0f s is checked", path, CHECK_S)
        return
    finally:
        db.set_progress_handler(None, 0)
    if answer != "ok":
        raise Unusable(f"{path} is damaged: {' '.join(answer.split())[:300]}. {RESTORE}")


def _apart(stored: Known, held: Contents) -> str:
    """Why they do not belong together; empty if they do."""
    if stored.id and held.id:
        if stored.id == held.id:
            return ""
        return f"the database's id is {stored.id}, the checkpoints' is {held.id[:100]}. {BELONG}"
    named = held.steps & (stored.kept | stored.thinned)
    if named or not (held.steps or (stored.is_new and held.others)):
        return ""
    what = "the database is empty" if stored.is_new else "the database knows none of them"
    return f"there are {len(held.steps) or len(held.others)} checkpoints, and {what}. {BELONG}"


def _read_contents(directory: Path) -> Contents:
    """Read the checkpoints' directory. Raises Unusable: it is not a directory."""
    if not directory.exists():
        return Contents()
    if not directory.is_dir():
        raise Unusable(f"{directory} is not a directory. {BELONG}")
    steps: set[str] = set()
    others: set[str] = set()
    for entry in os.scandir(directory):
        if entry.name.partition(".tmp")[0] == MARK:
            continue
        ours = canonical(entry.name) == entry.name and entry.is_dir(follow_symlinks=False)
        (steps if ours else others).add(entry.name)
    try:
        id_ = (directory / MARK).read_text("utf-8", "replace").strip()
    except FileNotFoundError:
        id_ = ""
    return Contents(id_ or None, frozenset(steps), frozenset(others))


def _set_aside(data_dir: Path, unknown: Iterable[Path]) -> None:
    leftovers = data_dir / f"{LEFTOVERS}-{date.today().isoformat()}"
    moved = 0
    for path in unknown:
        try:
            leftovers.mkdir(exist_ok=True, mode=0o700)
            path.rename(_free(leftovers / path.name))
            moved += 1
        except OSError as error:
            why = "another disk" if error.errno == errno.EXDEV else error.strerror
            log.warning("%s is not known to %s, and left where it is: %s", path, DATABASE, why)
    if moved:
        log.warning(
            "%d checkpoint directories that %s does not know (a crash left them, or it is an"
            " older copy) were moved to %s; nothing was deleted",
            *(moved, DATABASE, leftovers),
        )


def _free(path: Path) -> Path:
    """The path, with a number appended if it exists."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(free for free in chain([path], numbered) if not os.path.lexists(free))


# Retention: limits the size of the checkpoints' files, in the background.
#
# Above the limit, the oldest checkpoints first lose Adam's moments (they can still be served, and
# training from them starts with fresh moments), then their weights. The database records a deletion
# before the file goes, so that a crash in between is completed at the next start.


DEFAULT_BYTES = 10 * 10**9


class Retention:
    def __init__(
        self,
        store: Store,
        engine: Engine,
        policies: Policies,
        weights: Weights,
        data_dir: Path,
        limit: int,
    ) -> None:
        """`limit`: most bytes of all checkpoints' files together."""
        self._store = store
        self._engine = engine
        self._policies = policies
        self._weights = weights
        self._data_dir = data_dir
        self._limit = limit
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._unreadable: set[str] = set()
        """State paths from which the engine could not remove the optimizer state."""

    async def disk(self, base: Base | None) -> Disk | None:
        """Disk usage of a base's checkpoints; None if they are stored on a server."""
        if base is None or self._engine.about().server is not None:
            return None
        size = await self._store.read(checkpoints.measured, base.id) or base.state_bytes
        used = await self._store.read(checkpoints.used)
        if not size:
            return None
        free = await asyncio.to_thread(free_bytes, self._data_dir)
        return Disk(checkpoint_bytes=size, used_bytes=used, max_bytes=self._limit, free_bytes=free)

    async def refuse_full(self, base: Base) -> None:
        """Check before a run. Raises Refused, 507: there is no room for a single checkpoint."""
        disk = await self.disk(base)
        if disk is not None and (disk.free_bytes or 0) < disk.checkpoint_bytes:
            need = f"a checkpoint takes {disk.checkpoint_bytes} bytes, {disk.free_bytes} are free"
            raise Refused(507, f"{FULL} ({need})")

    def wake(self) -> None:
        """Schedule a check of the limit."""
        self._again = True
        if self._task is None or self._task.done():
            with called_by(SERVICE):  # not for whoever stored something
                self._task = asyncio.create_task(self._guard(), name="retention")

    async def close(self) -> None:
        """Stop; a deletion in progress is completed at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until nothing is left to delete."""
        if self._task is not None:
            await self._task

    async def _guard(self) -> None:
        try:
            while self._again:
                self._again = False
                while await self._store.read(checkpoints.used) > self._limit and await self._thin():
                    pass
        except Exception as error:
            why = error if isinstance(error, EngineLost) else refusal(error)
            if why is None:
                log.exception("checkpoints could not be thinned")
            else:
                log.warning("checkpoints could not be thinned: %s", why)

    async def _thin(self) -> bool:
        """Thin one checkpoint by one stage; returns False if none can be."""
        opened = self._policies.sources() | self._unreadable
        due = await self._store.read(checkpoints.next_to_thin, opened)
        if due is None:
            return False
        model_id, node = due
        if node.state == "full":
            done = await self._slim(model_id, node)
        else:
            done = await self._store.write(checkpoints.expired, model_id, node)
        if done and not self._policies.opens(node.state_path):  # else the next start deletes it
            old = (self._data_dir / node.state_path).parent
            await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        return True

    async def _slim(self, model_id: str, node: Node) -> bool:
        """Write the weights without the optimizer state beside the full state, and record it."""
        directory = self._data_dir / "checkpoints" / new_id()
        await asyncio.to_thread(directory.mkdir, 0o700)
        done = False
        try:
            await self._weights.check(node.state_path)
            path = await self._engine.slim(self._data_dir / node.state_path, directory)
            path_here = str(Path(path).relative_to(self._data_dir))
            saved = await asyncio.to_thread(saved_file, self._data_dir, directory, path_here)
            done = await self._store.write(checkpoints.slimmed, model_id, node, saved)
        except (DiskFull, EngineLost):
            raise  # the state itself is good: retried after the next step
        except (EngineError, Refused) as error:
            log.warning("%s cannot be thinned: %s", node.name, error)
            # the file is damaged, which is recorded, and skipped from now on
            if not isinstance(error, Refused):
                self._unreadable.add(node.state_path)
        except asyncio.CancelledError:
            done = True  # the row may be written already: keep the file that it needs
            raise
        finally:
            if not done:
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        return done
