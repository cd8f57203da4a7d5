"""What a failure of the disk or the database means to who called: a status and a sentence."""

import errno
import shutil
import sqlite3
from pathlib import Path

from hud_tui.service.engines.base import DiskFull
from hud_tui.service.refusals import Refused

FULL = (
    "the disk of the data directory is full: nothing of this was kept. Free some space (hud-tui"
    " doctor says where it goes), or serve with a lower --max-disk, then do it again"
)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
WRITES = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
}
"""SQLite says so where a quota is reached, too."""


def free_bytes(data_dir: Path) -> int:
    """What the checkpoints' disk has room for."""
    return shutil.disk_usage(data_dir / "checkpoints").free


def refusal(error: BaseException) -> Refused | None:
    """507 where there is no room, 503 where it may work later, 500 for damage; None where it is
    no failure of the disk's."""
    if isinstance(error, DiskFull):
        return Refused(507, FULL)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    if not isinstance(error, OSError):
        return None
    if error.errno in NO_ROOM:
        return Refused(507, FULL)
    if error.errno in READ_ONLY:
        return _not_writable(error.strerror or "permission denied")
    if error.errno == errno.EIO:
        return Refused(500, f"the disk of the data directory fails: {error.strerror}: look at it")
    return None


def _of_sqlite(error: sqlite3.Error) -> Refused | None:
    code = getattr(error, "sqlite_errorcode", 0)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return Refused(507, FULL)
        case sqlite3.SQLITE_IOERR if code in WRITES:
            return Refused(507, f"{FULL} (or its quota is reached, or it fails: {error})")
        case sqlite3.SQLITE_IOERR:
            return Refused(500, f"the disk of the data directory fails: {error}: look at it")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _not_writable(str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Refused(
                503,
                "another program holds service.db locked: end it (a backup, a sqlite3 shell),"
                " then do this again; nothing of it was kept",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return Refused(
                500,
                f"service.db is damaged ({error}): stop the service (hud-tui stop); hud-tui doctor"
                " says how to go on",
            )
    return None


def _not_writable(why: str) -> Refused:
    return Refused(
        507,
        f"the data directory cannot be written to ({why}): nothing of this was kept. Correct its"
        " permissions, or mount its disk writable, then do this again",
    )
