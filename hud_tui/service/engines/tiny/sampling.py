"""Sampling many completions at once, with cached keys and values.

Every request draws from its own generator, one number a token, so its tokens do not
depend on what else is in the batch. Prompts that occur more than once, as in a group,
are read once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hud_tui.service.engines.base import Sampled, SampleRequest
from hud_tui.service.engines.tiny.layers import MASKED, Array, Ids, rms_norm, softmax_in_place
from hud_tui.service.engines.tiny.policy import Config, Weights, forward
from hud_tui.service.engines.tiny.tokenizer import END
from hud_tui.service.engines.tiny.training import Floats, log_probabilities

DENSE = 0.75
"""Rows are packed anew when fewer than this share of them is still being written."""


@dataclass
class Cache:
    """What the layers remember of each row. Shapes (L, B, H, T, D/H) and (B,)."""

    keys: Array
    values: Array
    length: Ids

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Forget the other rows."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.length = self.length[rows]


class Row:
    """One completion being written."""

    def __init__(self, request: SampleRequest, context: int) -> None:
        self.stop = [*map(list, request.stop), [END]]
        self.room = min(request.max_tokens, context - len(request.prompt))
        self.chances = np.random.default_rng(request.seed).random(self.room)
        self.temperature = request.temperature
        self.top_p, self.top_logprobs = request.top_p, request.top_logprobs
        self.sampled = Sampled([], [], "length")

    def chance(self) -> float:
        """The number in [0, 1) that the next token is drawn with."""
        return float(self.chances[min(len(self.sampled.tokens), self.room - 1)])

    def add(self, token: int, logp: Array) -> bool:
        """Append a token, given all tokens' logprobs, shape (V,); whether it goes on."""
        tokens = self.sampled.tokens
        tokens.append(token)
        self.sampled.logprobs.append(float(logp[token]))
        if self.top_logprobs:
            likeliest = np.argsort(-logp, kind="stable")[: self.top_logprobs]
            self.sampled.top.append([(int(one), float(logp[one])) for one in likeliest])
        if any(tokens[-len(stop) :] == stop for stop in self.stop):
            self.sampled = replace(self.sampled, finish_reason="stop")
            return False
        return len(tokens) < self.room


def sample(weights: Weights, config: Config, requests: Sequence[SampleRequest]) -> list[Sampled]:
    """One completion a request; each ends with END, a stop sequence or its last token.

    Prompts are shorter than the context, and every request wants at least one token.
    """
    everyone = rows = [Row(request, config.context) for request in requests]
    live = np.ones(len(rows), bool)
    logits, cache = _read(weights, config, requests)
    while True:
        tokens, logp = _draw(logits, rows)
        for b in np.flatnonzero(live):
            live[b] = rows[b].add(int(tokens[b]), logp[b])
        if not live.any():
            return [row.sampled for row in everyone]
        if live.mean() < DENSE:
            cache.keep(live)
            rows, tokens = [rows[b] for b in np.flatnonzero(live)], tokens[live]
            live = np.ones(len(rows), bool)
        logits = _extend(weights, config, cache, tokens)


def _read(
    weights: Weights, config: Config, requests: Sequence[SampleRequest]
) -> tuple[Array, Cache]:
    """Read the prompts, each different one once; logits of what follows, shape (B, V)."""
    prompts = [tuple(request.prompt) for request in requests]
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    lengths = np.array([len(prompt) for prompt in places])
    tokens = np.zeros((len(places), lengths.max()), np.int64)
    for prompt, place in places.items():
        tokens[place, : len(prompt)] = prompt
    last = np.arange(len(places)) * tokens.shape[1] + lengths - 1
    logits, tape = forward(weights, config, tokens, last)
    which = [places[prompt] for prompt in prompts]
    longest = max(len(r.prompt) + r.max_tokens for r in requests)
    grown = min(longest, config.context) - tokens.shape[1]
    widen = ((0, 0), (0, 0), (0, 0), (0, max(0, grown)), (0, 0))
    keys, values = (
        np.pad(np.stack([layer[1][part] for layer in tape[0]])[:, which], widen) for part in (2, 3)
    )
    keys, values = keys.astype(logits.dtype), values.astype(logits.dtype)
    return logits[which], Cache(keys, values, lengths[which])


def _extend(weights: Weights, config: Config, cache: Cache, tokens: Ids) -> Array:
    """Read one more token a row, shape (B,); logits of what follows, shape (B, V)."""
    batch, size = len(tokens), config.width // config.heads
    here, at = np.arange(batch), np.minimum(cache.length, cache.keys.shape[3] - 1)
    unseen = np.where(np.arange(cache.keys.shape[3]) > at[:, None], MASKED, 0)[:, None]
    unseen = unseen.astype(cache.keys.dtype)
    x = weights["token"][tokens] + weights["position"][at]
    for i in range(config.layers):
        normed, _ = rms_norm(x, weights[f"{i}.norm1"])
        split = (normed @ weights[f"{i}.qkv"]).reshape(batch, 3, config.heads, size)
        cache.keys[i][here, :, at] = split[:, 1]
        cache.values[i][here, :, at] = split[:, 2]
        share = (cache.keys[i] @ split[:, 0, :, :, None])[..., 0]
        share *= size**-0.5
        share += unseen
        softmax_in_place(share)
        mixed = (share[:, :, None] @ cache.values[i]).reshape(batch, config.width)
        x += mixed @ weights[f"{i}.out"]
        normed, _ = rms_norm(x, weights[f"{i}.norm2"])
        x += np.maximum(normed @ weights[f"{i}.up"], 0) ** 2 @ weights[f"{i}.down"]
    cache.length = cache.length + 1
    normed, _ = rms_norm(x, weights["norm"])
    logits: Array = normed @ weights["head"]
    return logits


def _draw(logits: Array, rows: Sequence[Row]) -> tuple[Ids, Array]:
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
    """Chances, shape (B, V), without the tokens beyond the fewest that have `top_p`, shape (B,),
    of them together.

    Source: Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    order = np.argsort(-chances, axis=1, kind="stable")
    ranked = np.take_along_axis(chances, order, axis=1)
    likelier = np.cumsum(ranked, axis=1) - ranked
    # The likeliest stays; where all are wanted, rounding takes none of them.
    beyond = (likelier >= top_p[:, None] * ranked.sum(axis=1, keepdims=True)) & (likelier > 0)
    beyond &= top_p[:, None] < 1
    kept = chances.copy()
    np.put_along_axis(kept, order, np.where(beyond, 0.0, ranked), axis=1)
    return kept
