"""Taking a step: the engine saves it, and one transaction puts it into the tree."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hud_tui.service.engines.base import Adam, Engine, Handle, Saved
from hud_tui.service.store import Db, checkpoints, replies
from hud_tui.service.store.checkpoints import NewCheckpoint
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.replies import Kept
from hud_tui.service.store.weights import File
from hud_tui.service.weights import checksum

Also = Callable[[Db, Node], object]
"""A change that belongs in the same transaction as a step."""


async def take(
    engine: Engine, handle: Handle, adam: Adam, directory: Path, data_dir: Path
) -> tuple[Saved, File]:
    """Step and save.

    Args:
        engine, handle: What steps.
        adam: The optimizer's numbers.
        directory: Where the files go; made here.
        data_dir: What paths are kept relative to, so that it can be moved.

    Returns:
        Where the weights are, and their file.

    Raises:
        EngineError: No step was taken.
    """
    await asyncio.to_thread(directory.mkdir, parents=True)
    saved = await engine.optim_step(handle, adam, directory)
    portable = replace(
        saved,
        state_path=_under(data_dir, saved.state_path),
        sampler_path=_under(data_dir, saved.sampler_path),
    )
    return portable, await asyncio.to_thread(saved_file, data_dir, directory, portable.state_path)


def append(db: Db, new: NewCheckpoint, passes: Sequence[Kept], also: Also | None) -> Node:
    """Make a saved step the head, with the replies to the passes that it took and `also`."""
    node = checkpoints.append(db, new)
    for kept in passes:
        replies.keep(db, new.model_id, kept)
    if also is not None:
        also(db, node)
    return node


def saved_file(data_dir: Path, directory: Path, state_path: str) -> File:
    """What was saved into a directory, with the checksum of the file that is loaded."""
    is_here = "://" not in state_path
    sha256 = checksum(data_dir / state_path) if is_here else None
    return File(state_path, size_of(directory), sha256)


def size_of(directory: Path) -> int:
    """Bytes of a directory's files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _under(directory: Path, path: str) -> str:
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path
