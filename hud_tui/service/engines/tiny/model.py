"""The policy's layers: forward passes, and their backward passes written by hand.

Every forward returns its output and a tape; the backward of the same name takes the output's
gradient and the tape. Rows are tokens: x has shape (N, D), N = B·T for B sequences padded on the
right to T tokens, where causal attention does not see the padding.
"""

from dataclasses import dataclass
from functools import cache
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


def attention(
    x: Array, qkv: Array, out: Array, batch: int, heads: int, turn: Array | None = None
) -> tuple[Array, Tape]:
    """Causal multi-head self-attention.

    Args:
        x: Shape (N, D).
        qkv: Shape (D, 3D): queries, keys and values side by side.
        out: Shape (D, D).
        batch: B.
        heads: H; D is a multiple of it.
        turn: What `rotate` turns queries and keys by, shape (2, T, D/2H); None: positions were
            added to x.

    Returns:
        Shape (N, D), and a tape whose keys and values are `tape[2]` and `tape[3]`, each
        of shape (B, H, T, D/H).

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.
    """
    rows, width = x.shape
    split = (x @ qkv).reshape(batch, rows // batch, 3, heads, width // heads)
    q, k, v = np.ascontiguousarray(split.transpose(2, 0, 3, 1, 4))
    if turn is not None:
        rotate(q, turn)
        rotate(k, turn)
    attend = _attend_at_once if rows // batch <= BLOCK else _attend_in_blocks
    attended, saved = attend(q, k, v)
    mixed = attended.transpose(0, 2, 1, 3).reshape(rows, width)
    return mixed @ out, (x, q, k, v, saved, mixed, qkv, out, turn)


def attention_backward(d_out: Array, tape: Tape) -> tuple[Array, Array, Array]:
    """Gradients of x, qkv and out."""
    x, q, k, v, saved, mixed, qkv, out, turn = tape
    batch, heads, length, size = q.shape
    d_mixed = (d_out @ out.T).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    d_split = np.empty((3, *q.shape), x.dtype)
    if length <= BLOCK:
        _attend_at_once_backward(d_mixed, q, k, v, saved, d_split)
    else:
        attended = mixed.reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
        _attend_in_blocks_backward(d_mixed, q, k, v, (saved, attended), d_split)
    if turn is not None:
        rotate(d_split[0], turn, back=True)
        rotate(d_split[1], turn, back=True)
    d_flat = d_split.transpose(1, 3, 0, 2, 4).reshape(len(x), -1)
    return d_flat @ qkv.T, x.T @ d_flat, mixed.T @ d_out


def _attend_at_once(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Attention output of each query, shape (B, H, T, D/H), and the weights (B, H, T, T)."""
    share = q @ k.swapaxes(2, 3)
    share *= q.shape[3] ** -0.5
    share += future(q.shape[2], q.dtype)
    softmax_in_place(share)
    return share @ v, share


def _attend_at_once_backward(
    d_mixed: Array, q: Array, k: Array, v: Array, share: Array, d_split: Array
) -> None:
    """Write the gradients of q, k and v to d_split, shape (3, B, H, T, D/H)."""
    d_share = d_mixed @ v.swapaxes(2, 3)
    d_share -= np.einsum("bhij,bhij->bhi", d_share, share)[..., None]
    d_share *= share
    d_share *= q.shape[3] ** -0.5
    np.matmul(d_share, k, out=d_split[0])
    np.matmul(d_share.swapaxes(2, 3), q, out=d_split[1])
    np.matmul(share.swapaxes(2, 3), d_mixed, out=d_split[2])


# Long sequences are processed in blocks of queries, each against the keys up to its end: half the
# work, and no (T, T) weights to keep. The backward pass computes a block's weights again, from the
# logarithm of each query's softmax denominator.
#
# Source: Dao et al. 2022 (FlashAttention, arXiv:2205.14135), section 3.1, with whole rows of keys
# at a time, which need no running maximum.


BLOCK = 128
"""Queries in a block; sequences up to this length are one block."""


def _attend_in_blocks(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Attention output of each query, (B, H, T, D/H), and the log denominators, (B, H, T, 1)."""
    attended, logs = np.empty_like(q), np.empty((*q.shape[:3], 1), q.dtype)
    for start, end in _blocks(q.shape[2]):
        share = _scores(q, k, start, end)
        highest = share.max(axis=-1, keepdims=True)
        share -= highest
        np.exp(share, out=share)
        total = share.sum(axis=-1, keepdims=True)
        np.matmul(share, v[:, :, :end], out=attended[:, :, start:end])
        attended[:, :, start:end] /= total
        logs[:, :, start:end] = highest + np.log(total)
    return attended, logs


def _attend_in_blocks_backward(
    d_mixed: Array, q: Array, k: Array, v: Array, saved: tuple[Array, Array], d_split: Array
) -> None:
    """Write the gradients of q, k and v to d_split; `saved`: log denominators and output."""
    logs, attended = saved
    scaled = d_mixed * q.shape[3] ** -0.5
    along = np.einsum("bhtd,bhtd->bht", scaled, attended)[..., None]
    d_split[1:] = 0
    for start, end in _blocks(q.shape[2]):
        share = _scores(q, k, start, end)
        share -= logs[:, :, start:end]
        np.exp(share, out=share)
        d_split[2, :, :, :end] += share.swapaxes(2, 3) @ d_mixed[:, :, start:end]
        d_share = scaled[:, :, start:end] @ v[:, :, :end].swapaxes(2, 3)
        d_share -= along[:, :, start:end]
        d_share *= share
        np.matmul(d_share, k[:, :, :end], out=d_split[0, :, :, start:end])
        d_split[1, :, :, :end] += d_share.swapaxes(2, 3) @ q[:, :, start:end]


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def _scores(q: Array, k: Array, start: int, end: int) -> Array:
    """Scores of the queries from start to end, shape (B, H, end − start, end)."""
    scores: Array = (q[:, :, start:end] * q.shape[3] ** -0.5) @ k[:, :, :end].swapaxes(2, 3)
    scores[..., start:] += future(end - start, q.dtype)
    return scores


# Rotary positions: queries and keys are rotated by angles proportional to their position, so that
# attention depends on the distance between tokens only.
#
# Source: Su et al. 2021 (RoFormer, arXiv:2104.09864), section 3.4.2.

SLOWEST = 10_000.0


@cache
def turns(config: "Config") -> Array:
    """Cosine and sine of the angle at each position, shape (2, context, D/2H), float32."""
    half = config.width // config.heads // 2
    speed = SLOWEST ** -(np.arange(half) / half)
    angles = np.arange(config.context)[:, None] * speed
    turns: Array = np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    return turns


def rotate(x: Array, turn: Array, back: bool = False) -> None:
    """Rotate each pair (x[i], x[i + size/2]) of the last axis, in place.

    Args:
        x: Shape (…, T, size).
        turn: Cosine and sine, shape (2, …, T, size/2).
        back: Rotate in the other direction, which is also the gradient.
    """
    half = x.shape[-1] // 2
    cosine, sine = turn[0], -turn[1] if back else turn[1]
    first, second = x[..., :half], x[..., half:]
    rise = first * sine
    first *= cosine
    first -= second * sine
    second *= cosine
    second += rise


def feed_forward(x: Array, up: Array, down: Array) -> tuple[Array, Tape]:
    """Squared ReLU between up (D, 4D) and down (4D, D).

    Source: So et al. 2021 (Primer, arXiv:2109.08668), section 4.2.
    """
    hidden = x @ up
    rectify(hidden)
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
    scores -= highest(scores)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)


SHORT = 64
"""Numbers in a row up to which NumPy takes longer to begin with a row than to go through it."""


def highest(scores: Array) -> Array:
    """Maximum along the last axis, which stays, of 1: for short rows by maxima of windows of twice
    the length, and so on, over all rows at once."""
    left = length = scores.shape[-1]
    if length > SHORT:
        return np.asarray(scores.max(axis=-1, keepdims=True))
    windows = scores.reshape(-1)
    while left > 1:
        shift = left // 2
        windows = np.maximum(windows[:-shift], windows[shift:])
        left -= shift
    return windows[::length].reshape(*scores.shape[:-1], 1)


def rectify(x: Array) -> None:
    """Replace negative numbers by 0. With a row of zeros, since NumPy has no fast way to compare
    with a single one."""
    np.maximum(x, np.zeros(x.shape[-1], x.dtype), out=x)


@cache
def future(length: int, dtype: Any) -> Array:
    """Causal mask, added to scores (T, T)."""
    mask: Array = np.triu(np.full((length, length), MASKED, dtype), 1)
    mask.flags.writeable = False
    return mask


# The policy: a causal transformer with forward and backward written by hand.
#
# Pre-norm blocks of attention and feed-forward around a residual stream, learned or rotary
# positions, no biases, a separate output layer by default. 172 480 parameters by default.
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
    rotary: bool = False
    """Rotary positions; else positions are learned, and added to the token embeddings."""
    shifted: int = 0
    """How many tokens before each one are added to its embedding, each by a linear map of its own.
    With one, a single layer suffices for an induction head, which otherwise takes two; with more,
    it tells apart what follows longer sequences."""
    tied: bool = False
    """The output layer is the transposed token embedding."""

    def forward(
        self, weights: Weights, tokens: Ids, rows: Ids, offsets: Ids | None = None
    ) -> tuple[Array, Any]:
        return forward(weights, self, tokens, rows, offsets)

    def backward(self, weights: Weights, d_logits: Array, tape: Any, grads: Weights) -> None:
        backward(weights, d_logits, tape, grads)


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight."""
    d = config.width
    named: dict[str, tuple[int, ...]] = {
        "token": (config.vocabulary, d),
        **({} if config.rotary else {"position": (config.context, d)}),
        "norm": (d,),
        **({} if config.tied else {"head": (d, config.vocabulary)}),
        **({"shift": (config.shifted * d, d)} if config.shifted else {}),
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
    """Logits of the next tokens.

    Args:
        weights: As in `shapes`.
        tokens: Shape (B, T), padded on the right.
        rows: Flat indices b·T + t of the tokens whose successor is predicted, shape (R,).
        offsets: First position of each sequence, shape (B,); None is 0. Not needed for rotary
            positions, which are relative.

    Returns:
        Logits, shape (R, V), and the tape; `tape[0][i][1]` is layer i's attention tape.
    """
    batch, length = tokens.shape
    before = preceding(tokens, np.zeros((batch, config.shifted), tokens.dtype))
    x = embedded(weights, tokens.ravel(), before)
    positions = turn = None
    if config.rotary:
        turn = turns(config)[:, :length].astype(x.dtype, copy=False)
    else:
        first = np.zeros(batch, int) if offsets is None else offsets
        reached = first[:, None] + np.arange(length)
        # only padding is beyond the context
        positions = np.minimum(reached, config.context - 1).ravel()
        x = x + weights["position"][positions]
    tapes = []
    for i in range(config.layers):
        normed, tape1 = rms_norm(x, weights[f"{i}.norm1"])
        mixed, tape2 = attention(
            normed, weights[f"{i}.qkv"], weights[f"{i}.out"], batch, config.heads, turn
        )
        x += mixed
        normed, tape3 = rms_norm(x, weights[f"{i}.norm2"])
        risen, tape4 = feed_forward(normed, weights[f"{i}.up"], weights[f"{i}.down"])
        x += risen
        tapes.append((tape1, tape2, tape3, tape4))
    normed, tape = rms_norm(x[rows], weights["norm"])
    return head(weights, normed), (tapes, tape, normed, tokens, before, positions, rows)


def preceding(tokens: Ids, earlier: Ids) -> Ids:
    """The S tokens before each of (B, T) tokens, the nearest first: shape (B·T, S).

    Args:
        tokens: Shape (B, T).
        earlier: Those before the first of each row, shape (B, S), the nearest first; 0 for none.
    """
    count, length = earlier.shape[1], tokens.shape[1]
    row = np.concatenate([earlier[:, ::-1], tokens], axis=1)
    shifted = [row[:, count - n : count - n + length] for n in range(1, count + 1)]
    return np.stack(shifted, axis=2).reshape(-1, count) if shifted else row[:, :0]


def embedded(weights: Weights, tokens: Ids, before: Ids) -> Array:
    """Embeddings of tokens, shape (N,), given the tokens before them, shape (N, S): shape (N, D).

    Source: the shift is a linear map of the previous embedding, as the smeared keys of Olsson et
    al. 2022 (In-context learning and induction heads, arXiv:2209.11895), section 4, at the input;
    of several, as the short convolutions of Allen-Zhu 2025 (Canon layers, SSRN 5240330).
    """
    x: Array = weights["token"][tokens]
    if "shift" not in weights:
        return x
    return x + weights["token"][before].reshape(len(x), -1) @ weights["shift"]


def head(weights: Weights, normed: Array) -> Array:
    """Logits, shape (N, V), of rows (N, D)."""
    logits: Array = normed @ (weights["head"] if "head" in weights else weights["token"].T)
    return logits


def greatest(weights: Weights, config: Config) -> float:
    """Upper bound of every magnitude that a forward pass computes, whatever the tokens are and in
    whatever order a BLAS adds; nan or infinity if there is none.

    A sum is at most the sum of its magnitudes. A row that `rms_norm` has scaled has length √D, so
    that its product with a column is at most √D times the column's length (Cauchy and Schwarz).
    """
    size = {name: np.abs(weight.astype(np.float64)) for name, weight in weights.items()}
    root = config.width**0.5

    def product(gain: str, matrix: Array) -> Array:
        """Of a scaled row with each column of a matrix, shape (D, K): shape (K,)."""
        reached: Array = root * np.sqrt(((size[gain][:, None] * matrix) ** 2).sum(axis=0))
        return reached

    token = size["token"].max(axis=0)
    x = token
    for shift in np.split(size["shift"], config.shifted) if "shift" in size else ():
        x = x + token @ shift
    if "position" in size:
        x = x + size["position"].max(axis=0)
    reached = [root * size["norm"].max()]
    for i in range(config.layers):
        reached += [x @ x, root * size[f"{i}.norm1"].max(), root * size[f"{i}.norm2"].max()]
        q, k, v = product(f"{i}.norm1", size[f"{i}.qkv"]).reshape(3, config.heads, -1)
        lengths = [np.sqrt((part**2).sum(axis=1)) for part in (q, k)]  # rotations keep them
        reached += [(lengths[0] * lengths[1]).max(), *(length.max() for length in lengths)]
        x = x + v.ravel() @ size[f"{i}.out"]
        reached += [v.max(), x @ x]
        risen = product(f"{i}.norm2", size[f"{i}.up"]) ** 2
        x = x + risen @ size[f"{i}.down"]
        reached.append(risen.max())
    logits = product("norm", size["head"] if "head" in size else size["token"].T)
    return float(np.max([*reached, x @ x, logits.max()]))


def backward(weights: Weights, d_logits: Array, tape: Tape, grads: Weights) -> None:
    """Add the gradient of every weight to grads, given d_logits (R, V)."""
    tapes, norm_tape, normed, tokens, before, positions, rows = tape
    if "head" in weights:
        grads["head"] += normed.T @ d_logits
        d_normed = d_logits @ weights["head"].T
    else:
        grads["token"] += d_logits.T @ normed
        d_normed = d_logits @ weights["token"]
    d_rows, d_gain = rms_norm_backward(d_normed, norm_tape)
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
    if "shift" in weights:
        shifted = weights["token"][before].reshape(len(dx), -1)
        grads["shift"] += shifted.T @ dx
        d_shifted = (dx @ weights["shift"].T).reshape(-1, dx.shape[1])
        grads["token"] += _gather(before.ravel(), d_shifted, len(grads["token"]))
    if positions is not None:
        grads["position"] += _gather(positions, dx, len(grads["position"]))


FEW = 128


def _gather(ids: Ids, dx: Array, size: int) -> Array:
    """Sum the rows of dx (N, D) with equal ids: shape (size, D). A matrix product is faster than
    np.add.at, and for many ids sorting is faster than the product."""
    if size <= FEW:
        chosen: Array = (np.arange(size)[:, None] == ids).astype(dx.dtype)
        return chosen @ dx
    order = np.argsort(ids, kind="stable")
    present, starts = np.unique(ids[order], return_index=True)
    summed = np.zeros((size, dx.shape[1]), dx.dtype)
    summed[present] = np.add.reduceat(dx[order], starts, axis=0)
    return summed


def zeros(weights: Weights) -> Weights:
    """Zeros shaped like the weights."""
    return {name: np.zeros_like(weight) for name, weight in weights.items()}
