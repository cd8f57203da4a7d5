"""Datums as the SDK takes them: one row a turn, shifted by one, 0 on the prompt.

A turn of P prompt and T output tokens becomes P + T − 1 inputs and targets; the last T
targets are the output. Tinker's losses have no mask: weights and advantages of 0 are it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hud_tui.service.engines.base import Datum

Floats = NDArray[np.float64]


def weighted(datums: Sequence[Datum], weights: Sequence[Sequence[float]]) -> list[Any]:
    """For cross_entropy: a weight per output token, shape (T,) a datum."""
    return [_row(datum, weights=row) for datum, row in zip(datums, weights, strict=True)]


def compared(
    datums: Sequence[Datum],
    logprobs: Sequence[Sequence[float]],
    advantages: Sequence[Sequence[float]],
    averaged: bool,
) -> list[Any]:
    """For the losses that compare with a sampling policy; shapes (T,) a datum.

    Args:
        datums: The turns.
        logprobs: What to compare with.
        advantages: Of every output token.
        averaged: Whether the server divides a turn's loss by its length, which is undone here.
    """
    found = []
    for datum, q, row in zip(datums, logprobs, advantages, strict=True):
        scale = len(datum.prompt) + len(datum.output) - 1 if averaged else 1
        found.append(_row(datum, logprobs=q, advantages=[scale * value for value in row]))
    return found


def output_logprobs(datums: Sequence[Datum], outputs: Sequence[Any]) -> list[Floats]:
    """Logprobs of the output tokens out of a pass's answer, shape (T,) a datum.

    Raises:
        ValueError: The server gave fewer, or none.
    """
    if len(outputs) != len(datums):
        raise ValueError(f"{len(outputs)} outputs for {len(datums)} datums")
    return [_tail(datum, output) for datum, output in zip(datums, outputs, strict=True)]


def _tail(datum: Datum, output: Any) -> Floats:
    found = output.get("logprobs")
    row = np.asarray(getattr(found, "data", ()), np.float64).reshape(-1)
    if len(row) != len(datum.prompt) + len(datum.output) - 1:
        raise ValueError(f"{len(row)} logprobs for a datum")
    return row[-len(datum.output) :]


def _row(datum: Datum, **outputs: Sequence[float]) -> Any:
    from tinker import types

    tokens, zeros = [*datum.prompt, *datum.output], [0.0] * (len(datum.prompt) - 1)
    inputs: dict[str, Any] = {"target_tokens": np.array(tokens[1:], np.int64)}
    for name, row in outputs.items():
        inputs[name] = np.array([*zeros, *row], np.float32)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)
