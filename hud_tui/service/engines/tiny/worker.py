"""The engine's own process: ``python -m hud_tui.service.engines.tiny.worker``.

Requests as in `hud_tui.pipes`, one after the other. It exits when stdin is closed, so it never
outlives the service, and ignores SIGINT, which a terminal sends to all its processes.

One BLAS thread, which the package sets before NumPy is loaded.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hud_tui import pipes
from hud_tui.service.engines.base import (
    BROKEN,
    CODEC,
    COOLEST,
    NOTHING_ACCUMULATED,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    Sampled,
    SampleRequest,
    Saved,
    advantages,
    distinct,
    failure,
    not_written,
)
from hud_tui.service.engines.tiny import training
from hud_tui.service.engines.tiny.model import (
    MASKED,
    Array,
    Config,
    Ids,
    Weights,
    embedded,
    forward,
    future,
    greatest,
    head,
    rms_norm,
    rotate,
    softmax_in_place,
    turns,
)
from hud_tui.service.engines.tiny.tokenizer import END
from hud_tui.service.engines.tiny.training import Floats, Tally, load, log_probabilities, save_state

# Sampling of many completions at once, with cached keys and values.
#
# Every request has its own generator, with one number per token, so its tokens do not depend on the
# rest of the batch. Equal prompts, as in a group, are read once; of prompts that continue an
# earlier conversation, only the new tokens are read.


DENSE = 0.75
"""Share of active rows below which the batch is compacted."""
GROWTH = 128
"""Tokens by which the cache grows."""
READ_TOKENS = 4096
"""Most tokens of long prompts that are read at a time."""
BATCH_TOKENS = 1 << 16
"""Most tokens of prompts and first answers in a batch."""


@dataclass
class Cache:
    """Keys and values of each row. Shapes (L, B, H, T, D/H) and (B,)."""

    keys: Array
    values: Array
    length: Ids
    last: Ids
    """The last token read of each row, shape (B,)."""

    @classmethod
    def empty(cls, config: Config, rows: int, room: int, dtype: Any) -> "Cache":
        size = config.width // config.heads
        shape = (config.layers, rows, config.heads, room, size)
        none = np.zeros(rows, np.int64)
        return cls(np.zeros(shape, dtype), np.zeros(shape, dtype), none, none.copy())

    @property
    def room(self) -> int:
        return int(self.keys.shape[3])

    def keep(self, rows: NDArray[Any]) -> None:
        """Keep only these rows; a row given twice is duplicated."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.length, self.last = self.length[rows], self.last[rows]

    def grow(self, room: int) -> None:
        """Make room for this many more tokens per row."""
        more = ((0, 0), (0, 0), (0, 0), (0, room - self.room), (0, 0))
        self.keys, self.values = np.pad(self.keys, more), np.pad(self.values, more)


PREFIX_BYTES = 256 << 20
"""Most bytes of keys and values that a policy keeps of conversations."""
SHORTEST = 128
"""Shorter conversations are read again: that is as fast."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values of one conversation. Shapes (N,) and twice (L, H, N, D/H)."""

    tokens: Ids
    keys: Array
    values: Array

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.keys.nbytes + self.values.nbytes


class Prefixes:
    """The conversations that a policy answered last, so that only a turn's new tokens are read.

    They are valid only for the weights that they were read with.
    """

    def __init__(self) -> None:
        self._kept: list[Prefix] = []

    def find(self, prompt: Sequence[int]) -> tuple[Prefix, int] | None:
        """The conversation that shares the longest prefix with a prompt, and the number of shared
        tokens, which is less than the prompt's since its last token must be read. None if reading
        the prompt is as fast."""
        if len(prompt) <= SHORTEST:
            return None
        ids = np.asarray(prompt)[:-1]
        shared = [_shared(prefix.tokens, ids) for prefix in self._kept]
        most = max(shared, default=0)
        return (self._kept[shared.index(most)], most) if most >= SHORTEST else None

    def keep(self, tokens: Sequence[int], keys: Array, values: Array) -> None:
        """Keep a conversation in place of those that it continues; the oldest are dropped for
        it."""
        ids = np.asarray(tokens)
        if len(ids) < SHORTEST or any(
            _shared(prefix.tokens, ids) == len(ids) for prefix in self._kept
        ):
            return
        self._kept = [
            prefix for prefix in self._kept if _shared(prefix.tokens, ids) < len(prefix.tokens)
        ]
        self._kept.append(Prefix(ids, keys.copy(), values.copy()))
        while sum(prefix.size for prefix in self._kept) > PREFIX_BYTES:
            self._kept.pop(0)


