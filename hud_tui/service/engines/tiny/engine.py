"""TinyEngine: the tiny policies behind the engine contract.

This is the service's side: it checks every call, and the worker process carries it out.
It does not load NumPy.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hud_tui.service.engines import figures
from hud_tui.service.engines.base import (
    About,
    Adam,
    Base,
    Datum,
    EngineError,
    EngineLost,
    Handle,
    Sampled,
    SampleRequest,
    Saved,
    StateDamaged,
    Tokenizer,
)
from hud_tui.service.engines.tiny import checks, slices
from hud_tui.service.engines.tiny.bases import BASES, weights_path
from hud_tui.service.engines.tiny.dispatch import LOST, ROWS, Dispatch
from hud_tui.service.engines.tiny.tokenizer import CharTokenizer


@dataclass(frozen=True)
class Opened:
    """What the service's side knows of a handle."""

    pid: int
    """Of the worker that holds it."""
    context: int
    vocabulary: int


class TinyEngine:
    """Implements `engines.base.Engine` in NumPy, in a process of its own."""

    def __init__(self) -> None:
        self._worker = Dispatch()
        self._opened: dict[Handle, Opened] = {}
        self._count = 0

    def bases(self) -> Sequence[Base]:
        return BASES

    def about(self) -> About:
        return About("tiny", queue=self._worker.holds_up or "active")

    async def tokenizer(self, base: str) -> Tokenizer:
        """The one tokenizer that all bases share. Raises EngineError: no such base."""
        _base_path(base)
        return CharTokenizer()

    async def start(self) -> None:
        """Start the worker and wait until it is up; otherwise the first call does."""
        await self._ask("ready", "")

    async def stop(self) -> None:
        """End the worker; calls that still wait raise EngineLost."""
        await self._worker.stop()

    async def open(self, source: str | Path) -> Handle:
        path = source if isinstance(source, Path) else _base_path(source)
        self._count += 1
        handle = f"tiny-{self._count}"
        try:
            told = await self._ask("open", handle, path=str(path))
        except EngineLost:
            raise
        except EngineError as error:
            raise StateDamaged(str(error)) from error
        self._opened[handle] = Opened(**told)
        return handle

    async def close(self, handle: Handle) -> None:
        opened = self._opened.pop(handle, None)
        if opened is not None and opened.pid == self._worker.pid:
            await self._worker.tell({"verb": "close", "handle": handle})

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        opened = self._known(handle)
        checks.requests(requests, opened.context, opened.vocabulary)
        parts = [requests[start : start + ROWS] for start in range(0, len(requests), ROWS)]
        asked = (self._ask("sample", handle, requests=list(part)) for part in parts)
        return [Sampled(**row) for rows in await asyncio.gather(*asked) for row in rows]

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        opened = self._known(handle)
        checks.datums(datums, opened.context, opened.vocabulary, ratios=False)
        found: list[list[float]] = []
        for part in slices.cut(datums):
            found += await self._ask("forward", handle, datums=list(datums[part]))
        return found

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        opened = self._known(handle)
        full = checks.loss_config(loss_fn, config)
        ratios = loss_fn != "cross_entropy"
        checks.datums(datums, opened.context, opened.vocabulary, ratios)
        moved = [datum for datum in datums if datum.advantage]
        still = await self._look(handle, [d for d in datums if not d.advantage], full)
        found = [
            await self._ask(
                "forward_backward", handle, datums=moved[part], slice=number,
                loss_fn=loss_fn, config=full,
            )
            for number, part in enumerate(slices.cut(moved))
        ]  # fmt: skip
        return figures.of_pass(figures.merge(found) if found else None, still)

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        opened = self._known(handle)
        checks.datums(datums, opened.context, opened.vocabulary, ratios=False)
        checks.weights(weights, datums)
        pairs = list(zip(datums, map(list, weights), strict=True))
        still = await self._look(handle, [datum for datum, row in pairs if not any(row)], {})
        moved = [datum for datum, row in pairs if any(row)]
        rows = [row for _, row in pairs if any(row)]
        found = [
            await self._ask(
                "backward", handle, datums=moved[part], slice=number, weights=rows[part]
            )
            for number, part in enumerate(slices.cut(moved))
        ]
        return figures.of_pass(figures.merge(found) if found else None, still)

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        self._known(handle)
        checks.adam(adam)
        saved = await self._ask("optim_step", handle, adam=adam, directory=str(directory))
        return Saved(**saved)

    async def slim(self, state: Path, directory: Path) -> str:
        path: str = await self._ask("slim", "", path=str(state), directory=str(directory))
        return path

    async def _look(
        self, handle: Handle, datums: list[Datum], config: Mapping[str, float]
    ) -> dict[str, float] | None:
        """The figures of turns without a gradient, by a forward pass; None where there are none."""
        found = [
            await self._ask("look", handle, datums=datums[part], config=config)
            for part in slices.cut(datums)
        ]
        return figures.merge(found) if found else None

    async def _ask(self, verb: str, handle: Handle, **fields: Any) -> Any:
        return await self._worker.ask({"verb": verb, "handle": handle, **fields})

    def _known(self, handle: Handle) -> Opened:
        """What is known of an open handle. Raises EngineLost: its worker has ended."""
        opened = self._opened.get(handle)
        if opened is None:
            raise EngineError("this policy is closed: open it again")
        if opened.pid != self._worker.pid:
            del self._opened[handle]
            raise EngineLost(LOST)
        return opened


def _base_path(base: str) -> Path:
    """A base's weights. Raises EngineError: no such base."""
    names = [known.name for known in BASES]
    if base not in names:
        raise EngineError(f"no base {base!r}; choose from {', '.join(names)}")
    return weights_path(base)
