"""The environment that a hud-vf-gym configuration and its tasks come to, as text.

Whatever a configuration says becomes a Python literal or a checked name: nothing of it is code.
"""

import builtins
import json
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any

from hud_tui.legacy.gym_served import ActionParameter, ServedAction, ServedGym, Taken
from hud_tui.rl.tasks.legacy import VARIABLE
from hud_tui.rl.tasks.task import HELD_OUT, Task
from hud_tui.rollouts.template import NAME, SERVING

HUD_KEY = "HUD_ENVIRONMENT_KEY"
"""A variable with HUD's key for the tasks' servers: HUD_API_KEY is that of the service."""
EVERY, FEWEST = 6, 12
"""Where no task says that it is held out, of so many each sixth one is."""
ENVIRONMENT = r'''"""@NAME@: an environment to edit, and to train on at once.

    hud-tui --local train @NAME@/env.py -m MODEL

Made from a hud-vf-gym configuration. Each rollout connects to its task's MCP servers, calls the
setup tool, and has the model call the actions below; the reward is made of the evaluate tool's
grade and of how the calls went. Every rollout has a process of its own, so what a module keeps, as
`rollout` here, belongs to one rollout.
"""

import asyncio
import json
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult
from hud import Environment
from hud.capabilities import Capability
from hud.graders import EvaluationResult, SubScore

env = Environment(name="@NAME@")
tools = FastMCP(name="@NAME@-actions")
ROWS = json.loads(Path(__file__).with_name("tasks.json").read_text("utf-8"))
"""The tasks, by name."""
WEIGHTS = @WEIGHTS@
"""What a reward is made of."""
PROMPT = (
@PROMPT@)
"""What is said before each task."""
Value = str | int | float


@dataclass
class Rollout:
    server: Any = None
    """The task's MCP servers."""
    calls: list[str] = field(default_factory=list)
    """How the model's calls went: done, failed, or misfit: arguments that the action has not."""
    has_ended: bool = False


rollout = Rollout()


# The task's servers.


def connect(row: dict[str, Any]) -> Client:
    return Client({"mcpServers": filled(row["mcp_config"])})


def filled(value: Any) -> Any:
    """Servers with their variables, as ${HUD_API_KEY}; a program that is started gets all."""
    if isinstance(value, str):
        return VARIABLE.sub(variable, value)
    if isinstance(value, list):
        return [filled(part) for part in value]
    if not isinstance(value, dict):
        return value
    whole = {key: filled(part) for key, part in value.items()}
    return {**whole, "env": {**os.environ, **whole.get("env", {})}} if "command" in whole else whole


VARIABLE = re.compile(@VARIABLE@)


def variable(match: re.Match[str]) -> str:
    if match["dollar"]:
        return "$"
    name = (match["braced"] or match["plain"]).strip()
    if name == "HUD_API_KEY":  # here that is the key of the service that trains
        name = "@HUD_KEY@" if "@HUD_KEY@" in os.environ else name
    default = match[0] if match["default"] is None else match["default"]
    return os.environ.get(name) or default


async def call_each(what: str, calls: list[dict[str, Any]]) -> Any:
    """Call a task's own tools; what the last one said. One that fails fails the rollout."""
    result = None
    for call in calls:
        result = await rollout.server.call_tool_mcp(call["name"], call["arguments"])
        if result.isError:
            raise RuntimeError(f"{what} {call['name']}: {text_of(result)}")
    return result


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content if hasattr(part, "text"))


# The actions that the model calls, over MCP.


class Counting(Middleware):
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        before = len(rollout.calls)
        try:
            return await call_next(context)
        except Exception:
            if len(rollout.calls) == before:
                rollout.calls.append("misfit")
            raise


tools.add_middleware(Counting())


async def act(tool: str, arguments: dict[str, Any]) -> ToolResult:
    """Call a tool of the task's servers for the model; an argument of None is not sent."""
    if rollout.has_ended:
        rollout.calls.append("failed")
        raise ToolError("the task is complete: answer in words")
    sent = {name: value for name, value in arguments.items() if value is not None}
    result = await rollout.server.call_tool_mcp(tool, sent)
    rollout.calls.append("failed" if result.isError else "done")
    if result.isError:
        raise ToolError(text_of(result) or "it failed")
    return ToolResult(content=result.content or "done")


async def end() -> ToolResult:
    rollout.calls.append("done")
    rollout.has_ended = True
    return ToolResult(content="The task is complete: say so in a few words.")


@ACTIONS@
@SERVING@

# How a rollout is graded.


def graded(grade: float) -> EvaluationResult:
    """The evaluate tool's grade, the share of calls that were done, and of calls that fit."""
    fitting = [call for call in rollout.calls if call != "misfit"]
    values = {
        "task_completion": grade,
        "tool_execution": fitting.count("done") / len(fitting) if fitting else 0.0,
        "format_compliance": len(fitting) / len(rollout.calls) if rollout.calls else 0.0,
    }
    return EvaluationResult(
        reward=round(sum(weight * values[name] for name, weight in WEIGHTS.items()), 6),
        subscores=[
            SubScore(name=name, weight=weight, value=min(1.0, max(0.0, values[name])))
            for name, weight in WEIGHTS.items()
        ],
        info={"grade": grade, "calls": list(rollout.calls)},
    )


def grade_of(result: Any) -> float:
    """The grade in what an evaluate tool returned, as a structure or as JSON."""
    said = result.structuredContent
    if not said:
        try:
            said = json.loads(text_of(result))
        except ValueError:
            said = None
    for name in ("grade", "reward", "score"):
        if isinstance(said, dict) and isinstance(said.get(name), int | float):
            return float(said[name])
    raise ValueError(f"evaluate_tool gave no grade: {text_of(result)[:200]}")


@env.template(description="a task of tasks.json")
async def task(name: str):
    row = ROWS[name]
    rollout.calls.clear()
    rollout.has_ended = False
    async with connect(row) as rollout.server:
        ready = await call_each("setup_tool", row["setup_tool"])
        said = text_of(ready) if ready is not None else ""
        yield "\n\n".join(part for part in (PROMPT, row["prompt"], said) if part)
        yield graded(grade_of(await call_each("evaluate_tool", row["evaluate_tool"])))


# What is trained on.

tasks = []
for _name, _row in ROWS.items():
    _task = task(name=_name)
    _task.slug = _name
    _task.columns = _row["columns"]
    tasks.append(_task)
'''
TESTS = r'''"""Tests without a model, and without the tasks' servers:

    @NAME@/.venv/bin/python -m unittest discover @NAME@/tests
"""

import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import env as own


class Server:
    """Stands for a task's servers: keeps what is called."""

    def __init__(self) -> None:
        self.called: list[tuple[str, dict[str, Any]]] = []

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any]) -> Any:
        self.called.append((name, arguments))
        return SimpleNamespace(isError=False, content=[], structuredContent={"grade": 1})


class Actions(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        own.rollout.server = Server()
        own.rollout.calls.clear()
        own.rollout.has_ended = False

@CASES@
    async def test_the_reward_is_made_of_its_parts(self) -> None:
        own.rollout.calls += ["done", "failed", "misfit", "misfit"]
        values = {"task_completion": 1.0, "tool_execution": 0.5, "format_compliance": 0.5}
        expected = sum(weight * values[name] for name, weight in own.WEIGHTS.items())
        self.assertAlmostEqual(own.graded(1.0).reward, expected, 5)

    async def test_every_task_has_a_grader(self) -> None:
        self.assertTrue(all(row["evaluate_tool"] for row in own.ROWS.values()))


if __name__ == "__main__":
    unittest.main()
'''
EXAMPLES = {"int": 3, "float": 1.5, "bool": True, "list": [1], "dict": {"a": 1}}
"""An argument of each type, for tests; of others a text."""
KEPT = ("prompt", "mcp_config", "setup_tool", "evaluate_tool")


