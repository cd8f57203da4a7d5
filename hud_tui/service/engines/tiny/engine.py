"""TinyEngine: the service's side of the tiny policies.

It validates every call; the worker process carries it out. It does not load NumPy.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from hud_tui.service.engines import base as base_module
from hud_tui.service.engines.base import (
    PROGRESS,
    STEPPED,
    About,
    Adam,
    Base,
    Datum,
    Defaults,
    Engine,
    EngineError,
    EngineLost,
    Handle,
    Passes,
    Progress,
    Sampled,
    SampleRequest,
    Saved,
    StateDamaged,
    Tokenizer,
    Worth,
    distinct,
)
from hud_tui.service.engines.handles import Handles
from hud_tui.service.engines.tiny.conversations import Conversations
from hud_tui.service.engines.tiny.dispatch import Dispatch
from hud_tui.service.engines.tiny.memory import Memory, Region
from hud_tui.service.engines.tiny.parts import cut, of_datums, of_requests
from hud_tui.service.engines.tiny.tokenizer import VOCABULARY, BpeTokenizer, CharTokenizer
from hud_tui.service.engines.tiny.turns import Kind

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
        name="tiny/tools-1M",
        description=(
            "Calls tools that nobody has seen, one of several, with values that it copies from the"
            " prompt or from another tool's answer, in 2048 tokens. A value without quotes it does"
            " not always find. Cannot play, calculate or hold a conversation. Training raised its"
            " mean reward on init-env's lookup from .33 to .85 in 10 steps ▁▅▅▄▇▆▇▇▇█."
        ),
        context=2048,
        vocabulary=2048,
        state_bytes=13_190_000,
        defaults=Defaults(
            learning_rate=3e-4, group_size=8, max_tokens=64, tasks_per_step=8, steps=60
        ),
    ),
    Base(
        name="tiny/agent-1M",
        description=(
            "Calls the forty tools of its lessons, over many turns, in 2048 tokens; plays 2048 and"
            " Connect Four by the rules; works out products on paper. Cannot hold a conversation,"
            " call tools of other names, or follow instructions unlike those of its lessons."
            " Training raised its mean best tile in 2048 from 14 to 34 in 25 steps ▁▃▅▇▇▇▇▇█▇."
        ),
        context=2048,
        vocabulary=1024,
        state_bytes=11_220_000,
        defaults=Defaults(
            learning_rate=3e-4, group_size=8, max_tokens=200, tasks_per_step=8, steps=60
        ),
    ),
)
"""The first one can do every built-in taskset; the last two call tools."""

WEIGHTS = Path(__file__).parent / "weights"


def weights_path(base: str) -> Path:
    """Path of a base's fp16 weights, e.g. ``weights/arith-0.2M.safetensors``."""
    return WEIGHTS / f"{base.rpartition('/')[2]}.safetensors"


def pairs_path(base: str) -> Path:
    """Path of the merges of a base's `BpeTokenizer`; other bases have no such file."""
    return weights_path(base).with_suffix(".pairs.json")


Made = TypeVar("Made")

FEW = 16
"""Most completions of a call that goes with those of other callers."""


@dataclass
class Opened:
    """What the service knows of a handle."""

    config: dict[str, Any]
    """The net's sizes."""
    parameters: int
    weights_bytes: int
    """Size of its tensors in the shared memory."""
    weights: Region
    """Where its weights lie; those of a step lie elsewhere than those before."""
    conversations: Conversations
    token_bytes: int
    """Size of one token's keys and values."""
    is_view: bool = False
    """Whether the worker does not know it: what is sampled names the weights."""

    @property
    def policy(self) -> dict[str, Any]:
        """Names its present weights in requests."""
        return {"weights": self.weights.start, "config": self.config}


def make(data_dir: Path, cores: int) -> Engine:
    """The engine; it keeps no files."""
    return TinyEngine(cores)


