"""Which checkpoints' directory a database belongs to, and what it says of the files there."""

import sqlite3

HAS_STATES = 4
"""The version from which on a row says what is kept of its files."""


def read(db: sqlite3.Connection) -> str | None:
    """The id that is in the directory too; None where it has none yet."""
    row = db.execute("SELECT id FROM identity").fetchone()
    return None if row is None else str(row[0])


def directories(db: sqlite3.Connection, version: int) -> tuple[set[str], set[str]]:
    """Names of the directories that are needed, and of those that were thinned on purpose.

    Args:
        db: A database of any version.
        version: Which.
    """
    state = "state" if version >= HAS_STATES else "'full' AS state"
    kept: set[str] = set()
    all_: set[str] = set()
    for row in db.execute(f"SELECT id, sampler_path, state_path, {state} FROM checkpoint"):
        names = {_directory(row["state_path"]) or row["id"]}
        all_ |= {*names, _directory(row["sampler_path"]) or row["id"]}
        if row["state"] != "expired":
            kept |= names
    for [path] in db.execute("SELECT state_path FROM model WHERE state_path IS NOT NULL"):
        kept.add(_directory(path))
    kept.discard("")
    return kept, all_ - kept


def damaged(db: sqlite3.Connection) -> set[str]:
    """Names of the directories whose files are not as they were saved."""
    query = "SELECT state_path FROM checkpoint WHERE damage IS NOT NULL AND state != 'expired'"
    return {_directory(path) for [path] in db.execute(query)} - {""}


def _directory(path: str) -> str:
    """Of ``checkpoints/NAME/FILE`` the name; empty where the path is none on this machine."""
    parts = path.split("/")
    return parts[1] if len(parts) > 1 and parts[0] == "checkpoints" else ""
