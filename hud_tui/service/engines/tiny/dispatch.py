"""Dispatch: who goes to the worker next, and what becomes of them when it dies.

Requests go one at a time, oldest first, and none takes much more than a second (a long pass
comes as several, see `slices`), so neither sampling nor training starves. When a
sampling request's turn comes, every other queued one of the same policy goes with it as
one batch: what queued while the worker was busy is sampled together.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hud_tui.service.engines.base import EngineError, EngineLost
from hud_tui.service.engines.pipe import Silent, raised
from hud_tui.service.engines.tiny.process import WorkerProcess

ROWS = 256
"""Most completions in one batch: a few tenths of a second, so that training gets its turn."""
GONE = "what was not saved is gone; open the policy again"
LOST = f"the engine stopped: {GONE}"
SAID_S = 5
"""Seconds of silence after which it is said that the worker does not answer."""


@dataclass(eq=False)
class Call:
    """A request that waits for its reply."""

    request: dict[str, Any]
    reply: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Dispatch:
    """A queue in front of a worker that is started when it is needed."""

    def __init__(self) -> None:
        self._queue: deque[Call] = deque()
        self._waiting = asyncio.Event()
        self._worker: WorkerProcess | None = None
        self._driver: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while none runs."""
        return self._worker.process.pid if self._worker is not None else None

    @property
    def holds_up(self) -> str | None:
        """What requests wait for while the worker says nothing; None while it answers."""
        worker = self._worker
        if worker is None or worker.silent_s < SAID_S:
            return None
        return f"the engine's process ({worker.process.pid}), which does not answer"

    async def ask(self, request: dict[str, Any]) -> Any:
        """Queue a request and await its result.

        Raises:
            EngineError: The worker could not do it, or refused it.
            EngineLost: The worker died, or was stopped, before it answered.
        """
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive(), name="tiny engine")
        call = Call(request)
        self._queue.append(call)
        self._waiting.set()
        return await call.reply

    async def tell(self, request: dict[str, Any]) -> None:
        """`ask` where a dead worker is as good as an answer."""
        with contextlib.suppress(EngineLost):
            await self.ask(request)

    async def stop(self) -> None:
        """End the worker; requests that still wait raise EngineLost."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver
        await self._bury()

    async def _drive(self) -> None:
        """Carry requests to the worker for as long as the engine runs."""
        while True:
            await self._waiting.wait()
            calls = self._next()
            if not calls:
                self._waiting.clear()
                continue
            try:
                await self._exchange(calls)
            except (OSError, EOFError) as error:
                lost = EngineLost(f"{error}: {GONE}" if isinstance(error, Silent) else LOST)
                _settle(calls, lost)
                await self._bury(lost)
            except (TypeError, ValueError) as error:
                _settle(calls, EngineError(f"the request cannot be sent: {error}"))
            except asyncio.CancelledError:
                _settle(calls, EngineLost(LOST))
                raise

    def _next(self) -> list[Call]:
        """The oldest request, and where it samples, the others that can go with it."""
        while self._queue and self._queue[0].reply.done():
            self._queue.popleft()  # its caller was cancelled
        if not self._queue:
            return []
        first = self._queue.popleft()
        taken, rows = [first], _rows(first)
        if not rows:
            return taken
        for call in list(self._queue):
            joins = _rows(call) and call.request["handle"] == first.request["handle"]
            if joins and not call.reply.done() and rows + _rows(call) <= ROWS:
                rows += _rows(call)
                taken.append(call)
                self._queue.remove(call)
        return taken

    async def _exchange(self, calls: list[Call]) -> None:
        """Ask the worker; a batch of samples is put together and taken apart again."""
        if self._worker is None:
            self._worker = await WorkerProcess.start()
        request = calls[0].request
        if len(calls) > 1:
            request = {**request, "requests": [r for c in calls for r in c.request["requests"]]}
        reply = await self._worker.ask(request)
        if "error" in reply:
            _settle(calls, raised(reply))
        elif len(calls) == 1:
            _settle(calls, reply["result"])
        else:
            rows = iter(reply["result"])
            for call in calls:
                _settle([call], [next(rows) for _ in range(_rows(call))])

    async def _bury(self, lost: EngineLost | None = None) -> None:
        """Let go of the worker and of all who wait for it; the next request starts anew."""
        worker, self._worker = self._worker, None
        _settle(self._queue, lost or EngineLost(LOST))
        self._queue.clear()
        if worker is not None:
            await worker.close()


def _rows(call: Call) -> int:
    """How many completions a request wants; 0 where it does not sample."""
    return len(call.request.get("requests", ()))


def _settle(calls: Sequence[Call], result: Any) -> None:
    """Answer callers with a result or an exception; a cancelled one no longer listens."""
    for call in calls:
        if call.reply.done():
            continue
        if isinstance(result, Exception):
            call.reply.set_exception(result)
        else:
            call.reply.set_result(result)
