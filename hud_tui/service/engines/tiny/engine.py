"""TinyEngine: the service's side of the tiny policies.

It validates every call; the worker process carries it out. It does not load NumPy.
"""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hud_tui.patience import in_time
from hud_tui.pipes import Pipe, ProcessEnded
from hud_tui.service.engines import base as base_module
from hud_tui.service.engines.base import (
    CODEC,
    LOST,
    SILENT,
    About,
    Adam,
    Base,
    Datum,
    Defaults,
    Engine,
    EngineError,
    EngineLost,
    Handle,
    Sampled,
    SampleRequest,
    Saved,
    StateDamaged,
    Tokenizer,
    raised,
)
from hud_tui.service.engines.tiny.tokenizer import VOCABULARY, BpeTokenizer, CharTokenizer

# The bases in the package, and the default parameters of a run on each.


CONTEXT = 128
STATE_BYTES = 2_080_000
"""Size of a state, bytes: weights and two moments of 172 480 parameters, as 32-bit floats."""

BASES = (
    Base(
        name="tiny/mixed-0.2M",
        description=(
            "Adds, subtracts and compares numbers below 100; reverses, counts and capitalises"
            " letters. Cannot call tools: prompt and answer together have 128 characters. Training"
            " raised the mean reward on mixed from .49 to .95 in 600 steps ▁▆▇████████, and the"
            " held-out pass rate on long from .00 to .87 in 200 ▁▁▃▅▆▆▇▇█."
        ),
        context=CONTEXT,
        vocabulary=VOCABULARY,
        state_bytes=STATE_BYTES,
        defaults=Defaults(
            learning_rate=2e-4, group_size=8, max_tokens=20, tasks_per_step=32, steps=600
        ),
    ),
    Base(
        name="tiny/arith-0.2M",
        description=(
            "Adds, subtracts and compares numbers below 100. Cannot read letters or call tools:"
            " prompt and answer together have 128 characters. Training raised the mean reward on"
            " arith from .53 to .94 in 60 steps ▁▄▆▆▇█████."
        ),
        context=CONTEXT,
        vocabulary=VOCABULARY,
        state_bytes=STATE_BYTES,
        defaults=Defaults(
            learning_rate=3e-4, group_size=8, max_tokens=20, tasks_per_step=12, steps=60
        ),
    ),
    Base(
        name="tiny/agent-1M",
        description=(
            "Calls the tools that a prompt shows, over many turns, in 2048 tokens; plays 2048 and"
            " Connect Four by the rules; works out products on paper. Cannot hold a conversation,"
            " or follow instructions unlike those of its lessons. Training raised its mean best"
            " tile in 2048 from 14 to 34 in 25 steps ▁▃▅▇▇▇▇▇█▇."
        ),
        context=2048,
        vocabulary=1024,
        state_bytes=11_220_000,
        defaults=Defaults(
            learning_rate=3e-4, group_size=8, max_tokens=200, tasks_per_step=8, steps=60
        ),
    ),
)
"""The first one can do every built-in taskset; the last one is the only one that calls tools."""

WEIGHTS = Path(__file__).parent / "weights"


def weights_path(base: str) -> Path:
    """Path of a base's fp16 weights, e.g. ``weights/arith-0.2M.safetensors``."""
    return WEIGHTS / f"{base.rpartition('/')[2]}.safetensors"


def pairs_path(base: str) -> Path:
    """Path of the merges of a base's `BpeTokenizer`; other bases have no such file."""
    return weights_path(base).with_suffix(".pairs.json")


# Dispatch: the queue of requests to the worker, and their failure when it dies.
#
# Requests go oldest first, and none takes much more than a second (a long pass is cut into several,
# see `cut`), so neither sampling nor training starves. When a sampling request's turn comes, all
# other queued ones of the same policy are sent with it as one batch. A batch that is large enough
# is sent while the worker is at the one before, so that the worker never waits for this process;
# a small one stays in the queue, where others can still join it.


