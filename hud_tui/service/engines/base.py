"""Engine: samples and trains for the service. Every engine implements this interface.

A policy is opened from a base or a saved state and identified by a handle. Returning to an older
node opens that node's state under a new handle; a state is never loaded into an open policy.
Gradients accumulate in the handle until `optim_step`.

Source: the operations and the five losses are Tinker's (tinker SDK 0.38 documentation);
all losses are sums over tokens.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import orjson

from hud_tui.pipes import Codec
from hud_tui.rl.text import spelled_out, wrong_loss_config

LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "cross_entropy")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

Handle = str
"""Identifies an open policy within one engine process."""


class EngineError(Exception):
    """The engine cannot do this; the message is shown to the user."""


NOTHING_ACCUMULATED = (
    "nothing was accumulated: no token has a gradient. If the loss clips every token, sample again"
    " from the head"
)


class EngineRefused(EngineError):
    """The call is invalid: nothing was changed, and accumulated gradients are kept."""


class EngineLost(EngineError):
    """The engine stopped: all handles and accumulated gradients are lost."""


class PolicyLost(EngineLost):
    """One policy is lost with its gradients; others are not. Its handle must still be closed."""


class NotFinite(EngineError):
    """Numbers overflowed. Nothing was stored, but the policy and its gradients are unusable: close
    its handle and open the head again."""


BROKEN = (
    "what these weights compute is not finite: set the head to an earlier checkpoint, and train"
    " from there with a lower learning rate"
)


class StateGone(EngineError):
    """The saved state no longer exists: it expired or was deleted."""


class DiskFull(EngineError):
    """There is no room to save a state: no step was taken."""


def not_written(what: str, error: OSError) -> EngineError:
    """The error for a file that could not be saved."""
    kind = DiskFull if error.errno in (ENOSPC, EDQUOT, EFBIG) else EngineError
    return kind(f"{what} could not be written: {error.strerror}")


class StateDamaged(EngineError):
    """The file of a saved state is missing or incomplete."""


@dataclass(frozen=True)
class Defaults:
    """Default parameters of a run on a base."""

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
    """Approximate size of a saved state on this machine's disk, bytes; 0 if it is stored
    elsewhere."""
    key: str = ""
    """What the engine and the store know it by; empty: its name. A base that is made anew gets
    another one, so that forks of the one before keep that and its tokens."""
    offered: bool = True
    """Whether it can be forked; else it serves the forks that there are."""

    @property
    def id(self) -> str:
        return self.key or self.name


@dataclass(frozen=True)
class SampleRequest:
    """One completion to sample."""

    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Nucleus sampling: the smallest set of tokens with this total probability, after
    temperature."""
    top_logprobs: int = 0
    """Number of most likely tokens that are returned at each position."""
    seed: tuple[int, ...] = (0,)
    """Every request has its own generator: the same seed gives the same tokens whatever runs beside
    it, as far as a server behind the engine supports that."""
    stop: tuple[tuple[int, ...], ...] = ()
    """Token sequences that end the completion; they stay in the output."""


@dataclass(frozen=True)
class Sampled:
    """One completion. `tokens` and `logprobs` have shape (T,)."""

    tokens: list[int]
    logprobs: list[float]
    """Under the sampling policy at its temperature; at temperature 0, and with engines whose losses
    have no temperature, at temperature 1. `top_p` is not taken into account: training computes the
    same numbers, so that importance ratios start at 1."""
    finish_reason: Literal["stop", "length"]
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    """For each of T positions the `top_logprobs` most likely tokens, most likely first, with
    logprobs as above; empty if none were requested."""


