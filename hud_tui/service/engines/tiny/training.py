"""From datums to gradients: batches in chunks, weights by a loss, one backward path.

Sequences are sorted by length and cut into chunks of about TOKENS, because large
temporaries cost more in page faults than small ones cost in calls.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hud_tui.service.engines.base import Datum
from hud_tui.service.engines.tiny.layers import Array, Ids
from hud_tui.service.engines.tiny.policy import Config, Weights, backward, forward, zeros

Floats = NDArray[np.float64]
Weigh = Callable[["Chunk", Floats], Floats]
"""Weights −dC/dlogprob of a chunk's output tokens, given their current logprobs; shape (R,)."""

TOKENS = 1024


@dataclass(frozen=True)
class Chunk:
    """Some datums, padded to one length. R counts their output tokens, datum after datum."""

    which: list[int]
    """Index of each datum in the call, shape (B,)."""
    tokens: Ids
    """Prompt and output but for the last token, shape (B, T)."""
    rows: Ids
    """Flat index of the token before each output token, shape (R,)."""
    targets: Ids
    """The output tokens, shape (R,)."""
    temperature: Array
    """Shape (R, 1)."""
    offsets: Ids | None = None
    """First position of each sequence, shape (B,)."""


def chunks(datums: Sequence[Datum], offsets: Ids | None = None) -> Iterator[Chunk]:
    """Cut datums into chunks, short ones first."""
    lengths = [len(datum.prompt) + len(datum.output) - 1 for datum in datums]
    order = sorted((i for i, d in enumerate(datums) if d.output), key=lambda i: lengths[i])
    while order:
        count = next(
            (n for n in range(1, len(order)) if (n + 1) * lengths[order[n]] > TOKENS), len(order)
        )
        which, order = order[:count], order[count:]
        yield _chunk(datums, which, lengths[which[-1]], offsets)


def _chunk(datums: Sequence[Datum], which: list[int], length: int, offsets: Ids | None) -> Chunk:
    tokens = np.zeros((len(which), length), np.int64)
    rows: list[Ids] = []
    targets: list[int] = []
    temperature: list[float] = []
    for b, i in enumerate(which):
        datum = datums[i]
        line = [*datum.prompt, *datum.output[:-1]]
        tokens[b, : len(line)] = line
        start = b * length + len(datum.prompt) - 1
        rows.append(np.arange(start, start + len(datum.output)))
        targets.extend(datum.output)
        temperature.extend([datum.temperature] * len(datum.output))
    return Chunk(
        which,
        tokens,
        np.concatenate(rows),
        np.array(targets),
        np.array(temperature)[:, None],
        None if offsets is None else offsets[which],
    )


def log_probabilities(logits: Array, temperature: Array) -> Array:
    """Tempered log-softmax, shape (R, V); temperature (R, 1)."""
    scaled: Array = logits / temperature.astype(logits.dtype)
    scaled -= scaled.max(axis=1, keepdims=True)
    scaled -= np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return scaled


def logprobs(
    weights: Weights, config: Config, datums: Sequence[Datum]
) -> tuple[list[Floats], list[Floats]]:
    """Current tempered logprobs of every datum's output, and the policy's entropy in nats at each
    of its tokens: one array of shape (T,) a datum each."""
    found = [np.zeros(len(datum.output)) for datum in datums]
    entropies = [np.zeros(len(datum.output)) for datum in datums]
    for chunk in chunks(datums):
        logits, _ = forward(weights, config, chunk.tokens, chunk.rows)
        logp = log_probabilities(logits, chunk.temperature)
        picked = logp[np.arange(len(logp)), chunk.targets].astype(np.float64)
        entropy = -np.einsum("rv,rv->r", np.exp(logp), logp).astype(np.float64)
        start = 0
        for i in chunk.which:
            end = start + len(datums[i].output)
            found[i], entropies[i] = picked[start:end], entropy[start:end]
            start = end
    return found, entropies


def gradients(
    weights: Weights,
    config: Config,
    datums: Sequence[Datum],
    weigh: Weigh,
    offsets: Ids | None = None,
) -> tuple[Weights | None, float]:
    """Gradient of the cost whose token weights `weigh` gives.

    Returns:
        The gradient, or None where every weight is 0; and the entropy of the policy,
        in nats, summed over output tokens.
    """
    grads, entropy = zeros(weights), 0.0
    moved = False
    for chunk in chunks(datums, offsets):
        logits, tape = forward(weights, config, chunk.tokens, chunk.rows, chunk.offsets)
        logp = log_probabilities(logits, chunk.temperature)
        here = np.arange(len(logp))
        w = weigh(chunk, logp[here, chunk.targets].astype(np.float64))
        d_logits = np.exp(logp)
        entropy -= float(np.einsum("rv,rv->", d_logits, logp))
        if not w.any():
            continue
        moved = True
        d_logits[here, chunk.targets] -= 1
        d_logits *= (w[:, None] / chunk.temperature).astype(logits.dtype)
        backward(weights, d_logits, tape, grads)
    return (grads if moved else None), entropy


def flat(chunk: Chunk, per_datum: Sequence[Sequence[float]]) -> Floats:
    """A per-token value of a call's datums as the chunk orders them, shape (R,)."""
    values: list[Any] = [value for i in chunk.which for value in per_datum[i]]
    return np.array(values, np.float64)
