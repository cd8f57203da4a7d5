"""The environment that a hud-vf-gym configuration comes to, without the SDK."""

import json
import sys
import unittest
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hud_tui.legacy.gym_served import ActionParameter, ServedAction, ServedGym, Taken
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rollouts.gym_template import gym_environment
from tests.rollouts.test_template import sdk

__all__ = ["sdk"]

GO = ServedAction(
    "go",
    "Move.",
    "move",
    (
        ActionParameter("times", "int", False, 1),
        ActionParameter("way", "Literal['up', 'down']", True),
    ),
    {"direction": Taken("way"), "times": Taken("times"), "kind": 3},
)
DONE = ServedAction("done", "End.", None)
WEIGHTS = {"task_completion": 0.5, "tool_execution": 0.25, "format_compliance": 0.25}


def gym(*actions: ServedAction, prompt: str = "Play.") -> ServedGym:
    return ServedGym(
        "games", "", prompt, 9, WEIGHTS, actions or (GO, ServedAction("done", "End.", None))
    )


def rows(count: int, **more: Any) -> list[Task]:
    row = {
        "prompt": "Win.",
        "mcp_config": {"a": {"url": "https://mcp.hud.ai", "headers": {"k": "${HUD_API_KEY}"}}},
        "setup_tool": {"name": "setup", "arguments": {"board": 4}},
        "evaluate_tool": {"name": "evaluate", "arguments": {}},
    }
    return read_rows([{**row, "id": f"t{n}", **more} for n in range(count)], "row")


def written(folder: Path, made: ServedGym, tasks: list[Task]) -> dict[str, Any]:
    """What the module of an environment has."""
    for name, text in gym_environment(made, tasks).items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    names: dict[str, Any] = {"__file__": str(folder / "env.py"), "__name__": "env"}
    exec(compile((folder / "env.py").read_text(), "env.py", "exec"), names)
    return names


class Server:
    """Stands for a task's MCP servers."""

    def __init__(self, **answers: Any) -> None:
        self.called: list[tuple[str, Any]] = []
        self.answers = answers

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any]) -> Any:
        self.called.append((name, arguments))
        said, failed = self.answers.get(name, ""), name in self.answers.get("failing", ())
        is_text = isinstance(said, str)
        content = [SimpleNamespace(text=said if is_text else json.dumps(said))]
        structure = None if is_text else said
        return SimpleNamespace(isError=failed, content=content, structuredContent=structure)


async def test_a_rollout_is_set_up_played_and_graded(sdk: None, tmp_path: Path) -> None:
    env = written(tmp_path, gym(), rows(1))
    server = Server(setup="a board of 4", evaluate={"grade": 0.5}, failing=["broken"])

    @asynccontextmanager
    async def connect(row: Any) -> Any:
        yield server

    env["connect"] = connect
    task = env["task"].func("t0")
    assert await anext(task) == "Play.\n\nWin.\n\na board of 4"
    assert server.called == [("setup", {"board": 4})]
    assert (await env["go"](way="up")).content[0].text == ""
    assert server.called[1:] == [("move", {"direction": "up", "times": 1, "kind": 3})]
    with pytest.raises(ValueError, match="failed"):
        await env["act"]("broken", {"gone": None})
    assert server.called[-1] == ("broken", {})
    await env["done"]()
    with pytest.raises(ValueError, match="complete"):
        await env["go"](way="up")
    assert len(server.called) == 3, "nothing is called once it has ended"
    graded = await task.asend("won")
    assert graded.info["calls"] == ["done", "failed", "done", "failed"]
    assert graded.reward == 0.5 * 0.5 + 0.25 * 0.5 + 0.25


async def test_calls_that_fit_nothing_count_against_their_format(sdk: None, tmp_path: Path) -> None:
    env = written(tmp_path, gym(), rows(1))

    async def refused(context: Any) -> None:
        raise ValueError("no such action")

    with pytest.raises(ValueError, match="no such action"):
        await env["Counting"]().on_call_tool(None, refused)
    assert env["graded"](1.0).reward == 0.5
    env["rollout"].calls.append("done")
    assert env["graded"](1.0).reward == 0.5 + 0.25 + 0.125


