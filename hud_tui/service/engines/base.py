"""Engine: what samples and trains behind the service. Every engine keeps this contract.

A policy is opened from a base or from a saved state and named by a handle. Going
back to an older node opens that node's state under a new handle; nothing is ever
loaded into a live one. Gradients accumulate in the handle until `optim_step`.

Source: the verbs and the five losses are Tinker's (tinker SDK 0.38 documentation);
all losses are sums over tokens.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Protocol, TypeVar

import orjson

LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "cross_entropy")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

Handle = str
"""Names an open policy; meaningless to any other engine process."""


class EngineError(Exception):
    """The engine cannot do this; the message is for the user."""


class EngineRefused(EngineError):
    """The call makes no sense: nothing was changed, and the gradients that wait still do."""


class EngineLost(EngineError):
    """The engine stopped: all handles and accumulated gradients are lost."""


class PolicyLost(EngineLost):
    """One policy is lost with its gradients, others are not. Its handle must still be closed."""


class NotFinite(EngineError):
    """Numbers overflowed. Nothing was stored; the policy and the gradients that waited in it are
    of no use any more: its handle is still to be closed, and the head opened again."""


BROKEN = (
    "what these weights compute is not finite: set the head to an earlier checkpoint, and train"
    " from there with a lower learning rate"
)


class StateGone(EngineError):
    """What was saved is no longer there: it expired, or was deleted."""


class DiskFull(EngineError):
    """There is no room to save a state: no step was taken."""


class StateDamaged(EngineError):
    """The file of a saved state is missing, or not whole."""


@dataclass(frozen=True)
class Defaults:
    """Where a run on a base starts from."""

    learning_rate: float
    group_size: int
    max_tokens: int
    tasks_per_step: int
    steps: int


@dataclass(frozen=True)
class Base:
    """A model that can be forked."""

    name: str
    """E.g. ``tiny/arith-0.2M``."""
    description: str
    context: int
    """Most tokens of prompt and completion together."""
    vocabulary: int
    defaults: Defaults
    state_bytes: int = 0
    """About what a saved state takes on this machine's disk; 0 where it is kept elsewhere."""


@dataclass(frozen=True)
class SampleRequest:
    """One completion to sample."""

    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    """Sample from the fewest tokens that together have this share of the tempered probability."""
    top_logprobs: int = 0
    """How many of the likeliest tokens are told at each place."""
    seed: tuple[int, ...] = (0,)
    """The generator is this request's own: same seed, same tokens, whatever runs beside it;
    as far as a server behind the engine keeps to it."""
    stop: tuple[tuple[int, ...], ...] = ()
    """Token sequences that end the completion; they stay in the output."""


@dataclass(frozen=True)
class Sampled:
    """One completion. `tokens` and `logprobs` have shape (T,)."""

    tokens: list[int]
    logprobs: list[float]
    """Under the policy that sampled, tempered as it sampled; at temperature 0, and with an engine
    whose losses know no temperature, untempered. What `top_p` cuts off is not taken out of them:
    they are what training computes again, so that ratios start at 1."""
    finish_reason: Literal["stop", "length"]
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    """At each of T places the `top_logprobs` likeliest tokens, likeliest first, with logprobs as
    above; empty if none were asked for."""


@dataclass(frozen=True)
class Datum:
    """One turn to train on: a prompt of P tokens and an output of T."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float] = ()
    """Sampling logprobs, shape (T,); empty if the loss needs none."""
    advantage: float = 0.0
    """Of every output token; for cross_entropy, the weight of every output token."""
    temperature: float = 1.0
    """At which the output was sampled; current logprobs are tempered as `logprobs` were."""


@dataclass(frozen=True)
class Adam:
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Saved:
    """One optimizer step, on disk."""

    state_path: str
    """Weights and optimizer state: what `open` continues from."""
    sampler_path: str
    """Weights to sample with; may be the same file."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """E.g. grad_norm."""


@dataclass(frozen=True)
class Call:
    """A tool that a policy asks for."""

    name: str
    arguments: str
    """JSON as the policy wrote it: it may be broken."""


class Tokenizer(Protocol):
    """Text to token ids and back, with the base's chat template."""

    vocabulary: int

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Prompt ids of a conversation, ending where the assistant's answer begins.

        Args:
            messages: In OpenAI's form.
            tools: That the answer may call.
            options: The chat template's own, e.g. ``enable_thinking``.

        Raises:
            ValueError: The template does not take a message, a tool or an option.
        """

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Ids of what `render` puts after the first `covered` messages and their ends."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without control tokens."""

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        """The tool calls in an answer, in the base's own form, and the text beside them."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as visible text, control tokens too."""


