"""Sampling of many completions at once, with cached keys and values.

Every request has its own generator, with one number per token, so its tokens do not depend on the
rest of the batch. Equal prompts, as in a group, are read once; of prompts that continue an earlier
conversation, only the new tokens are read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hud_tui.service.engines.base import Sampled, SampleRequest
from hud_tui.service.engines.tiny.conversations import SHORTEST
from hud_tui.service.engines.tiny.model import (
    MASKED,
    Array,
    Config,
    Ids,
    Weights,
    embedded,
    forward,
    future,
    head,
    preceding,
    rectify,
    rms_norm,
    rotate,
    softmax_in_place,
    turns,
)
from hud_tui.service.engines.tiny.parts import GROWTH
from hud_tui.service.engines.tiny.tokenizer import END
from hud_tui.service.engines.tiny.training import Floats, log_probabilities

DENSE = 0.75
"""Share of active rows below which the batch is compacted."""
READ_TOKENS = 64
"""Tokens of a long prompt that are read at a time, so that their attention fits the processor's
cache."""


@dataclass
class Cache:
    """Keys and values of each row. Shapes (L, B, H, T, D/H), (B,) and (B, S)."""

    keys: Array
    values: Array
    length: Ids
    last: Ids
    """The last tokens read of each row, which `embedded` adds to the next one: the latest first."""

    @classmethod
    def empty(cls, config: Config, rows: int, room: int, dtype: Any) -> "Cache":
        size = config.width // config.heads
        shape = (config.layers, rows, config.heads, room, size)
        length, last = np.zeros(rows, np.int64), np.zeros((rows, config.shifted), np.int64)
        return cls(np.zeros(shape, dtype), np.zeros(shape, dtype), length, last)

    @property
    def room(self) -> int:
        return int(self.keys.shape[3])

    def begin(self, row: int, beginning: "Beginning", prompt: Sequence[int]) -> None:
        """Take over what a prompt shares with an earlier conversation."""
        shared = beginning.shared
        self.keys[:, row, :, :shared] = beginning.keys[:, :, :shared]
        self.values[:, row, :, :shared] = beginning.values[:, :, :shared]
        self.read(row, prompt[:shared])

    def read(self, row: int, tokens: Sequence[int]) -> None:
        """Remember that a row goes on with these tokens, whose keys and values it has."""
        self.length[row] += len(tokens)
        latest = [*reversed(tokens[-self.last.shape[1] :]), *self.last[row]]
        self.last[row] = latest[: self.last.shape[1]]

    def keep(self, rows: NDArray[Any]) -> None:
        """Keep only these rows; a row given twice is duplicated."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.length, self.last = self.length[rows], self.last[rows]

    def grow(self, room: int) -> None:
        """Make room for this many more tokens per row."""
        more = ((0, 0), (0, 0), (0, 0), (0, room - self.room), (0, 0))
        self.keys, self.values = np.pad(self.keys, more), np.pad(self.values, more)


@dataclass(frozen=True)
class Beginning:
    """Keys and values of a conversation, each of shape (L, H, N, D/H), the first of whose tokens
    are those of a prompt."""

    keys: Array
    values: Array
    shared: int
    """Number of those tokens; fewer than the prompt has."""


@dataclass(frozen=True)
class Asked:
    """A completion to sample."""

    request: SampleRequest
    beginning: Beginning | None = None
    """What the prompt continues; the same for equal prompts of a call."""
    keep: Callable[[Array, Array], None] | None = None
    """Takes the keys and values, as in `Beginning`, of the conversation, without its last token."""