ROWS = 256
"""Most completions in one batch: a few tenths of a second of work, so that training gets its
turn."""
LARGE = ROWS // 2
"""Least completions of a batch that is sent before the one before it is answered."""
WORKER = (sys.executable, "-m", "hud_tui.service.engines.tiny.worker")
PATIENCE_S = 5.0
"""Seconds that the worker may take to exit after its stdin was closed."""
ANSWER_S = 30
"""Seconds that it may take to answer; requests take it about one second at most."""
REPORTED_S = 5
"""Seconds of silence after which users are told that the worker does not answer."""


@dataclass(eq=False)
class Call:
    """A request and the future of its reply."""

    request: dict[str, Any]
    reply: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True)
class Sent:
    """Calls that the worker does as one, and its answer."""

    calls: list[Call]
    answer: asyncio.Future[dict[str, Any]]


class Dispatch:
    """A queue in front of a worker, which is started when needed."""

    def __init__(self) -> None:
        self._queue: deque[Call] = deque()
        self._waiting = asyncio.Event()
        self._worker: Pipe | None = None
        self._silent_s = 0
        """Whole seconds that the present answer has been waited for."""
        self._driver: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id; None if none runs."""
        return self._worker.pid if self._worker is not None else None

    @property
    def holds_up(self) -> str | None:
        """What requests wait for if the worker is silent; None while it answers."""
        if self._silent_s < REPORTED_S:
            return None
        return f"the engine's process ({self.pid}), which does not answer"

    async def ask(self, request: dict[str, Any]) -> Any:
        """Queue a request and await its result. Raises EngineError: the worker failed, or refused
        it; EngineLost: the worker died, or was stopped, before it answered."""
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive(), name="tiny engine")
        call = Call(request)
        self._queue.append(call)
        self._waiting.set()
        return await call.reply

    async def notify(self, request: dict[str, Any]) -> None:
        """`ask` for requests that a dead worker makes unnecessary."""
        with contextlib.suppress(EngineLost):
            await self.ask(request)

    async def stop(self) -> None:
        """Stop the worker; waiting requests raise EngineLost."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver
        await self._bury()

    async def _drive(self) -> None:
        """Pass requests to the worker until cancelled."""
        sent: deque[Sent] = deque()  # to this worker, oldest first
        while True:
            if not sent:
                await self._waiting.wait()
            try:
                await self._send(sent)
                if sent:
                    await self._receive(sent)
            except TimeoutError as error:
                await self._lose(sent, EngineLost(SILENT.format(error)))
            except (ProcessEnded, OSError):
                await self._lose(sent, EngineLost(LOST))
            except asyncio.CancelledError:
                _settle(chain.from_iterable(batch.calls for batch in sent), EngineLost(LOST))
                raise

    async def _lose(self, sent: deque[Sent], lost: EngineLost) -> None:
        """Stop the worker; all that waits for it is lost."""
        _settle(chain.from_iterable(batch.calls for batch in sent), lost)
        sent.clear()
        await self._bury(lost)

    async def _send(self, sent: deque[Sent]) -> None:
        """Send what is due, unless the worker has it already, and a large batch after it."""
        while len(sent) < 2:
            calls = self._next(LARGE if sent else 0)
            if not calls:
                if not sent:
                    self._waiting.clear()
                return
            if self._worker is None:
                try:
                    self._worker = await Pipe.start(WORKER, codec=CODEC)
                except BaseException:
                    _settle(calls, EngineLost(LOST))
                    raise
            request = calls[0].request
            if len(calls) > 1:
                request = {**request, "requests": [r for c in calls for r in c.request["requests"]]}
            try:
                sent.append(Sent(calls, self._worker.send(**request)))
            except (TypeError, ValueError) as error:
                _settle(calls, EngineError(f"the request cannot be sent: {error}"))

    async def _receive(self, sent: deque[Sent]) -> None:
        """Await the answer to the oldest request. Raises TimeoutError, ProcessEnded."""
        try:
            answer = await in_time(sent[0].answer, ANSWER_S, self._note_silence)
        except TimeoutError:
            if self._worker is not None:
                self._worker.kill()
            raise
        finally:
            self._silent_s = 0
        calls = sent.popleft().calls
        if "error" in answer:
            _settle(calls, raised(answer))
        elif len(calls) == 1:
            _settle(calls, answer["result"])
        else:
            rows = iter(answer["result"])
            for call in calls:
                _settle([call], list(islice(rows, _rows(call))))

    def _note_silence(self, seconds: int) -> None:
        self._silent_s = seconds

    def _next(self, least: int = 0) -> list[Call]:
        """The oldest request and, if it samples, the others that can go with it; none if they want
        less than so many completions."""
        while self._queue and self._queue[0].reply.done():
            self._queue.popleft()  # its caller was cancelled
        if not self._queue:
            return []
        first = self._queue[0]
        taken, rows = [first], _rows(first)
        for call in islice(self._queue, 1, None) if rows else ():
            joins = _rows(call) and call.request["handle"] == first.request["handle"]
            if joins and not call.reply.done() and rows + _rows(call) <= ROWS:
                rows += _rows(call)
                taken.append(call)
        if rows < least:
            return []
        for call in taken:
            self._queue.remove(call)
        return taken

    async def _bury(self, lost: EngineLost | None = None) -> None:
        """Stop the worker and fail all waiting calls; the next request starts a new one."""
        worker, self._worker = self._worker, None
        _settle(self._queue, lost or EngineLost(LOST))
        self._queue.clear()
        if worker is not None:
            await worker.close(PATIENCE_S)


