"""Server: the worker's connection to Tinker, or to a server with its wire.

`tinker` is imported here and nowhere earlier, in a thread, when something is first asked.
"""

import asyncio
import json
import logging
import os
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

from hud_tui.service.engines.base import EngineError, EngineRefused
from hud_tui.service.engines.tinker.calls import Calls
from hud_tui.service.engines.tinker.pauses import Pauses, listen
from hud_tui.service.engines.tinker.presence import Presence

SHORT_S = 60.0
"""Bound of calls that no queue can hold up."""
CLOSE_S = 5.0
UNLOAD = "/api/v1/unload_model"
"""Gives a run's adapter slot back. Not in the SDK; SkyRL, TuFT and Hatchery have it."""


class Server:
    def __init__(self, url: str, keeps_samplers: bool, tell: Callable[[dict[str, Any]], None]):
        """`tell`: told the queue's state and the open slots whenever they change."""
        self.url = url
        self.keeps_samplers = keeps_samplers
        self.loads_in_one: bool | None = None
        """Whether a run can be created from a state; None: not tried yet."""
        self.averages: bool | None = None
        """Whether its losses are averages over tokens and turns, not sums; None: not seen yet."""
        self.most_rank: int | None = None
        self._tell = tell
        self._waits_for: str | None = None
        self._slots = 0
        pauses = self._pauses = Pauses(self._wait_for)
        self._presence = Presence(url, partial(pauses.hold, "presence"))
        self.call = Calls(url, self._presence, lambda: self._waits_for, pauses.clear)
        self._importing = asyncio.Lock()
        self._tinker: Any = None
        self._sampling: Any = None

    async def tinker(self) -> Any:
        """The SDK's module."""
        async with self._importing:
            if self._tinker is None:
                self._tinker = await asyncio.to_thread(_import)
                loop = asyncio.get_running_loop()
                hold = self._pauses.hold
                listen(lambda who, why: loop.call_soon_threadsafe(hold, who, why))
        return self._tinker

    def occupied(self, change: int) -> None:
        """So many slots more are taken."""
        self._slots += change
        self._report()

    async def models(self, patience_s: float) -> list[dict[str, Any]]:
        """What it offers: ``name`` and, where it says so, ``context``.

        Args:
            patience_s: How long it may be away.
        """
        await self._presence.wait(patience_s)
        tinker = await self.tinker()

        def ask() -> Any:
            client = tinker.RestClient() if hasattr(tinker, "RestClient") else None
            if client is not None and hasattr(client, "get_server_capabilities"):
                return client.get_server_capabilities()
            return tinker.ServiceClient().get_server_capabilities()

        found = await self.call(ask, SHORT_S)
        return [
            {"name": model.model_name, "context": getattr(model, "max_context_length", None)}
            for model in found.supported_models
            if model.model_name and getattr(model, "trainable", None) is not False
        ]

    async def sampling_service(self) -> Any:
        """The one session that samplers share."""
        tinker = await self.tinker()
        if self._sampling is None:
            self._sampling = await self.call(tinker.ServiceClient, SHORT_S)
        return self._sampling

    def renew_sampling(self) -> None:
        """The samplers' session may be gone: the next one gets another."""
        self._sampling = None

    async def has(self, run: str, name: str) -> bool:
        """Whether a run has saved a state under a name. Raises EngineError as `call` does."""
        tinker = await self.tinker()
        rest = _rest(tinker)
        found = await self.call(lambda: rest.list_checkpoints(run), SHORT_S)
        path = f"tinker://{run}/weights/{name}"
        return any(checkpoint.tinker_path == path for checkpoint in found.checkpoints)

    async def delete(self, run: str, name: str) -> None:
        """Delete what was saved under a name, as far as it is there."""
        tinker = await self.tinker()
        rest = _rest(tinker)
        for kind in ("weights", "sampler_weights"):
            place = f"{kind}/{name}"
            try:
                await self.call(partial(rest.delete_checkpoint, run, place), SHORT_S)
            except EngineError as error:
                logging.info("%s of %s is not deleted: %s", place, run, error)

    async def release(self, service: Any, run: str) -> None:
        """Let a training run go: its slot, and its session."""
        self.occupied(-1)
        if not self.keeps_samplers:
            await asyncio.to_thread(_post, self.url + UNLOAD, {"model_id": run})
        close = getattr(service, "close", None)
        if close is not None:
            try:
                await asyncio.wait_for(self.call(lambda: close("success"), CLOSE_S), CLOSE_S)
            except Exception as error:  # it ends by itself when its heartbeats do
                logging.info("session of %s: %s", run, error)

    def _wait_for(self, why: str | None) -> None:
        if why != self._waits_for:
            self._waits_for = why
            self._report()

    def _report(self) -> None:
        self._tell({"queue": self._waits_for or "active", "slots": self._slots})


def _import() -> Any:
    import tinker

    return tinker


def lacks(error: EngineRefused) -> bool:
    """Whether a server refused a call because it has no such call."""
    status = getattr(error.__cause__, "status_code", None)
    return status in (400, 422)


def _rest(tinker: Any) -> Any:
    if hasattr(tinker, "RestClient"):
        return tinker.RestClient()
    return tinker.ServiceClient().create_rest_client()


def _post(url: str, body: dict[str, Any]) -> None:
    """Post JSON with the key, which goes nowhere else; what comes of it does not matter."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("TINKER_API_KEY"):
        headers["X-API-Key"] = key
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=CLOSE_S):
            pass
    except (OSError, ValueError) as error:
        logging.info("%s: %s", url, error)
