"""Train the bases that ship in the package: ``python -m tests.pretrain``.

The small ones are trained in two stages of cross-entropy on the answers' characters, each with a
cosine learning rate: correct answers until the tasks are learned, then the noisy teacher of
`lessons`, whose varied answers give reinforcement learning its signal. Half of the lines start at
a random position, to prepare for system messages and longer conversations.

The bases that call tools first learn their tokenizers from the lessons' texts. The one for agents
then learns the assistant's tokens of short conversations, those of long ones, up to its context,
and finally games of 2048 by players that can be told apart, among which reinforcement learning
chooses. Half of these last lessons repeat the others, which are forgotten otherwise. The one for
tools learns to copy names that it has never seen, then to call what is asked for, then that a
value is what is no tool's name, and in the end all of it once more, by Muon.

Deterministic: the same machine makes the same bytes, on any number of cores. Takes about a quarter
of an hour per base on one core, an hour and a half for the one for tools. NAME is a base's name;
without it every base is trained, into --out.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

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
from tests.pretrain.lessons import (
    AGAIN,
    APART,
    CALLS,
    ECHOES,
    LAST_TALKS,
    LESSONS,
    TALKS,
    TalkLesson,
    line,
)
from tests.pretrain.muon import Muon
from tests.pretrain.pairs import learn_pairs
from tests.pretrain.sentences import sentence_words
from tests.pretrain.words import Words, pieces

Run = Callable[..., Iterable[Any]]
"""`map`, or that of several processes."""
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
    ends: float = 0.02
    """Learning rate of the last step, as a share of the highest."""
    tokens: int = 0
    """Least tokens per step, where lessons are conversations."""
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


AGENT, TOOLS = "tiny/agent-1M", "tiny/tools-1M"
STAGES: dict[str, tuple[Stage, ...]] = {
    "tiny/arith-0.2M": stages(6500, 2500),
    "tiny/mixed-0.2M": stages(10_000, 3500),
    AGENT: (
        Stage("short", 1200, 2e-3, tokens=3000, turns=8, talks=TALKS),
        Stage("long", 120, 5e-4, tokens=3000, turns=50, talks=TALKS),
        Stage("styles", 420, 1.5e-3, tokens=3000, turns=45, talks=LAST_TALKS),
    ),
    TOOLS: (
        Stage("copies", 100, 2e-3, tokens=1500, ends=1.0, turns=1, talks=ECHOES),
        Stage("calls", 9500, 2e-3, tokens=2000, ends=0.0, turns=8, talks=CALLS),
        Stage("apart", 1400, 2e-3, tokens=2000, ends=0.25, turns=3, talks=APART),
        Stage("again", 3000, 1.5e-3, tokens=2000, ends=0.0, turns=8, talks=AGAIN),
    ),
}
SIZES = {
    AGENT: Config(1024, 128, 4, 4, 2048, rotary=True, shifted=1, tied=True),
    TOOLS: Config(2048, 128, 4, 2, 2048, rotary=True, shifted=3, tied=True),
}
"""To find the tool that is asked for is to compare names of several tokens: with two heads of twice
the width it is learned in half of the steps."""
SURER = {AGENT: 1.0, TOOLS: 1.5}
"""Factor of their logits in the end: at temperature 1 they answer as they would at 1 / factor."""
READ = 300
"""Conversations of each kind that they are learned from."""
WORDS = {AGENT: None, TOOLS: sentence_words()}
"""Words that have an id of their own; None: the first vocabulary."""


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
        grads, found = _gradients(datums, offsets, weights, config)
        adam_step(weights, grads, moments, Adam(_rate(stage, step)))
        if step % REPORT_EVERY == 0 or step == stage.steps:
            right = examine(base, weights, config)
            greedy = ", ".join(f"{name} {share:.2f}" for name, share in right.items())
            _report(base, stage, step, begun, f"loss {_mean(found):.3f}, greedy {greedy}")


def pretrain_talks(
    base: str,
    stage: Stage,
    weights: Weights,
    config: Config,
    tokenizer: BpeTokenizer,
    run: Run = map,
    keep: Callable[[], None] = lambda: None,
) -> None:
    """Train the weights of a base that calls tools through one stage, in place. `run` computes the
    parts of a step; `keep` is called now and then."""
    random = Words(f"{base} {stage.name}", pieces(tokenizer))
    moments, muon = Moments.fresh(weights), Muon(weights)
    begun, taught = perf_counter(), dict.fromkeys(stage.talks, 0)
    losses: dict[TalkLesson, list[float]] = {lesson: [] for lesson in stage.talks}
    for step in range(1, stage.steps + 1):
        datums, kinds = [], []
        goal = sum(taught.values()) + stage.tokens
        while sum(taught.values()) < goal:
            lesson = min(stage.talks, key=lambda lesson: taught[lesson] / stage.talks[lesson])
            talk = lesson(random, tokenizer, random.randint(1, stage.turns))
            if len(talk.ids) > config.context:
                continue
            taught[lesson] += len(talk.ids)
            datums += talk.datums
            kinds += [lesson] * len(talk.datums)
        if base == TOOLS:
            grads, found = _added(run, datums, weights, config)
            muon.step(weights, grads, _rate(stage, step))
        else:
            grads, found = _gradients(datums, None, weights, config)
            adam_step(weights, grads, moments, Adam(_rate(stage, step)))
        for lesson, datum, row in zip(kinds, datums, found, strict=True):
            losses[lesson] += row if datum.advantage == 1 else []
        if step % (REPORT_EVERY // 5) == 0 or step == stage.steps:
            each = ", ".join(
                f"{t.__name__.strip('_')} {_mean([row]):.3f}" for t, row in losses.items()
            )
            losses = {lesson: [] for lesson in stage.talks}
            _report(base, stage, step, begun, f"loss {each}")
            keep()


def _report(base: str, stage: Stage, step: int, begun: float, figures: str) -> None:
    """One line on stderr; losses are in nats per token."""
    took = (perf_counter() - begun) / step
    message = f"{base} {stage.name} {step}/{stage.steps}: {figures}, {took:.3f} s per step"
    print(message, file=sys.stderr, flush=True)


def _mean(rows: Sequence[Sequence[float]]) -> float:
    return -sum(map(sum, rows)) / max(1, sum(map(len, rows)))


def texts(base: str) -> Iterator[str]:
    """Texts of some conversations, between control tokens."""
    random, tokenizer = Words(f"{base} tokenizer"), BpeTokenizer([], WORDS[base])
    for lesson in TALKS if base == AGENT else CALLS:
        for _ in range(READ):
            ids = lesson(random, tokenizer, 8).ids
            ends = [place for place, id_ in enumerate(ids) if id_ in CONTROLS]
            for start, end in pairwise([-1, *ends, len(ids)]):
                yield tokenizer.decode(ids[start + 1 : end])


def _gradients(
    datums: list[Datum], offsets: Ids | None, weights: Weights, config: Config
) -> tuple[Weights, list[list[float]]]:
    """Gradients of cross-entropy, weighted by the datums' advantages; and the datums' logprobs."""
    logprobs: list[list[float]] = [[] for _ in datums]
    each = [[datum.advantage] * len(datum.output) for datum in datums]

    def weigh(chunk: Chunk, lp: Floats) -> Floats:
        for i, part in zip(chunk.which, chunk.split(lp, datums), strict=True):
            logprobs[i] = part.tolist()
        return flat(chunk, each)

    grads, _ = gradients(weights, config, datums, weigh, offsets)
    assert grads is not None
    return grads, logprobs


def _added(
    run: Run, datums: list[Datum], weights: Weights, config: Config
) -> tuple[Weights, list[list[float]]]:
    """The same, of two halves that are computed apart and added, so that they can be at once."""
    middle = len(datums) // 2
    work = partial(_gradients, offsets=None, weights=weights, config=config)
    (grads, first), (more, second) = run(work, (datums[:middle], datums[middle:]))
    for name, grad in more.items():
        grads[name] += grad
    return grads, first + second


def _offset(datum: Datum, random: Random, config: Config) -> int:
    room = config.context - len(datum.prompt) - len(datum.output)
    return random.randint(0, room) if random.random() < 0.5 else 0


def _rate(stage: Stage, step: int) -> float:
    """Warm-up, then half a cosine."""
    falling = (1 + math.cos(math.pi * step / stage.steps)) / 2
    rate = stage.ends + (1 - stage.ends) * falling
    return stage.learning_rate * min(1, step / WARM_UP) * rate


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


def make(base: str, out: Path, run: Run = map) -> None:
    """Train a base from scratch, and write it."""
    if base not in SIZES:
        config = Config()
        weights = initial(config, seed=0)
        for stage in STAGES[base]:
            pretrain(base, stage, weights, config)
        save_base(out / weights_path(base).name, weights, config)
        return
    words = WORDS[base]
    config = SIZES[base]
    pairs = learn_pairs(texts(base), config.vocabulary - FIRST_PAIR - len(words or ()), words)
    tokenizer = BpeTokenizer(pairs, words)
    weights, file = initial(config, seed=0), out / weights_path(base).name
    (out / pairs_path(base).name).write_text(tokenizer.written(), "utf-8")
    for stage in STAGES[base]:
        keep = partial(save_base, file, weights, config)
        pretrain_talks(base, stage, weights, config, tokenizer, run, keep)
        weights, _, _ = load(file)
    if SURER[base] != 1:
        weights["norm"] *= SURER[base]
        save_base(file, weights, config)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("pretrain", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(STAGES), help="default: every base")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="default: into the package")
    parser.add_argument("--cores", type=int, choices=(1, 2), default=1, help="for the last base")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.cores) as pool:
        for base in [args.name] if args.name else list(STAGES):
            make(base, args.out, pool.map if args.cores > 1 else map)
    return 0


if __name__ == "__main__":
    sys.exit(main())
