"""Taking a step: the engine saves it, and one transaction puts it into the tree."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hud_tui.service.engines.base import Adam, Engine, Handle, Saved
from hud_tui.service.retention import size_of
from hud_tui.service.store import Db, checkpoints, replies
from hud_tui.service.store.checkpoints import NewCheckpoint
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.replies import Kept

Also = Callable[[Db, Node], object]
"""A change that belongs in the same transaction as a step."""


async def take(
    engine: Engine, handle: Handle, adam: Adam, directory: Path, data_dir: Path
) -> tuple[Saved, int]:
    """Step and save.

    Args:
        engine, handle: What steps.
        adam: The optimizer's numbers.
        directory: Where the files go; made here.
        data_dir: What paths are kept relative to, so that it can be moved.

    Returns:
        Where the weights are, and the files' bytes.

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
    return portable, await asyncio.to_thread(size_of, directory)


def append(db: Db, new: NewCheckpoint, passes: Sequence[Kept], also: Also | None) -> Node:
    """Make a saved step the head, with the replies to the passes that it took and `also`."""
    node = checkpoints.append(db, new)
    for kept in passes:
        replies.keep(db, new.model_id, kept)
    if also is not None:
        also(db, node)
    return node


def _under(directory: Path, path: str) -> str:
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path
