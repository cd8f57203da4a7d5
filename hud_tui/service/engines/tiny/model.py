"""The policy's layers: forward and, written out by hand, backward.

Every forward returns its output and a tape; the backward of the same name takes the
output's gradient and the tape. Rows are tokens: x has shape (N, D), N = B·T for B
sequences padded to T tokens on the right, where causality keeps padding unseen.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]
Tape = tuple[Any, ...]

EPSILON = 1e-5
MASKED = -1e9


def rms_norm(x: Array, gain: Array) -> tuple[Array, Tape]:
    """Scale each row to unit root mean square, times gain (D,).

    Source: Zhang and Sennrich 2019 (arXiv:1910.07467), section 3.
    """
    scale = 1 / np.sqrt(np.einsum("nd,nd->n", x, x) / x.shape[1] + EPSILON)[:, None]
    normed = x * scale
    return normed * gain, (normed, scale, gain)


def rms_norm_backward(d_out: Array, tape: Tape) -> tuple[Array, Array]:
    """Gradients of x and gain."""
    normed, scale, gain = tape
    d_gain = np.einsum("nd,nd->d", d_out, normed)
    d_normed = d_out * gain
    along = np.einsum("nd,nd->n", d_normed, normed)[:, None] / normed.shape[1]
    d_normed -= normed * along
    d_normed *= scale
    return d_normed, d_gain


def attention(x: Array, qkv: Array, out: Array, batch: int, heads: int) -> tuple[Array, Tape]:
    """Causal multi-head self-attention.

    Args:
        x: Shape (N, D).
        qkv: Shape (D, 3D): queries, keys and values side by side.
        out: Shape (D, D).
        batch: B.
        heads: H; D is a multiple of it.

    Returns:
        Shape (N, D), and a tape whose keys and values are `tape[2]` and `tape[3]`, each
        of shape (B, H, T, D/H).

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.
    """
    rows, width = x.shape
    split = (x @ qkv).reshape(batch, rows // batch, 3, heads, width // heads)
    q, k, v = np.ascontiguousarray(split.transpose(2, 0, 3, 1, 4))
    share = q @ k.swapaxes(2, 3)
    share *= (width // heads) ** -0.5
    share += _future(rows // batch, x.dtype)
    softmax_in_place(share)
    mixed = (share @ v).transpose(0, 2, 1, 3).reshape(rows, width)
    return mixed @ out, (x, q, k, v, share, mixed, qkv, out)


def attention_backward(d_out: Array, tape: Tape) -> tuple[Array, Array, Array]:
    """Gradients of x, qkv and out."""
    x, q, k, v, share, mixed, qkv, out = tape
    batch, heads, length, size = q.shape
    d_mixed = (d_out @ out.T).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    d_share = d_mixed @ v.swapaxes(2, 3)
    d_share -= np.einsum("bhij,bhij->bhi", d_share, share)[..., None]
    d_share *= share
    d_share *= size**-0.5
    d_split = np.empty((3, *q.shape), x.dtype)
    np.matmul(d_share, k, out=d_split[0])
    np.matmul(d_share.swapaxes(2, 3), q, out=d_split[1])
    np.matmul(share.swapaxes(2, 3), d_mixed, out=d_split[2])
    d_flat = d_split.transpose(1, 3, 0, 2, 4).reshape(len(x), -1)
    return d_flat @ qkv.T, x.T @ d_flat, mixed.T @ d_out


def feed_forward(x: Array, up: Array, down: Array) -> tuple[Array, Tape]:
    """Squared ReLU between up (D, 4D) and down (4D, D).

    Source: So et al. 2021 (Primer, arXiv:2109.08668), section 4.2.
    """
    hidden = x @ up
    np.maximum(hidden, 0, out=hidden)
    squared = hidden * hidden
    return squared @ down, (x, hidden, squared, up, down)


def feed_forward_backward(d_out: Array, tape: Tape) -> tuple[Array, Array, Array]:
    """Gradients of x, up and down."""
    x, hidden, squared, up, down = tape
    d_hidden = d_out @ down.T
    d_hidden *= hidden
    d_hidden *= 2
    return d_hidden @ up.T, x.T @ d_hidden, squared.T @ d_out


def softmax_in_place(scores: Array) -> None:
    """Turn the last axis of scores into probabilities."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)


def _future(length: int, dtype: Any) -> Array:
    """Added to scores (T, T): nothing sees what comes after it."""
    mask: Array = np.triu(np.full((length, length), MASKED, dtype), 1)
    return mask


# The policy: a causal character transformer whose forward and backward are written out.
#
# Pre-norm blocks of attention and feed-forward around a residual stream, learned
# positions, no biases, an output layer of its own. 172 480 parameters as configured.
#
# Source: Vaswani et al. 2017 (arXiv:1706.03762), with pre-norm as in Xiong et al. 2020
# (arXiv:2002.04745).


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
