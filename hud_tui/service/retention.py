"""Retention: keeps the checkpoints' files within a size, in the background.

Beyond it the oldest states lose Adam's moments first (they are still served, and training
from them starts with fresh ones), then their weights. A row says so before a file goes:
what a crash leaves in between is swept at the next start.
"""

import asyncio
import logging
import shutil
from pathlib import Path

from hud_tui.service.engines.base import Base, DiskFull, Engine, EngineError, EngineLost
from hud_tui.service.http import FULL, Refused, free_bytes, new_id, refusal
from hud_tui.service.policies import Policies, Weights, saved_file
from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.db import Store
from hud_tui.wire import Disk

log = logging.getLogger(__name__)

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
        """`limit`: bytes that all checkpoints' files may have together."""
        self._store = store
        self._engine = engine
        self._policies = policies
        self._weights = weights
        self._data_dir = data_dir
        self._limit = limit
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._unreadable: set[str] = set()
        """State paths that the engine could not thin."""

    async def disk(self, base: Base | None) -> Disk | None:
        """What checkpoints of a base take; None if they are kept on a server."""
        if base is None or self._engine.about().server is not None:
            return None
        size = await self._store.read(checkpoints.measured, base.name) or base.state_bytes
        used = await self._store.read(checkpoints.used)
        if not size:
            return None
        free = await asyncio.to_thread(free_bytes, self._data_dir)
        return Disk(checkpoint_bytes=size, used_bytes=used, max_bytes=self._limit, free_bytes=free)

    async def refuse_full(self, base: Base) -> None:
        """Before a run. Raises Refused, 507: there is no room for a single checkpoint."""
        disk = await self.disk(base)
        if disk is not None and (disk.free_bytes or 0) < disk.checkpoint_bytes:
            need = f"a checkpoint takes {disk.checkpoint_bytes} bytes, {disk.free_bytes} are free"
            raise Refused(507, f"{FULL} ({need})")

    def wake(self) -> None:
        """Files may have grown beyond the limit: thin what must be, soon."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._guard(), name="retention")

    async def close(self) -> None:
        """Stop between two checkpoints, or within one: the next start sweeps."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until nothing is left to thin."""
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
        """Thin one checkpoint by one stage; False if none may be."""
        opened = self._policies.sources() | self._unreadable
        found = await self._store.read(checkpoints.next_to_thin, opened)
        if found is None:
            return False
        model_id, node = found
        if node.state == "full":
            done = await self._slim(model_id, node)
        else:
            done = await self._store.write(checkpoints.expired, model_id, node)
        if done and not self._policies.opens(node.state_path):  # else the next start sweeps it
            old = (self._data_dir / node.state_path).parent
            await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        return True

    async def _slim(self, model_id: str, node: Node) -> bool:
        """Write the weights alone beside the whole state, and say so."""
        directory = self._data_dir / "checkpoints" / new_id()
        await asyncio.to_thread(directory.mkdir, 0o700)
        done = False
        try:
            done = await self._write_slim(model_id, node, directory)
        except (DiskFull, EngineLost):
            raise  # nothing is wrong with this one: it is tried again after the next step
        except (EngineError, Refused) as error:
            log.warning("%s cannot be thinned: %s", node.name, error)
            if not isinstance(error, Refused):  # that is damaged, and passed over as such
                self._unreadable.add(node.state_path)
        except asyncio.CancelledError:
            done = True  # the row may be written by now: what it needs must stay
            raise
        finally:
            if not done:
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        return done

    async def _write_slim(self, model_id: str, node: Node, directory: Path) -> bool:
        await self._weights.check(node.state_path)
        path = await self._engine.slim(self._data_dir / node.state_path, directory)
        place = str(Path(path).relative_to(self._data_dir))
        saved = await asyncio.to_thread(saved_file, self._data_dir, directory, place)
        return await self._store.write(checkpoints.slimmed, model_id, node, saved)
