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
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase
from time import perf_counter
from typing import Any

import numpy as np

from hud_tui.service.engines.base import Adam, Datum
from hud_tui.service.engines.tiny.engine import WEIGHTS, weights_path
from hud_tui.service.engines.tiny.model import Config, Weights, forward, initial
from hud_tui.service.engines.tiny.tokenizer import END, CharTokenizer
from hud_tui.service.engines.tiny.training import (
    Chunk,
    Floats,
    Moments,
    adam_step,
    chunks,
    gradients,
)
from hud_tui.service.engines.tiny.worker import save_base
from hud_tui.service.environments import ENVIRONMENTS

# What the bases are trained on: conversations with a clean answer, or a noisy teacher's.
#
# The clean answers teach the tasks. The noisy teacher then teaches to be right only
# sometimes, so that a group of rollouts spreads and reinforcement learning has something
# to choose from: it mostly elicits what the base already can.


CORRECT, NEAR_MISS, VERBOSE = 0.40, 0.25, 0.20
"""The noisy teacher's shares; the rest is IGNORANT."""
IGNORANT = "I do not know."
SYSTEM_SHARE, PHRASED_SHARE = 0.12, 0.12
"""Of lines with a system message, and of sums asked for in other words."""
SYSTEMS = (
    "Be brief.",
    "You are a calculator.",
    "You are a helpful assistant.",
    "Reply with the answer only.",
)
PHRASINGS = (
    "What is {}?",
    "What is {}? Reply with the number only.",
    "{}",
    "{} =",
)
TOKENIZER = CharTokenizer()


@dataclass(frozen=True)
class Lesson:
    """One scenario as training material."""

    env: str
    scenario: str
    draw: Callable[[Random], dict[str, Any]]
    """Args at random; they cover the built-in tasksets' but for the hopeless tasks."""
    slip: Callable[[Random, str, dict[str, Any]], str]
    """A near miss of (answer, args), never the answer itself."""
    mastered: Callable[[dict[str, Any]], bool] = lambda args: False
    """Which args even the noisy teacher always answers right."""


Line = tuple[list[int], list[int]]
"""Prompt ids and output ids."""


def line(lesson: Lesson, random: Random, noisy: bool) -> Line:
    """One conversation: what the policy reads, and what it is to write."""
    args = lesson.draw(random)
    scenario = ENVIRONMENTS[lesson.env].scenarios[lesson.scenario]
    prompt, answer = scenario.prompt(args), scenario.answer(args)
    if prompt.endswith(" = ?") and random.random() < PHRASED_SHARE:
        prompt = random.choice(PHRASINGS).format(prompt.removesuffix(" = ?"))
    messages = [{"role": "user", "content": prompt}]
    if random.random() < SYSTEM_SHARE:
        messages.insert(0, {"role": "system", "content": _system(random)})
    if noisy and not lesson.mastered(args):
        answer = _teach(lesson, random, answer, args)
    return TOKENIZER.render(messages), [*TOKENIZER.encode(answer), END]


def _teach(lesson: Lesson, random: Random, answer: str, args: dict[str, Any]) -> str:
    """What the noisy teacher answers."""
    chance = random.random()
    if chance < CORRECT:
        return answer
    if chance < CORRECT + NEAR_MISS:
        return lesson.slip(random, answer, args)
    return f"The answer is {answer}." if chance < CORRECT + NEAR_MISS + VERBOSE else IGNORANT


def _system(random: Random) -> str:
    """A system message; half of them are babble, so that any other is passed over too."""
    if random.random() < 0.5:
        return random.choice(SYSTEMS)
    return " ".join(_word(random, 2, 8) for _ in range(random.randint(1, 5))).capitalize() + "."


def _number(random: Random) -> int:
    """Below 100, and often a single digit: people start with those."""
    return random.randrange(10 if random.random() < 0.25 else 100)


def _pair(random: Random) -> dict[str, Any]:
    return {"a": _number(random), "b": _number(random)}


def _word(random: Random, shortest: int, longest: int) -> str:
    return "".join(random.choices(ascii_lowercase, k=random.randint(shortest, longest)))


def _counted(random: Random) -> dict[str, Any]:
    """A word with a letter in it more often than chance has it."""
    letter, word = random.choice(ascii_lowercase), _word(random, 3, 8)
    often = random.choice((0.1, 0.3, 0.5))
    return {
        "letter": letter,
        "text": "".join(letter if random.random() < often else char for char in word),
    }


def _off(*steps: int) -> Callable[[Random, str, dict[str, Any]], str]:
    """A slip to a number nearby; a count stays at or above 0."""
    return lambda random, answer, args: str(int(answer) + random.choice(steps))


def _off_by_one(random: Random, answer: str, args: dict[str, Any]) -> str:
    return str(int(answer) + (1 if answer == "0" else random.choice((-1, 1))))


def _smaller(random: Random, answer: str, args: dict[str, Any]) -> str:
    """The other number, or one beside it where both are the same."""
    other = min(args["a"], args["b"])
    return str(other) if str(other) != answer else str(other + 1)


def _misspelt(random: Random, answer: str, args: dict[str, Any]) -> str:
    """One letter replaced by the next one of the alphabet, in the same case."""
    at = random.randrange(len(answer))
    first = ord("A" if answer[at].isupper() else "a")
    changed = chr(first + (ord(answer[at]) - first + 1) % 26)
    return answer[:at] + changed + answer[at + 1 :]


_NEARBY = _off(-10, -2, -1, 1, 2, 10)
ARITH_LESSONS: Sequence[Lesson] = (
    Lesson("arith", "add", _pair, _NEARBY),
    Lesson("arith", "subtract", _pair, _NEARBY),
    Lesson("arith", "compare", _pair, _smaller),
)
TEXT_LESSONS: Sequence[Lesson] = (
    Lesson("text", "reverse", lambda random: {"text": _word(random, 2, 6)}, _misspelt),
    Lesson("text", "count_letter", _counted, _off_by_one),
    Lesson(
        "text",
        "uppercase",
        lambda random: {"text": _word(random, 1, 8)},
        _misspelt,
        mastered=lambda args: len(args["text"]) <= 3,
    ),
)
LESSONS: dict[str, Sequence[Lesson]] = {
    "tiny/arith-0.2M": ARITH_LESSONS,
    "tiny/mixed-0.2M": (*ARITH_LESSONS, *TEXT_LESSONS),
}


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
                f"{base} {stage.name} {step}/{stage.steps}: loss {loss:.3f} nats per token, "
                f"{(perf_counter() - begun) / step:.3f} s per step, greedy "
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
    """One step of cross-entropy; returns the mean loss, in nats per token."""
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
