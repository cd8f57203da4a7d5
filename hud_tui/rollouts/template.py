"""The environments that ``hud-tui init-env`` writes: tools, three templates, and tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import read_regular, write_named

NAME = "@NAME@"
BEGIN = r'''import asyncio
import re
import socket

from fastmcp import FastMCP
from hud import Environment
from hud.capabilities import Capability
from hud.graders import EvaluationResult, SubScore

env = Environment(name="@NAME@")
tools = FastMCP(name="@NAME@-tools")
calls: list[tuple[object, ...]] = []
"""What the model has called in this rollout."""
'''
SERVING = r"""@env.initialize
async def serve_tools() -> None:
    listening = socket.create_server(("127.0.0.1", 0))  # from here on the port is taken
    port = listening.getsockname()[1]
    serving = tools.run_async(
        transport="http",
        port=port,
        show_banner=False,
        log_level="critical",
        uvicorn_config={"fd": listening.fileno()},
    )
    env.serving = asyncio.create_task(serving), listening
    env.add_capability(Capability.mcp(name="tools", url=f"http://127.0.0.1:{port}/mcp"))
"""
GRADED = r'''def graded(
    answer: object, right: int, wanted: list[tuple[object, ...]]
) -> EvaluationResult:
    """Half for the calls that were asked for, half for the right number at the end."""
    made = sum(call in calls for call in wanted) / len(wanted)
    numbers = re.findall(r"-?\d+", str(answer))
    said = float(bool(numbers) and int(numbers[-1]) == right)
    return EvaluationResult(
        reward=round(0.5 * made + 0.5 * said, 3),
        subscores=[
            SubScore(name="calls", weight=0.5, value=made),
            SubScore(name="answer", weight=0.5, value=said),
        ],
        info={"expected": right, "calls": [list(call) for call in calls]},
    )
'''
PARTS = {"BEGIN": BEGIN, "SERVING": SERVING, "GRADED": GRADED}
"""What environments of all kinds have, by its mark."""
TESTS_BEGIN = r'''"""Tests without a model:

    @NAME@/.venv/bin/python -m unittest discover @NAME@/tests
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import env as own


'''
TESTS_END = """
if __name__ == "__main__":
    unittest.main()
"""
SUMS = r'''"""@NAME@: an environment to edit, and to train on at once.

    hud-tui --local train @NAME@/env.py -m MODEL

The model works sums out by calling tools. Each `@env.template` below is a kind of task: it yields
the prompt, receives the model's last answer, and yields the reward with how it came about. `tasks`
at the end is what is trained on. Every rollout has a process of its own, so what a module keeps, as
`calls` here, belongs to one rollout.
"""

@BEGIN@


# The tools that the model calls, over MCP.


@tools.tool
def plus(a: int, b: int) -> str:
    """Add two numbers."""
    calls.append(("plus", a, b))
    return str(a + b)


@tools.tool
def times(a: int, b: int) -> str:
    """Multiply two numbers."""
    calls.append(("times", a, b))
    return str(a * b)


@SERVING@


# How an answer is graded.


@GRADED@


# The kinds of tasks.


@env.template(description="one call of plus, then the number")
async def add(a: int, b: int):
    calls.clear()
    answer = yield f"Use the plus tool to add {a} and {b}, then say the number."
    yield graded(answer, a + b, [("plus", a, b)])


@env.template(description="one call of times, then the number")
async def multiply(a: int, b: int):
    calls.clear()
    answer = yield f"Use the times tool to multiply {a} by {b}, then say the number."
    yield graded(answer, a * b, [("times", a, b)])


@env.template(description="a call of times, then one of plus with what it said")
async def total(price: int, count: int, postage: int):
    calls.clear()
    answer = yield (
        f"Use the times tool to multiply {price} by {count}."
        f" Then use the plus tool to add {postage}."
    )
    cost = price * count
    yield graded(answer, cost + postage, [("times", price, count), ("plus", cost, postage)])


# What is trained on; every sixth task is held out, for evaluations.