class TinyEngine(Passes):
    """Implements `engines.base.Engine` in NumPy, in processes of its own."""

    def __init__(self, cores: int = 1) -> None:
        """`cores`: most processes that compute at the same time; no number depends on it."""
        self.cores = cores
        self._memory = Memory()
        self._worker = Dispatch(self._memory, cores)
        self._opened = Handles[Opened]("tiny", lambda: self._worker.pid)
        self._tokenizers: dict[str, Tokenizer] = {}

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
        """Stop the processes; waiting calls raise EngineLost."""
        await self._worker.stop()

    async def open(self, source: str | Path) -> Handle:
        path = source if isinstance(source, Path) else weights_path(_known_base(source))
        handle = self._opened.new()
        weights = self._memory.take(_largest(path))
        try:
            opened = await self._ask("open", handle, weights, path=str(path))
        except EngineLost:
            raise
        except EngineError as error:
            raise StateDamaged(str(error)) from error
        weights.trim(opened["weights_bytes"])
        conversations = Conversations(self._memory, opened["token_bytes"])
        pid = opened.pop("pid")
        known = Opened(**opened, weights=weights, conversations=conversations)
        self._opened.keep(handle, pid, known)
        return handle

    async def close(self, handle: Handle) -> None:
        opened = self._opened.pop(handle)
        if opened is not None and not opened.is_view:
            await self._worker.notify({"verb": "close", "handle": handle})

    def view(self, handle: Handle) -> Handle | None:
        opened = self._opened.find(handle)
        if opened is None:
            return None
        view = self._opened.new()
        self._opened.keep(view, self._worker.pid, replace(opened, is_view=True))
        return view

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        opened = self._opened.known(handle)
        base_module.check_requests(requests, *self._sizes(handle))
        conversations = opened.conversations
        beginnings = [conversations.look_up(request) for request in requests]
        parts = of_requests(requests)
        kind: Kind = "small" if len(parts) == 1 and len(requests) <= FEW else "part"
        progress = PROGRESS.get()
        asked = (
            self._compute(
                "sample",
                opened,
                kind,
                [region for beginning in beginnings[part] for region in beginning.regions],
                requests=list(requests[part]),
                before=[beginning.before for beginning in beginnings[part]],
                keep=[each.keep.start if each.keep else None for each in beginnings[part]],
                progress=_shifted(progress, part.start),
            )
            for part in parts
        )
        sampled = [Sampled(**row) for rows in await _all(asked) for row in rows]
        for request, beginning, answer in zip(requests, beginnings, sampled, strict=True):
            conversations.keep(request, beginning, answer)
        return sampled

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        opened = self._opened.known(handle)
        base_module.check_datums(datums, *self._sizes(handle), ratios=False)
        logprobs: list[list[float]] = []
        for turn in cut(datums, opened.parameters):
            logprobs += await self._forward(opened, datums[turn])
        return logprobs

    async def _forward(self, opened: Opened, datums: Sequence[Datum]) -> list[list[float]]:
        parts = [_indices(part) for part in of_datums(datums)]
        answers = await _all(
            self._compute("forward", opened, datums=[datums[i] for i in part]) for part in parts
        )
        rows: list[list[float]] = [[] for _ in datums]
        for part, logprobs in zip(parts, answers, strict=True):
            for i, row in zip(part, logprobs, strict=True):
                rows[i] = row
        return rows

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        opened = self._opened.known(handle)
        base_module.check_adam(adam)
        weights = self._memory.take(opened.weights_bytes)
        before, stepped = (opened.weights, opened.conversations), STEPPED.get()

        def step(path: str) -> None:
            opened.weights = weights
            opened.conversations = Conversations(self._memory, opened.token_bytes)
            stepped(path)

        request = {"verb": "optim_step", "handle": handle, "weights": weights.start}
        request |= {"adam": adam, "directory": str(directory)}
        try:
            return Saved(**await self._worker.ask(request, regions=[weights], stepped=step))
        except BaseException:
            opened.weights, opened.conversations = before
            raise

    async def slim(self, state: Path, directory: Path) -> str:
        return str(await self._ask("slim", "", path=str(state), directory=str(directory)))

    def _sizes(self, handle: Handle) -> tuple[int, int]:
        config = self._opened.known(handle).config
        return config["context"], config["vocabulary"]

    async def _pass(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        """Accumulate the gradients of turns slice by slice, and pass those without one forward;
        returns the metrics of the pass."""
        opened = self._opened.known(handle)
        (moved, rows), (others, _) = base_module.split(datums, worth)
        slices = list(cut(moved, opened.parameters))
        trained: list[dict[str, float]] = []
        measured: list[dict[str, float]] = []
        added = False

        async def add(number: int) -> None:
            nonlocal added
            part, fields = slices[number], {"loss_fn": loss_fn, "config": config}
            trained.extend(await self._add(handle, moved[part], rows[part], number, fields))
            added = True

        async def measure(part: slice) -> None:
            measured.extend(await self._measure(opened, others[part], config))

        for number, still in zip_longest(range(len(slices)), cut(others, opened.parameters)):
            due = [] if number is None else [add(number)]
            try:
                await _all([*due, *([] if still is None else [measure(still)])])
            except EngineLost:
                raise
            except EngineError:
                if added:
                    await self._ask("undo", handle)
                raise
        return base_module.of_pass(
            base_module.merge(trained) if trained else None,
            base_module.merge(measured) if measured else None,
        )

    async def _add(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        worth: Worth,
        number: int,
        fields: dict[str, Any],
    ) -> list[dict[str, float]]:
        """Accumulate the gradients of a slice; returns the metrics of its parts."""
        opened = self._opened.known(handle)
        parts = [_indices(part) for part in of_datums(datums)]
        regions = [self._memory.take(opened.weights_bytes) for _ in parts]
        answers = await _all(
            self._compute(
                "gradients",
                opened,
                "part",
                [region],
                datums=[datums[i] for i in part],
                worth=[worth[i] for i in part],
                into=region.start,
                **fields,
            )
            for part, region in zip(parts, regions, strict=True)
        )
        self._opened.known(handle)
        pairs = zip(regions, answers, strict=True)
        starts = [region.start for region, answer in pairs if answer["moves"]]
        await self._worker.ask(
            {"verb": "add", "handle": handle, "parts": starts, "slice": number}, regions=regions
        )
        return [answer["metrics"] for answer in answers]

    async def _measure(
        self, opened: Opened, datums: Sequence[Datum], config: Mapping[str, float]
    ) -> list[dict[str, float]]:
        """The metrics of turns without a gradient, part by part, by a forward pass that reads equal
        turns once."""
        each, which = distinct(datums)
        equal: list[list[Datum]] = [[] for _ in each]
        for datum, index in zip(datums, which, strict=True):
            equal[index].append(datum)
        return await _all(
            self._compute(
                "measure",
                opened,
                datums=[datum for i in _indices(part) for datum in equal[i]],
                config=config,
            )
            for part in of_datums(each)
        )

    async def _ask(
        self, verb: str, handle: Handle, into: Region | None = None, **fields: Any
    ) -> Any:
        """Ask the process that holds the policies. `into`: where it writes weights."""
        if into is not None:
            fields["weights"] = into.start
        return await self._worker.ask({"verb": verb, "handle": handle, **fields}, regions=[into])

    async def _compute(
        self,
        verb: str,
        opened: Opened,
        kind: Kind = "part",
        regions: Sequence[Region | None] = (),
        progress: Progress | None = None,
        **fields: Any,
    ) -> Any:
        """Ask any process for what depends on the present weights alone."""
        request = {"verb": verb, "policy": opened.policy, **fields}
        return await self._worker.ask(request, kind, [opened.weights, *regions], progress)


async def _all(awaited: Iterable[Awaitable[Made]]) -> list[Made]:
    """All results. Raises the first error once none of them runs any more."""
    results = await asyncio.gather(*awaited, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


def _shifted(progress: Progress | None, first: int) -> Progress | None:
    """For a part of a call, whose first request has this index."""
    if progress is None:
        return None
    return lambda index, told, new: progress(first + index, told, new)


def _indices(part: list[list[int]]) -> list[int]:
    """Those of a part's turns."""
    return [i for sequence in part for i in sequence]


def _largest(path: Path) -> int:
    """Most bytes that the weights in a file take as float32; a file has at least half of that."""
    try:
        return 2 * path.stat().st_size
    except OSError:
        return 0


def _known_base(base: str) -> str:
    """The name of a base. Raises EngineError: there is no such base."""
    names = [base.name for base in BASES]
    if base not in names:
        raise EngineError(f"no base {base!r}; choose from {', '.join(names)}")
    return base
