"""The environment that ``hud-tui init-env`` writes: two tools, three templates, and tests."""

from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import write_named

NAME = "@NAME@"
ENVIRONMENT = r'''"""@NAME@: an environment to edit, and to train on at once.

    hud-tui --local train @NAME@/env.py -m MODEL

A gardener walks on a grid by calling tools. Each `@env.template` below is a kind of task: it
yields the prompt, receives the model's last answer, and yields the reward with how it came about.
`tasks` at the end is what is trained on. Every rollout has a process of its own, so what a module
keeps, as `walk` here, belongs to one rollout.
"""

import asyncio
import socket
from dataclasses import dataclass, field

from fastmcp import FastMCP
from hud import Environment
from hud.capabilities import Capability
from hud.graders import EvaluationResult, SubScore

SIZE = 4
DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

env = Environment(name="@NAME@")
tools = FastMCP(name="@NAME@-tools")


# The game, without the model.


@dataclass
class Walk:
    """Where the gardener is, and what is left to reach."""

    at: tuple[int, int] = (0, 0)
    goals: list[tuple[int, int]] = field(default_factory=list)
    moves: int = 0

    def move(self, direction: str) -> str:
        """One step, or none at the fence; what is seen then."""
        if direction not in DIRECTIONS:
            return f"unknown direction {direction!r}: up, down, left or right"
        down, right = DIRECTIONS[direction]
        row, column = self.at[0] + down, self.at[1] + right
        self.moves += 1
        if 0 <= row < SIZE and 0 <= column < SIZE:
            self.at = (row, column)
        if self.at in self.goals:
            self.goals.remove(self.at)
        return self.show() if self.goals else f"{self.show()}\nDONE"

    def show(self) -> str:
        """The garden: A is the gardener, G a goal."""
        cells = [["." for _ in range(SIZE)] for _ in range(SIZE)]
        for row, column in self.goals:
            cells[row][column] = "G"
        cells[self.at[0]][self.at[1]] = "A"
        return "\n".join(" ".join(row) for row in cells)

    def left(self) -> int:
        """Steps to the goals, one after the other, at least."""
        total, here = 0, self.at
        for goal in self.goals:
            total += abs(here[0] - goal[0]) + abs(here[1] - goal[1])
            here = goal
        return total


walk = Walk()


# The tools that the model calls, over MCP.


@tools.tool
def move(direction: str) -> str:
    """Walk one cell: up, down, left or right."""
    return walk.move(direction)


@tools.tool
def look() -> str:
    """The garden as it is now."""
    return walk.show()


@env.initialize
async def serve_tools() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = tools.run_async(
        transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="critical"
    )
    env.serving = asyncio.create_task(serving)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            break
        except OSError:
            await asyncio.sleep(0.02)
    env.add_capability(Capability.mcp(name="tools", url=f"http://127.0.0.1:{port}/mcp"))


# The kinds of tasks.


def begin(at: tuple[int, int], goals: list[tuple[int, int]], words: str) -> str:
    walk.at, walk.goals, walk.moves = at, list(goals), 0
    return f"{words} Call the `move` tool with a direction (up/down/left/right).\n\n{walk.show()}"


def graded(steps: int, least: int) -> EvaluationResult:
    """Most of the reward is for getting closer; the rest for no detour."""
    closer = max(0.0, 1 - walk.left() / steps)
    direct = min(1.0, least / max(1, walk.moves)) if not walk.goals else 0.0
    return EvaluationResult(
        reward=round(0.8 * closer + 0.2 * direct, 3),
        subscores=[
            SubScore(name="closer", weight=0.8, value=closer),
            SubScore(name="direct", weight=0.2, value=direct),
        ],
        info={"moves": walk.moves, "steps_left": walk.left()},
    )


@env.template(description="walk to the corner at the bottom right")
async def corner(row: int, column: int):
    goal = (SIZE - 1, SIZE - 1)
    yield begin((row, column), [goal], "Walk to G.")
    steps = abs(row - goal[0]) + abs(column - goal[1])
    yield graded(steps, steps)


@env.template(description="walk to a goal anywhere")
async def reach(row: int, column: int, goal_row: int, goal_column: int):
    yield begin((row, column), [(goal_row, goal_column)], "Walk to G.")
    steps = abs(row - goal_row) + abs(column - goal_column)
    yield graded(steps, steps)


@env.template(description="walk to two goals")
async def collect(row: int, column: int):
    yield begin((row, column), [(0, SIZE - 1), (SIZE - 1, 0)], "Walk to both G.")
    first = abs(row) + abs(column - (SIZE - 1))
    steps = first + 2 * (SIZE - 1)
    yield graded(steps, steps)


# What is trained on; every fifth task is held out, for evaluations.

tasks = [corner(row=row, column=column) for row in range(3) for column in range(3)]
tasks += [
    reach(row=1, column=1, goal_row=row, goal_column=column)
    for row, column in ((0, 0), (0, 3), (3, 0), (3, 3), (1, 3), (3, 1))
]
tasks += [collect(row=1, column=1), collect(row=2, column=2)]
for _task in tasks[::5]:
    _task.columns = {"split": "heldout"}
'''

TESTS = r'''"""Tests without a model: ``python -m unittest discover @NAME@/tests``."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import env as garden


class Game(unittest.TestCase):
    def test_a_step_and_the_fence(self) -> None:
        walk = garden.Walk(at=(0, 0), goals=[(0, 2)])
        walk.move("right")
        walk.move("up")
        self.assertEqual((walk.at, walk.moves, walk.left()), ((0, 1), 2, 1))

    def test_a_goal_that_is_reached(self) -> None:
        walk = garden.Walk(at=(0, 1), goals=[(0, 2)])
        self.assertIn("DONE", walk.move("right"))

    def test_an_unknown_direction(self) -> None:
        self.assertIn("unknown", garden.Walk().move("north"))


class Templates(unittest.IsolatedAsyncioTestCase):
    async def play(self, made, *directions: str) -> float:
        prompt = await made.__anext__()
        self.assertIn("A", prompt)
        for direction in directions:
            garden.walk.move(direction)
        return (await made.asend("done")).reward

    async def test_the_straight_way_earns_everything(self) -> None:
        made = garden.corner.func(row=2, column=2)
        self.assertEqual(await self.play(made, "down", "right"), 1.0)

    async def test_half_the_way_earns_less(self) -> None:
        made = garden.corner.func(row=2, column=2)
        self.assertEqual(await self.play(made, "down"), 0.4)

    async def test_doing_nothing_earns_nothing(self) -> None:
        self.assertEqual(await self.play(garden.reach.func(1, 1, 3, 3)), 0.0)

    async def test_every_task_is_of_a_template(self) -> None:
        self.assertEqual({task.id for task in garden.tasks}, {"corner", "reach", "collect"})


if __name__ == "__main__":
    unittest.main()
'''


def write_environment(name: str, directory: Path) -> list[Path]:
    """Write a small environment into a new folder; its files.

    Raises:
        HudUsage: The name is no plain word, or there is such a folder; or it cannot be written.
    """
    plain = name.replace("-", "_")
    if not (plain.isascii() and plain.isidentifier() and len(name) <= 60):
        hint = "letters, digits, - and _, beginning with a letter, e.g. hud-tui init-env garden"
        raise HudUsage(f"{one_line(name, 80)!r} is no name for an environment", hint)
    folder = directory / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HudUsage(f"{one_line(folder, 200)} exists", "choose another name")
    files = {folder / "env.py": ENVIRONMENT, folder / "tests" / "test_env.py": TESTS}
    return [write_named(file, [text.replace(NAME, name)]) for file, text in files.items()]