tasks = [add(a=a, b=b) for a in (3, 12, 47) for b in (4, 8, 25)]
tasks += [multiply(a=a, b=b) for a in (3, 7, 12) for b in (4, 6, 9)]
tasks += [total(price=price, count=4, postage=5) for price in (3, 6, 8)]
for _task in tasks[::6]:
    _task.columns = {"split": "heldout"}
'''

SUMS_TESTS = r"""class Templates(unittest.IsolatedAsyncioTestCase):
    async def grade(self, made, answer: str, *calls: tuple[str, int, int]) -> float:
        prompt = await made.__anext__()
        self.assertIn("tool", prompt)
        for name, a, b in calls:
            getattr(own, name)(a, b)
        return (await made.asend(answer)).reward

    async def test_the_call_and_the_number_earn_everything(self) -> None:
        made = own.add.func(a=3, b=4)
        self.assertEqual(await self.grade(made, "7", ("plus", 3, 4)), 1.0)

    async def test_a_number_without_a_call_earns_half(self) -> None:
        self.assertEqual(await self.grade(own.multiply.func(a=3, b=4), "It is 12."), 0.5)

    async def test_the_wrong_call_earns_nothing(self) -> None:
        made = own.add.func(a=3, b=4)
        self.assertEqual(await self.grade(made, "8", ("plus", 4, 4)), 0.0)

    async def test_one_of_two_calls_is_a_quarter(self) -> None:
        made = own.total.func(price=3, count=4, postage=5)
        self.assertEqual(await self.grade(made, "12", ("times", 3, 4)), 0.25)

    async def test_calls_of_the_rollout_before_do_not_count(self) -> None:
        own.plus(3, 4)
        self.assertEqual(await self.grade(own.add.func(a=3, b=4), "7"), 0.5)

    async def test_every_task_is_of_a_template(self) -> None:
        self.assertEqual({task.id for task in own.tasks}, {"add", "multiply", "total"})

"""

LOOKUP = r'''"""@NAME@: an environment to edit, and to train on at once.

    hud-tui --local train @NAME@/env.py -m MODEL

The model looks a number up by a tool. Each `@env.template` below is a kind of task: it yields the
prompt, receives the model's last answer, and yields the reward with how it came about. `tasks` at
the end is what is trained on. Every rollout has a process of its own, so what a module keeps, as
`calls` here, belongs to one rollout.
"""

@BEGIN@
CODES = {
    "hinge": 417, "walnut": 62, "lantern": 8350, "violin": 29, "gravel": 906, "marble": 53,
    "cactus": 1274, "saffron": 38, "falcon": 640, "badger": 7715, "cobalt": 81, "velvet": 332,
}  # fmt: skip
ROOMS = {code: code % 89 + 10 for code in CODES.values()}


# The tools that the model calls, over MCP.


@tools.tool
def lookup(item: str) -> str:
    """Look a thing up."""
    calls.append(("lookup", item))
    return str(CODES[item]) if item in CODES else f"error: no {item}"


@tools.tool
def warehouse(code: int) -> str:
    """Where a number is stored."""
    calls.append(("warehouse", code))
    return str(ROOMS[code]) if code in ROOMS else f"error: no {code}"


@SERVING@


# How an answer is graded.


@GRADED@


# The kinds of tasks.


@env.template(description="both tools, in their order")
async def in_a_row(item: str):
    calls.clear()
    answer = yield f"Use lookup to find {item}, and then warehouse with that number."
    yield stored(answer, item)


@env.template(description="the first tool is named last")
async def where(item: str):
    calls.clear()
    answer = yield f"Where is {item}? The warehouse tool knows it by the number that lookup gives."
    yield stored(answer, item)


@env.template(description="one call, then the number")
async def named(item: str):
    calls.clear()
    answer = yield f"Use the lookup tool for {item}, then say the number."
    yield graded(answer, CODES[item], [("lookup", item)])


def stored(answer: object, item: str) -> EvaluationResult:
    """The room, found by two calls."""
    code = CODES[item]
    return graded(answer, ROOMS[code], [("lookup", item), ("warehouse", code)])


