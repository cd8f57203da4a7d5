"""Training on a run: forward and backward passes, and steps, which are saved at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hud_tui.service.engines.base import (
    BROKEN,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    PolicyLost,
    Worth,
    advantages,
    distinct,
    of_pass,
    split,
)
from hud_tui.service.engines.tinker.run import Run
from hud_tui.service.engines.tinker.server import Server, sdk
from hud_tui.service.engines.tiny.training import Floats, Tally, clipped, token_weights

# Datums in the SDK's format: one row per turn, shifted by one, with 0 on the prompt.
#
# A turn of P prompt and T output tokens becomes P + T − 1 inputs and targets; the last T targets
# are the output. Tinker's losses have no mask: weights and advantages of 0 serve as one.

Row = Sequence[float] | Floats
"""A value per output token, shape (T,)."""


def weighted(datums: Sequence[Datum], weights: Sequence[Sequence[float]]) -> list[Any]:
    """Datums for cross_entropy: a weight per output token, shape (T,) per datum."""
    return [_row(datum, weights=row) for datum, row in zip(datums, weights, strict=True)]


def compared(
    datums: Sequence[Datum], logprobs: Sequence[Row], advantages: Sequence[Row], averaged: bool
) -> list[Any]:
    """Datums for the losses with importance ratios; shapes (T,) per datum.

    Args:
        logprobs: Sampling logprobs.
        advantages: Of every output token.
        averaged: Whether the server divides a turn's loss by its length, which is compensated.
    """
    rows = []
    for datum, q, row in zip(datums, logprobs, advantages, strict=True):
        scale = len(datum.prompt) + len(datum.output) - 1 if averaged else 1
        rows.append(_row(datum, logprobs=q, advantages=[scale * value for value in row]))
    return rows


def _tail(datum: Datum, output: Any) -> Floats:
    """Logprobs of the output tokens. Raises ValueError: the server returned fewer, or none."""
    tensor = output.get("logprobs")
    row = np.asarray(getattr(tensor, "data", ()), np.float64).reshape(-1)
    if len(row) != len(datum.prompt) + len(datum.output) - 1:
        raise ValueError(f"{len(row)} logprobs for a datum")
    return row[-len(datum.output) :]


def _row(datum: Datum, **outputs: Row) -> Any:
    types = sdk().types
    tokens, zeros = [*datum.prompt, *datum.output], [0.0] * (len(datum.prompt) - 1)
    inputs: dict[str, Any] = {"target_tokens": np.array(tokens[1:], np.int64)}
    for name, row in outputs.items():
        inputs[name] = np.array([*zeros, *row], np.float32)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


# A pass's metrics, from the logprobs that it returned: servers report few metrics, or none.
#
# kl_sample_train is the mean of q − lp, which is unbiased. Servers return the logprobs of the
# sampled tokens only, so entropy is estimated as the mean of −lp over them: unbiased for tokens
# that these weights sampled at temperature 1. The server's own metrics are kept beside them.


def of_loss(
    loss_fn: str, config: Mapping[str, float], datums: Sequence[Datum], logprobs: Sequence[Floats]
) -> tuple[dict[str, float], list[Floats]]:
    """The metrics of a loss, and −dC/dlogprob, shape (T,) per datum."""
    lp = np.concatenate(logprobs)
    q = _sampled(datums)
    counts = [len(datum.output) for datum in datums]
    given = (loss_fn, config, lp, lp if q is None else q, np.concatenate(advantages(datums)))
    weights, cost = token_weights(*given)
    figures = _figures(lp, q, cost, config, clipped(*given))
    return figures, np.split(weights, np.cumsum(counts)[:-1])


def of_weights(
    datums: Sequence[Datum],
    logprobs: Sequence[Floats],
    weights: Sequence[Sequence[float]],
    config: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """The metrics of a custom loss's gradients; loss:sum is −Σ w·lp."""
    lp, w = np.concatenate(logprobs), np.concatenate([np.asarray(row) for row in weights])
    return _figures(lp, _sampled(datums), -w * lp, config)


def of_server(metrics: Mapping[str, Any] | None, turns: int = 1) -> dict[str, float]:
    """The server's metrics with a prefix; a gradient norm also under our name.

    Args:
        metrics: As reported.
        turns: Number of turns, if the server divided the gradient by it.
    """
    finite = {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float) and isfinite(value)
    }
    named = {f"server/{key}": value for key, value in finite.items()}
    norm = next((value for key, value in finite.items() if "grad_norm" in key), None)
    return named if norm is None else {"grad_norm": norm * turns, **named}


