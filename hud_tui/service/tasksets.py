"""The tasksets that ship with the service, generated the same on every machine.

`mixed` holds, beside what can be learned, a few hopeless tasks (numbers and texts far
beyond the bases' reach) and a few saturated ones (always solved): groups without spread
and a plateau below 1 are then real.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

TaskRow = dict[str, Any]
Draw = Callable[[Random], dict[str, Any]]

HELDOUT = {"split": "heldout"}
"""``columns`` of a task that is sampled for `heldout_reward` and never trained on."""

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
    """A taskset of the service's own."""

    name: str
    description: str
    tasks: tuple[TaskRow, ...]
    """Rows ``{env, id, args, slug}`` with ``columns`` where held out."""


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


def arith_rows(train: int, heldout: int) -> list[TaskRow]:
    """`train` and `heldout` tasks of each scenario of arith."""
    return [
        row
        for scenario in ("add", "subtract", "compare")
        for row in rows("arith", scenario, _pair, train, heldout)
    ]


def text_rows(train: int, heldout: int) -> list[TaskRow]:
    """`train` and `heldout` tasks of each scenario of text."""
    draws = {"reverse": _text, "count_letter": _counted, "uppercase": _text}
    return [
        row
        for scenario, draw in draws.items()
        for row in rows("text", scenario, draw, train, heldout)
    ]


def hopeless_rows() -> list[TaskRow]:
    """Far beyond what the bases have seen; they fit the context, and are never solved."""
    return [
        *rows("arith", "add", lambda random: _numbers(random, 10**7), 4),
        *rows("text", "reverse", lambda random: {"text": "".join(random.sample(WORDS, 5))}, 4),
    ]


def saturated_rows() -> list[TaskRow]:
    """Solved by the bases from the start: capitals of at most three letters."""
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


def _counted(random: Random) -> dict[str, Any]:
    word = random.choice(WORDS)
    return {"letter": random.choice(word), "text": word}


TASKSETS: dict[str, BuiltIn] = {
    taskset.name: taskset
    for taskset in (
        BuiltIn(
            "arith",
            "Sums, differences and comparisons below 100; learned in seconds",
            tuple(arith_rows(32, 12)),
        ),
        BuiltIn("text", "Reversing, counting and capitalising words", tuple(text_rows(24, 8))),
        BuiltIn(
            "mixed",
            "All six scenarios with a few hopeless and a few saturated tasks; a minute or two",
            (*arith_rows(28, 8), *text_rows(24, 8), *hopeless_rows(), *saturated_rows()),
        ),
    )
}
