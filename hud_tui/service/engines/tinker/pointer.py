"""Pointer: a checkpoint's file here, which says where its weights are on the server."""

import json
import os
from dataclasses import asdict, dataclass
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path

from hud_tui.regular_file import read_regular
from hud_tui.service.engines.base import DiskFull, EngineError, StateDamaged

FILE = "tinker.json"
MOST_BYTES = 1 << 20
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
    draft = path.with_suffix(".tmp")
    try:
        with draft.open("w") as file:
            json.dump(asdict(pointer), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        place = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as error:
        kind = DiskFull if error.errno in (ENOSPC, EDQUOT, EFBIG) else EngineError
        raise kind(f"the checkpoint could not be written: {error.strerror}") from error
    return path


def read(path: Path) -> Pointer:
    """What a file says. Raises StateDamaged: there is none, or it is not whole."""
    try:
        return Pointer(**json.loads(read_regular(path, MOST_BYTES)))
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