def _sampled(datums: Sequence[Datum]) -> Floats | None:
    """Sampling logprobs of all output tokens; None if a datum has none."""
    if not all(datum.logprobs for datum in datums):
        return None
    return np.concatenate([np.asarray(datum.logprobs, np.float64) for datum in datums])


def _figures(
    lp: Floats,
    q: Floats | None,
    cost: Floats,
    config: Mapping[str, float],
    clips: NDArray[np.bool_] | None = None,
) -> dict[str, float]:
    tally = Tally(config, has_ratios=q is not None)
    tally.add(lp, lp if q is None else q, cost, clips)
    return tally.metrics(float(-lp.sum()))


CHUNK = 1024
"""Datums per request of the SDK; of more, a part may have accumulated when one fails."""
COMPARE = frozenset({"importance_sampling", "ppo", "cispo"})
"""Losses that servers compute correctly. Tinker's dro has no mask, so the prompt would be pulled
towards its sampling logprobs too, and SkyRL has none: it is computed here."""
EXACT = "importance_sampling"
"""Against the current logprobs its ratio is 1, so its gradient is exactly the advantages'."""


async def forward(server: Server, run: Run, datums: Sequence[Datum]) -> list[Floats]:
    """Current logprobs of the output tokens, shape (T,) per datum."""
    client = await run.trainer()
    zeros = weighted(datums, [[0.0] * len(datum.output) for datum in datums])
    passed = await server.call(lambda: client.forward(zeros, "cross_entropy"))
    server.averages = _averages(passed)
    return _logprobs(datums, passed)


async def accumulate(
    server: Server,
    run: Run,
    datums: Sequence[Datum],
    worth: Worth,
    loss_fn: str | None,
    config: Mapping[str, float],
) -> dict[str, float]:
    """Accumulate a loss's gradients, or given −dC/dlogprob without one; returns the metrics of
    `Engine.forward_backward`."""
    (moved, rows), (others, _) = split(datums, worth)
    still = await _measure(server, run, others, config)
    if not moved:
        return of_pass(None, still)
    if loss_fn is None:
        passed = await _push(server, run, moved, await forward(server, run, moved), rows)
        figures, pushes = of_weights(moved, passed.logprobs, rows), True
    else:
        passed = await _pass_loss(server, run, moved, rows, loss_fn, config)
        figures, weights = of_loss(loss_fn, config, moved, passed.logprobs)
        pushes = any(bool(row.any()) for row in weights)
    run.accumulated(len(moved), pushes)
    return of_pass({**figures, **passed.server}, still)


async def _measure(
    server: Server, run: Run, datums: Sequence[Datum], config: Mapping[str, float]
) -> dict[str, float] | None:
    """The metrics of turns without a gradient, by a forward pass; None if there are none."""
    if not datums:
        return None
    each, which = distinct(datums)
    logprobs = await forward(server, run, each)
    zeros = [[0.0] * len(datum.output) for datum in datums]
    return of_weights(datums, [logprobs[index] for index in which], zeros, config)


@dataclass(frozen=True)
class Stepped:
    """A step that was taken and saved on the server."""

    state_path: str
    sampler_path: str | None
    metrics: dict[str, float]
    lost: bool = False
    """Whether the run is unusable from now on."""


async def optim_step(server: Server, run: Run, adam: Adam, name: str, ttl_s: int | None) -> Stepped:
    """Step and save; both requests are submitted before either is awaited.

    Raises:
        PolicyLost: Whether it was saved is unknown: it counts as not taken.
        NotFinite: The server says that the gradient or the loss was not finite; what it saved
            is ignored.
        EngineError: It was refused.
    """
    client = await run.trainer()
    tinker = await server.tinker()
    await run.quiet()
    params = tinker.types.AdamParams(**asdict(adam))
    keep = {} if ttl_s is None else {"ttl_seconds": ttl_s}

    def submit() -> Any:
        return (
            client.optim_step(params),
            client.save_state(name, **keep),
            client.save_weights_for_sampler(name, **keep),
        )

    turns = run.take()
    try:
        stepped, state, sampler = await server.call(submit)
        metrics = (await server.call(lambda: stepped)).metrics or {}
        _refuse_broken(metrics)
        saved = await server.call(lambda: state)
        named = await server.call(lambda: sampler)
    except PolicyLost as error:
        return await _look_for(server, run, name, error)
    figures = of_server(metrics, turns if server.averages else 1)
    return Stepped(str(saved.path), str(named.path), figures)


