"""``hud-tui run --config``: an environment is written, and trained on."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from hud_tui.cli import gym_run
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.rl.tasks.formats import read_rows
from tests.service.headless import Command, Text
from tests.unit.legacy.locks import V1_1
from tests.unit.legacy.test_gym_served import GAME

ROW = {
    "prompt": "Win.",
    "mcp_config": {"local": {"command": "docker", "args": ["run", "--rm", "-i", "org/2048"]}},
    "evaluate_tool": {"name": "evaluate", "arguments": {}},
}
RUN = ("run", "tasks.json", "--config", "2048.yaml", "-m", "arith-rl")


def put_tasks(folder: Path, count: int = 12, **more: Any) -> None:
    rows = [{**ROW, "id": f"t{n}", **more} for n in range(count)]
    (folder / "tasks.json").write_text(json.dumps(rows))


@pytest.fixture(autouse=True)
def files(here: Path) -> None:
    (here / "2048.yaml").write_text(GAME)
    put_tasks(here)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """What ``train`` is called with; it does nothing."""
    calls: list[argparse.Namespace] = []

    async def train_with(client: HudClient, args: argparse.Namespace) -> int:
        calls.append(args)
        return 0

    monkeypatch.setattr(gym_run, "train_with", train_with)
    return calls


async def test_it_is_written_once_and_trained_on(
    hud: Command, here: Path, trained: list[argparse.Namespace]
) -> None:
    done = await hud(*RUN, "-y", "--steps", "7", "--follow", "--fail-on", "critical")
    assert (done.code, done.kind, done.data["written"]) == (0, "config", True)
    assert sorted(path.name for path in (here / "env_2048").rglob("*.*")) == [
        "env.py",
        "tasks.json",
        "test_env.py",
    ]
    [args] = trained
    assert (args.source, args.model, args.steps, args.turns) == (
        "env_2048/env.py",
        "arith-rl",
        7,
        100,
    )
    assert (args.follow, args.fail_on, args.yes, args.check) == (True, ["critical"], True, False)
    assert (await hud(*RUN, "-y")).code == 0
    (here / "env_2048" / "env.py").write_text("# my own")
    differs = await hud(*RUN, "-y")
    assert (differs.code, len(trained)) == (2, 2)
    assert "env_2048/env.py is there, and differs" in differs.error["message"]
    assert (await hud(*RUN, "-y", "-o", "more")).data["environment"] == "more/env_2048/env.py"


async def test_a_dry_run_says_all_and_writes_nothing(
    hud: Command, text: Text, here: Path, trained: list[argparse.Namespace]
) -> None:
    done = await hud(*RUN, "--dry-run")
    assert (done.code, done.data["written"], done.data["heldout"]) == (0, False, 2)
    assert done.data["actions"][0]["arguments"] == {"direction": {"static": "left"}}
    assert done.data["actions"][1]["arguments"]["direction"] == {"from_arg": "where"}
    assert done.data["servers"] == ["docker run --rm -i org/2048"]
    code, out, err = await text(*RUN, "--dry-run")
    assert (code, trained) == (0, [])
    for line in (
        "  environment      env_2048/env.py",
        "  actions          left(), go(where, times, note)",
        "  reward           0.85 task_completion + 0.15 format_compliance",
        "  tasks            12, 2 held out, of tasks.json",
        "  starts           docker run --rm -i org/2048",
        "nothing was written: --dry-run",
    ):
        assert line in out.splitlines()
    assert "left out: system_prompt (line 5)" in err
    assert not (here / "env_2048").exists()


async def test_what_cannot_be_served_is_said_and_nothing_is_written(
    hud: Command, here: Path, trained: list[argparse.Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*more: str, code: int = 2) -> str:
        done = await hud(*RUN, "-y", *more)
        assert (done.code, trained, (here / "env_2048").exists()) == (code, [], False), done
        return str(done.error["message"] if code == 2 else done.err)

    assert "--reasoning-effort is not for --config" in await refused("--reasoning-effort", "low")
    assert "--at-once is not for --config" in await refused("--at-once", "2")
    assert "one value of learning_rate" in await refused("--lr", "1e-4,3e-4")
    assert "no such task" in await refused("--leave-out", "nobody")
    (here / "2048.yaml").write_text(GAME.replace("static:", "transform:"))
    assert "2048.yaml line 14: field action_mappings.left.direction.transform" in await refused()
    (here / "2048.yaml").write_text(GAME)
    put_tasks(here, evaluate_tool=None)
    assert "no grader in 12 tasks" in await refused(code=5)
    put_tasks(here, count=3)
    assert "3 tasks: a managed run needs" in await refused("--fail-on", "warning", code=5)
    server = {"url": "https://mcp.hud.ai", "headers": {"a": "${HUD_API_KEY} ${SHOP}"}}
    put_tasks(here, mcp_config={"hud": server})
    assert "use SHOP: not set here" in await refused()
    (here / "tasks.json").write_text(json.dumps([{"env": "arith", "id": "add", "args": {}}]))
    assert "tasks.json row 1: a task of the form" in await refused()
    (here / "hud.lock.yaml").write_text(V1_1)
    assert "has no tool move" in await refused()


async def test_variables_of_the_tasks_reach_the_environment(
    hud: Command, here: Path, trained: list[argparse.Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"url": "https://x", "headers": {"a": "${HUD_API_KEY} ${SHOP} ${OTHER:none}"}}
    put_tasks(here, mcp_config={"hud": server})
    monkeypatch.setenv("SHOP", "s")
    monkeypatch.setenv("HUD_ENVIRONMENT_KEY", "k")
    assert (await hud(*RUN, "-y")).code == 0
    assert trained[0].env == ["SHOP", "HUD_ENVIRONMENT_KEY"]


def test_the_key_of_the_embedded_service_opens_no_server_of_hud_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = {"url": "https://mcp.hud.ai", "headers": {"a": "${HUD_API_KEY}"}}
    tasks = read_rows([{**ROW, "mcp_config": {"hud": server}}], "row")
    with pytest.raises(HudUsage, match="want a key of HUD's, and this is the embedded service"):
        gym_run.variables_of(tasks, local=True)
    assert gym_run.variables_of(tasks, local=False) == []
    monkeypatch.setenv("HUD_ENVIRONMENT_KEY", "k")
    assert gym_run.variables_of(tasks, local=True) == ["HUD_ENVIRONMENT_KEY"]


async def test_tasks_may_be_named_by_the_configuration(
    hud: Command, here: Path, trained: list[argparse.Namespace]
) -> None:
    (here / "2048.yaml").write_text(f"job: {{name: g, metadata: {{dataset: tasks.json}}}}\n{GAME}")
    assert (await hud("run", *RUN[2:], "-y")).code == 0
    assert trained[0].name == "g"
    (here / "2048.yaml").write_text(GAME)
    none = await hud("run", *RUN[2:], "-y", "-o", "other")
    assert "give SOURCE" in none.error["message"]


async def test_an_error_of_training_says_how_it_goes_on(
    hud: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(client: HudClient, args: argparse.Namespace) -> int:
        raise HudUsage("no hud SDK", "install it")

    monkeypatch.setattr(gym_run, "train_with", fails)
    done = await hud(*RUN, "-y")
    assert done.error["message"] == "no hud SDK"
    go_on = "train env_2048/env.py -m arith-rl --turns 100"
    assert done.error["hint"].startswith("install it; go on: hud-tui")
    assert done.error["hint"].endswith(go_on)

    async def checks_fail(client: HudClient, args: argparse.Namespace) -> int:
        return 5

    monkeypatch.setattr(gym_run, "train_with", checks_fail)
    failed = await hud(*RUN, "-y")
    assert failed.code == 5
    assert failed.err.endswith(f"{go_on}\n")
    assert (here / "env_2048" / "env.py").exists()


async def test_it_needs_consent_and_may_be_forbidden(hud: Command, here: Path) -> None:
    assert "needs confirmation" in (await hud(*RUN)).error["message"]
    assert (await hud("--read-only", *RUN, "-y")).error["type"] == "read_only"
    assert (await hud("--read-only", *RUN, "--dry-run")).code == 0
    assert not (here / "env_2048").exists()
