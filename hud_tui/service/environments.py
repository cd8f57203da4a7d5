"""Verifiable environments that the service rolls out in its own process."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from string import ascii_lowercase
from typing import Any

# The subset of JSON Schema that a scenario's args need: flat objects of integers and strings.


Schema = dict[str, Any]
INTEGER: Schema = {"type": "integer", "minimum": -999_999_999, "maximum": 999_999_999}


def string(longest: int = 64) -> Schema:
    """A string of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def arguments(**properties: Schema) -> Schema:
    """An object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def check_args(schema: Schema, args: Mapping[str, Any]) -> dict[str, Any]:
    """The args as a new dict, validated by a schema of `arguments`.

    As in JSON Schema, 3.0 is an integer; it becomes 3. Raises ValueError: a field is missing,
    unknown, of the wrong type or out of bounds.
    """
    properties: dict[str, Schema] = schema["properties"]
    for name in args:
        if name not in properties:
            raise ValueError(f"args.{name} is not known here; expected {', '.join(properties)}")
    checked = {}
    for name, field in properties.items():
        if name not in args:
            raise ValueError(f"args.{name} is missing")
        value = args[name]
        if isinstance(value, float) and value.is_integer() and field["type"] == "integer":
            value = int(value)
        _check_value(name, field, value)
        checked[name] = value
    return checked


def _check_value(name: str, field: Schema, value: Any) -> None:
    kind = field["type"]
    if kind == "integer":
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"args.{name} must be an integer")
        size, low, high, unit = value, field["minimum"], field["maximum"], ""
    else:
        if not isinstance(value, str):
            raise ValueError(f"args.{name} must be a string")
        size, low, high = len(value), field["minLength"], field["maxLength"]
        unit = " characters"
    if not low <= size <= high:
        raise ValueError(f"args.{name} must be {low} to {high}{unit}, not {size}")


# Environments: a prompt made from a task's args, and a reward for the answer.
#
# A scenario has a name, args (JSON Schema), a prompt, the right answer, and a measure of how close
# a wrong answer is. A scenario added to an environment's list is in the registry, in preflight and
# in managed runs.


Args = Mapping[str, Any]

EXACT = 1.0
"""Reward of the bare answer."""
CONTAINED = 0.2
"""Reward of the answer as a word within a longer text."""
NEAR = 0.15
"""Highest reward of a wrong answer in the right form, unless the scenario says otherwise."""


@dataclass(frozen=True)
class Scenario:
    """One kind of task."""

    name: str
    description: str
    args_schema: dict[str, Any]
    """JSON Schema of the args: an object of integers and strings with their bounds."""
    ask: Callable[..., str]
    """Prompt for the args, which are passed as keywords."""
    solve: Callable[..., str]
    """Right answer for the args, which are passed as keywords."""
    nearness: Callable[[str, str], float]
    """How close a wrong text is: (text, answer) → [0, 1]."""
    partial: float = NEAR
    """Highest reward of a wrong answer, below EXACT; its nearness is multiplied by it."""

    def prompt(self, args: Args) -> str:
        """The user message of a task. Raises ValueError: the args do not fit the schema; the
        message names the field."""
        return self.ask(**check_args(self.args_schema, args))

    def answer(self, args: Args) -> str:
        """The text that earns 1.0. Raises ValueError as `prompt` does."""
        return self.solve(**check_args(self.args_schema, args))

    def grade(self, args: Args, completion: str) -> float:
        """Reward of a completion, in [0, 1]. Raises ValueError as `prompt` does."""
        answer, text = self.answer(args), completion.strip()
        if text == answer:
            return EXACT
        if re.search(rf"(?<![\w-]){re.escape(answer)}(?!\w)", text):
            return CONTAINED
        return round(self.partial * self.nearness(text, answer), 4)


@dataclass(frozen=True)
class Environment:
    """A named set of scenarios."""

    name: str
    description: str
    listed: tuple[Scenario, ...]

    @cached_property
    def scenarios(self) -> dict[str, Scenario]:
        """The scenarios by name, in the order they are listed."""
        return {scenario.name: scenario for scenario in self.listed}


# How close a wrong answer is, so that rewards within a group differ before a task is solved.


REACH = 10
"""A number further off than this earns nothing."""
ALIKE = 0.5
"""A text with a smaller share of its characters in place earns nothing."""


def of_numbers(text: str, answer: str) -> float:
    """1 − distance / (REACH + 1) for a bare integer within REACH of the answer; else 0."""
    if not re.fullmatch(r"-?[0-9]{1,12}", text):
        return 0.0
    return max(0.0, 1 - abs(int(text) - int(answer)) / (REACH + 1))


def of_texts(text: str, answer: str) -> float:
    """Share of characters in place, for a text of the answer's length; 0 below ALIKE."""
    if len(text) != len(answer):
        return 0.0
    share = sum(a == b for a, b in zip(text, answer, strict=True)) / len(answer)
    return share if share >= ALIKE else 0.0


