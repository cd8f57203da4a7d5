"""Connection: the process that talks to the server, and what the server offers."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hud_tui.service.engines.base import About, Base, EngineError
from hud_tui.service.engines.tinker import pointer as pointers
from hud_tui.service.engines.tinker.bases import make_base, names
from hud_tui.service.engines.tinker.link import Link
from hud_tui.service.engines.tinker.offer import Offer
from hud_tui.service.engines.tinker.pointer import Pointer
from hud_tui.service.engines.tinker.presence import RETURN_S
from hud_tui.tinker_settings import Options

SAVES = 2
"""A step is saved as a state, with the optimizer, and as weights for samplers."""
START_S = 10.0
"""How long the server may be away when the service starts."""


class Connection:
    def __init__(self, options: Options, directory: Path) -> None:
        """`directory`: for the journal, the log and the last offer; made when missing."""
        self.link = Link(directory, options.environment(), self._hear)
        self.bases: dict[str, Base] = {}
        self.models: dict[str, str] = {}
        """The server's names of the bases."""
        self._options = options
        self._offer = Offer(directory / "offer.json", options.url)
        self._state: dict[str, Any] = {}
        self._connecting = asyncio.Lock()

    @property
    def about(self) -> About:
        """The server, and how its queue and its slots are by its last word."""
        queue, slots = self._state.get("queue", "active"), self._state.get("slots", 0)
        place = self._options
        return About("tinker", place.url, queue, slots, place.ttl_s, saves_per_step=SAVES)

    async def start(self) -> None:
        """Connect; where the server is away now, go by what it offered before.

        Raises:
            EngineError: It does not answer, and never has; or it refuses the key.
        """
        try:
            await self.connect(START_S)
        except EngineError as error:
            known = await asyncio.to_thread(self._offer.read)
            if not known:
                raise
            self._take(known)
            self._state = {"queue": str(error)}

    async def connect(self, patience_s: float = RETURN_S) -> None:
        """Have a process that has the server. Raises EngineError as `start` does."""
        async with self._connecting:
            if not await self.link.start():
                return
            try:
                contexts = await self._ask_for_models(patience_s)
            except EngineError:
                await self.link.stop()
                raise
            await asyncio.to_thread(self._offer.write, contexts)
            self._state = {}
            self._take(contexts)

    def model(self, base: str) -> str:
        """The server's name of a base. Raises EngineError: there is none."""
        if base not in self.models:
            raise EngineError(f"no base {base!r}; choose from {', '.join(self.models)}")
        return self.models[base]

    def place(self, source: str | Path) -> Pointer:
        """Where weights are: a base's, or a state's by its file here.

        Raises:
            EngineError: No such base or state, or it is on another server.
        """
        url = self._options.url
        if isinstance(source, str):
            return Pointer(url, source, self.model(source), self._options.rank)
        pointer = pointers.read(source)
        if pointer.url != url:
            raise EngineError(
                f"this checkpoint is on {pointer.url}, and the engine talks to {url}:"
                " set TINKER_BASE_URL to the former"
            )
        if pointer.base not in self.models:
            raise EngineError(f"the server no longer offers {pointer.base}")
        return pointer

    async def _ask_for_models(self, patience_s: float) -> dict[str, int | None]:
        options = self._options
        found = await self.link.ask(
            "connect",
            url=options.url,
            keeps_samplers=options.keeps_samplers,
            ttl_s=options.ttl_s,
            patience_s=patience_s,
        )
        return {model["name"]: model["context"] for model in found}

    def _take(self, contexts: Mapping[str, int | None]) -> None:
        """The server's models, with their contexts where it says them, are the bases."""
        self.models = names(contexts)
        self.bases = {
            name: make_base(name, model, contexts[model]) for name, model in self.models.items()
        }

    def _hear(self, state: dict[str, Any]) -> None:
        self._state = state
