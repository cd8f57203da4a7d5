"""Engine: what samples and trains behind the service. Every engine keeps this contract.

A policy is opened from a base or from a saved state and named by a handle. Going
back to an older node opens that node's state under a new handle; nothing is ever
loaded into a live one. Gradients accumulate in the handle until `optim_step`.

Source: the verbs and the five losses are Tinker's (tinker SDK 0.38 documentation);
all losses are sums over tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "cross_entropy")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

Handle = str
"""Names an open policy; meaningless to any other engine process."""


class EngineError(Exception):
    """The engine cannot do this; the message is for the user."""


class EngineRefused(EngineError):
    """The call makes no sense: nothing was changed, and the gradients that wait still do."""


class EngineLost(EngineError):
    """The engine stopped: every handle and every accumulated gradient is gone."""


class PolicyLost(EngineLost):
    """One policy is gone with its gradients; the others stand. Its handle is still to be closed."""


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
    above; empty where none were asked for."""


@dataclass(frozen=True)
class Datum:
    """One turn to train on: a prompt of P tokens and an output of T."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float] = ()
    """Sampling logprobs, shape (T,); empty where the loss needs none."""
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