def _shared(first: Ids, second: Ids) -> int:
    """Length of the common prefix of two conversations."""
    size = min(len(first), len(second))
    apart = np.flatnonzero(first[:size] != second[:size])
    return int(apart[0]) if len(apart) else size


class Row:
    """One completion in progress."""

    def __init__(self, request: SampleRequest, context: int) -> None:
        self.prompt, self.stop = request.prompt, [*map(list, request.stop), [END]]
        self.room = min(request.max_tokens, context - len(request.prompt))
        self.chances = np.random.default_rng(request.seed).random(self.room)
        self.temperature = request.temperature
        self.top_p, self.top_logprobs = request.top_p, request.top_logprobs
        self.sampled = Sampled([], [], "length")

    @property
    def tokens(self) -> list[int]:
        """Prompt and completion so far."""
        return [*self.prompt, *self.sampled.tokens]

    def chance(self) -> float:
        """The number in [0, 1) that selects the next token."""
        return float(self.chances[min(len(self.sampled.tokens), self.room - 1)])

    def add(self, token: int, logp: Array) -> bool:
        """Append a token, given all tokens' logprobs, shape (V,). Returns whether to continue."""
        tokens = self.sampled.tokens
        tokens.append(token)
        self.sampled.logprobs.append(float(logp[token]))
        if self.top_logprobs:
            likeliest = np.argsort(-logp, kind="stable")[: self.top_logprobs]
            self.sampled.top.append([(int(token), float(logp[token])) for token in likeliest])
        if any(tokens[-len(stop) :] == stop for stop in self.stop):
            self.sampled = replace(self.sampled, finish_reason="stop")
            return False
        return len(tokens) < self.room


def sample(
    weights: Weights,
    config: Config,
    requests: Sequence[SampleRequest],
    prefixes: Prefixes | None = None,
) -> list[Sampled]:
    """One completion per request; each ends with END, a stop sequence or its last token.

    Prompts are shorter than the context, and every request wants at least one token. `prefixes`
    are used, and extended.
    """
    prefixes = Prefixes() if prefixes is None else prefixes
    answers: list[Sampled] = []
    for part in _parts(requests):
        answers += _sample(weights, config, part, prefixes)
    return answers


def _parts(requests: Sequence[SampleRequest]) -> list[Sequence[SampleRequest]]:
    """The requests in batches of at most `BATCH_TOKENS`."""
    parts, start, longest = [], 0, 0
    for end, request in enumerate(requests):
        size = len(request.prompt) + min(request.max_tokens, GROWTH)
        if end > start and max(longest, size) * (end + 1 - start) > BATCH_TOKENS:
            parts.append(requests[start:end])
            start, longest = end, 0
        longest = max(longest, size)
    return [*parts, requests[start:]] if requests else []


def _sample(
    weights: Weights, config: Config, requests: Sequence[SampleRequest], prefixes: Prefixes
) -> list[Sampled]:
    everyone = rows = [Row(request, config.context) for request in requests]
    live = np.ones(len(rows), bool)
    logits, cache = _read(weights, config, requests, prefixes)
    while True:
        tokens, logp = draw(logits, rows)
        for b in np.flatnonzero(live):
            live[b] = rows[b].add(int(tokens[b]), logp[b])
            if not live[b]:
                read = rows[b].tokens[:-1]
                prefixes.keep(
                    read, cache.keys[:, b, :, : len(read)], cache.values[:, b, :, : len(read)]
                )
        if not live.any():
            return [row.sampled for row in everyone]
        if live.mean() < DENSE:
            cache.keep(live)
            rows, tokens = [rows[b] for b in np.flatnonzero(live)], tokens[live]
            live = np.ones(len(rows), bool)
        if cache.length[live].max() >= cache.room:
            cache.grow(min(cache.room + GROWTH, config.context))
        logits = _extend(weights, config, cache, tokens)


