"""Journal of steps that were meant to be taken: what a crash leaves on the server is found by it.

A line is on disk before the server is asked. A step counts once a checkpoint here points to
it; names that none points to are deleted from the server at the next start, for what is
stored there costs money.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path

from hud_tui.service.engines.base import DiskFull, EngineError, StateDamaged
from hud_tui.storage import open_or_make, read_regular, write_atomic

MOST_BYTES = 1 << 26
"""Of the largest file that is read: some 500 000 steps."""


@dataclass(frozen=True)
class Intent:
    """A step that was about to be taken and saved."""

    run: str
    """The server's name of the training run."""
    name: str
    """What the state and the sampler weights were to be saved as; never used twice."""


class Journal:
    def __init__(self, path: Path) -> None:
        """Takes over what an earlier process left in the file."""
        self._path = path
        self._left = _read(path)

    def take_left(self) -> list[Intent]:
        """Intents of earlier processes; they are given once."""
        left, self._left = self._left, []
        return left

    def intend(self, intent: Intent) -> None:
        """Write it down, fsynced. Raises OSError."""
        with open(open_or_make(self._path, os.O_APPEND), "a") as file:
            file.write(json.dumps(asdict(intent)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def settle(self, settled: Sequence[Intent]) -> None:
        """These need not be remembered any more."""
        done = {intent.name for intent in settled}
        kept = [intent for intent in _read(self._path) if intent.name not in done]
        write_atomic(self._path, (json.dumps(asdict(intent)) + "\n" for intent in kept))


def _read(path: Path) -> list[Intent]:
    """The whole lines; a crash may have cut the last one."""
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    intents = []
    for line in lines:
        try:
            intents.append(Intent(**json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            continue
    return intents


# Pointer: a checkpoint's file here, which says where its weights are on the server.


FILE = "tinker.json"
MOST_POINTER_BYTES = 1 << 20
"""Of the largest file that is read."""


@dataclass(frozen=True)
class Pointer:
    """Weights on a server: of a saved state, or of a base where there is no state."""

    url: str
    """Of the server that has them."""
    base: str
    """The engine's name of the base."""
    model: str
    """The server's name of the base."""
    rank: int
    state_path: str | None = None
    """``tinker://RUN/weights/NAME``."""
    sampler_path: str | None = None
    optimizer: bool = True
    """Whether the optimizer's moments are loaded with the weights."""


def write(directory: Path, pointer: Pointer) -> Path:
    """Write it into a directory, fsynced and renamed into place; the file.

    Raises:
        EngineError: It cannot be written.
    """
    path = directory / FILE
    try:
        write_atomic(path, json.dumps(asdict(pointer)))
    except OSError as error:
        kind = DiskFull if error.errno in (ENOSPC, EDQUOT, EFBIG) else EngineError
        raise kind(f"the checkpoint could not be written: {error.strerror}") from error
    return path


def read(path: Path) -> Pointer:
    """What a file says. Raises StateDamaged: there is none, or it is not whole."""
    try:
        return Pointer(**json.loads(read_regular(path, MOST_POINTER_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StateDamaged(f"no such state, or it is not whole: {path.name}") from error


def states(checkpoints: Path) -> set[str]:
    """Every state that a checkpoint here points to, or one that was moved aside at a start.

    Raises:
        EngineError: One of them cannot be read.
        OSError: There is no such directory.
    """
    checkpoints.stat()
    aside = checkpoints.parent.glob(f"leftovers-*/*/{FILE}")
    return {str(read(path).state_path) for path in (*checkpoints.glob(f"*/{FILE}"), *aside)}