def gym_environment(gym: ServedGym, tasks: Sequence[Task]) -> dict[str, str]:
    """The files of an environment, by their path in its folder. `tasks`: of the form v4,
    checked."""
    functions = _functions(gym.actions)
    actions = "\n\n".join(_action(action, functions[action.name]) for action in gym.actions)
    cases = "\n".join(_case(action, functions[action.name]) for action in gym.actions)
    prompt = "".join(f"    {line!r}\n" for line in gym.prompt.splitlines(keepends=True) or [""])
    parts = {
        "@WEIGHTS@": repr(dict(gym.weights)),
        "@PROMPT@": prompt,
        "@VARIABLE@": repr(VARIABLE.pattern),
        "@HUD_KEY@": HUD_KEY,
        "@ACTIONS@\n": f"{actions}\n",
        "@SERVING@\n": f"{SERVING}\n",
        "@CASES@\n": f"{cases}\n",
    }
    return {
        "env.py": _filled(ENVIRONMENT, parts, gym.name),
        "tasks.json": json.dumps(task_rows(tasks), indent=1, ensure_ascii=False) + "\n",
        "tests/test_env.py": _filled(TESTS, parts, gym.name),
    }


def task_rows(tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
    """The tasks by name, with all that a rollout of theirs needs."""
    says = any(task.heldout for task in tasks) or len(tasks) < FEWEST
    rows = {}
    for index, task in enumerate(tasks):
        row = {name: task.more.get(name, [] if name.endswith("_tool") else "") for name in KEPT}
        columns = dict(task.columns)
        if not says and index % EVERY == 0:
            columns["split"] = HELD_OUT
        rows[task.slug] = {**row, "columns": columns}
    return rows


def _filled(text: str, parts: Mapping[str, str], name: str) -> str:
    """A text with its parts, in one pass: no part is looked for in another."""
    marks = re.compile("|".join(map(re.escape, parts)))
    return marks.sub(lambda mark: parts[mark[0]], text.replace(NAME, name))


TAKEN = frozenset(dir(builtins)) | frozenset(re.findall(r"^(\w+)", ENVIRONMENT, re.MULTILINE))
"""Names that mean something in the file, beside those of the functions in it."""


def _functions(actions: Sequence[ServedAction]) -> dict[str, str]:
    """A function's name for each action: its own, unless that means something else."""
    functions: dict[str, str] = {}
    taken = TAKEN | set(re.findall(r"(?:def|class|import|,) (\w+)", ENVIRONMENT))
    for action in actions:
        name = action.name
        if not name.isidentifier() or iskeyword(name) or name in taken:
            name = f"action_{name}"
        while name in functions.values():
            name += "_"
        functions[action.name] = name
    return functions


def _action(action: ServedAction, function: str) -> str:
    """An action as a function; a call of `act` or `end`."""
    required = [parameter for parameter in action.parameters if parameter.required]
    optional = [parameter for parameter in action.parameters if not parameter.required]
    parameters = ", ".join(_parameter(parameter) for parameter in (*required, *optional))
    body = "end()"
    if action.tool is not None:
        made = [f"{key!r}: {_made(value)}" for key, value in action.arguments.items()]
        body = f"act({action.tool!r}, {{{', '.join(made)}}})"
    head = f"@tools.tool(name={action.name!r}, description={action.about!r})"
    return f"{head}\nasync def {function}({parameters}) -> Any:\n    return await {body}\n"


def _parameter(parameter: ActionParameter) -> str:
    if parameter.required:
        return f"{parameter.name}: {parameter.type}"
    kind = parameter.type if parameter.default is not None else f"{parameter.type} | None"
    return f"{parameter.name}: {kind} = {parameter.default!r}"


def _made(value: Any) -> str:
    return value.name if isinstance(value, Taken) else repr(value)


def _case(action: ServedAction, function: str) -> str:
    """A test of one action: what its tool is called with."""
    given = {
        parameter.name: _example(parameter) for parameter in action.parameters if parameter.required
    }
    values = {
        parameter.name: given.get(parameter.name, parameter.default)
        for parameter in action.parameters
    }
    calls = []
    if action.tool is not None:
        sent = {
            key: values[value.name] if isinstance(value, Taken) else value
            for key, value in action.arguments.items()
        }
        calls = [(action.tool, {key: value for key, value in sent.items() if value is not None})]
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return (
        f"    async def test_{action.name}(self) -> None:\n"
        f"        await own.{function}({words})\n"
        f"        self.assertEqual(own.rollout.server.called, {calls!r})\n"
        '        self.assertEqual(own.rollout.calls, ["done"])\n'
    )


def _example(parameter: ActionParameter) -> Any:
    if parameter.type.startswith("Literal["):
        return literal_eval(parameter.type.removeprefix("Literal"))[0]
    return EXAMPLES.get(parameter.type, "a")
