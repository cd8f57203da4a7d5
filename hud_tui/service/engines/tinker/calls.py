"""Calls: the SDK's requests, each with a bound, beside the event loop.

The SDK itself polls for ever; here a call is given up when the server stops answering,
or answers but is not done in time, unless it says that the queue is paused.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

from hud_tui.service.engines.base import PolicyLost
from hud_tui.service.engines.tinker.failures import explain
from hud_tui.service.engines.tinker.presence import PROBE_S, Presence

CALL_S = 600.0
"""Longest that a call may take while its queue moves."""
PAUSED_S = 2 * 3600.0
"""Longest while the server says that it is paused."""
AWAY_S = 15.0
"""A call is given up when the server has not answered for so long meanwhile."""
THREADS = 64


class Calls:
    def __init__(
        self,
        url: str,
        presence: Presence,
        paused: Callable[[], str | None],
        idle: Callable[[], object],
    ) -> None:
        """
        Args:
            url: The server's.
            presence: Whether it answers.
            paused: Why the queue is held up now; None while it moves.
            idle: Called when no request is under way any more.
        """
        self._url = url
        self._presence = presence
        self._paused = paused
        self._idle = idle
        self._under_way = 0
        self._threads = ThreadPoolExecutor(THREADS, "tinker")

    async def __call__(self, submit: Callable[[], Any], limit_s: float = CALL_S) -> Any:
        """Submit a request and await its result.

        Args:
            submit: Calls the SDK, which may block; returns a future of its own, or a value.
            limit_s: Longest that it may take.

        Raises:
            EngineError: As `failures.explain` has it; PolicyLost where the outcome is unknown.
        """
        self._under_way += 1
        try:
            await self._presence.wait()
            result = await self._bounded(submit, limit_s)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle()
        self._presence.heard()
        return result

    async def _bounded(self, submit: Callable[[], Any], limit_s: float) -> Any:
        task = asyncio.ensure_future(self._result(submit))
        try:
            await self._until_done(task, limit_s)
            return task.result()
        except BaseException as error:
            task.cancel()
            if isinstance(error, Exception):
                raise explain(error, self._url) from error
            raise

    async def _until_done(self, task: asyncio.Task[Any], limit_s: float) -> None:
        start = heard = monotonic()
        while not (await asyncio.wait({task}, timeout=PROBE_S))[0]:
            if await self._presence.look():
                heard = monotonic()
            if monotonic() - heard > AWAY_S:
                raise PolicyLost(f"{self._url} stopped answering in the middle of a call")
            if monotonic() - start > (PAUSED_S if self._paused() else limit_s):
                why = self._paused() or "no reason was given"
                took = f"{monotonic() - start:.0f} s"
                raise PolicyLost(f"{self._url} did not finish a call in {took} ({why})")

    async def _result(self, submit: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        given = await loop.run_in_executor(self._threads, submit)
        future = getattr(given, "future", None)
        if callable(future):
            inner = future()
            if isinstance(inner, Future):
                return await asyncio.wrap_future(inner)
        if hasattr(given, "result"):
            return await loop.run_in_executor(self._threads, lambda: given.result(PAUSED_S))
        return given