class Row:
    """One completion in progress."""

    def __init__(self, asked: Asked, context: int) -> None:
        request, self._keep = asked.request, asked.keep
        self.prompt, self._stop = request.prompt, [*map(list, request.stop), [END]]
        self._ends = {stop[-1] for stop in self._stop}
        self.room = min(request.max_tokens, context - len(request.prompt))
        self.top_logprobs = request.top_logprobs
        self.sampled = Sampled([], [], "length")
        self.wanted = True
        """Whether anybody still waits for it."""

    def add(self, token: int, logprob: float, logp: Array) -> bool:
        """Append a token with its logprob, given all tokens', shape (V,). Returns whether to
        continue."""
        tokens = self.sampled.tokens
        tokens.append(token)
        self.sampled.logprobs.append(logprob)
        if self.top_logprobs:
            likeliest = np.argsort(-logp, kind="stable")[: self.top_logprobs]
            self.sampled.top.append([(int(token), float(logp[token])) for token in likeliest])
        if token in self._ends and any(tokens[-len(stop) :] == stop for stop in self._stop):
            self.sampled = replace(self.sampled, finish_reason="stop")
            return False
        return len(tokens) < self.room

    def keep(self, keys: Array, values: Array) -> None:
        """Keep what was read, given keys and values of shape (L, H, room, D/H)."""
        read = len(self.prompt) + len(self.sampled.tokens) - 1
        if self._keep is not None:
            self._keep(keys[:, :, :read], values[:, :, :read])


class Drawing:
    """How the next tokens of rows are drawn."""

    def __init__(self, requests: Sequence[SampleRequest], rooms: Sequence[int]) -> None:
        """`rooms`: the most tokens of each."""
        self.chances = np.zeros((max(rooms), len(rooms)))
        for row, (request, room) in enumerate(zip(requests, rooms, strict=True)):
            self.chances[:room, row] = np.random.default_rng(request.seed).random(room)
        temperatures = np.array([request.temperature for request in requests])
        self.greedy = temperatures == 0
        self.temperature = np.where(self.greedy, 1.0, temperatures)[:, None]
        self.top_p = np.array([request.top_p for request in requests])

    def keep(self, rows: NDArray[Any]) -> None:
        """Keep only these rows."""
        self.chances, self.greedy = self.chances[:, rows], self.greedy[rows]
        self.temperature, self.top_p = self.temperature[rows], self.top_p[rows]

    def draw(self, logits: Array, number: int) -> tuple[Ids, Array]:
        """The token of each row with this number, from 0, shape (B,), and all tokens' tempered
        logprobs, (B, V)."""
        logp = log_probabilities(logits, self.temperature)
        chances = np.exp(logp.astype(np.float64))
        if (self.top_p < 1).any():
            chances = _nucleus(chances, self.top_p)
        total = np.cumsum(chances, axis=1)
        drawn = (total < self.chances[number][:, None] * total[:, -1:]).sum(axis=1)
        return np.where(self.greedy, logp.argmax(axis=1), drawn), logp


After = Callable[[Sequence[Row]], bool]
"""Called after each token with all rows, in the order of the requests; returns whether it marked
any as no longer wanted."""


def sample(
    weights: Weights, config: Config, asked: Sequence[Asked], after: After | None = None
) -> list[Sampled]:
    """One completion per request, all of them at once; each ends with END, a stop sequence or its
    last token, or where it is no longer wanted.

    Prompts are shorter than the context, and every request wants at least one token.
    """
    everyone = rows = [Row(each, config.context) for each in asked]
    drawing = Drawing([each.request for each in asked], [row.room for row in rows])
    live = np.ones(len(rows), bool)
    logits, cache = _read(weights, config, asked)
    for number in count():
        tokens, logp = drawing.draw(logits, number)
        drawn, logprobs = tokens.tolist(), logp[np.arange(len(rows)), tokens].tolist()
        for b in np.flatnonzero(live).tolist():
            if not rows[b].add(drawn[b], logprobs[b], logp[b]):
                live[b] = False
                rows[b].keep(cache.keys[:, b], cache.values[:, b])
        if after is not None and after(everyone):
            live &= np.array([row.wanted for row in rows])
        if not live.any():
            break
        if live.mean() < DENSE:
            cache.keep(live)
            drawing.keep(live)
            rows, tokens = [rows[b] for b in np.flatnonzero(live)], tokens[live]
            live = np.ones(len(rows), bool)
        if cache.length[live].max() >= cache.room:
            cache.grow(min(cache.room + GROWTH, config.context))
        logits = _extend(weights, config, cache, tokens)
    return [row.sampled for row in everyone]