def in_place(text: str, answer: str) -> float:
    """Share of characters in place, of the longer of the two texts."""
    return sum(a == b for a, b in zip(text, answer, strict=False)) / max(len(text), len(answer))


# arith: sums, differences and comparisons of two integers.


TWO_INTEGERS = arguments(a=INTEGER, b=INTEGER)

ARITH = Environment(
    name="arith",
    description="Sums, differences and comparisons of two integers",
    listed=(
        Scenario(
            name="add",
            description="Add two integers.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"{a} + {b} = ?",
            solve=lambda a, b: str(a + b),
            nearness=of_numbers,
        ),
        Scenario(
            name="subtract",
            description="Subtract the second integer from the first.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"{a} - {b} = ?",
            solve=lambda a, b: str(a - b),
            nearness=of_numbers,
        ),
        Scenario(
            name="compare",
            description="Say the larger of two integers.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"Larger: {a} or {b}?",
            solve=lambda a, b: str(max(a, b)),
            nearness=of_numbers,
        ),
    ),
)


# text: reversing, counting and capitalising letters.


TEXT = Environment(
    name="text",
    description="Reversing, counting and capitalising letters",
    listed=(
        Scenario(
            name="reverse",
            description="Write a text backwards.",
            args_schema=arguments(text=string()),
            ask=lambda text: f"Reverse: {text}",
            solve=lambda text: text[::-1],
            nearness=of_texts,
        ),
        Scenario(
            name="count_letter",
            description="Count how often a letter occurs in a text.",
            args_schema=arguments(letter=string(longest=1), text=string()),
            ask=lambda letter, text: f"Count {letter} in: {text}",
            solve=lambda letter, text: str(text.count(letter)),
            nearness=of_numbers,
        ),
        Scenario(
            name="uppercase",
            description="Write a text in capital letters.",
            args_schema=arguments(text=string()),
            ask=lambda text: f"Uppercase: {text}",
            solve=lambda text: text.upper(),
            nearness=of_texts,
        ),
    ),
)


# letters: two of the scenarios of text, with a shaped reward. Every letter in place earns its
# share, so answers that are all wrong still differ in reward. Only the whole answer passes.


LETTERS = Environment(
    name="letters",
    description="Reversing and capitalising, with credit for every letter in place",
    listed=tuple(
        replace(TEXT.scenarios[name], nearness=in_place, partial=0.5)
        for name in ("reverse", "uppercase")
    ),
)


ENVIRONMENTS: dict[str, Environment] = {env.name: env for env in (ARITH, TEXT, LETTERS)}
"""Every environment by name."""


def find_scenario(env: str, name: str) -> Scenario:
    """An environment's scenario. Raises LookupError, which says what there is."""
    environment = ENVIRONMENTS.get(env)
    if environment is None:
        raise LookupError(f"no such environment: {env}; this has {', '.join(ENVIRONMENTS)}")
    scenario = environment.scenarios.get(name)
    if scenario is None:
        names = ", ".join(environment.scenarios)
        raise LookupError(f"{env} has no scenario {name}; it has {names}")
    return scenario


# The tasksets that ship with the service, generated identically on every machine.
#
# `mixed` also has a few hopeless tasks (numbers and texts far beyond what the bases can do) and a
# few saturated ones (always solved): it has real zero-variance groups, and its reward levels off
# below 1.
#
# `long` has random letters, at least two more than the bases were taught to reverse (6) and to
# capitalise (8): they solve none of its tasks until they are trained on it.


TaskRow = dict[str, Any]
Draw = Callable[[Random], dict[str, Any]]

HELDOUT = {"split": "heldout"}
"""``columns`` of a held-out task: sampled for `heldout_reward`, never trained on."""

