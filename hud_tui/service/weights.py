"""Weights: a checkpoint's file is loaded only with the checksum that it was saved with.

A file that is missing or another one makes its checkpoint `damaged`: its row says so, and what
would load it is refused. It is looked at anew each time, so putting the file back is enough.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from time import monotonic

from hud_tui.service.http import Refused
from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import Row
from hud_tui.service.store.db import Db, Store

log = logging.getLogger(__name__)

SURVEY_S = 2.0
"""How long a start reads the heads' files; those left are read when they are loaded."""
NAMED = 5


class Weights:
    def __init__(self, store: Store, data_dir: Path) -> None:
        self._store = store
        self._data_dir = data_dir

    async def check(self, state_path: str) -> None:
        """Before a state is loaded, or made what is loaded next.

        Raises:
            Refused: 410, its file is missing, or not the one that was saved.
        """
        row = await self._store.read(checkpoints.row, state_path)
        if row is None or "://" in state_path:
            return
        problem = await asyncio.to_thread(damage_of, self._data_dir / state_path, row.sha256)
        if problem != row.damage:
            await self._store.write(checkpoints.mark, state_path, problem)
        still = await self._store.read(checkpoints.row, state_path)
        if problem and still is not None:  # it was not thinned meanwhile
            raise await self._refusal(still, problem)

    async def knows(self, state_path: str) -> bool:
        """Whether a checkpoint has its state in this file now."""
        return await self._store.read(checkpoints.row, state_path) is not None

    async def unreadable(self, state_path: str, problem: str) -> None:
        """The engine could not read a state.

        Raises:
            Refused: 410.
        """
        row = await self._store.read(checkpoints.row, state_path)
        if row is not None:
            await self._store.write(checkpoints.mark, state_path, problem)
            raise await self._refusal(row, problem)

    async def survey(self) -> None:
        """At a start: every file is looked for, and those of the heads are read."""
        rows = await self._store.read(checkpoints.weights_rows)
        found = await asyncio.to_thread(_survey, self._data_dir, rows)
        if found:
            await self._store.write(_mark_all, found)
        damaged = [(row, problem) for row, problem in found if problem]
        for row, problem in damaged[:NAMED]:
            log.warning("%s of %s is damaged: %s", row.name, row.model, problem)
        if len(damaged) > NAMED:
            log.warning("%d more checkpoints are damaged", len(damaged) - NAMED)

    async def _refusal(self, row: Row, problem: str) -> Refused:
        near = await self._store.read(checkpoints.whole, row)
        others = f"or choose a checkpoint that is whole: {', '.join(near)}"
        return Refused(
            410,
            f"{row.name} of {row.model} is damaged: {problem}. Put the file back from a backup"
            f" and try again, {others if near else 'or fork its base anew'}",
        )


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def damage_of(path: Path, sha256: str | None) -> str | None:
    """What is wrong with a file, in words; None where it is the one that was saved.

    Args:
        path: Where it was saved, ``…/checkpoints/ID/NAME``.
        sha256: As it was saved; None where that is not known.
    """
    place = "/".join(path.parts[-3:])
    try:
        if sha256 is None:
            path.stat()
        elif checksum(path) != sha256:
            return f"{place} has not the checksum that it was saved with"
    except FileNotFoundError:
        return f"{place} is missing"
    except OSError as error:
        return f"{place} cannot be read: {error.strerror}"
    return None


def _survey(data_dir: Path, rows: Sequence[Row]) -> list[tuple[Row, str | None]]:
    """The rows of whose files something else is to be said than before."""
    until = monotonic() + SURVEY_S
    found = []
    for row in rows:
        if "://" in row.path:
            continue
        reads = row.damage is not None or (row.is_head and monotonic() < until)
        problem = damage_of(data_dir / row.path, row.sha256 if reads else None)
        if problem != row.damage:
            found.append((row, problem))
    return found


def _mark_all(db: Db, found: Sequence[tuple[Row, str | None]]) -> None:
    for row, problem in found:
        checkpoints.mark(db, row.path, problem)
