"""Works: the life of runs and evaluations in the service, each an asyncio task.

Work is queued, carried out, and its end is stored, whatever the outcome. It stops between two steps
or parts when it is cancelled or the service closes, and is queued again when it is resumed.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hud_tui.patience import Looks
from hud_tui.rl.stopwatch import Stopwatch
from hud_tui.rl.timeline import ENGINE, QUEUE, TUNNEL
from hud_tui.rl.work import TRAINING, End, stopped
from hud_tui.service.caller import SERVICE, called_by
from hud_tui.service.context import ServiceContext, Stop, until_written
from hud_tui.service.engines.base import Engine, EngineError
from hud_tui.service.http import Refused, refusal
from hud_tui.service.store import jobs, works
from hud_tui.service.store.db import Db, kept
from hud_tui.service.store.jobs import Stopped, failed
from hud_tui.wire import WorkState

log = logging.getLogger(__name__)
T = TypeVar("T")
Keep = Callable[[Db, WorkState], object]
"""Stores the reply, in the same transaction as the change."""
LISTEN_S = 7.5
"""Seconds after which it is looked again who has not reported."""
STOP_S = 10
"""Longest wait for cancelled work to end, seconds."""
POLL_S = 1.0
"""Seconds between two checks of the engine's state; they send no request to the server."""


class Carried(Protocol):
    """A run or an evaluation that is queued or running."""

    id: str
    kind: str
    """TRAINING or EVALUATION."""
    stop: Stop

    async def carry_out(self) -> End:
        """Do it to its end; returns how it ended. Raises Stopped: a stop was requested; Exception:
        it failed."""
        ...

    async def finish(self, end: End) -> None:
        """Store how it ended."""
        ...