LISTED = """
    apple banana basket bird bottle bread bridge butter candle carrot castle cheese cherry
    circle cloud coffee copper cotton dinner dragon eagle engine feather field finger flower
    forest garden ginger glass green hammer harbor honey island jacket kettle kitten ladder
    lemon letter market mirror monkey needle number orange paper pepper planet pocket potato
    purple rabbit river rocket school silver sister sleep spring street summer sunset tomato
    tunnel velvet violin water window winter yellow
"""
WORDS = tuple(LISTED.split())


@dataclass(frozen=True)
class BuiltIn:
    """A taskset that ships with the service."""

    name: str
    description: str
    tasks: tuple[TaskRow, ...]
    """Rows ``{env, id, args, slug}``, with ``columns`` for held-out tasks."""


def rows(env: str, scenario: str, draw: Draw, train: int, heldout: int = 0) -> Iterator[TaskRow]:
    """Distinct tasks of one scenario; the held-out ones come last."""
    random, seen = Random(f"{env} {scenario}"), set[str]()
    while len(seen) < train + heldout:
        args = draw(random)
        slug = "-".join([scenario, *map(str, args.values())])
        if slug in seen:
            continue
        row = {"env": env, "id": scenario, "args": args, "slug": slug}
        yield row if len(seen) < train else {**row, "columns": dict(HELDOUT)}
        seen.add(slug)


def each(env: str, draws: Mapping[str, Draw], train: int, heldout: int) -> tuple[TaskRow, ...]:
    """`train` and `heldout` tasks of each of these scenarios."""
    return tuple(
        row for scenario, draw in draws.items() for row in rows(env, scenario, draw, train, heldout)
    )


def hopeless_rows() -> list[TaskRow]:
    """Tasks far beyond what the bases have seen: they fit the context, and are never solved."""
    return [
        *rows("arith", "add", lambda random: _numbers(random, 10**7), 4),
        *rows("text", "reverse", lambda random: {"text": "".join(random.sample(WORDS, 5))}, 4),
    ]


def saturated_rows() -> list[TaskRow]:
    """Tasks that the bases solve from the start: capitals of at most three letters."""
    short = ("a", "at", "cat", "dog", "go", "sun", "tea", "we")
    return list(
        rows("text", "uppercase", lambda random: {"text": random.choice(short)}, len(short))
    )


def _pair(random: Random) -> dict[str, Any]:
    return {"a": random.randrange(100), "b": random.randrange(100)}


def _numbers(random: Random, low: int) -> dict[str, Any]:
    return {"a": random.randrange(low, 10 * low), "b": random.randrange(low, 10 * low)}


def _text(random: Random) -> dict[str, Any]:
    return {"text": random.choice([word for word in WORDS if len(word) <= 6])}


def _letters(shortest: int, longest: int) -> Draw:
    """Letters at random, which nobody can know by heart."""

    def draw(random: Random) -> dict[str, Any]:
        size = random.randint(shortest, longest)
        return {"text": "".join(random.choices(ascii_lowercase, k=size))}

    return draw


def _counted(random: Random) -> dict[str, Any]:
    word = random.choice(WORDS)
    return {"letter": random.choice(word), "text": word}


PAIRS = dict.fromkeys(ARITH.scenarios, _pair)
SHORT = {"reverse": _text, "count_letter": _counted, "uppercase": _text}
LONG = {"reverse": _letters(8, 10), "uppercase": _letters(11, 13)}

TASKSETS: dict[str, BuiltIn] = {
    taskset.name: taskset
    for taskset in (
        BuiltIn(
            "arith",
            "Sums, differences and comparisons below 100; learned in seconds",
            each("arith", PAIRS, 32, 12),
        ),
        BuiltIn("text", "Reversing, counting and capitalising words", each("text", SHORT, 24, 8)),
        BuiltIn(
            "mixed",
            "All six scenarios, with a few tasks too hard and a few too easy; a minute or two",
            (
                *each("arith", PAIRS, 28, 8),
                *each("text", SHORT, 24, 8),
                *hopeless_rows(),
                *saturated_rows(),
            ),
        ),
        BuiltIn(
            "long",
            "Unsolved at first: reversing and capitalising more letters than the bases were taught",
            each("letters", LONG, 160, 40),
        ),
    )
}