def _read(weights: Weights, config: Config, asked: Sequence[Asked]) -> tuple[Array, Cache]:
    """Read the prompts, equal ones once; returns logits of the next tokens, shape (B, V)."""
    prompts = [tuple(one.request.prompt) for one in asked]
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
    unique = list(rows)
    cache = Cache.empty(config, len(rows), _room_at_first(asked, config), weights["token"].dtype)
    logits = np.empty((len(rows), config.vocabulary), cache.keys.dtype)
    beginnings = {rows[tuple(each.request.prompt)]: each.beginning for each in asked}
    short, new = [], {}
    for row, beginning in beginnings.items():
        if beginning is not None:
            cache.begin(row, beginning, unique[row])
            new[row] = unique[row][beginning.shared :]
        elif len(unique[row]) > SHORTEST:
            new[row] = unique[row]
        else:
            short.append(row)
    if short:
        logits[short] = _read_whole(weights, config, cache, short, [unique[row] for row in short])
    while new:
        part = {row: ids[:READ_TOKENS] for row, ids in new.items()}
        logits[list(new)] = _read_on(weights, config, cache, part)
        new = {row: ids[READ_TOKENS:] for row, ids in new.items() if len(ids) > READ_TOKENS}
    if len(rows) == len(prompts):
        return logits, cache
    which = np.array([rows[prompt] for prompt in prompts])
    cache.keep(which)
    return logits[which], cache


def _room_at_first(asked: Sequence[Asked], config: Config) -> int:
    """Tokens of a row that the cache has room for; it grows by `GROWTH`."""
    longest = max(len(each.request.prompt) for each in asked)
    whole = max(len(each.request.prompt) + each.request.max_tokens for each in asked)
    return max(longest, min(whole, config.context, longest + GROWTH))


def _read_whole(
    weights: Weights,
    config: Config,
    cache: Cache,
    rows: list[int],
    prompts: Sequence[Sequence[int]],
) -> Array:
    """Read short prompts from the start into the cache's rows; returns logits of the next tokens,
    (B, V)."""
    lengths = np.array([len(prompt) for prompt in prompts])
    tokens = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    last = np.arange(len(prompts)) * tokens.shape[1] + lengths - 1
    logits, tape = forward(weights, config, tokens, last)
    for i, layer in enumerate(tape[0]):
        cache.keys[i, rows, :, : tokens.shape[1]] = layer[1][2]
        cache.values[i, rows, :, : tokens.shape[1]] = layer[1][3]
    for row, prompt in zip(rows, prompts, strict=True):
        cache.read(row, prompt)
    return logits


def _read_on(
    weights: Weights, config: Config, cache: Cache, new: Mapping[int, Sequence[int]]
) -> Array:
    """Read more tokens into rows of the cache; returns logits after the last token of each, (B,
    V)."""
    starts = {row: int(cache.length[row]) for row in new}
    positions = np.concatenate([np.arange(len(ids)) + starts[p] for p, ids in new.items()])
    ends = np.cumsum([len(ids) for ids in new.values()])
    tokens = np.concatenate([np.asarray(ids) for ids in new.values()])
    before = np.concatenate(
        [preceding(np.asarray(ids)[None], cache.last[[row]]) for row, ids in new.items()]
    )
    x = embedded(weights, tokens, before)
    turn = _turned(config, positions)
    if turn is None:
        x += weights["position"][positions]
    for i in range(config.layers):
        normed, _ = rms_norm(x, weights[f"{i}.norm1"])
        split = (normed @ weights[f"{i}.qkv"]).reshape(len(x), 3, config.heads, -1)
        if turn is not None:
            rotate(split[:, :2], turn)
        mixed = np.empty_like(x)
        for (row, ids), end in zip(new.items(), ends, strict=True):
            rows, seen = slice(end - len(ids), end), starts[row] + len(ids)
            q, k, v = split[rows].transpose(1, 2, 0, 3)
            cache.keys[i, row, :, starts[row] : seen] = k
            cache.values[i, row, :, starts[row] : seen] = v
            attended = _attend(q, cache.keys[i, row, :, :seen], cache.values[i, row, :, :seen])
            mixed[rows] = attended.transpose(1, 0, 2).reshape(len(ids), -1)
        x += mixed @ weights[f"{i}.out"]
        normed, _ = rms_norm(x, weights[f"{i}.norm2"])
        risen = normed @ weights[f"{i}.up"]
        rectify(risen)
        x += risen**2 @ weights[f"{i}.down"]
    for row, ids in new.items():
        cache.read(row, ids)
    return head(weights, rms_norm(x[ends - 1], weights["norm"])[0])


