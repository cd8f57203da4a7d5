"""Dispatch: the queue of requests to the engine's processes, and what happens when one dies.

Claimants take turns (see `turns`), and the requests of one go oldest first. None takes much more
than a second (a long pass is cut into several, see `parts.cut`), so neither sampling nor training
starves. What is computed from weights alone goes to whichever process is free. The first process
holds what calls accumulate: if it dies, that is lost, and all that waits fails. If another one
dies, its requests are done again, at last by the first one, and none fails for it; `starts` says
when the next one is started.

Callers may leave: the process is told so, and samples their completions no further. Those who want
to know are told tokens as they are sampled.

When the turn of a small sampling request comes, other small ones of the same policy are sent with
it as one batch, so many that each process has its share. A part of a large call is sent alone, so
its numbers do not depend on what else is asked.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from math import inf
from time import monotonic
from typing import Any

from hud_tui.patience import in_time, rest
from hud_tui.pipes import Pipe, ProcessEnded
from hud_tui.service.engines.base import (
    BEGUN,
    CLAIMANT,
    CODEC,
    LOST,
    SILENT,
    EngineError,
    EngineLost,
    Progress,
    Sampled,
    raised,
)
from hud_tui.service.engines.tiny.memory import Memory, Region
from hud_tui.service.engines.tiny.parts import ROWS
from hud_tui.service.engines.tiny.starts import Starts
from hud_tui.service.engines.tiny.turns import Kind, Turns

log = logging.getLogger(__name__)

WORKER = (sys.executable, "-m", "hud_tui.service.engines.tiny.worker")
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(16 << 20), "MALLOC_TRIM_THRESHOLD_": str(16 << 20)}
"""glibc keeps the memory of arrays that are freed, as far as that, for the next ones: else page
faults take a sixth of the time."""
PATIENCE_S = 5.0
"""Seconds that a process may take to exit after its stdin was closed."""
ANSWER_S = 30
"""Seconds that it may take to answer; requests take it about one second at most."""
REPORTED_S = 5
"""Seconds of silence after which users are told that a process does not answer."""
LEAST = 4
"""Completions that one process takes before another is given any: they hardly take it longer than
one."""
DUE_S = 0.5
"""Seconds after which a small request no longer waits for all parts of a large call."""
IDLE_S = 60.0
"""Seconds after which a process that had nothing to do is ended; the first one stays."""
REPEATS = 2
"""Times that a request whose process died is done again by another but the first one."""
TRAINS = ("add", "optim_step")
"""Verbs of requests that change weights or gradients."""


@dataclass(eq=False)
class Call:
    """A request and the future of its reply."""

    request: dict[str, Any]
    kind: Kind = "own"
    regions: Sequence[Region | None] = ()
    """The memory that it reads and writes, which is not free before its process has answered."""
    reply: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    losses: int = 0
    """Processes that died of it, or with it."""
    claimant: str = field(default_factory=CLAIMANT.get)
    begun: Callable[[], object] = field(default_factory=BEGUN.get)
    """Called when a process begins with it."""
    progress: Progress | None = None
    """Told tokens as they are sampled."""
    stepped: Callable[[str], object] | None = None
    """Told where weights are about to be saved that can be sampled already."""
    number: int = field(default_factory=count(1).__next__)
    """By which the process knows the caller."""
    asked_at: float = field(default_factory=lambda: monotonic())

    @property
    def rows(self) -> int:
        """Number of completions of a small request; 0 if others cannot go with it."""
        return len(self.request["requests"]) if self.kind == "small" else 0


@dataclass(frozen=True)
class Sent:
    """Calls that a process does as one, and its answer."""

    calls: list[Call]
    answer: asyncio.Future[dict[str, Any]]


class Lane:
    """One process, which is started when needed, and what it was sent."""

    def __init__(self) -> None:
        self.pipe: Pipe | None = None
        self.taken: list[Call] = []
        """What it is about to be sent, once it runs."""
        self.sent: deque[Sent] = deque()
        """Oldest first."""
        self.wake = asyncio.Event()
        """Set if there may be work for it."""
        self.began_at = -inf
        """When it was started last."""
        self.answers = False
        """Whether it has answered anything since."""
        self.silent_s = 0
        """Whole seconds that the present answer has been waited for."""
        self.driver: asyncio.Task[None] | None = None

    @property
    def calls(self) -> list[Call]:
        """Those that it was sent."""
        return list(chain.from_iterable(batch.calls for batch in self.sent))

    @property
    def is_free(self) -> bool:
        """Whether it has nothing to do, and does not look for work."""
        return not (self.sent or self.taken or self.wake.is_set())


class Dispatch:
    """A queue in front of some processes."""

    def __init__(self, memory: Memory, cores: int = 1) -> None:
        """`cores`: the number of processes; all but the first are there while they are needed."""
        self._memory = memory
        self._queue: deque[Call] = deque()
        self._turns = Turns()
        self._starts = Starts()
        self._lanes = [Lane() for _ in range(cores)]
        self._first = self._lanes[0]

    @property
    def pid(self) -> int | None:
        """Id of the process that holds the policies; None if it does not run."""
        return self._first.pipe.pid if self._first.pipe is not None else None

    @property
    def pids(self) -> list[int]:
        """Ids of all that run."""
        return [lane.pipe.pid for lane in self._lanes if lane.pipe is not None]

    @property
    def holds_up(self) -> str | None:
        """What requests wait for if a process is silent; None while all answer."""
        for lane in self._lanes:
            if lane.pipe is not None and lane.silent_s >= REPORTED_S:
                return f"the engine's process ({lane.pipe.pid}), which does not answer"
        return None

    async def ask(
        self,
        request: dict[str, Any],
        kind: Kind = "own",
        regions: Sequence[Region | None] = (),
        progress: Progress | None = None,
        stepped: Callable[[str], object] | None = None,
    ) -> Any:
        """Queue a request and await its result. Raises EngineError: the process failed, or refused
        it; EngineLost: the first process died, or all were stopped, before it was answered."""
        call = Call(request, kind, regions, progress=progress, stepped=stepped)
        self._queue.append(call)
        self._wake()
        try:
            return await call.reply
        except asyncio.CancelledError:
            self._leave(call)
            raise

    async def notify(self, request: dict[str, Any]) -> None:
        """`ask` for requests that a dead process makes unnecessary."""
        with contextlib.suppress(EngineLost):
            await self.ask(request)

    async def stop(self) -> None:
        """Stop the processes; waiting requests raise EngineLost."""
        for lane in self._lanes:
            driver, lane.driver = lane.driver, None
            if driver is not None:
                driver.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await driver
            lane.wake.clear()
        self._abandon(self._lanes, EngineLost(LOST))
        await asyncio.gather(*(self._bury(lane) for lane in self._lanes))

    def _wake(self) -> None:
        """Have one more process look for work, if there is any for it."""
        for lane in self._lanes:
            if lane.is_free and any(self._may_do(lane, call) for call in self._queue):
                lane.wake.set()
                if lane.driver is None:
                    name = f"tiny engine {self._lanes.index(lane)}"
                    lane.driver = asyncio.create_task(self._drive(lane), name=name)
                return

    def _leave(self, call: Call) -> None:
        """Have nothing more sampled for a caller who left."""
        for lane in self._lanes:
            if call.request["verb"] == "sample" and call in lane.calls and lane.pipe is not None:
                lane.pipe.tell(verb="leave", caller=call.number)

    def _hear(self, lane: Lane, said: dict[str, Any]) -> None:
        """Pass on what a process reports: the tokens of its calls, or that it has stepped."""
        if said["event"] == "stepped":
            for stepping in lane.calls[:1]:  # none any more if the engine is being stopped
                if stepping.stepped is not None and not stepping.reply.done():
                    stepping.stepped(said["path"])
            return
        calls = {call.number: call for call in lane.calls}
        for number, index, told, tokens, logprobs, top in said["news"]:
            call = calls.get(number)
            if call is not None and call.progress is not None and not call.reply.done():
                call.progress(index, told, Sampled(tokens, logprobs, "length", top))

    async def _drive(self, lane: Lane) -> None:
        """Pass requests to a process until cancelled."""
        while True:
            try:
                lane.wake.clear()
                await self._send(lane)
                if lane.sent:
                    await self._receive(lane)
                else:
                    await self._rest(lane)
            except (TimeoutError, ProcessEnded, OSError) as error:
                if lane is self._first:
                    is_silent = isinstance(error, TimeoutError)
                    self._abandon([lane], EngineLost(SILENT.format(error) if is_silent else LOST))
                    await self._bury(lane)
                else:
                    await self._replace(lane, error)

    async def _rest(self, lane: Lane) -> None:
        """Wait until there may be work; a process beside the first one is ended meanwhile."""
        if lane is not self._first and lane.pipe is not None:
            try:
                async with asyncio.timeout(IDLE_S):
                    await lane.wake.wait()
            except TimeoutError:
                await self._bury(lane)
        await lane.wake.wait()

    async def _replace(self, lane: Lane, error: Exception) -> None:
        """Have done again what a process beside the first one had when it failed, and wait until
        another one may be started."""
        await self._bury(lane)
        calls = [call for call in lane.calls if not call.reply.done()]
        lane.sent.clear()
        for call in calls:
            call.losses += 1
        self._starts.failed(lane.began_at, monotonic())
        self._queue.extendleft(reversed(calls))
        self._wake()
        pause_s = self._starts.pause_s(monotonic())
        log.warning(
            "a process beside the engine's first one failed: %s; the next is started in %.1f s",
            error,
            pause_s,
        )
        await rest(pause_s, lane.wake)

    def _abandon(self, lanes: Iterable[Lane], lost: EngineLost) -> None:
        """Fail what some processes were sent, and all that waits."""
        for lane in lanes:
            _settle(lane.calls, lost)
            lane.sent.clear()
        _settle(self._queue, lost)
        self._queue.clear()

    async def _send(self, lane: Lane) -> None:
        """Send what is due, unless the process has it already, and one more that need not wait."""
        while len(lane.sent) < 2:
            lane.taken = self._next(lane)
            if not lane.taken:
                return
            if self._queue:
                self._wake()
            try:
                if lane.pipe is None:
                    lane.pipe = await self._start(lane)
            except BaseException:
                self._queue.extendleft(reversed(lane.taken))
                raise
            finally:
                calls, lane.taken = lane.taken, []
            try:
                lane.sent.append(Sent(calls, lane.pipe.send(**_joined(calls))))
            except (TypeError, ValueError) as error:
                _settle(calls, EngineError(f"the request cannot be sent: {error}"))

    async def _start(self, lane: Lane) -> Pipe:
        """Start a process. Raises OSError."""
        lane.began_at = monotonic()
        if lane is not self._first:
            self._starts.began(lane.began_at)
        return await Pipe.start(
            (*WORKER, str(self._memory.descriptor)),
            partial(self._hear, lane),
            CODEC,
            pass_fds=[self._memory.descriptor],
            env={**ENVIRONMENT, **os.environ},
        )

    async def _receive(self, lane: Lane) -> None:
        """Await the answer to the oldest request. Raises TimeoutError, ProcessEnded."""
        for call in lane.sent[0].calls:
            call.begun()
        try:
            answer = await in_time(
                lane.sent[0].answer, ANSWER_S, lambda seconds: setattr(lane, "silent_s", seconds)
            )
        except TimeoutError:
            if lane.pipe is not None:
                lane.pipe.kill()
            raise
        finally:
            lane.silent_s = 0
        calls = lane.sent.popleft().calls
        self._heard(lane)
        if "error" in answer:
            _settle(calls, raised(answer))
        elif len(calls) == 1:
            _settle(calls, answer["result"])
        else:
            rows = iter(answer["result"])
            for call in calls:
                _settle([call], list(islice(rows, call.rows)))

    def _heard(self, lane: Lane) -> None:
        """Record that a process has answered."""
        is_first_answer, lane.answers = not lane.answers, True
        if lane is not self._first and is_first_answer and self._starts.are_failing:
            self._starts.succeeded()
            self._wake()

    def _next(self, lane: Lane) -> list[Call]:
        """What a process is given: the request whose turn it is, and if it is small, others that go
        with it.

        A process that is at work gets a part only while the others will have enough of them, so
        that all end together, and a small request only in a full batch, which nobody could join.
        """
        while self._queue and self._queue[0].reply.done():
            self._queue.popleft()  # its caller was cancelled
        waiting = [call for call in self._queue if not call.reply.done()]
        able = [call for call in waiting if self._may_do(lane, call)]
        if not able:
            return []
        first = self._first_of(able)
        taken = self._batch(first, waiting)
        if lane.sent and not self._goes_ahead(taken, waiting):
            return []
        for call in taken:
            self._queue.remove(call)
        self._turns.take(first.claimant, first.kind, first.request["verb"] in TRAINS, monotonic())
        return taken

    def _first_of(self, able: list[Call]) -> Call:
        """The oldest request of the claimant whose turn it is. One that is due goes before older
        ones, but in every other turn only, so that none starves."""
        claimant = self._turns.next_of(call.claimant for call in able)
        own = [call for call in able if call.claimant == claimant]
        if self._turns.was_small(claimant):
            return own[0]
        return next((call for call in own if _is_due(call)), own[0])

    def _may_do(self, lane: Lane, call: Call) -> bool:
        """Whether a process can do a request, and is not kept free for others: as the first one is,
        also where the next one has to be started for them, unless those that are fail."""
        if lane is not self._first:
            return call.kind != "own" and call.losses <= REPEATS and self._is_there(lane)
        is_its_own = call.kind == "own" or call.losses > REPEATS or self._is_alone
        return is_its_own or self._turns.may_hold_up_training(call.claimant, monotonic())

    @property
    def _is_alone(self) -> bool:
        """Whether no process can be counted on but the first one."""
        others = self._lanes[1:]
        is_needed = not others or self._starts.are_failing
        return is_needed and not any(other.answers for other in others)

    def _is_there(self, lane: Lane) -> bool:
        """Whether a process runs, or may be started now."""
        if lane is self._first or lane.pipe is not None:
            return True
        return not self._starts.pause_s(monotonic())

    @property
    def _count(self) -> int:
        """Number of processes that are there."""
        return sum(self._is_there(lane) for lane in self._lanes)

    def _goes_ahead(self, taken: list[Call], waiting: list[Call]) -> bool:
        """Whether a process that is at work gets these requests already."""
        if not self._turns.may_hold_up_training(taken[0].claimant, monotonic()):
            return False
        match taken[0].kind:
            case "own":
                return False
            case "small":
                return sum(call.rows for call in taken) >= ROWS
            case _:
                parts = sum(call.kind == "part" for call in waiting)
                return parts > 2 * (self._count - 1)

    def _batch(self, first: Call, waiting: list[Call]) -> list[Call]:
        """A request and those that go with it: of the rows that wait or are at work elsewhere, the
        share of one process, or a few where there are not many."""
        if first.kind != "small":
            return [first]
        policy = first.request["policy"]
        at_work = chain.from_iterable(other.calls for other in self._lanes)
        fellows = [call for call in waiting if call.rows and call.request["policy"] == policy]
        rows = sum(
            call.rows for call in (*fellows, *at_work) if call.request.get("policy") == policy
        )
        most = min(ROWS, max(LEAST, -(-rows // self._count)))
        taken, count = [first], first.rows
        for call in sorted(fellows, key=lambda call: call.claimant != first.claimant):
            if call is not first and count + call.rows <= most:
                count += call.rows
                taken.append(call)
        return taken

    async def _bury(self, lane: Lane) -> None:
        """Stop a process; the next request starts a new one."""
        pipe, lane.pipe, lane.answers = lane.pipe, None, False
        if pipe is not None:
            await pipe.close(PATIENCE_S)


def _is_due(call: Call) -> bool:
    """Whether a small request has waited for long enough."""
    return call.kind == "small" and monotonic() - call.asked_at > DUE_S


JOINED = ("requests", "before", "keep")


def _joined(calls: list[Call]) -> dict[str, Any]:
    """One request for several small ones. That to sample names the callers: the number of each, of
    its completions, and whether it is told of them."""
    request = calls[0].request
    if request["verb"] != "sample":
        return request
    callers = [
        (call.number, len(call.request["requests"]), call.progress is not None) for call in calls
    ]
    if len(calls) == 1:
        return {**request, "callers": callers}
    lists = {
        name: [row for call in calls for row in call.request[name]]
        for name in JOINED
        if name in request
    }
    return {**request, **lists, "callers": callers}


def _settle(calls: Iterable[Call], result: Any) -> None:
    """Give callers a result or an exception; cancelled ones are skipped."""
    for call in calls:
        if call.reply.done():
            continue
        if isinstance(result, Exception):
            call.reply.set_exception(result)
        else:
            call.reply.set_result(result)