async def _look_for(server: Server, run: Run, name: str, error: PolicyLost) -> Stepped:
    """The outcome of a step whose answer was lost: it was taken if its state exists."""
    try:
        there = await server.has(run.id, name)
    except EngineError as why:
        raise PolicyLost(f"{error}; whether the step was saved is not known ({why})") from error
    if not there:
        raise error
    return Stepped(f"tinker://{run.id}/weights/{name}", None, {}, lost=True)


def _refuse_broken(metrics: Mapping[str, Any] | None) -> None:
    """Raises NotFinite if the server's metrics of a pass or a step are not finite."""
    broken = [
        key
        for key, value in (metrics or {}).items()
        if ("norm" in key or "loss" in key)
        and isinstance(value, int | float)
        and not isfinite(value)
    ]
    if broken:
        raise NotFinite(
            f"no step was taken, for the server's {broken[0]} is not finite: lower the learning"
            " rate or the rewards. The pending gradients are dropped"
        )


@dataclass(frozen=True)
class Passed:
    """Result of a forward and backward pass."""

    logprobs: list[Floats]
    """Shape (T,) per datum."""
    server: dict[str, float]
    """The server's own metrics."""


async def _pass_loss(
    server: Server,
    run: Run,
    datums: Sequence[Datum],
    worth: Worth,
    loss_fn: str,
    config: Mapping[str, float],
) -> Passed:
    """Accumulate a loss's gradients by the server's own loss, where it computes that correctly."""
    if server.averages is None:
        await forward(server, run, datums[:1])
    if loss_fn in COMPARE:
        sampled = [datum.logprobs for datum in datums]
        data = compared(datums, sampled, worth, bool(server.averages))
        return await _pass(server, run, datums, data, loss_fn, dict(config) or None)
    if loss_fn == "cross_entropy" and not server.averages:
        return await _pass(server, run, datums, weighted(datums, worth), loss_fn, None)
    logprobs = await forward(server, run, datums)
    _, weights = of_loss(loss_fn, config, datums, logprobs)
    return await _push(server, run, datums, logprobs, weights)


async def _push(
    server: Server,
    run: Run,
    datums: Sequence[Datum],
    logprobs: Sequence[Floats],
    weights: Sequence[Row],
) -> Passed:
    """Accumulate given −dC/dlogprob at the current logprobs; shapes (T,) per datum."""
    data = compared(datums, logprobs, weights, bool(server.averages))
    return await _pass(server, run, datums, data, EXACT, None)


async def _pass(
    server: Server,
    run: Run,
    datums: Sequence[Datum],
    data: list[Any],
    loss_fn: str,
    config: dict[str, float] | None,
) -> Passed:
    client = await run.trainer()
    try:
        passed = await server.call(lambda: client.forward_backward(data, loss_fn, config))
    except EngineRefused as error:
        if len(data) > CHUNK:
            raise PolicyLost(f"a part of the batch was refused: {error}") from error
        raise EngineRefused(f"{server.url} does not take {loss_fn}: {error}") from error
    _refuse_broken(passed.metrics)
    return Passed(_logprobs(datums, passed), of_server(passed.metrics))


def _averages(passed: Any) -> bool:
    """Whether the server divides each turn's loss by the sum of its weights, and the gradient by
    the number of turns, where Tinker sums. SkyRL's JAX backend (0.4) does; it is recognized by its
    answers: losses per token, and no sum."""
    metrics = passed.metrics or {}
    elementwise = any("elementwise_loss" in output for output in passed.loss_fn_outputs)
    return elementwise and "loss:sum" not in metrics


def _logprobs(datums: Sequence[Datum], passed: Any) -> list[Floats]:
    """Logprobs of the output tokens in a pass's answer, shape (T,) per datum."""
    try:
        outputs = passed.loss_fn_outputs
        if len(outputs) != len(datums):
            raise ValueError(f"{len(outputs)} outputs for {len(datums)} datums")
        tails = [_tail(datum, output) for datum, output in zip(datums, outputs, strict=True)]
    except (ValueError, AttributeError) as error:
        raise PolicyLost(f"the server's answer to a pass cannot be read: {error}") from error
    if not all(np.isfinite(row).all() for row in tails):
        raise NotFinite(BROKEN)
    return tails