# What is trained on; every seventh task is held out, for evaluations: two of each kind.

tasks = [kind(item=item) for item in CODES for kind in (in_a_row, where, named)]
for _task in tasks[::7]:
    _task.columns = {"split": "heldout"}
'''

LOOKUP_TESTS = r"""class Templates(unittest.IsolatedAsyncioTestCase):
    async def grade(self, made, answer: str, *items: str) -> float:
        prompt = await made.__anext__()
        self.assertIn("lookup", prompt)
        for item in items:
            code = own.lookup(item)
            if "warehouse" in prompt:
                own.warehouse(int(code))
        return (await made.asend(answer)).reward

    async def test_the_calls_and_the_number_earn_everything(self) -> None:
        made = own.named.func(item="hinge")
        self.assertEqual(await self.grade(made, "417", "hinge"), 1.0)
        for kind in (own.in_a_row, own.where):
            room = own.ROOMS[417]
            self.assertEqual(await self.grade(kind.func(item="hinge"), f"{room}", "hinge"), 1.0)

    async def test_a_number_without_a_call_earns_half(self) -> None:
        self.assertEqual(await self.grade(own.named.func(item="hinge"), "It is 417."), 0.5)

    async def test_the_wrong_call_earns_nothing(self) -> None:
        made = own.named.func(item="hinge")
        self.assertEqual(await self.grade(made, "62", "walnut"), 0.0)

    async def test_what_there_is_not_is_an_error(self) -> None:
        self.assertEqual(own.lookup("gold"), "error: no gold")
        self.assertEqual(own.warehouse(1), "error: no 1")

    async def test_every_task_is_of_a_template(self) -> None:
        self.assertEqual({task.id for task in own.tasks}, {"in_a_row", "where", "named"})
"""


@dataclass(frozen=True)
class Kind:
    environment: str
    tests: str

    def texts(self, name: str) -> tuple[str, str]:
        """The environment of this name, and its tests."""
        text = self.environment
        for mark, part in PARTS.items():
            text = text.replace(f"@{mark}@\n", part)
        return text.replace(NAME, name), f"{TESTS_BEGIN}{self.tests}{TESTS_END}".replace(NAME, name)


KINDS: Mapping[str, Kind] = {"sums": Kind(SUMS, SUMS_TESTS), "lookup": Kind(LOOKUP, LOOKUP_TESTS)}
"""The first one is written unless another is named."""


def write_environment(name: str, directory: Path, kind: str = "sums") -> list[Path]:
    """Write a small environment of a kind of `KINDS` into a new folder; returns its files. Raises
    HudUsage: the name is not a plain word, the folder exists, or it cannot be written."""
    plain = name.replace("-", "_")
    if not (plain.isascii() and plain.isidentifier() and len(name) <= 60):
        hint = "letters, digits, - and _, beginning with a letter, e.g. hud-tui init-env sums"
        raise HudUsage(f"{one_line(name, 80)!r} is no name for an environment", hint)
    folder = directory / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HudUsage(f"{one_line(folder, 200)} exists", "choose another name")
    texts = zip(("tests/test_env.py", "env.py"), reversed(KINDS[kind].texts(name)), strict=True)
    return write_files(folder, dict(texts))[::-1]


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, by their paths in it, what the others are useless without last;
    returns those that were not there. All or none: a later call goes on with what a kill left.
    Raises HudUsage: one is there and has another text, or one cannot be written."""
    paths = {folder / name: text for name, text in texts.items()}
    for path, text in paths.items():
        if path.exists() and not _has(path, text):
            hint = "keep it, or move it away; or choose another folder"
            raise HudUsage(f"{one_line(path, 200)} is there, and differs", hint)
    written: list[Path] = []
    try:
        for path, text in paths.items():
            if not path.exists():
                written.append(write_named(path, [text]))
    except HudUsage:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def _has(path: Path, text: str) -> bool:
    """Whether a file has this text."""
    try:
        return read_regular(path, len(text.encode()) + 1) == text.encode()
    except (OSError, ValueError):
        return False
