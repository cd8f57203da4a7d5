"""Service: starts and stops the parts of the embedded service in order."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from hud_tui.rl.tasks.formats import read_row
from hud_tui.service.access import Access
from hud_tui.service.context import ServiceContext
from hud_tui.service.data_dir import DEFAULT_BYTES, mark, prepare, tidy
from hud_tui.service.engines.base import Engine
from hud_tui.service.environments import TASKSETS
from hud_tui.service.evaluate import Evaluator
from hud_tui.service.journal import Journal
from hud_tui.service.runner import Hosted, Runner
from hud_tui.service.store import models, runs, traces, works
from hud_tui.service.store.db import Db
from hud_tui.service.works import Works


class Service:
    """The embedded service over one data directory; an async context manager."""

    def __init__(self, data_dir: Path, engine: Engine, max_disk: int = DEFAULT_BYTES) -> None:
        """`data_dir` is created if missing, private to the user; `engine` is started and stopped
        with the service; `max_disk`: most bytes of all checkpoints' files together."""
        self.data_dir = data_dir.resolve()
        self.parts = ServiceContext(self.data_dir, engine, max_disk)
        self.works = Works(self.parts)
        self.runner = Runner(self.parts, self.works)
        self.hosted = Hosted(self.parts)
        self.evaluator = Evaluator(self.parts, self.works)
        self.access = Access(self.parts.store)
        self.journal = Journal(self.data_dir)
        self.api_key = ""
        """Known once started: read from the data directory, or created there."""
        self.id = ""
        """Id of the data directory; known once started."""
        self._engine = engine
        self._logging: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Service":
        prepared = await asyncio.to_thread(prepare, self.data_dir)
        self.api_key, self.id = prepared.key, prepared.id
        try:
            await self.parts.store.open(prepared.id)
            await self.access.open(prepared.key)
            await asyncio.to_thread(mark, self.data_dir, prepared.id)
            await self._engine.start()
            offered = {base.name: base.id for base in self._engine.bases() if base.offered}
            await self.parts.store.write(recover, offered)
            await asyncio.to_thread(tidy, self.data_dir, prepared.known)
            await self.parts.weights.survey()
        except BaseException:
            await self._close()
            raise
        self.parts.retention.wake()
        self.works.listen()
        self._logging = asyncio.create_task(self.journal.follow(), name="log")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.hosted.close()
        await self.works.close()
        self.parts.hub.close()
        await self.parts.retention.close()
        await self._close()
        if self._logging is not None:
            self._logging.cancel()
        await asyncio.to_thread(self.journal.release)

    async def _close(self) -> None:
        await self._engine.stop()
        await self.parts.store.close()


def recover(db: Db, bases: Mapping[str, str]) -> None:
    """Restore the catalog and the tasksets, and mark what a crash interrupted."""
    models.offer_bases(db, bases)
    for builtin in TASKSETS.values():
        rows = ((read_row(row).slug, row) for row in builtin.tasks)  # read where they are new
        models.offer(db, builtin.name, builtin.description, rows)
    runs.backfill(db)
    works.interrupt_all(db)
    traces.end_queued(db)
