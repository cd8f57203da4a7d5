"""The environment that `init-env` writes, without the SDK."""

import asyncio
import socket
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hud_tui.errors import HudUsage
from hud_tui.rollouts.template import KINDS, write_environment, write_files


class Tools:
    """Stands for a server of tools: says how it was asked to serve."""

    def __init__(self, name: str) -> None:
        self.asked: dict[str, Any] = {}

    def tool(self, function: object = None, **about: object) -> object:
        return function or (lambda function: function)

    def add_middleware(self, middleware: object) -> None:
        pass

    async def run_async(self, **asked: Any) -> None:
        self.asked = asked


class Environment:
    def __init__(self, name: str) -> None:
        self.urls: list[str] = []

    def initialize(self, function: object) -> object:
        return function

    def template(self, description: str) -> Any:
        def made(function: Any) -> Any:
            def task(**values: object) -> SimpleNamespace:
                return SimpleNamespace(kind=function.__name__, **values)

            task.func = function  # type: ignore[attr-defined]
            return task

        return made

    def add_capability(self, url: str) -> None:
        self.urls.append(url)


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "fastmcp": {"FastMCP": Tools, "Client": SimpleNamespace},
        "fastmcp.exceptions": {"ToolError": ValueError},
        "fastmcp.server": {},
        "fastmcp.server.middleware": {"Middleware": object},
        "fastmcp.tools": {"ToolResult": SimpleNamespace},
        "hud": {"Environment": Environment},
        "hud.capabilities": {"Capability": SimpleNamespace(mcp=lambda name, url: url)},
        "hud.graders": {"EvaluationResult": SimpleNamespace, "SubScore": SimpleNamespace},
    }
    for name, contents in names.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)


def written_in(folder: Path, kind: str) -> dict[str, Any]:
    """What the module of an environment has."""
    [file, _] = write_environment("shop", folder, kind)
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names


def test_files_are_written_all_or_none_and_not_over_others(tmp_path: Path) -> None:
    texts = {"tests/test_env.py": "a", "env.py": "b"}
    written = [tmp_path / "tests" / "test_env.py", tmp_path / "env.py"]
    assert write_files(tmp_path, texts) == written
    assert write_files(tmp_path, texts) == []
    written[1].unlink()  # as a kill leaves it
    assert write_files(tmp_path, texts) == written[1:]
    written[0].write_text("my own")
    written[1].unlink()
    with pytest.raises(HudUsage, match=r"test_env\.py is there, and differs"):
        write_files(tmp_path, texts)
    assert not written[1].exists()
    blocked = tmp_path / "other"
    blocked.mkdir()
    (blocked / "tests").touch()
    with pytest.raises(HudUsage, match="tests"):
        write_files(blocked, {"tasks.json": "{}", **texts})
    assert [path.name for path in blocked.iterdir()] == ["tests"]


@pytest.mark.parametrize("kind", KINDS)
def test_some_tasks_of_each_kind_are_held_out_and_more_are_trained_on(
    sdk: None, tmp_path: Path, kind: str
) -> None:
    tasks = written_in(tmp_path, kind)["tasks"]
    heldout = Counter(task.kind for task in tasks if hasattr(task, "columns"))
    assert heldout.keys() == {task.kind for task in tasks}
    assert 6 * heldout.total() >= len(tasks) >= 5 * heldout.total()


async def test_a_lookup_is_graded_by_its_calls_and_its_answer(sdk: None, tmp_path: Path) -> None:
    shop = written_in(tmp_path, "lookup")
    code = int(shop["lookup"]("hinge"))
    assert shop["lookup"]("gold") == "error: no gold"
    wanted = [("lookup", "hinge")]
    assert shop["graded"](f"It is {code}.", code, wanted).reward == 1
    assert shop["graded"](f"{code} or 3", code, wanted).reward == 0.5
    assert shop["graded"](f"{code}", code, [*wanted, ("lookup", "walnut")]).reward == 0.75


@pytest.mark.parametrize("kind", KINDS)
async def test_the_port_of_the_tools_is_taken_from_the_moment_it_is_chosen(
    sdk: None, tmp_path: Path, kind: str
) -> None:
    """Rollouts begin together: a port that is only looked up is soon taken by another."""
    written = written_in(tmp_path, kind)
    await written["serve_tools"]()
    serving, listening = written["env"].serving
    await serving
    asked, [url] = written["tools"].asked, written["env"].urls
    assert url == f"http://127.0.0.1:{asked['port']}/mcp"
    assert asked["uvicorn_config"] == {"fd": listening.fileno()}
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", asked["port"]))
    _, writer = await asyncio.open_connection("127.0.0.1", asked["port"])
    writer.close()
    listening.close()
