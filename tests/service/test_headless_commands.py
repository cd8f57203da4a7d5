"""Every command, headless, against the embedded service."""

import json
from pathlib import Path
from typing import Any

import pytest

from hud_tui.rl.tasks import HELD_OUT
from tests.conftest import Served
from tests.service.headless import Command, commands


@pytest.fixture
def hud(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    return commands(served, monkeypatch, capsys)


async def forked(hud: Command, name: str = "arith-rl") -> dict[str, Any]:
    base = (await hud("models")).data["models"][0]["model_name"]
    return dict((await hud("fork", base, "--name", name, "-y")).data["model"])


RUN = ("run", "arith", "-y", "--follow", "--group-size", "2", "--steps")


async def test_a_service_without_a_fork_has_a_status_too(hud: Command) -> None:
    result = await hud("status")
    assert (result.code, result.kind) == (0, "status")
    assert result.data["model"] is None
    assert result.data["service"]["label"] == "HUD"


async def test_models_and_a_fork(hud: Command) -> None:
    model = await forked(hud)
    result = await hud("models")
    assert (result.code, result.kind, len(result.documents)) == (0, "models", 1)
    assert model in result.data["models"]
    assert result.err == ""


async def test_a_run_is_followed_to_its_result(hud: Command) -> None:
    model = await forked(hud)
    result = await hud(*RUN, "2")
    assert result.code == 0
    assert {document["kind"] for document in result.documents[:-1]} == {"event"}
    steps = [d["data"] for d in result.documents[:-1] if d["data"]["type"] == "step"]
    assert [step["step"] for step in steps] == [1, 2]
    assert result.kind == "job"
    assert result.data["status"]["status"] == "succeeded"
    status = (await hud("status")).data
    assert status["model"]["id"] == model["id"]
    assert status["head"]["id"] == steps[-1]["checkpoint_id"]
    assert status["metrics"]["reward_mean"] == steps[-1]["metrics"]["reward_mean"]
    assert status["job"]["id"] == result.data["job_id"]
    by_job = await hud("status", result.data["job_id"])
    assert by_job.data["model"]["id"] == model["id"]


async def test_a_submitted_run_says_how_to_watch_it(hud: Command) -> None:
    await forked(hud)
    result = await hud("run", "arith", "-y", "--steps", "1", "--seed", "3")
    assert (result.code, result.kind, len(result.documents)) == (0, "job", 1)
    assert result.data["job_id"] in result.data["watch"]
    job = (await hud("jobs", result.data["job_id"])).data
    assert job["status"]["parameters"]["seed"] == 3
    assert [one["id"] for one in (await hud("jobs")).data["jobs"]] == [result.data["job_id"]]


async def test_the_head_goes_back_and_is_set_and_the_tree_branches(hud: Command) -> None:
    await forked(hud)
    await hud(*RUN, "3")
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    first, second, third = (checkpoint["id"] for checkpoint in tree)
    assert (await hud("head", "arith-rl")).data["head"]["id"] == third
    back = await hud("head", "arith-rl", "--back", "2", "-y")
    assert (back.code, back.data["previous"], back.data["head"]["id"]) == (0, third, first)
    assert back.data["verified"] is True
    await hud(*RUN, "1")
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    assert tree[-1]["prev_model_checkpoint_id"] == first
    put = await hud("head", "arith-rl", "--set", tree[1]["name"], "-y")
    assert put.data["head"]["id"] == second


async def test_the_rollouts_of_a_job(hud: Command) -> None:
    await forked(hud)
    job_id = (await hud(*RUN, "1")).data["job_id"]
    result = await hud("traces", job_id)
    assert (result.code, result.kind) == (0, "traces")
    assert {trace["job_id"] for trace in result.data["traces"]} == {job_id}


async def test_a_run_is_cancelled(hud: Command) -> None:
    await forked(hud)
    job_id = (await hud("run", "arith", "-y", "--steps", "5000")).data["job_id"]
    result = await hud("jobs", job_id, "--cancel", "-y")
    assert (result.code, result.data["cancelled"]) == (0, 1)
    again = await hud("jobs", job_id, "--cancel", "-y")
    assert (again.code, again.data["cancelled"]) == (0, 0)


async def test_preflight_of_a_good_set_and_of_a_bad_one(hud: Command, tmp_path: Path) -> None:
    await forked(hud)
    good = await hud("preflight", "arith")
    assert (good.code, good.data["verdict"], good.data["format"]) == (0, "ok", "v6")
    rows = [
        {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}, "slug": "twice"},
        {"env": "arith", "id": "add", "args": {"a": 1}, "slug": "twice"},
        {"env": "arith", "id": "divide", "slug": "c"},
        {"env": "nowhere", "id": "add", "slug": "d", "columns": {"split": HELD_OUT}},
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    bad = await hud("preflight", str(file))
    assert (bad.code, bad.data["verdict"], bad.data["tasks"]) == (5, "failure", 4)
    failed = {f["check"]: f["where"] for f in bad.data["findings"] if f["level"] == "failure"}
    assert failed == {
        "slugs": "tasks.jsonl line 1, tasks.jsonl line 2",
        "environments": "tasks.jsonl line 4",
        "scenarios": "tasks.jsonl line 3",
        "args": "tasks.jsonl line 2",
    }


async def test_global_flags_stand_anywhere(hud: Command) -> None:
    assert (await hud("--version")).data["version"]
    assert (await hud("models", "--headless")).kind == "models"
