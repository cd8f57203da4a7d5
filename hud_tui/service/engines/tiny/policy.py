"""The policy: a causal character transformer whose forward and backward are written out.

Pre-norm blocks of attention and feed-forward around a residual stream, learned
positions, no biases, an output layer of its own. 172 480 parameters as configured.

Source: Vaswani et al. 2017 (arXiv:1706.03762), with pre-norm as in Xiong et al. 2020
(arXiv:2002.04745).
"""

from dataclasses import dataclass

import numpy as np

from hud_tui.service.engines.tiny.layers import (
    Array,
    Ids,
    Tape,
    attention,
    attention_backward,
    feed_forward,
    feed_forward_backward,
    rms_norm,
    rms_norm_backward,
)

Weights = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """Sizes. `width` is a multiple of `heads`; `context` counts prompt and output together."""

    vocabulary: int = 128
    width: int = 64
    layers: int = 3
    heads: int = 4
    context: int = 128


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight."""
    d = config.width
    named: dict[str, tuple[int, ...]] = {
        "token": (config.vocabulary, d),
        "position": (config.context, d),
        "norm": (d,),
        "head": (d, config.vocabulary),
    }
    for i in range(config.layers):
        named |= {
            f"{i}.norm1": (d,),
            f"{i}.qkv": (d, 3 * d),
            f"{i}.out": (d, d),
            f"{i}.norm2": (d,),
            f"{i}.up": (d, 4 * d),
            f"{i}.down": (4 * d, d),
        }
    return named


def initial(config: Config, seed: int) -> Weights:
    """Fresh float32 weights: gains 1, residual outputs small, the rest by fan-in."""
    random = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes(config).items():
        scale = 0.02 if name in ("token", "position") else shape[0] ** -0.5
        if name.endswith(("out", "down")):
            scale *= (2 * config.layers) ** -0.5
        drawn = random.standard_normal(shape) * scale
        weights[name] = (np.ones(shape) if "norm" in name else drawn).astype(np.float32)
    return weights


def forward(
    weights: Weights, config: Config, tokens: Ids, rows: Ids, offsets: Ids | None = None
) -> tuple[Array, Tape]:
    """Logits of what follows some tokens.

    Args:
        weights: As `shapes` says.
        config: Sizes.
        tokens: Shape (B, T), padded on the right.
        rows: Flat indices b·T + t of the tokens to continue, shape (R,).
        offsets: First position of each sequence, shape (B,); None is 0.

    Returns:
        Logits, shape (R, V), and the tape; `tape[0][i][1]` is layer i's attention tape.
    """
    batch, length = tokens.shape
    first = np.zeros(batch, int) if offsets is None else offsets
    reached = first[:, None] + np.arange(length)
    positions = np.minimum(reached, config.context - 1).ravel()  # only padding goes beyond
    x = weights["token"][tokens.ravel()] + weights["position"][positions]
    tapes = []
    for i in range(config.layers):
        normed, tape1 = rms_norm(x, weights[f"{i}.norm1"])
        mixed, tape2 = attention(
            normed, weights[f"{i}.qkv"], weights[f"{i}.out"], batch, config.heads
        )
        x += mixed
        normed, tape3 = rms_norm(x, weights[f"{i}.norm2"])
        risen, tape4 = feed_forward(normed, weights[f"{i}.up"], weights[f"{i}.down"])
        x += risen
        tapes.append((tape1, tape2, tape3, tape4))
    normed, tape = rms_norm(x[rows], weights["norm"])
    logits: Array = normed @ weights["head"]
    return logits, (tapes, tape, normed, tokens, positions, rows)


def backward(weights: Weights, d_logits: Array, tape: Tape, grads: Weights) -> None:
    """Add the gradient of every weight to grads, given d_logits (R, V)."""
    tapes, norm_tape, normed, tokens, positions, rows = tape
    grads["head"] += normed.T @ d_logits
    d_rows, d_gain = rms_norm_backward(d_logits @ weights["head"].T, norm_tape)
    grads["norm"] += d_gain
    dx = np.zeros((tokens.size, d_rows.shape[1]), d_rows.dtype)
    dx[rows] = d_rows
    for i in reversed(range(len(tapes))):
        tape1, tape2, tape3, tape4 = tapes[i]
        d_in, d_up, d_down = feed_forward_backward(dx, tape4)
        grads[f"{i}.up"] += d_up
        grads[f"{i}.down"] += d_down
        d_in, d_gain = rms_norm_backward(d_in, tape3)
        grads[f"{i}.norm2"] += d_gain
        dx += d_in
        d_in, d_qkv, d_out = attention_backward(dx, tape2)
        grads[f"{i}.qkv"] += d_qkv
        grads[f"{i}.out"] += d_out
        d_in, d_gain = rms_norm_backward(d_in, tape1)
        grads[f"{i}.norm1"] += d_gain
        dx += d_in
    grads["token"] += _gather(tokens.ravel(), dx, len(grads["token"]))
    grads["position"] += _gather(positions, dx, len(grads["position"]))


def _gather(ids: Ids, dx: Array, size: int) -> Array:
    """Sum the rows of dx (N, D) that share an id: shape (size, D). A product beats np.add.at."""
    chosen: Array = (np.arange(size)[:, None] == ids).astype(dx.dtype)
    return chosen @ dx


def zeros(weights: Weights) -> Weights:
    """Zeros shaped like the weights."""
    return {name: np.zeros_like(weight) for name, weight in weights.items()}
