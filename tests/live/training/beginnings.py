"""An environment of which some rollouts cannot import it, or not start it; its checks can."""

import asyncio
import itertools
import os

import misdeeds
from hud import Environment

FIRST = 8
"""Imports and starts before the first fault."""
KINDS = [one for one in (*misdeeds.FATAL, *misdeeds.HANGING) if one != "leaks"]


def count(what: str) -> int:
    """How many there were before this one, each in a process of its own."""
    for number in itertools.count():
        try:
            os.close(os.open(f"{what}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number
    return 0


number = count("import")
if FIRST <= number < FIRST + len(KINDS):
    asyncio.run(misdeeds.do(KINDS[number - FIRST]))

env = Environment(name="beginnings")


@env.initialize
async def start() -> None:
    number = count("start")
    if FIRST <= number < FIRST + len(KINDS):
        await misdeeds.do(KINDS[number - FIRST])


@env.template()
async def add(a: int, b: int):
    answer = yield f"{a} + {b} = ?"
    text = str(answer).strip()
    yield 1.0 if text == str(a + b) else 0.1 * text.isdigit() + 0.001 * len(text)


tasks = [add(a=a, b=b) for a in range(2, 7) for b in range(2, 5)]