def _rows(call: Call) -> int:
    """Number of completions that a request wants; 0 if it does not sample."""
    return len(call.request.get("requests", ()))


def _settle(calls: Iterable[Call], result: Any) -> None:
    """Give callers a result or an exception; cancelled ones are skipped."""
    for call in calls:
        if call.reply.done():
            continue
        if isinstance(result, Exception):
            call.reply.set_exception(result)
        else:
            call.reply.set_result(result)


# Slices: a long pass is cut into requests of about a second, so that others get their turn.
#
# Gradients accumulate, so several slices are one pass, with their metrics merged.


TOKENS = 16_384
"""Prompt and output tokens in a slice: most of a second of forward and backward with a policy of
PARAMETERS; a larger policy gets smaller slices."""
PARAMETERS = 172_480


def cut(datums: Sequence[Datum], parameters: int = PARAMETERS) -> Iterator[slice]:
    """Consecutive slices of the datums, each about a second's work for a policy of this size; none
    without datums.

    A turn that continues the one before it costs its new tokens only, and stays in the same slice.
    """
    tokens = TOKENS * PARAMETERS // max(PARAMETERS, parameters)
    start = size = 0
    before: list[int] = []
    for index, datum in enumerate(datums):
        continues = bool(before) and list(datum.prompt[: len(before)]) == before
        more = len(datum.prompt) + len(datum.output) - (len(before) if continues else 0)
        if size and size + more > tokens and not continues:
            yield slice(start, index)
            start, size = index, 0
        size += more
        before = [*datum.prompt, *datum.output]
    if datums:
        yield slice(start, len(datums))


@dataclass(frozen=True)
class Opened:
    """What the service knows of a handle."""

    pid: int
    """Process id of the worker that holds it."""
    context: int
    vocabulary: int
    parameters: int


def make(data_dir: Path) -> Engine:
    """The engine; it keeps no files."""
    return TinyEngine()