def _read(
    weights: Weights, config: Config, requests: Sequence[SampleRequest], prefixes: Prefixes
) -> tuple[Array, Cache]:
    """Read the prompts, equal ones once; returns logits of the next tokens, shape (B, V)."""
    prompts = [tuple(request.prompt) for request in requests]
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
    unique = list(rows)
    longest = max(map(len, unique))
    whole = max(len(request.prompt) + request.max_tokens for request in requests)
    room = max(longest, min(whole, config.context, longest + GROWTH))
    cache = Cache.empty(config, len(rows), room, weights["token"].dtype)
    logits = np.empty((len(rows), config.vocabulary), cache.keys.dtype)
    beginnings = {row: prefixes.find(prompt) for prompt, row in rows.items()}
    for part in _to_read([row for row in beginnings if beginnings[row] is None], unique):
        logits[part] = _read_whole(weights, config, cache, part, [unique[row] for row in part])
    new = {}
    for row, beginning in beginnings.items():
        if beginning is not None:
            prefix, shared = beginning
            cache.keys[:, row, :, :shared] = prefix.keys[:, :, :shared]
            cache.values[:, row, :, :shared] = prefix.values[:, :, :shared]
            cache.length[row], cache.last[row] = shared, unique[row][shared - 1]
            new[row] = unique[row][shared:]
    if new:
        logits[list(new)] = _read_on(weights, config, cache, new)
    if len(rows) == len(prompts):
        return logits, cache
    which = np.array([rows[prompt] for prompt in prompts])
    cache.keep(which)
    return logits[which], cache


def _to_read(rows: list[int], prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Batches of prompts that are read from the start; only a few long ones at a time."""
    longest = max((len(prompts[row]) for row in rows), default=0)
    count = len(rows) if longest <= SHORTEST else max(1, READ_TOKENS // longest)
    return [rows[start : start + count] for start in range(0, len(rows), count or 1)]


def _read_whole(
    weights: Weights,
    config: Config,
    cache: Cache,
    rows: list[int],
    prompts: Sequence[Sequence[int]],
) -> Array:
    """Read prompts from the start into the cache's rows; returns logits of the next tokens, (B,
    V)."""
    lengths = np.array([len(prompt) for prompt in prompts])
    tokens = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    last = np.arange(len(prompts)) * tokens.shape[1] + lengths - 1
    logits, tape = forward(weights, config, tokens, last)
    for i, layer in enumerate(tape[0]):
        cache.keys[i, rows, :, : tokens.shape[1]] = layer[1][2]
        cache.values[i, rows, :, : tokens.shape[1]] = layer[1][3]
    cache.length[rows], cache.last[rows] = lengths, [prompt[-1] for prompt in prompts]
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
    before = np.concatenate([[cache.last[row], *ids[:-1]] for row, ids in new.items()])
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
        x += np.maximum(normed @ weights[f"{i}.up"], 0) ** 2 @ weights[f"{i}.down"]
    for row, ids in new.items():
        cache.length[row], cache.last[row] = cache.length[row] + len(ids), ids[-1]
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
        x += np.maximum(normed @ weights[f"{i}.up"], 0) ** 2 @ weights[f"{i}.down"]
    cache.length, cache.last = cache.length + 1, tokens
    return head(weights, rms_norm(x, weights["norm"])[0])


def draw(logits: Array, rows: Sequence[Row]) -> tuple[Ids, Array]:
    """The next token of each row, shape (B,), and all tokens' tempered logprobs, (B, V)."""
    temperature = np.array([row.temperature for row in rows])[:, None]
    greedy = temperature[:, 0] == 0
    logp = log_probabilities(logits, np.where(temperature == 0, 1.0, temperature))
    chances = np.exp(logp.astype(np.float64))
    top_p = np.array([row.top_p for row in rows])
    if (top_p < 1).any():
        chances = _nucleus(chances, top_p)
    total = np.cumsum(chances, axis=1)
    chance = np.array([row.chance() for row in rows])
    drawn = (total < chance[:, None] * total[:, -1:]).sum(axis=1)
    return np.where(greedy, logp.argmax(axis=1), drawn), logp


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


# Learner: one open policy, with the gradients it has accumulated.


