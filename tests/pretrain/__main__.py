"""Train the bases that ship in the package: ``python -m tests.pretrain``.

The small ones are trained in two stages of cross-entropy on the answers' characters, each with a
cosine learning rate: correct answers until the tasks are learned, then the noisy teacher of
`lessons`, whose varied answers give reinforcement learning its signal. Half of the lines start at
a random position, to prepare for system messages and longer conversations.

The base for agents first learns its tokenizer from the lessons' texts, then the assistant's tokens
of short conversations, then those of long ones, up to its context, and finally games of 2048 by
players that can be told apart, among which reinforcement learning chooses. Half of these last
lessons repeat the others, which are forgotten otherwise.

Deterministic: the same machine makes the same bytes. Takes about a quarter of an hour per base on
one core. NAME is a base's name; without it every base is trained, into --out.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from time import perf_counter

import numpy as np

from hud_tui.service.engines.base import Adam, Datum
from hud_tui.service.engines.tiny.engine import WEIGHTS, pairs_path, weights_path
from hud_tui.service.engines.tiny.model import Config, Ids, Weights, forward, initial
from hud_tui.service.engines.tiny.tokenizer import CONTROLS, FIRST_PAIR, BpeTokenizer
from hud_tui.service.engines.tiny.training import (
    Chunk,
    Floats,
    Moments,
    adam_step,
    chunks,
    flat,
    gradients,
    load,
    save_base,
)
from tests.pretrain.lessons import LAST_TALKS, LESSONS, TALKS, TalkLesson, line
from tests.pretrain.pairs import learn_pairs

WARM_UP = 100
"""Steps over which the learning rate rises from 0."""
REPORT_EVERY = 500
EXAMINED = 40
"""Fresh lines per scenario whose greedy answers are reported."""


@dataclass(frozen=True)
class Stage:
    name: str
    steps: int
    learning_rate: float
    noisy: bool = False
    batch: int = 128
    """Lines per step."""
    turns: int = 0
    """Most turns of a conversation."""
    talks: Mapping[TalkLesson, float] = field(default_factory=lambda: TALKS)
    """What conversations are about, and how much of each, in tokens."""


def stages(clean: int, noisy: int) -> tuple[Stage, ...]:
    """Both stages of a small base, with their numbers of steps."""
    return (
        Stage("clean", clean, learning_rate=3e-3, noisy=False),
        Stage("noisy", noisy, learning_rate=1.5e-3, noisy=True),
    )


AGENT = "tiny/agent-1M"
STAGES: dict[str, tuple[Stage, ...]] = {
    "tiny/arith-0.2M": stages(6500, 2500),
    "tiny/mixed-0.2M": stages(10_000, 3500),
    AGENT: (
        Stage("short", 1200, learning_rate=2e-3, turns=8),
        Stage("long", 120, learning_rate=5e-4, turns=50),
        Stage("styles", 420, learning_rate=1.5e-3, turns=45, talks=LAST_TALKS),
    ),
}
STEP_TOKENS = 3000
"""Least tokens per step of the base for agents."""
PAIRS = 760
"""Merges of its tokenizer, and conversations of each kind that they are learned from."""
READ = 300


def pretrain(base: str, stage: Stage, weights: Weights, config: Config) -> None:
    """Train the weights of a small base through one stage, in place."""
    random, moments = Random(f"{base} {stage.name}"), Moments.fresh(weights)
    begun = perf_counter()
    for step in range(1, stage.steps + 1):
        lines = [
            line(random.choice(LESSONS[base]), random, stage.noisy) for _ in range(stage.batch)
        ]
        datums = [Datum(prompt, output, advantage=1.0) for prompt, output in lines]
        offsets = np.array([_offset(datum, random, config) for datum in datums])
        found = _step(datums, offsets, weights, moments, config, _rate(stage, step))
        if step % REPORT_EVERY == 0 or step == stage.steps:
            right = examine(base, weights, config)
            greedy = ", ".join(f"{name} {share:.2f}" for name, share in right.items())
            _report(base, stage, step, begun, f"loss {_mean(found):.3f}, greedy {greedy}")


def pretrain_agent(stage: Stage, weights: Weights, config: Config, tokenizer: BpeTokenizer) -> None:
    """Train the weights of the base for agents through one stage, in place."""
    random, moments = Random(f"{AGENT} {stage.name}"), Moments.fresh(weights)
    begun, taught = perf_counter(), dict.fromkeys(stage.talks, 0)
    losses: dict[TalkLesson, list[float]] = {lesson: [] for lesson in stage.talks}
    for step in range(1, stage.steps + 1):
        datums, kinds = [], []
        goal = sum(taught.values()) + STEP_TOKENS
        while sum(taught.values()) < goal:
            lesson = min(stage.talks, key=lambda lesson: taught[lesson] / stage.talks[lesson])
            talk = lesson(random, tokenizer, random.randint(1, stage.turns))
            if len(talk.ids) > config.context:
                continue
            taught[lesson] += len(talk.ids)
            datums += talk.datums
            kinds += [lesson] * len(talk.datums)
        found = _step(datums, None, weights, moments, config, _rate(stage, step))
        for lesson, datum, row in zip(kinds, datums, found, strict=True):
            losses[lesson] += row if datum.advantage == 1 else []
        if step % (REPORT_EVERY // 5) == 0 or step == stage.steps:
            each = ", ".join(f"{t.__name__[1:]} {_mean([row]):.3f}" for t, row in losses.items())
            losses = {lesson: [] for lesson in stage.talks}
            _report(AGENT, stage, step, begun, f"loss {each}")


def _report(base: str, stage: Stage, step: int, begun: float, figures: str) -> None:
    """One line on stderr; losses are in nats per token."""
    took = (perf_counter() - begun) / step
    message = f"{base} {stage.name} {step}/{stage.steps}: {figures}, {took:.3f} s per step"
    print(message, file=sys.stderr, flush=True)


def _mean(rows: Sequence[Sequence[float]]) -> float:
    return -sum(map(sum, rows)) / max(1, sum(map(len, rows)))


def texts(tokenizer: BpeTokenizer) -> Iterator[str]:
    """Texts of some conversations, between control tokens."""
    random = Random(f"{AGENT} tokenizer")
    for lesson in TALKS:
        for _ in range(READ):
            ids = lesson(random, tokenizer, 8).ids
            ends = [place for place, id_ in enumerate(ids) if id_ in CONTROLS]
            for start, end in pairwise([-1, *ends, len(ids)]):
                yield tokenizer.decode(ids[start + 1 : end])


def _step(
    datums: list[Datum],
    offsets: Ids | None,
    weights: Weights,
    moments: Moments,
    config: Config,
    rate: float,
) -> list[list[float]]:
    """One step of cross-entropy, weighted by the datums' advantages; returns their logprobs before
    it."""
    logprobs: list[list[float]] = [[] for _ in datums]
    each = [[datum.advantage] * len(datum.output) for datum in datums]

    def weigh(chunk: Chunk, lp: Floats) -> Floats:
        for i, part in zip(chunk.which, chunk.split(lp, datums), strict=True):
            logprobs[i] = part.tolist()
        return flat(chunk, each)

    grads, _ = gradients(weights, config, datums, weigh, offsets)
    assert grads is not None
    adam_step(weights, grads, moments, Adam(rate))
    return logprobs


def _offset(datum: Datum, random: Random, config: Config) -> int:
    room = config.context - len(datum.prompt) - len(datum.output)
    return random.randint(0, room) if random.random() < 0.5 else 0


def _rate(stage: Stage, step: int) -> float:
    """Warm-up, then half a cosine down to 2 % of the peak."""
    falling = (1 + math.cos(math.pi * step / stage.steps)) / 2
    return stage.learning_rate * min(1, step / WARM_UP) * (0.02 + 0.98 * falling)


def examine(base: str, weights: Weights, config: Config) -> dict[str, float]:
    """Share of right greedy answers per scenario, on lines with a seed of their own."""
    right = {}
    for lesson in LESSONS[base]:
        random = Random(f"{base} examination {lesson.scenario}")
        datums = [Datum(*line(lesson, random, noisy=False)) for _ in range(EXAMINED)]
        right[lesson.scenario] = sum(_greedy(weights, config, datums)) / EXAMINED
    return right


def _greedy(weights: Weights, config: Config, datums: list[Datum]) -> list[bool]:
    """Whether each output is the most likely one, token by token."""
    found = []
    for chunk in chunks(datums):
        logits, _ = forward(weights, config, chunk.tokens, chunk.rows)
        hits = logits.argmax(axis=1) == chunk.targets
        found += [bool(part.all()) for part in chunk.split(hits, datums)]
    return found


def make(base: str, out: Path) -> None:
    """Train a base from scratch, and write it."""
    if base != AGENT:
        config = Config()
        weights = initial(config, seed=0)
        for stage in STAGES[base]:
            pretrain(base, stage, weights, config)
        save_base(out / weights_path(base).name, weights, config)
        return
    pairs = learn_pairs(texts(BpeTokenizer([])), PAIRS)
    config = Config(FIRST_PAIR + len(pairs), 128, 4, 4, 2048, rotary=True, shifted=True, tied=True)
    weights = initial(config, seed=0)
    for stage in STAGES[base]:
        pretrain_agent(stage, weights, config, BpeTokenizer(pairs))
        save_base(out / weights_path(base).name, weights, config)
        weights, _, _ = load(out / weights_path(base).name)
    (out / pairs_path(base).name).write_text(json.dumps(pairs, separators=(",", ":")), "utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("pretrain", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(STAGES), help="default: every base")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="default: into the package")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for base in [args.name] if args.name else list(STAGES):
        make(base, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