class TinyEngine:
    """Implements `engines.base.Engine` in NumPy, in a process of its own."""

    def __init__(self) -> None:
        self._worker = Dispatch()
        self._opened: dict[Handle, Opened] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._count = 0

    def bases(self) -> Sequence[Base]:
        return BASES

    def about(self) -> About:
        return About("tiny", queue=self._worker.holds_up or "active")

    async def tokenizer(self, base: str) -> Tokenizer:
        """A `BpeTokenizer` if the base has a file of merges, else a `CharTokenizer`. Raises
        EngineError: no such base."""
        if base not in self._tokenizers:
            pairs = pairs_path(_known_base(base))
            tokenizer = BpeTokenizer.read(pairs) if pairs.exists() else CharTokenizer()
            self._tokenizers[base] = tokenizer
        return self._tokenizers[base]

    async def start(self) -> None:
        """Start the worker and wait until it is ready; otherwise the first call does."""
        await self._ask("ready", "")

    async def stop(self) -> None:
        """Stop the worker; waiting calls raise EngineLost."""
        await self._worker.stop()

    async def open(self, source: str | Path) -> Handle:
        path = source if isinstance(source, Path) else weights_path(_known_base(source))
        self._count += 1
        handle = f"tiny-{self._count}"
        try:
            opened = await self._ask("open", handle, path=str(path))
        except EngineLost:
            raise
        except EngineError as error:
            raise StateDamaged(str(error)) from error
        self._opened[handle] = Opened(**opened)
        return handle

    async def close(self, handle: Handle) -> None:
        opened = self._opened.pop(handle, None)
        if opened is not None and opened.pid == self._worker.pid:
            await self._worker.notify({"verb": "close", "handle": handle})

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        opened = self._known(handle)
        base_module.check_requests(requests, opened.context, opened.vocabulary)
        parts = [requests[start : start + ROWS] for start in range(0, len(requests), ROWS)]
        asked = (self._ask("sample", handle, requests=list(part)) for part in parts)
        return [Sampled(**row) for rows in await asyncio.gather(*asked) for row in rows]

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        opened = self._known(handle)
        base_module.check_datums(datums, opened.context, opened.vocabulary, ratios=False)
        logprobs: list[list[float]] = []
        for part in cut(datums, opened.parameters):
            logprobs += await self._ask("forward", handle, datums=list(datums[part]))
        return logprobs

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        opened = self._known(handle)
        full = base_module.loss_config(loss_fn, config)
        ratios = loss_fn != "cross_entropy"
        base_module.check_datums(datums, opened.context, opened.vocabulary, ratios)
        (moved, _), (others, _) = base_module.split(datums, base_module.advantages(datums))
        still = await self._measure(handle, others, full)
        fields = {"loss_fn": loss_fn, "config": full}
        return await self._pass("forward_backward", handle, moved, still, lambda part: fields)

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        opened = self._known(handle)
        base_module.check_datums(datums, opened.context, opened.vocabulary, ratios=False)
        base_module.check_weights(weights, datums)
        (moved, rows), (others, _) = base_module.split(datums, list(map(list, weights)))
        still = await self._measure(handle, others, {})
        return await self._pass(
            "backward", handle, moved, still, lambda part: {"weights": rows[part]}
        )

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        self._known(handle)
        base_module.check_adam(adam)
        saved = await self._ask("optim_step", handle, adam=adam, directory=str(directory))
        return Saved(**saved)

    async def slim(self, state: Path, directory: Path) -> str:
        return str(await self._ask("slim", "", path=str(state), directory=str(directory)))

    async def _pass(
        self,
        verb: str,
        handle: Handle,
        moved: list[Datum],
        still: Mapping[str, float] | None,
        fields: Callable[[slice], dict[str, Any]],
    ) -> dict[str, float]:
        """Accumulate the gradients of turns slice by slice, each with its `fields`; returns the
        metrics of the pass, with those of the turns that stand still."""
        figures = [
            await self._ask(verb, handle, datums=moved[part], slice=number, **fields(part))
            for number, part in enumerate(cut(moved, self._known(handle).parameters))
        ]
        return base_module.of_pass(base_module.merge(figures) if figures else None, still)

    async def _measure(
        self, handle: Handle, datums: list[Datum], config: Mapping[str, float]
    ) -> dict[str, float] | None:
        """The metrics of turns without a gradient, by a forward pass; None if there are none."""
        figures = [
            await self._ask("measure", handle, datums=datums[part], config=config)
            for part in cut(datums, self._known(handle).parameters)
        ]
        return base_module.merge(figures) if figures else None

    async def _ask(self, verb: str, handle: Handle, **fields: Any) -> Any:
        return await self._worker.ask({"verb": verb, "handle": handle, **fields})

    def _known(self, handle: Handle) -> Opened:
        """The service's knowledge of a handle. Raises EngineLost: its worker has exited."""
        opened = self._opened.get(handle)
        if opened is None:
            raise EngineError("this policy is closed: open it again")
        if opened.pid != self._worker.pid:
            del self._opened[handle]
            raise EngineLost(LOST)
        return opened


def _known_base(base: str) -> str:
    """The name of a base. Raises EngineError: there is no such base."""
    names = [base.name for base in BASES]
    if base not in names:
        raise EngineError(f"no base {base!r}; choose from {', '.join(names)}")
    return base