@dataclass(frozen=True)
class About:
    """Where an engine's policies live, as far as it matters to who uses them."""

    engine: str
    server: str | None = None
    """URL of the server that holds them; None on this machine."""
    queue: str = "active"
    """What its requests wait for, in plain words; ``active`` where nothing holds them up."""
    slots: int = 0
    """Training policies that are open on the server now."""
    ttl_s: int | None = None
    """How long the server keeps a checkpoint; None: until it is deleted."""
    saves_per_step: int = 0
    """Checkpoints that an optimizer step leaves on the server; 0 where there is none."""
    place: str = ""
    """What people call the server; empty: by its URL."""


class Engine(Protocol):
    """Losses, sampling and optimizer steps on open policies. Every call may run concurrently."""

    def bases(self) -> Sequence[Base]: ...

    def about(self) -> About: ...

    async def tokenizer(self, base: str) -> Tokenizer:
        """The base's tokenizer, loaded beside the event loop at first.

        Raises:
            EngineError: No such base, or it has none that can be read here.
        """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def open(self, source: str | Path) -> Handle:
        """Open a base by name, or a state path with its optimizer state.

        Raises:
            StateDamaged: There is no such state, or its file is not whole.
            EngineError: No such base.
        """

    async def close(self, handle: Handle) -> None:
        """Forget a policy and its gradients. Unknown handles are ignored."""

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        """One completion a request, in order.

        Raises:
            EngineRefused: A request makes no sense, or wants `top_logprobs` that the engine,
                or the server behind it, does not tell.
        """

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        """Current logprobs of the output tokens, one list of shape (T,) a datum."""

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Accumulate the gradients of the datums whose advantage is not 0; the others are passed
        forward only, for the figures.

        Returns `figures.of_pass`: loss:sum; num_tokens, all output tokens, and tokens, those with
        a gradient; kl_sample_train, ratio_max, clip_fraction and entropy over the former (means,
        but for the maximum), and over the latter as ``trained/…``. clip_fraction is the share of
        ratios outside the loss's bounds, or outside `figures.BOUNDS` where it has none. Where a
        datum has no logprobs there is nothing to compare: no kl, ratio or clip then.

        Raises:
            EngineError: Unknown loss or config key; nothing was accumulated.
        """

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Accumulate gradients for given −dC/dlogprob, shape (T,) a datum; figures as above, a
        datum whose weights are all 0 being one without a gradient."""

    async def slim(self, state: Path, directory: Path) -> str:
        """Write a state's weights alone into `directory`, fsynced; the path. `open` continues
        from it with fresh moments, and samples from it exactly as from the state.

        Raises:
            EngineError: No such state, or it cannot be written.
        """

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        """Take one step and save it into `directory`, fsynced and complete before this returns.

        Raises:
            EngineRefused: Nothing was accumulated (every token may have been clipped), or
                the optimizer's numbers make no sense.
            NotFinite: The new weights, or what they compute, would not be finite; as far as a
                server says so. Nothing was saved that counts.
            DiskFull: There is no room for it.
            EngineError: It could not be saved.
        """


# Figures of a pass, over every token that was sampled and over those with a gradient alone.
#
# A group without variance has no gradient, but the policy said its tokens all the same. So entropy,
# KL, ratios and the share outside the clip bounds are means over all; `TRAINED` names them over the
# tokens with a gradient, which late in a run are a few dozen.


SUMS = ("loss:sum", "tokens", "num_tokens")
MEANS = ("entropy", "kl_sample_train", "clip_fraction")
"""Means over tokens: they merge weighted by how many."""
GREATEST = ("ratio_max",)
TRAINED = "trained/"
"""Before the name of a figure over the tokens with a gradient only."""
KNOWN = (*SUMS, *MEANS, *GREATEST, *(f"{TRAINED}{key}" for key in (*MEANS, *GREATEST)))
BOUNDS = (0.8, 1.2)
"""Ratios outside these count as clipped where a loss has no bounds of its own; ppo's usual."""


def fold(key: str, parts: Sequence[Mapping[str, float]]) -> float:
    """One of `KNOWN` out of several passes, or parts of a pass, that all have it."""
    name, values = key.removeprefix(TRAINED), [part[key] for part in parts]
    if name in SUMS:
        return sum(values)
    if name in GREATEST:
        return max(values)
    counted = "tokens" if key.startswith(TRAINED) else "num_tokens"
    counts = [part.get(counted, 1.0) for part in parts]
    total = sum(counts)
    weighted = sum(value * count for value, count in zip(values, counts, strict=True))
    return weighted / total if total else values[-1]