@dataclass(frozen=True)
class Datum:
    """One turn to train on: a prompt of P tokens and an output of T."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float] = ()
    """Sampling logprobs, shape (T,); empty if the loss needs none."""
    advantage: float = 0.0
    """Advantage of every output token; for cross_entropy, the weight of every output token."""
    temperature: float = 1.0
    """Sampling temperature; current logprobs are computed at the same one."""
    penalties: Sequence[float] = ()
    """Added to the advantage of each output token, shape (T,); empty for none."""


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
    """Path of weights and optimizer state; `open` continues from it."""
    sampler_path: str
    """Path of the weights for sampling; may be the same file."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """E.g. grad_norm."""
    seconds: float = 0.0
    """How long saving took, after the step itself; 0 if unknown."""


@dataclass(frozen=True)
class Call:
    """A tool call in an answer."""

    name: str
    arguments: str
    """JSON as the policy wrote it; may be invalid."""


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
            messages: In OpenAI's format.
            tools: Tools that the answer may call.
            options: Options of the chat template, e.g. ``enable_thinking``.

        Raises:
            ValueError: The template does not accept a message, a tool or an option.
        """

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """The ids that `render` gives for the messages after the first `covered`."""

    def demonstrate(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[list[int], list[int]]:
        """The last message, which is the assistant's, as if the policy had said it: the ids of its
        prompt, and of the answer with what ends it. Raises ValueError as `render` does."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without control tokens."""

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        """The text of an answer without its tool calls, and the calls."""

    def plain(self, ids: Sequence[int]) -> int:
        """Number of leading ids that no tool call has, whatever follows. If the answer has calls,
        its text begins with theirs."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as visible text, including control tokens."""


@dataclass(frozen=True)
class About:
    """Where an engine's policies live, as far as users need to know."""

    engine: str
    server: str | None = None
    """URL of the server that holds them; None on this machine."""
    queue: str = "active"
    """What its requests wait for, in plain words; ``active`` if nothing holds them up."""
    slots: int = 0
    """Number of training policies open on the server."""
    ttl_s: int | None = None
    """Seconds that the server keeps a checkpoint; None if until it is deleted."""
    saves_per_step: int = 0
    """Checkpoints that an optimizer step stores on the server; 0 without a server."""
    place: str = ""
    """Display name of the server; empty to show its URL."""
    prices: Mapping[str, float] | None = None
    """US dollars per million tokens: ``prompt``, ``sampled`` and ``trained``; None if unknown."""


CLAIMANT: ContextVar[str] = ContextVar("claimant", default="")
"""For whom the present call is made, e.g. the name of a key. Where calls wait, claimants may take
turns, however many each has. No number depends on it."""

BEGUN: ContextVar[Callable[[], object]] = ContextVar("begun", default=lambda: None)
"""What an engine calls when it begins with the present call, which may have waited for others."""

STEPPED: ContextVar[Callable[[str], object]] = ContextVar("stepped", default=lambda path: None)
"""What an engine calls, with the path of the state that it is about to save, once the weights of
the present `Engine.optim_step` can be sampled through the handle: before they are saved, if it can.
If saving fails after that, the handle has its weights from before."""

Progress = Callable[[int, int, Sampled], object]
"""Takes new tokens of a request of a call: its index, the number of its tokens before them, and
them. What is done again is told again, from 0 on. It must not raise."""
PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)
"""Who is told the tokens of the present `Engine.sample` as they are sampled. An engine that samples
whole answers leaves it alone: all tokens are returned, told before or not."""