async def test_a_grade_is_found_and_a_rollout_without_one_has_failed(
    sdk: None, tmp_path: Path
) -> None:
    env = written(tmp_path, gym(), rows(1))
    for said in ({"grade": 0.5}, {"reward": 0.5}, '{"score": 0.5}'):
        result = await Server(evaluate=said).call_tool_mcp("evaluate", {})
        assert env["grade_of"](result) == 0.5
    with pytest.raises(ValueError, match="gave no grade: well done"):
        env["grade_of"](await Server(evaluate="well done").call_tool_mcp("evaluate", {}))
    env["rollout"].server = Server(evaluate="no board", failing=["evaluate"])
    with pytest.raises(RuntimeError, match="evaluate_tool evaluate: no board"):
        await env["call_each"]("evaluate_tool", [{"name": "evaluate", "arguments": {}}])


def test_variables_are_filled_where_a_rollout_begins(
    sdk: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = written(tmp_path, gym(), rows(1))
    monkeypatch.setenv("HUD_API_KEY", "local")
    monkeypatch.setenv("SHOP", "s")
    filled = env["filled"]
    assert filled(["${HUD_API_KEY}", "$SHOP", "${NONE:x}", "$$a", 3]) == [
        "local",
        "s",
        "x",
        "$a",
        3,
    ]
    monkeypatch.setenv("HUD_ENVIRONMENT_KEY", "hud")
    assert filled({"h": "Bearer ${HUD_API_KEY}"}) == {"h": "Bearer hud"}
    started = filled({"command": "docker", "args": ["run"], "env": {"SHOP": "other"}})
    assert (started["env"]["SHOP"], started["env"]["HUD_API_KEY"]) == ("other", "local")
    assert "local" not in (tmp_path / "tasks.json").read_text()


def test_tasks_keep_their_names_and_what_is_held_out(sdk: None, tmp_path: Path) -> None:
    tasks = written(tmp_path, gym(), rows(12))["tasks"]
    assert [task.slug for task in tasks][:2] == ["t0", "t1"]
    assert [task.columns for task in tasks][::6] == [{"split": "heldout"}] * 2
    assert all(task.columns == {} for task in written(tmp_path, gym(), rows(11))["tasks"])
    said = rows(11) + rows(1, id="last", columns={"split": "heldout"})
    last = written(tmp_path, gym(), said)["tasks"][-1]
    assert last.columns == {"split": "heldout"}


HOSTILE = "\"\"\"\nimport os; os._exit(3) #''' \\ {x} @ACTIONS@ @NAME@ \u202e\x1b"


async def test_nothing_of_a_configuration_is_code(sdk: None, tmp_path: Path) -> None:
    names = ("env", "type", "class", "2048", "rollout", "task", "json", "act")
    actions = [
        ServedAction(
            name,
            HOSTILE,
            HOSTILE,
            (ActionParameter("a", f"Literal[{HOSTILE!r}]", True),),
            {HOSTILE: Taken("a"), "b": HOSTILE, "c": [{HOSTILE: HOSTILE}]},
        )
        for name in names
    ]
    made = gym(*actions, prompt=HOSTILE)
    env = written(tmp_path, made, rows(1, prompt=HOSTILE, id="odd"))
    assert env["PROMPT"] == HOSTILE
    assert env["ROWS"]["odd"]["prompt"] == HOSTILE
    env["rollout"].server = server = Server()
    for name in names:
        await env[f"action_{name}"](a=HOSTILE)
    assert server.called == [
        (HOSTILE, {HOSTILE: HOSTILE, "b": HOSTILE, "c": [{HOSTILE: HOSTILE}]})
    ] * len(names)


def test_the_tests_beside_it_pass(
    sdk: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = written(tmp_path, gym(), rows(12))
    monkeypatch.setitem(sys.modules, "env", SimpleNamespace(**env))
    names: dict[str, Any] = {"__file__": str(tmp_path / "tests" / "test_env.py"), "__name__": "own"}
    exec(compile((tmp_path / "tests/test_env.py").read_text(), "test_env.py", "exec"), names)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(names["Actions"])
    result = unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.failures, result.errors) == (4, [], [])
