"""Trees: every model's checkpoint tree as the bytes that are sent, kept up row by row."""

import asyncio
from dataclasses import dataclass, field
from secrets import token_hex

from hud_tui.service.store import checkpoints
from hud_tui.service.store.db import Store

KEPT = 32
"""Trees kept; the one that was read longest ago goes first."""


@dataclass
class Kept:
    rows: list[bytes] = field(default_factory=list)
    """The one of step N is at N − 1."""
    body: bytes = b""
    etag: str = ""
    stale: set[str] = field(default_factory=set)
    """Ids of rows that have changed since."""

    @property
    def is_fresh(self) -> bool:
        return bool(self.body) and not self.stale


class Trees:
    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._run, self._count = token_hex(4), 0

    def __contains__(self, model_id: str) -> bool:
        """Whether the model's tree is kept."""
        return model_id in self._kept

    def touch(self, touched: dict[str, set[str]]) -> None:
        """These rows of these models are new, or not what they were."""
        for model_id, ids in touched.items():
            if model_id in self._kept:
                self._kept[model_id].stale |= ids

    async def read(self, store: Store, model_id: str) -> tuple[bytes, str]:
        """The tree as a JSON array, oldest first, and an ETag that changes with it."""
        kept = self._kept.get(model_id)
        if kept is None or not kept.is_fresh:
            async with self._locks.setdefault(model_id, asyncio.Lock()):
                kept = await self._renew(store, model_id)
        self._kept[model_id] = self._kept.pop(model_id, kept)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.body, kept.etag

    async def _renew(self, store: Store, model_id: str) -> Kept:
        kept = self._kept.setdefault(model_id, Kept())  # changes are noted from here
        if kept.is_fresh:
            return kept  # somebody else has renewed it
        stale, kept.stale = kept.stale, set()
        try:
            if kept.body:
                for step, row in await store.read(checkpoints.rows, model_id, stale):
                    kept.rows[step - 1 : step] = [row]
            else:
                kept.rows = await store.read(checkpoints.tree, model_id)
        except BaseException:
            self._kept.pop(model_id, None)
            raise
        self._count += 1
        kept.body = b"[" + b",".join(kept.rows) + b"]"
        kept.etag = f'"{self._run}-{self._count}"'
        return kept
