"""The policy's layers: forward and, written out by hand, backward.

Every forward returns its output and a tape; the backward of the same name takes the
output's gradient and the tape. Rows are tokens: x has shape (N, D), N = B·T for B
sequences padded to T tokens on the right, where causality keeps padding unseen.
"""

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
