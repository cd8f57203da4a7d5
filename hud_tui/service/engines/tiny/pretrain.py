"""Make the bases that ship in the package: ``python -m hud_tui.service.engines.tiny.pretrain``.

Two stages of cross-entropy on the answers' characters, each with a cosine learning rate:
clean answers until the tasks are known, then the noisy teacher of `lessons`, whose
spread of answers is what reinforcement learning starts from. Half of the lines start at
a random position, so that system messages and longer conversations are no surprise.

Deterministic: the same machine makes the same bytes. About a quarter of an hour a base
on one core. NAME is a base's name; without it every base is made, into --out.
"""

import argparse
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np

from hud_tui.service.engines.base import Adam, Datum
from hud_tui.service.engines.tiny.bases import WEIGHTS, weights_path
from hud_tui.service.engines.tiny.lessons import LESSONS, Line, line
from hud_tui.service.engines.tiny.optimiser import Moments, adam_step
from hud_tui.service.engines.tiny.policy import Config, Weights, forward, initial
from hud_tui.service.engines.tiny.state import save_base
from hud_tui.service.engines.tiny.training import Chunk, Floats, chunks, gradients

WARM_UP = 100
"""Steps over which the learning rate rises from 0."""
REPORT_EVERY = 500
EXAMINED = 40
"""Fresh lines a scenario whose greedy answers are reported."""


@dataclass(frozen=True)
class Stage:
    name: str
    steps: int
    learning_rate: float
    noisy: bool
    batch: int = 128


def stages(clean: int, noisy: int) -> tuple[Stage, Stage]:
    """Both stages, so many steps each."""
    return (
        Stage("clean", clean, learning_rate=3e-3, noisy=False),
        Stage("noisy", noisy, learning_rate=1.5e-3, noisy=True),
    )


STAGES = {"tiny/arith-0.2M": stages(6500, 2500), "tiny/mixed-0.2M": stages(10_000, 3500)}


def pretrain(base: str, stage: Stage, weights: Weights, config: Config) -> None:
    """Train the weights through one stage, in place."""
    random, moments = Random(f"{base} {stage.name}"), Moments.fresh(weights)
    begun = perf_counter()
    for step in range(1, stage.steps + 1):
        lines = [
            line(random.choice(LESSONS[base]), random, stage.noisy) for _ in range(stage.batch)
        ]
        loss = _step(lines, random, weights, moments, config, _rate(stage, step))
        if step % REPORT_EVERY == 0 or step == stage.steps:
            right = examine(base, weights, config)
            print(
                f"{base} {stage.name} {step}/{stage.steps}: loss {loss:.3f} nats a token, "
                f"{(perf_counter() - begun) / step:.3f} s a step, greedy "
                + ", ".join(f"{name} {share:.2f}" for name, share in right.items()),
                file=sys.stderr,
                flush=True,
            )


def _step(
    lines: list[Line],
    random: Random,
    weights: Weights,
    moments: Moments,
    config: Config,
    rate: float,
) -> float:
    """One step of cross-entropy; returns the mean loss, in nats a token."""
    datums = [Datum(prompt, output) for prompt, output in lines]
    offsets = np.array([_offset(datum, random, config) for datum in datums])
    logprobs: list[float] = []

    def weigh(chunk: Chunk, lp: Floats) -> Floats:
        logprobs.extend(lp.tolist())
        return np.ones_like(lp)

    grads, _ = gradients(weights, config, datums, weigh, offsets)
    assert grads is not None
    adam_step(weights, grads, moments, Adam(rate))
    return -sum(logprobs) / len(logprobs)


def _offset(datum: Datum, random: Random, config: Config) -> int:
    room = config.context - len(datum.prompt) - len(datum.output)
    return random.randint(0, room) if random.random() < 0.5 else 0


def _rate(stage: Stage, step: int) -> float:
    """Warm-up, then half a cosine down to 2 % of the peak."""
    falling = (1 + math.cos(math.pi * step / stage.steps)) / 2
    return stage.learning_rate * min(1, step / WARM_UP) * (0.02 + 0.98 * falling)


def examine(base: str, weights: Weights, config: Config) -> dict[str, float]:
    """Share of right greedy answers per scenario, on lines of their own seed."""
    right = {}
    for lesson in LESSONS[base]:
        random = Random(f"{base} examination {lesson.scenario}")
        datums = [Datum(*line(lesson, random, noisy=False)) for _ in range(EXAMINED)]
        right[lesson.scenario] = sum(_greedy(weights, config, datums)) / EXAMINED
    return right


def _greedy(weights: Weights, config: Config, datums: list[Datum]) -> list[bool]:
    """Whether each output is the likeliest one, token after token."""
    found = []
    for chunk in chunks(datums):
        logits, _ = forward(weights, config, chunk.tokens, chunk.rows)
        hits = logits.argmax(axis=1) == chunk.targets
        ends = np.cumsum([len(datums[i].output) for i in chunk.which])[:-1]
        found += [bool(part.all()) for part in np.split(hits, ends)]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("pretrain", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(LESSONS), help="default: every base")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="default: into the package")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for base in [args.name] if args.name else list(LESSONS):
        config = Config()
        weights = initial(config, seed=0)
        for stage in STAGES[base]:
            pretrain(base, stage, weights, config)
        save_base(args.out / weights_path(base).name, weights, config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