class Learner:
    """Weights, Adam's moments (after the first step) and gradients (until the next step)."""

    def __init__(self, path: Path) -> None:
        """Open a base or a state. Raises EngineError as `load` does."""
        self.weights, self.moments, self.config = load(path)
        self.grads: Weights | None = None
        self._before: Weights | None = None
        self._prefixes = Prefixes()

    def begin(self) -> None:
        """Begin a pass of several slices; `undo` returns to this point."""
        grads = self.grads
        self._before = grads and {name: grad.copy() for name, grad in grads.items()}

    def undo(self) -> None:
        """Discard the earlier slices of a pass after one has failed."""
        self.grads = self._before

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled]:
        """Raises NotFinite: the weights give values that are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            answers = sample(self.weights, self.config, requests, self._prefixes)
        if not all(isfinite(value) for answer in answers for value in answer.logprobs):
            raise NotFinite(BROKEN)
        return answers

    def forward(self, datums: Sequence[Datum]) -> list[list[float]]:
        """Raises NotFinite: the weights give values that are not finite."""
        return [row.tolist() for row in self._logprobs(datums)[0]]

    def _logprobs(self, datums: Sequence[Datum]) -> tuple[list[Floats], list[Floats]]:
        """As `training.logprobs`. Raises NotFinite as `forward`."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows, entropies = training.logprobs(self.weights, self.config, datums)
        if not all(np.isfinite(row).all() for row in rows):
            raise NotFinite(BROKEN)
        return rows, entropies

    def forward_backward(
        self, datums: Sequence[Datum], loss_fn: str, config: Mapping[str, float]
    ) -> dict[str, float]:
        """Accumulate a loss's gradient; returns the metrics of `Tally` over these datums."""
        worth = advantages(datums)
        return self._accumulate(datums, *training.weighing(datums, worth, loss_fn, config))

    def backward(
        self, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Accumulate for given weights; loss:sum is −Σ w·lp."""
        return self._accumulate(datums, *training.weighing(datums, weights))

    def measure(self, datums: Sequence[Datum], config: Mapping[str, float]) -> dict[str, float]:
        """The metrics of turns that are not trained on; loss:sum is 0. Raises NotFinite as
        `forward`."""
        tally = Tally(config, all(datum.logprobs for datum in datums))
        each, which = distinct(datums)
        rows, entropies = self._logprobs(each)
        entropy = 0.0
        for datum, index in zip(datums, which, strict=True):
            lp = rows[index]
            q = np.asarray(datum.logprobs, np.float64) if tally.has_ratios else lp
            tally.add(lp, q, np.zeros_like(lp), None)
            entropy += float(entropies[index].sum())
        return tally.metrics(entropy)

    def optim_step(self, adam: Adam, directory: Path) -> Saved:
        """Step, and save. If saving fails, the step is undone and the gradients are kept.

        Raises:
            EngineRefused: Nothing was accumulated.
            NotFinite: The weights, or their outputs, would not be finite; the gradients are
                dropped.
            DiskFull: There is no room for the state.
            EngineError: The state could not be written.
        """
        if self.grads is None:
            raise EngineRefused(NOTHING_ACCUMULATED)
        weights, moments = self._copies()
        grads = {name: grad.copy() for name, grad in self.grads.items()}
        with np.errstate(over="ignore", invalid="ignore"):
            metrics = {"grad_norm": training.norm(grads)}
            training.adam_step(weights, grads, moments, adam)
        # the norm is infinite where a square is, which the moments keep for good
        if not (isfinite(metrics["grad_norm"]) and _is_finite(weights, self.config)):
            self.grads = None
            raise NotFinite(
                "no step was taken, for the weights or what they compute would not be finite:"
                f" lower the learning rate of {adam.learning_rate}, the weight decay of"
                f" {adam.weight_decay} or the rewards (the gradient's norm is"
                f" {metrics['grad_norm']:.3g}). The pending gradients are dropped"
            )
        try:
            path = str(save_state(directory, weights, moments, self.config))
        except OSError as error:
            raise not_written("the state", error) from error
        self.weights, self.moments, self.grads = weights, moments, None
        self._prefixes = Prefixes()
        return Saved(path, path, metrics)

    def _copies(self) -> tuple[Weights, training.Moments]:
        weights = {name: weight.copy() for name, weight in self.weights.items()}
        if self.moments is None:
            return weights, training.Moments.fresh(weights)
        m, v = (
            {name: values.copy() for name, values in part.items()}
            for part in (self.moments.m, self.moments.v)
        )
        return weights, training.Moments(m, v, self.moments.t)

    def _accumulate(
        self, datums: Sequence[Datum], tally: Tally, weigh: training.Weigh
    ) -> dict[str, float]:
        """Add to the gradients, all or nothing; returns the tally's metrics.

        Raises:
            NotFinite: As `forward`.
            EngineError: The gradient is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            grads, entropy = training.gradients(self.weights, self.config, datums, weigh)
            length = training.norm(grads) if grads is not None else 0.0
        if not isfinite(entropy):
            raise NotFinite(BROKEN)
        if grads is None:
            return tally.metrics(entropy)
        if not np.isfinite(length):
            raise EngineError("the gradient is not finite: nothing was accumulated")
        if self.grads is None:
            self.grads = grads
        else:
            for name, grad in grads.items():
                self.grads[name] += grad
        return tally.metrics(entropy)


LARGEST = float(np.finfo(np.float32).max) * COOLEST / 4
"""Bound of what a forward pass may compute: the lowest temperature scales logits up, the softmax
takes their differences, and sums are rounded."""


def _is_finite(weights: Weights, config: Config) -> bool:
    """Whether the weights give finite logprobs for any tokens at any temperature, on any
    processor."""
    with np.errstate(over="ignore", invalid="ignore"):
        return greatest(weights, config) <= LARGEST


class Worker:
    """The open policies, and one method per request."""

    def __init__(self) -> None:
        self.learners: dict[str, Learner] = {}

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out a request. Raises EngineError if it fails."""
        verb, handle = request["verb"], request["handle"]
        if verb == "ready":
            return None
        if verb == "open":
            return self.open(handle, Path(request["path"]))
        if verb == "slim":
            return self.slim(Path(request["path"]), Path(request["directory"]))
        if verb == "close":
            self.learners.pop(handle, None)
            return None
        learner = self.learners.get(handle)
        if learner is None:
            raise EngineError("this policy is closed: open it again")
        if verb == "sample":
            return learner.sample([SampleRequest(**row) for row in request["requests"]])
        if verb == "optim_step":
            return learner.optim_step(Adam(**request["adam"]), Path(request["directory"]))
        datums = [Datum(**row) for row in request["datums"]]
        if verb == "forward":
            return learner.forward(datums)
        if verb == "measure":
            return learner.measure(datums, request["config"])
        if request["slice"] == 0:
            learner.begin()
        try:
            if verb == "backward":
                return learner.backward(datums, request["weights"])
            return learner.forward_backward(datums, request["loss_fn"], request["config"])
        except EngineError:
            learner.undo()
            raise

    def open(self, handle: str, path: Path) -> dict[str, int]:
        """Open a policy under a handle; returns its sizes and the worker's process id."""
        learner = self.learners[handle] = Learner(path)
        config = learner.config
        return {
            "pid": os.getpid(),
            "context": config.context,
            "vocabulary": config.vocabulary,
            "parameters": sum(weight.size for weight in learner.weights.values()),
        }

    def slim(self, path: Path, directory: Path) -> str:
        """Write a state's weights without moments into a directory; returns the new file's path."""
        weights, _, config = load(path)
        try:
            return str(save_state(directory, weights, None, config))
        except OSError as error:
            raise not_written("the weights", error) from error


def answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: ``result``, or the error as in `failure`."""
    try:
        return {"id": request["id"], "result": worker.answer(request)}
    except EngineError as error:
        return {"id": request["id"], **failure(error)}


REPLY_BYTES = 1 << 20
"""Room in the pipe for answers, bytes: the worker goes on before the service has read them."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin, answers = sys.stdin.buffer, sys.stdout.fileno()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux
        with suppress(OSError):  # the system allows less
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, REPLY_BYTES)
    sys.stdout = sys.stderr  # only answers may be written to the pipe
    worker = Worker()
    while (request := pipes.next_document(stdin, CODEC)) is not None:
        pipes.reply(answers, answer(worker, request), CODEC)


if __name__ == "__main__":
    main()
