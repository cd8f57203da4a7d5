"""TinkerEngine: language models on Tinker, or on a server with its wire, behind the contract.

This is the service's side: it checks every call and keeps the pointers; a process of its own
talks to the server. Nothing of `tinker` is loaded here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

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
)
from hud_tui.service.engines.tinker import pointer as pointers
from hud_tui.service.engines.tinker.connection import Connection
from hud_tui.service.engines.tinker.link import LOST
from hud_tui.service.engines.tinker.pointer import Pointer
from hud_tui.service.engines.tinker.requests import as_asked
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer, load
from hud_tui.service.engines.tiny import checks
from hud_tui.tinker_settings import Options


class TinkerEngine:
    """Implements `engines.base.Engine` on a server."""

    def __init__(self, options: Options, directory: Path) -> None:
        """
        Args:
            options: Which server, and how to train there.
            directory: For the journal and the log; made when missing. Checkpoints are beside it.
        """
        self._options = options
        self._checkpoints = directory.parent / "checkpoints"
        self._at = Connection(options, directory)
        self._link = self._at.link
        self._tokenizers: dict[str, ChatTokenizer] = {}
        self._loading = asyncio.Lock()
        self._opened: dict[Handle, tuple[int | None, Pointer]] = {}
        self._tidied = False

    def bases(self) -> Sequence[Base]:
        return list(self._at.bases.values())

    def about(self) -> About:
        return self._at.about

    async def tokenizer(self, base: str) -> ChatTokenizer:
        model = self._at.model(base)
        async with self._loading:
            if base not in self._tokenizers:
                self._tokenizers[base] = await asyncio.to_thread(load, model)
        return self._tokenizers[base]

    async def start(self) -> None:
        """Connect. Raises EngineError as `Connection.start` does."""
        await self._at.start()

    async def stop(self) -> None:
        await self._link.stop()

    async def open(self, source: str | Path) -> Handle:
        """Name a policy; the server is asked when training, or a sample, first needs it."""
        pointer = self._at.place(source)
        await self._at.connect()
        handle = f"tinker-{uuid4().hex}"
        await self._link.ask("open", handle=handle, source=asdict(pointer))
        self._opened[handle] = self._link.pid, pointer
        if not self._tidied:
            self._tidied = True
            self._tidying = asyncio.create_task(self._tidy(), name="tinker tidy")
        return handle

    async def close(self, handle: Handle) -> None:
        pid, _ = self._opened.pop(handle, (None, None))
        if pid is not None and pid == self._link.pid:
            await self._link.ask("close", handle=handle)

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        base = self._base(handle)
        checks.requests(requests, base.context, base.vocabulary)
        tokens = await self.tokenizer(base.name)
        asked = [as_asked(request, tokens) for request in requests]
        rows = await self._link.ask("sample", handle=handle, requests=asked)
        return [Sampled(**row) for row in rows]

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        self._check(handle, datums, ratios=False)
        found: list[list[float]] = await self._train("forward", handle, datums)
        return found

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        full = checks.loss_config(loss_fn, config)
        self._check(handle, datums, ratios=loss_fn != "cross_entropy")
        figures: dict[str, float] = await self._train(
            "forward_backward", handle, datums, loss_fn=loss_fn, config=full
        )
        return figures

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        self._check(handle, datums, ratios=False)
        checks.weights(weights, datums)
        rows = [list(row) for row in weights]
        figures: dict[str, float] = await self._train("backward", handle, datums, weights=rows)
        return figures

    async def slim(self, state: Path, directory: Path) -> str:
        """A pointer that leaves the optimizer's moments on the server."""
        slimmer = replace(await asyncio.to_thread(pointers.read, state), optimizer=False)
        return str(await asyncio.to_thread(pointers.write, directory, slimmer))

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        base = self._base(handle)
        checks.adam(adam)
        name = f"hud-{directory.name}-{uuid4().hex[:8]}"
        stepped = await self._link.ask("optim_step", handle=handle, adam=asdict(adam), name=name)
        place = Pointer(
            self._options.url,
            base.name,
            self._at.models[base.name],
            stepped["rank"],
            stepped["state_path"],
            stepped["sampler_path"],
        )
        path = await asyncio.to_thread(pointers.write, directory, place)
        self._opened[handle] = self._link.pid, place
        await self._link.ask("stepped", handle=handle, source=asdict(place), lost=stepped["lost"])
        return Saved(str(path), place.sampler_path or str(place.state_path), stepped["metrics"])

    async def _train(
        self, verb: str, handle: Handle, datums: Sequence[Datum], **fields: Any
    ) -> Any:
        rows = [asdict(datum) for datum in datums]
        return await self._link.ask(verb, handle=handle, datums=rows, **fields)

    def _check(self, handle: Handle, datums: Sequence[Datum], ratios: bool) -> None:
        base = self._base(handle)
        checks.datums(datums, base.context, base.vocabulary, ratios)

    def _base(self, handle: Handle) -> Base:
        """The base of an open handle. Raises EngineLost: its process has ended."""
        opened = self._opened.get(handle)
        if opened is None:
            raise EngineError("this policy is closed: open it again")
        pid, pointer = opened
        if pid != self._link.pid:
            del self._opened[handle]
            raise EngineLost(LOST)
        return self._at.bases[pointer.base]

    async def _tidy(self) -> None:
        try:
            await self._link.ask("tidy", checkpoints=str(self._checkpoints))
        except EngineError:
            self._tidied = False  # with the next policy, then