def merge(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One pass's figures out of its parts'; those that a part lacks are left out."""
    shared = [key for key in KNOWN if parts and all(key in part for part in parts)]
    return {key: fold(key, parts) for key in shared}


def of_pass(
    trained: Mapping[str, float] | None, others: Mapping[str, float] | None
) -> dict[str, float]:
    """A whole pass's figures.

    Args:
        trained: Of the turns with a gradient: loss:sum, num_tokens, `MEANS` and `GREATEST` as far
            as they can be known; None if there are none.
        others: Of the turns without; None if there are none.
    """
    found = {"loss:sum": 0.0, "tokens": 0.0}
    for key, value in (trained or {}).items():
        found[f"{TRAINED}{key}" if key in (*MEANS, *GREATEST) else key] = value
    found["tokens"] = found.get("num_tokens", 0.0)
    return found | merge([part for part in (trained, others) if part is not None])


def distinct(datums: Sequence[Datum]) -> tuple[list[Datum], list[int]]:
    """Datums without repetitions, and where each one is found there, shape (N,).

    What a group without variance said is mostly the same: a forward pass need not read it twice.
    """
    places: dict[tuple[object, ...], int] = {}
    which = [
        places.setdefault((*datum.prompt, None, *datum.output, datum.temperature), len(places))
        for datum in datums
    ]
    first = dict(zip(reversed(which), reversed(datums), strict=True))
    return [first[place] for place in range(len(places))], which


# Frames between the service and an engine's own process: a length, then JSON.
#
# Four bytes of length, most significant first.


T = TypeVar("T")

KINDS: dict[str, type[EngineError]] = {
    "refused": EngineRefused,
    "lost": PolicyLost,
    "gone": StateGone,
    "not finite": NotFinite,
    "disk": DiskFull,
    "error": EngineError,
}
"""What an error is, by its name in a frame; the last one is any other."""


def failure(error: EngineError) -> dict[str, str]:
    """An error as a reply says it."""
    kind = next(name for name, type_ in KINDS.items() if isinstance(error, type_))
    return {"error": str(error), "kind": kind}


def raised(reply: dict[str, Any]) -> EngineError:
    """The error that a reply says."""
    return KINDS[reply["kind"]](reply["error"])


class Silent(EOFError):
    """The engine's process is there, and does not answer."""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream."""
    head = stream.read(4)
    size = int.from_bytes(head, "big")
    body = stream.read(size) if len(head) == 4 else b""
    return body if len(head) == 4 and len(body) == size else None


def frame(value: Any) -> bytes:
    """A value as one frame."""
    body = orjson.dumps(value)
    return len(body).to_bytes(4, "big") + body


async def in_time(
    answer: Coroutine[Any, Any, T], seconds: int, silent: Callable[[int], object]
) -> T:
    """Await an answer of the engine's process for so long.

    Args:
        answer: What is awaited.
        seconds: Of this process's own time: while it was stopped itself, by a shell or a
            machine that slept, nobody could have heard an answer.
        silent: Told after each second without one how many there were, and 0 once it is there.

    Raises:
        Silent: It did not come.
    """
    task = asyncio.ensure_future(answer)
    try:
        for passed in range(seconds):
            if (await asyncio.wait({task}, timeout=1))[0]:
                return task.result()
            silent(passed + 1)
        raise Silent(f"the engine's process did not answer for {seconds} s, and was ended")
    finally:
        silent(0)
        task.cancel()


# What a call must satisfy before it may reach the worker: nothing refused leaves a trace.
#
# Plain Python, so that the service's own process need not load NumPy.


CONFIG_DEFAULTS: dict[str, dict[str, float]] = {
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "dro": {"beta": 0.05},
    "cross_entropy": {},
}
"""Each loss's config keys. Source: Tinker's documentation; cispo's bounds are those of ppo."""
MOST_TOP = 20
"""Most likeliest tokens that are told at a place. Source: OpenAI's chat completions."""
COOLEST, HOTTEST = 0.01, 100.0
"""Temperatures above 0 that still leave numbers to work with."""


def loss_config(loss_fn: str, config: Mapping[str, float] | None) -> dict[str, float]:
    """The loss's config with its defaults filled in.

    Raises:
        EngineRefused: Unknown loss or key, or a value that makes no sense.
    """
    if loss_fn not in LOSSES:
        raise EngineRefused(f"unknown loss {loss_fn!r}; choose from {', '.join(LOSSES)}")
    known = CONFIG_DEFAULTS[loss_fn]
    for key, value in (config or {}).items():
        if key not in known:
            keys = ", ".join(known) or "none"
            raise EngineRefused(f"{loss_fn} has no config key {key!r}; its keys: {keys}")
        if not math.isfinite(value) or value < 0:
            raise EngineRefused(f"{key} must be a finite number from 0, not {value}")
    full = {**known, **(config or {})}
    if full.get("clip_low_threshold", 0) > full.get("clip_high_threshold", 0):
        raise EngineRefused("clip_low_threshold must not exceed clip_high_threshold")
    return full


def requests(given: Sequence[SampleRequest], context: int, vocabulary: int) -> None:
    """Raise EngineRefused unless every request can be sampled."""
    for index, request in enumerate(given):
        name = f"request {index}"
        _ids(f"{name}: prompt", request.prompt, vocabulary)
        if not request.prompt:
            raise EngineRefused(f"{name}: the prompt is empty")
        if len(request.prompt) >= context:
            raise EngineRefused(
                f"{name}: context_length_exceeded: the prompt has {len(request.prompt)} tokens, "
                f"and this model's context of {context} must hold the completion too"
            )
        if request.max_tokens < 1:
            raise EngineRefused(f"{name}: max_tokens must be at least 1")
        if any(part < 0 for part in request.seed):
            raise EngineRefused(f"{name}: seeds must not be negative")
        if any(not stop for stop in request.stop):
            raise EngineRefused(f"{name}: a stop sequence is empty")
        if not 0 < request.top_p <= 1:
            raise EngineRefused(f"{name}: top_p must be above 0 and at most 1")
        if not 0 <= request.top_logprobs <= MOST_TOP:
            raise EngineRefused(f"{name}: top_logprobs must be from 0 to {MOST_TOP}")
        if request.temperature != 0:
            _temperature(name, request.temperature, "0 or ")


def datums(given: Sequence[Datum], context: int, vocabulary: int, ratios: bool) -> None:
    """Raise EngineRefused unless every datum can be trained on.

    Args:
        given: The datums.
        context: Of the policy.
        vocabulary: Of the policy.
        ratios: Whether the loss compares with the sampling logprobs.
    """
    for index, datum in enumerate(given):
        name = f"datum {index}"
        _ids(f"{name}: prompt", datum.prompt, vocabulary)
        _ids(f"{name}: output", datum.output, vocabulary)
        size = len(datum.prompt) + len(datum.output)
        if not datum.prompt or not datum.output:
            raise EngineRefused(f"{name}: prompt and output need at least one token each")
        if size > context:
            raise EngineRefused(f"{name}: {size} tokens exceed the context of {context}")
        if (ratios or datum.logprobs) and len(datum.logprobs) != len(datum.output):
            raise EngineRefused(
                f"{name}: {len(datum.logprobs)} logprobs for {len(datum.output)} output tokens"
            )
        if not all(map(math.isfinite, (datum.advantage, *datum.logprobs))):
            raise EngineRefused(f"{name}: advantage and logprobs must be finite")
        _temperature(name, datum.temperature)


def weights(given: Sequence[Sequence[float]], of: Sequence[Datum]) -> None:
    """Raise EngineRefused unless there is one finite weight per output token of each datum."""
    if [len(row) for row in given] != [len(datum.output) for datum in of]:
        raise EngineRefused("weights must hold one list per datum, one value per output token")
    if not all(math.isfinite(value) for row in given for value in row):
        raise EngineRefused("weights must be finite")


def adam(given: Adam) -> None:
    """Raise EngineRefused unless the optimizer's settings make sense."""
    if not (0 <= given.beta1 < 1 and 0 <= given.beta2 < 1):
        raise EngineRefused("beta1 and beta2 must be from 0 to below 1")
    for name in ("learning_rate", "eps"):
        if not 0 < getattr(given, name) < math.inf:
            raise EngineRefused(f"{name} must be a finite number above 0")
    if not 0 <= given.weight_decay < math.inf:
        raise EngineRefused("weight_decay must be a finite number from 0")


def _ids(name: str, ids: Sequence[int], vocabulary: int) -> None:
    for token in ids:
        if not 0 <= token < vocabulary:
            raise EngineRefused(f"{name}: token {token} is outside the vocabulary of {vocabulary}")


def _temperature(name: str, value: float, also: str = "") -> None:
    if not COOLEST <= value <= HOTTEST:
        wanted = f"{also}{COOLEST} to {HOTTEST}"
        raise EngineRefused(f"{name}: temperature must be {wanted}, not {value}")