class Works:
    def __init__(self, parts: ServiceContext) -> None:
        self._parts = parts
        self._tasks: dict[str, tuple[Carried, asyncio.Task[None]]] = {}
        self._ends: dict[str, End] = {}
        """Ends of what the store still lists as running."""
        self._storing = asyncio.Lock()
        """Held while an end is stored, so that it is stored once."""
        self._closing = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._looks = 0
        """Intervals of `LISTEN_S` in which drivers could report. One that was longer, since the
        machine slept or this process was halted, counts as one; no clock is asked."""
        self._heard: dict[str, int] = {}
        """Their number when the driver of work last reported; 0 if not since listening began."""

    async def queue(
        self, work: Carried, change: Callable[..., T], keep: Callable[[Db, T], object], *args: Any
    ) -> T:
        """Store by `change` that it is queued, for the first time or again, and the reply by
        `keep`; then begin it. Raises Refused, by the change: nothing is begun then."""
        reply = await self._parts.store.write(kept, change, keep, *args)
        task = asyncio.create_task(self._guard(work), name=f"{work.kind} {work.id}")
        self._tasks[work.id] = work, task
        return reply

    async def hear(self, work_id: str, change: Callable[..., T], body: object) -> T:
        """Store what a driver says of its work, and listen whether it goes on. Who is refused is
        none."""
        before = self._heard.get(work_id)
        self._heard[work_id] = self._looks  # it speaks, also if that cannot be stored
        try:
            reply = await self._parts.store.write(change, work_id, body)
        except Refused:
            self._heard.pop(work_id, None)
            if before is not None:
                self._heard[work_id] = before
            raise
        self.listen()
        return reply

    def listen(self) -> None:
        """End work whose driver says nothing any more, from now on until no driven work is left."""
        if self._listening is None or self._listening.done():
            self._looks, self._heard = 0, {}
            with called_by(SERVICE):  # not for whoever reports
                self._listening = asyncio.create_task(self._listen(), name="driven work")

    async def _listen(self) -> None:
        async for passed_s in Looks(LISTEN_S):
            self._looks += passed_s > 0.0
            try:
                if not await self._parts.store.write(jobs.end_abandoned, self._silent_s):
                    return
            except sqlite3.Error as error:
                log.warning("work without a driver could not be ended: %s", error)
                self._looks, self._heard = 0, {}  # nor could a report be stored

    def _silent_s(self, work_id: str) -> float:
        return (self._looks - self._heard.get(work_id, 0)) * LISTEN_S

    async def cancel(self, work_id: str) -> bool:
        """Stop something and wait for its end; False if it is not under way."""
        if work_id not in self._tasks or work_id in self._ends:
            return False
        work, task = self._tasks[work_id]
        work.stop.request("cancelled")
        await asyncio.wait({task}, timeout=STOP_S)
        return True

    async def settle(self, work_id: str) -> None:
        """Store how something ended now, if that is still to be done."""
        if work_id in self._ends and work_id in self._tasks:
            work, task = self._tasks[work_id]
            await self._write_end(work)
            if self._tasks.get(work_id) == (work, task):
                del self._tasks[work_id]
            task.cancel()

    def shown(self, row: sqlite3.Row) -> str:
        """A job's status, with an end that is not stored yet."""
        end = self._end_of(row)
        return str(row["shown_status"] if end is None else end.status)

    def state(self, row: sqlite3.Row) -> WorkState:
        """A run or an evaluation in the wire's format, with an end that is not stored yet."""
        state, end = works.state_of(row), self._end_of(row)
        if end is not None:
            ended = {**vars(end), "estimated_finish": None, "waits": None}
            return state.model_copy(update=ended)
        if row["kind"] == TRAINING:
            goes_on = row["status"] == "running" and row["id"] in self._tasks
            why = held_up(self._parts.engine) if goes_on else None
            return state.model_copy(update={"waits": why})
        return state

    def _end_of(self, row: sqlite3.Row) -> End | None:
        # an evaluation's result is stored with its end, and read with it
        return self._ends.get(row["id"]) if row["kind"] == TRAINING else None

    async def close(self) -> None:
        """Stop everything between two steps or parts; it ends as interrupted."""
        self._closing.set()
        if self._listening is not None:
            self._listening.cancel()
        tasks = [task for _, task in self._tasks.values()]
        for work, _ in self._tasks.values():
            work.stop.request("interrupted")
        for task in await self._late(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _late(self, tasks: Sequence[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Those that take too long to end, or wait for the engine."""
        late = set(tasks)
        for _ in range(STOP_S):
            if late:
                late = (await asyncio.wait(late, timeout=1))[1]
            if not late or held_up(self._parts.engine):
                break
        return late

    async def _guard(self, work: Carried) -> None:
        try:
            self._ends[work.id] = await self._outcome(work)
            await until_written(
                lambda: self._write_end(work), self._closing, f"{work.kind} {work.id}"
            )
        finally:
            if self._tasks.get(work.id, (None,))[0] is work:
                del self._tasks[work.id]
        if work.kind == TRAINING:
            await self._parts.rest()

    async def _write_end(self, work: Carried) -> None:
        async with self._storing:
            if work.id in self._ends:  # else a request has stored it meanwhile
                await work.finish(self._ends[work.id])
                self._ends.pop(work.id, None)

    async def _outcome(self, work: Carried) -> End:
        try:
            return await work.carry_out()
        except Stopped:
            return stopped(work.kind, work.stop.ends_as)
        except (EngineError, Refused) as error:
            return failed(error)
        except Exception as error:
            if refusal(error) is None:
                log.exception("%s %s failed", work.kind, work.id)
            return failed(error)


def held_up(engine: Engine) -> str | None:
    """What requests wait for, in plain words; None if nothing is held up."""
    queue = engine.about().queue
    return None if queue == "active" else queue


def hold_of(engine: Engine) -> str:
    """The part of the loop that waiting for an engine is which is held up: for its process, its
    server's queue, or a server that does not answer."""
    about = engine.about()
    if about.server is None:
        return ENGINE
    return QUEUE if about.queue.startswith("paused") else TUNNEL


async def log_waits(parts: ServiceContext, job_id: str, watch: Stopwatch) -> None:
    """Tell followers of a run, and its stopwatch, what its engine's server is waiting for, until
    cancelled."""
    logged: str | None = None
    while True:
        await asyncio.sleep(POLL_S)
        now = held_up(parts.engine)
        if now != logged:
            logged = now
            watch.hold(None if now is None else hold_of(parts.engine))
            await parts.store.write(works.mark, job_id, waits=now)
