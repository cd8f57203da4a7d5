"""The base for agents beside the same net in torch: tokens per second, sampling and training.

In turns, one thread each: eight games of 2048, whose turns share a sequence, trained on; and
eight conversations of 500 tokens read, each of which then says 32 more with cached keys and
values. The two nets' logits must agree. Of the ratios of processor time of each turn the median
counts; NumPy must reach .8 of torch in each. Without torch there is nothing to compare with, which
is said.
"""

import importlib
import os
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hud_tui.service.engines.base import Datum, SampleRequest
from hud_tui.service.engines.tiny import sampling, training
from hud_tui.service.engines.tiny.engine import pairs_path, weights_path
from hud_tui.service.engines.tiny.model import Config, Weights, forward, turns
from hud_tui.service.engines.tiny.tokenizer import BpeTokenizer
from hud_tui.service.engines.tiny.training import load
from tests.pretrain import lessons

BASE = "tiny/agent-1M"
GAMES, TURNS, ROWS, PROMPT, SAID = 8, 25, 8, 500, 32
ROUNDS = 5
LEAST = 0.8


class Net:
    """The same net in torch, with weights of its own copy."""

    def __init__(self, weights: Weights, config: Config) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(1)
        self.config = config
        self.weights = {
            name: self.torch.tensor(value, requires_grad=True) for name, value in weights.items()
        }
        self.turn = self.torch.tensor(turns(config))

    def logits(
        self, tokens: Any, rows: Any, past: list[Any] | None = None, last: Any = None
    ) -> Any:
        """As `model.forward`, for tokens (B, T); `past` holds keys and values, and gets more. What
        they continue ends with the tokens `last` (B, 1), if there is any."""
        torch, weights, heads = self.torch, self.weights, self.config.heads
        functional = torch.nn.functional
        batch, length = tokens.shape
        start = past[0][0].shape[2] if past and past[0] is not None else 0
        first = torch.zeros_like(tokens[:, :1]) if last is None else last
        before = torch.cat([first, tokens[:, :-1]], 1)
        x = weights["token"][tokens] + weights["token"][before] @ weights["shift"]
        for i in range(self.config.layers):
            normed = self._norm(x, weights[f"{i}.norm1"])
            split = (normed @ weights[f"{i}.qkv"]).view(batch, length, 3, heads, -1)
            q, k, v = split.permute(2, 0, 3, 1, 4)
            q, k = self._rotated(q, start), self._rotated(k, start)
            if past is not None:
                if past[i] is not None:
                    k, v = torch.cat([past[i][0], k], 2), torch.cat([past[i][1], v], 2)
                past[i] = (k, v)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
            x = x + mixed.transpose(1, 2).reshape(batch, length, -1) @ weights[f"{i}.out"]
            normed = self._norm(x, weights[f"{i}.norm2"])
            risen = torch.relu(normed @ weights[f"{i}.up"]) ** 2
            x = x + risen @ weights[f"{i}.down"]
        chosen = x.reshape(batch * length, -1)[rows]
        return self._norm(chosen, weights["norm"]) @ weights["token"].T

    def _norm(self, x: Any, gain: Any) -> Any:
        return x * self.torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gain

    def _rotated(self, x: Any, start: int) -> Any:
        half = x.shape[-1] // 2
        cosine, sine = self.turn[:, start : start + x.shape[2]]
        first, second = x[..., :half], x[..., half:]
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        return self.torch.cat(turned, -1)


def games(tokenizer: BpeTokenizer) -> list[Datum]:
    """The turns of some games, with a weight each."""
    random, made = Random(0), []
    for _ in range(GAMES):
        talk = lessons._game_2048(random, tokenizer, TURNS)
        made += [datum for datum in talk.datums if datum.advantage == 1]
    return made


def trained_s(weights: Weights, config: Config, datums: list[Datum]) -> float:
    start = process_time()
    each = [[1.0] * len(datum.output) for datum in datums]
    training.gradients(weights, config, datums, lambda chunk, lp: training.flat(chunk, each))
    return process_time() - start


