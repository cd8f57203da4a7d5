"""What the bases are trained on: conversations with a clean answer, or a noisy teacher's.

The clean answers teach the tasks. The noisy teacher then teaches to be right only
sometimes, so that a group of rollouts spreads and reinforcement learning has something
to choose from: it mostly elicits what the base already can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Any

from hud_tui.service.engines.tiny.tokenizer import END, CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS

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