def _attend(q: Array, k: Array, v: Array) -> Array:
    """Attention of the last queries, shape (H, N, D/H), over all keys, shape (H, T, D/H)."""
    share = (q * q.shape[2] ** -0.5) @ k.swapaxes(1, 2)
    share[..., -q.shape[1] :] += future(q.shape[1], q.dtype)
    softmax_in_place(share)
    attended: Array = share @ v
    return attended


def _turned(config: Config, positions: Ids) -> Array | None:
    """Rotations of queries and keys at these positions, shape (N,): (2, N, 1, 1, D/2H)."""
    return turns(config)[:, positions, None, None] if config.rotary else None


def _extend(weights: Weights, config: Config, cache: Cache, tokens: Ids) -> Array:
    """Read one more token per row, shape (B,); returns logits of the next tokens, shape (B, V)."""
    batch, size = len(tokens), config.width // config.heads
    here, slot = np.arange(batch), np.minimum(cache.length, cache.keys.shape[3] - 1)
    unseen = np.where(np.arange(cache.keys.shape[3]) > slot[:, None], MASKED, 0)[:, None]
    unseen = unseen.astype(cache.keys.dtype)
    x, turn = embedded(weights, tokens, cache.last), _turned(config, slot)
    if turn is None:
        x = x + weights["position"][slot]
    for i in range(config.layers):
        normed, _ = rms_norm(x, weights[f"{i}.norm1"])
        split = (normed @ weights[f"{i}.qkv"]).reshape(batch, 3, config.heads, size)
        if turn is not None:
            rotate(split[:, :2], turn)
        cache.keys[i][here, :, slot] = split[:, 1]
        cache.values[i][here, :, slot] = split[:, 2]
        share = (cache.keys[i] @ split[:, 0, :, :, None])[..., 0]
        share *= size**-0.5
        share += unseen
        softmax_in_place(share)
        mixed = (share[:, :, None] @ cache.values[i]).reshape(batch, config.width)
        x += mixed @ weights[f"{i}.out"]
        normed, _ = rms_norm(x, weights[f"{i}.norm2"])
        risen = normed @ weights[f"{i}.up"]
        rectify(risen)
        x += risen**2 @ weights[f"{i}.down"]
    cache.length = cache.length + 1
    cache.last = np.concatenate([tokens[:, None], cache.last], axis=1)[:, : config.shifted]
    return head(weights, rms_norm(x, weights["norm"])[0])


def _nucleus(chances: Floats, top_p: Floats) -> Floats:
    """Probabilities, shape (B, V), limited to the smallest sets of tokens with a total of `top_p`,
    shape (B,).

    Source: Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    order = np.argsort(-chances, axis=1, kind="stable")
    ranked = np.take_along_axis(chances, order, axis=1)
    likelier = np.cumsum(ranked, axis=1) - ranked
    # the most likely token always stays; at top_p = 1 rounding must not drop any
    beyond = (likelier >= top_p[:, None] * ranked.sum(axis=1, keepdims=True)) & (likelier > 0)
    beyond &= top_p[:, None] < 1
    nucleus = chances.copy()
    np.put_along_axis(nucleus, order, np.where(beyond, 0.0, ranked), axis=1)
    return nucleus