class Engine(Protocol):
    """Losses, sampling and optimizer steps on open policies. Every call may run concurrently."""

    def bases(self) -> Sequence[Base]: ...

    def about(self) -> About: ...

    async def tokenizer(self, base: str) -> Tokenizer:
        """The base's tokenizer; the first call loads it in a thread. Raises EngineError: no such
        base, or its tokenizer cannot be loaded."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def open(self, source: str | Path) -> Handle:
        """Open a base by name, or a state path with its optimizer state. Raises StateDamaged: the
        state's file is missing or incomplete; EngineError: no such base."""

    async def close(self, handle: Handle) -> None:
        """Discard a policy and its gradients. Unknown handles are ignored."""

    def view(self, handle: Handle) -> Handle | None:
        """A handle that samples a policy's present weights, also after its next step, and is closed
        like others. None: the engine has no such, or has lost the policy."""

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        """One completion per request, in order; `PROGRESS` may be told of tokens before.

        Once cancelled, no more is sampled, as far as a server behind the engine can be stopped.
        Raises EngineRefused: a request is invalid, or wants `top_logprobs` that the engine, or the
        server behind it, does not support.
        """

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        """Current logprobs of the output tokens, one list of shape (T,) per datum."""

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Accumulate the gradients of the datums whose advantage is not 0; the others are only
        passed forward, for the metrics.

        Returns the metrics of `of_pass`: loss:sum; num_tokens, all output tokens, and tokens,
        those with a gradient; kl_sample_train, ratio_max, clip_fraction, ratio_outside and
        entropy over the former (means, except the maximum), and over the latter as ``trained/…``.
        clip_fraction is the share of tokens that the loss clips (ppo: by the advantage's sign);
        ratio_outside that of ratios outside its bounds, or outside `BOUNDS` if it has none.
        Without sampling logprobs there is no KL, ratio or clip fraction.

        Raises:
            EngineError: Unknown loss or config key; nothing was accumulated.
        """

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Accumulate gradients for given −dC/dlogprob, shape (T,) per datum. Returns metrics as
        above; a datum whose weights are all 0 counts as one without a gradient."""

    async def slim(self, state: Path, directory: Path) -> str:
        """Write a state's weights without optimizer state into `directory`, fsynced; returns the
        path. `open` continues from it with fresh moments; samples are the same as from the state.
        Raises EngineError: no such state, or it cannot be written."""

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        """Take one step and save it into `directory`, complete and fsynced on return.

        Raises:
            EngineRefused: Nothing was accumulated (every token may have been clipped), or
                the optimizer's parameters are invalid.
            NotFinite: The new weights, or their outputs, would not be finite, as far as a server
                reports that. Nothing usable was saved.
            DiskFull: There is no room for it.
            EngineError: It could not be saved.
        """


# Metrics of a pass, over all output tokens and over those with a gradient.
#
# A zero-variance group has no gradient, but the policy sampled its tokens all the same. So entropy,
# KL, ratios and the clip fraction are means over all tokens; `TRAINED` names those over the tokens
# with a gradient, of which there may be few late in a run.


SUMS = ("loss:sum", "tokens", "num_tokens")
MEANS = ("entropy", "kl_sample_train", "clip_fraction", "ratio_outside")
"""Metrics that are means over tokens: merged weighted by the number of tokens."""
GREATEST = ("ratio_max",)
TRAINED = "trained/"
"""Prefix of a metric over the tokens with a gradient only."""
KNOWN = (*SUMS, *MEANS, *GREATEST, *(f"{TRAINED}{key}" for key in (*MEANS, *GREATEST)))
BOUNDS = (0.8, 1.2)
"""Bounds of ratio_outside for losses without bounds; ppo's defaults."""


def fold(key: str, parts: Sequence[Mapping[str, float]]) -> float:
    """One metric of `KNOWN` from several passes, or parts of a pass, that all have it."""
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
    """One pass's metrics from its parts'; those that a part lacks are left out."""
    shared = [key for key in KNOWN if parts and all(key in part for part in parts)]
    return {key: fold(key, parts) for key in shared}


def of_pass(
    trained: Mapping[str, float] | None, others: Mapping[str, float] | None
) -> dict[str, float]:
    """A whole pass's metrics.

    Args:
        trained: Metrics of the turns with a gradient: loss:sum, num_tokens, and those of `MEANS`
            and `GREATEST` that are known; None if there are no such turns.
        others: The same of the turns without a gradient; None if there are none.
    """
    figures = {"loss:sum": 0.0, "tokens": 0.0}
    for key, value in (trained or {}).items():
        figures[f"{TRAINED}{key}" if key in (*MEANS, *GREATEST) else key] = value
    figures["tokens"] = figures.get("num_tokens", 0.0)
    return figures | merge([part for part in (trained, others) if part is not None])


def advantages(datums: Sequence[Datum]) -> list[list[float]]:
    """The advantage of each output token, shape (T,) per datum."""
    return [
        [datum.advantage + penalty for penalty in datum.penalties or [0.0] * len(datum.output)]
        for datum in datums
    ]


def split(
    datums: Sequence[Datum], worth: Sequence[Sequence[float]]
) -> list[tuple[list[Datum], list[Sequence[float]]]]:
    """Those with a gradient, with what their tokens are worth; and those without."""
    pairs = list(zip(datums, worth, strict=True))
    parts = [[pair for pair in pairs if any(pair[1]) == moves] for moves in (True, False)]
    return [([datum for datum, _ in part], [row for _, row in part]) for part in parts]


def distinct(datums: Sequence[Datum]) -> tuple[list[Datum], list[int]]:
    """The distinct datums, and the index of each given datum among them, shape (N,).

    Rollouts of a zero-variance group are mostly identical: a forward pass reads each only once.
    """
    positions: dict[tuple[object, ...], int] = {}
    which = [
        positions.setdefault(
            (*datum.prompt, None, *datum.output, datum.temperature), len(positions)
        )
        for datum in datums
    ]
    first = dict(zip(reversed(which), reversed(datums), strict=True))
    return [first[position] for position in range(len(positions))], which


# Between the service and an engine's own process: see `hud_tui.pipes`.


CODEC = Codec(orjson.dumps, orjson.loads)
GONE = "unsaved state is lost; open the policy again"
LOST = f"the engine's process ended: {GONE}"
CLOSED = "this policy is closed: open it again"
SILENT = f"the engine's process {{}}, and was ended: {GONE}"

KINDS: dict[str, type[EngineError]] = {
    "refused": EngineRefused,
    "lost": PolicyLost,
    "gone": StateGone,
    "not finite": NotFinite,
    "disk": DiskFull,
    "error": EngineError,
}
"""Exception classes by their name in an answer; the last one stands for all others."""


def failure(error: EngineError) -> dict[str, str]:
    """An error as an answer."""
    kind = next(name for name, type_ in KINDS.items() if isinstance(error, type_))
    return {"error": str(error), "kind": kind}


def raised(answer: Mapping[str, Any]) -> EngineError:
    return KINDS[answer["kind"]](answer["error"])


# Validation of calls before they reach the worker: a refused call has no effect.
#
# Plain Python, so that the service's own process does not load NumPy.


CONFIG_DEFAULTS: dict[str, dict[str, float]] = {
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "dro": {"beta": 0.05},
    "cross_entropy": {},
}
"""Each loss's config keys with their defaults. Source: Tinker's documentation; cispo's bounds are
ppo's."""
MOST_TOP = 20
"""Largest `top_logprobs`. Source: OpenAI's chat completions."""
COOLEST, HOTTEST = 0.01, 100.0
"""Lowest and highest temperature above 0 with finite results."""


def loss_config(loss_fn: str, config: Mapping[str, float] | None) -> dict[str, float]:
    """The loss's config with its defaults. Raises EngineRefused: unknown loss or key, or an invalid
    value."""
    if loss_fn not in LOSSES:
        raise EngineRefused(f"unknown loss {loss_fn!r}; choose from {', '.join(LOSSES)}")
    defaults = CONFIG_DEFAULTS[loss_fn]
    if wrong := wrong_loss_config(loss_fn, config or {}, defaults):
        raise EngineRefused(f"{wrong}; its keys: {', '.join(defaults) or 'none'}")
    return {**defaults, **spelled_out(config or {})}


def check_requests(sampled: Sequence[SampleRequest], context: int, vocabulary: int) -> None:
    """Raises EngineRefused unless every request can be sampled."""
    for index, request in enumerate(sampled):
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
        if min(request.seed, default=0) < 0:
            raise EngineRefused(f"{name}: seeds must not be negative")
        if any(not stop for stop in request.stop):
            raise EngineRefused(f"{name}: a stop sequence is empty")
        if not 0 < request.top_p <= 1:
            raise EngineRefused(f"{name}: top_p must be above 0 and at most 1")
        if not 0 <= request.top_logprobs <= MOST_TOP:
            raise EngineRefused(f"{name}: top_logprobs must be from 0 to {MOST_TOP}")
        if request.temperature != 0:
            _temperature(name, request.temperature, "0 or ")


def check_datums(trained: Sequence[Datum], context: int, vocabulary: int, ratios: bool) -> None:
    """Raises EngineRefused unless every datum can be trained on. `ratios`: whether the loss needs
    sampling logprobs."""
    for index, datum in enumerate(trained):
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


def check_weights(rows: Sequence[Sequence[float]], of: Sequence[Datum]) -> None:
    """Raises EngineRefused unless there is one finite weight per output token of each datum."""
    if [len(row) for row in rows] != [len(datum.output) for datum in of]:
        raise EngineRefused("weights must hold one list per datum, one value per output token")
    if not all(math.isfinite(value) for row in rows for value in row):
        raise EngineRefused("weights must be finite")


def check_adam(parameters: Adam) -> None:
    """Raises EngineRefused unless the optimizer's parameters are valid."""
    if not (0 <= parameters.beta1 < 1 and 0 <= parameters.beta2 < 1):
        raise EngineRefused("beta1 and beta2 must be from 0 to below 1")
    for name in ("learning_rate", "eps"):
        if not 0 < getattr(parameters, name) < math.inf:
            raise EngineRefused(f"{name} must be a finite number above 0")
    if not 0 <= parameters.weight_decay < math.inf:
        raise EngineRefused("weight_decay must be a finite number from 0")


def _ids(name: str, ids: Sequence[int], vocabulary: int) -> None:
    if min(ids, default=0) >= 0 and max(ids, default=0) < vocabulary:
        return
    for token in ids:
        if not 0 <= token < vocabulary:
            raise EngineRefused(f"{name}: token {token} is outside the vocabulary of {vocabulary}")


def _temperature(name: str, value: float, also: str = "") -> None:
    if not COOLEST <= value <= HOTTEST:
        expected = f"{also}{COOLEST} to {HOTTEST}"
        raise EngineRefused(f"{name}: temperature must be {expected}, not {value}")


# What engines share.


Worth = Sequence[Sequence[float]]
"""What each output token is worth, shape (T,) per datum: its advantage, or its weight."""


class Passes(ABC):
    """The two calls of `Engine` that accumulate gradients as one kind of pass, which is checked."""

    @abstractmethod
    def _sizes(self, handle: Handle) -> tuple[int, int]:
        """Context and vocabulary of an open policy. Raises EngineError: it is not open."""

    @abstractmethod
    async def _pass(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        """Accumulate the gradient of a loss, or of given weights −dC/dlogprob if there is none."""

    async def forward_backward(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        full = loss_config(loss_fn, config)
        check_datums(datums, *self._sizes(handle), ratios=loss_fn != "cross_entropy")
        return await self._pass(handle, datums, advantages(datums), loss_fn, full)

    async def backward(
        self, handle: Handle, datums: Sequence[Datum], weights: Worth
    ) -> dict[str, float]:
        check_datums(datums, *self._sizes(handle), ratios=False)
        check_weights(weights, datums)
        return await self._pass(handle, datums, weights, None, {})


# An engine whose policies are in the service's own process: small, or in a test.


class Policy(Protocol):
    """An open policy. What reaches it was checked."""

    def sample(self, request: SampleRequest) -> Sampled: ...

    def logprobs(self, datums: Sequence[Datum]) -> list[list[float]]:
        """As `Engine.forward`."""

    def accumulate(
        self,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        """Accumulate the gradient of a loss, or of given weights −dC/dlogprob if there is none.
        Returns the metrics that `of_pass` takes."""

    def optim_step(self, adam: Adam, directory: Path) -> Saved:
        """As `Engine.optim_step`."""


class InProcess(Passes):
    """Implements `Engine` for policies of one base: keeps their handles, checks what is asked of
    them, and puts the metrics of a pass together."""

    def __init__(
        self,
        name: str,
        base: Base,
        tokenizer: Tokenizer,
        load: Callable[[Path | None], Policy],
        slim: Callable[[Path, Path], str],
    ) -> None:
        """
        Args:
            name: The engine's.
            base: Its only one.
            tokenizer: The base's.
            load: Opens a saved state, or the base; raises as `Engine.open`.
            slim: As `Engine.slim`.
        """
        self._name, self._base, self._tokenizer = name, base, tokenizer
        self._load, self._slim = load, slim
        self.policies: dict[Handle, Policy] = {}
        """The open ones, by handle."""
        self._count = 0

    def bases(self) -> Sequence[Base]:
        return [self._base]

    def about(self) -> About:
        return About(self._name)

    async def tokenizer(self, base: str) -> Tokenizer:
        if base != self._base.name:
            raise EngineError(f"no base {base!r}")
        return self._tokenizer

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.policies.clear()

    async def open(self, source: str | Path) -> Handle:
        if isinstance(source, str):
            await self.tokenizer(source)
        policy = self._load(source if isinstance(source, Path) else None)
        self._count += 1
        handle = f"{self._name}-{self._count}"
        self.policies[handle] = policy
        return handle

    async def close(self, handle: Handle) -> None:
        self.policies.pop(handle, None)

    def view(self, handle: Handle) -> Handle | None:
        return None

    def _policy(self, handle: Handle) -> Policy:
        if handle not in self.policies:
            raise EngineError(CLOSED)
        return self.policies[handle]

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        policy = self._policy(handle)
        check_requests(requests, *self._sizes(handle))
        return [policy.sample(request) for request in requests]

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        policy = self._policy(handle)
        check_datums(datums, *self._sizes(handle), ratios=False)
        return policy.logprobs(datums)

    def _sizes(self, handle: Handle) -> tuple[int, int]:
        self._policy(handle)
        return self._base.context, self._base.vocabulary

    async def _pass(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        policy = self._policy(handle)
        moved, still = split(datums, worth)
        return of_pass(
            policy.accumulate(*moved, loss_fn, config) if moved[0] else None,
            policy.accumulate(*still, None, config) if still[0] else None,
        )

    async def slim(self, state: Path, directory: Path) -> str:
        return self._slim(state, directory)

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        policy = self._policy(handle)
        check_adam(adam)
        return policy.optim_step(adam, directory)