def trained_by_torch_s(net: Net, datums: list[Datum]) -> float:
    torch = net.torch
    start = process_time()
    for chunk in training.chunks(datums):
        logits = net.logits(torch.tensor(chunk.tokens), torch.tensor(chunk.rows))
        cost = torch.nn.functional.cross_entropy(
            logits, torch.tensor(chunk.targets), reduction="sum"
        )
        cost.backward()
    for weight in net.weights.values():
        weight.grad = None
    return process_time() - start


def sampled_s(weights: Weights, config: Config, prompts: list[list[int]]) -> tuple[float, float]:
    """Seconds of reading the prompts, and of saying `SAID` tokens each."""
    asked = [sampling.Asked(SampleRequest(prompt, SAID)) for prompt in prompts]
    start = process_time()
    logits, cache = sampling._read(weights, config, asked)
    read = process_time()
    drawing = sampling.Drawing([one.request for one in asked], [SAID] * len(asked))
    for number in range(SAID):
        tokens, _ = drawing.draw(logits, number)
        logits = sampling._extend(weights, config, cache, tokens)
    return read - start, process_time() - read


def sampled_by_torch_s(net: Net, prompts: list[list[int]]) -> tuple[float, float]:
    torch = net.torch
    rows = torch.arange(len(prompts))
    with torch.no_grad():
        start = process_time()
        past: list[Any] = [None] * net.config.layers
        given = torch.tensor(prompts)
        logits, last = net.logits(given, (rows + 1) * PROMPT - 1, past), given[:, -1:]
        read = process_time()
        for _ in range(SAID):
            tokens = torch.multinomial(torch.softmax(logits, -1), 1)
            logits, last = net.logits(tokens, rows, past, last), tokens
    return read - start, process_time() - read


def agree(net: Net, weights: Weights, config: Config, datums: list[Datum]) -> float:
    """Largest difference between the two nets' logits."""
    chunk = next(training.chunks(datums))
    ours, _ = forward(weights, config, chunk.tokens, chunk.rows)
    theirs = net.logits(net.torch.tensor(chunk.tokens), net.torch.tensor(chunk.rows))
    return float(abs(ours - theirs.detach().numpy()).max())


def main() -> int:
    if find_spec("torch") is None:
        print("beside torch: skipped, torch is not installed")
        return 0
    weights, _, config = load(Path(weights_path(BASE)))
    tokenizer, net = BpeTokenizer.read(pairs_path(BASE)), Net(weights, config)
    datums = games(tokenizer)
    apart = agree(net, weights, config, datums)
    assert apart < 1e-3, f"not the same net: logits are {apart} apart"
    prompts = [list(datum.prompt[:PROMPT]) for datum in datums if len(datum.prompt) >= PROMPT]
    prompts = prompts[:: max(1, len(prompts) // ROWS)][:ROWS]
    found: dict[str, tuple[int, list[tuple[float, float]]]] = {
        "training": (sum(chunk.tokens.size for chunk in training.chunks(datums)), []),
        "reading": (ROWS * PROMPT, []),
        "sampling": (ROWS * SAID, []),
    }
    for _ in range(ROUNDS + 1):
        ours, theirs = trained_s(weights, config, datums), trained_by_torch_s(net, datums)
        found["training"][1].append((ours, theirs))
        both = zip(
            sampled_s(weights, config, prompts), sampled_by_torch_s(net, prompts), strict=True
        )
        for name, pair in zip(("reading", "sampling"), both, strict=True):
            found[name][1].append(pair)
    missed = 0
    for name, (amount, pairs) in found.items():
        ratio = median(theirs / ours for ours, theirs in pairs[1:])  # the first one warms up
        ours, theirs = (amount / min(times) for times in zip(*pairs, strict=True))
        speeds = f"({ours:.0f} and {theirs:.0f} tokens/s)"
        print(f"{name} beside torch: {ratio:.2f} {speeds}, at least {LEAST}")
        missed += ratio < LEAST
    return int(missed > 0)
