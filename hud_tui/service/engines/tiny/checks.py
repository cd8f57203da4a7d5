"""What a call must satisfy before it may reach the worker: nothing refused leaves a trace.

Plain Python, so that the service's own process need not load NumPy.
"""

import math
from collections.abc import Mapping, Sequence

from hud_tui.service.engines.base import LOSSES, Adam, Datum, EngineRefused, SampleRequest

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
