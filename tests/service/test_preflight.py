"""Preflight: where tasks are loaded from, a lock file beside them, and what a service offers."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.change import TaskSource
from hud_tui.client.preflight import preflight
from hud_tui.client.run_calls import RunCalls
from hud_tui.client.submit import submit
from hud_tui.errors import HudUnauthorized
from hud_tui.rl.findings import Finding
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.settings import Settings
from hud_tui.wire_runs import JobDataset, JobParameters, SubmitJob
from tests.conftest import Served
from tests.service.clients import answered, over_socket
from tests.service.headless import Command, Result, forked
from tests.unit.legacy.locks import V1_0, V1_3

pytestmark = pytest.mark.usefixtures("hurried", "here")
TASKS = read_rows([{"env": "My_Env", "id": f"s{n % 2}", "args": {"n": n}} for n in range(12)])
HUD = Settings("http://hud", "http://hud", "http://hud", "http://hud/t", "http://hud", "sk-key")
MODEL = {
    "id": "m-1",
    "model_name": "mine",
    "is_trainable": True,
    "sdk_agent_type": "openai_compatible",
    "status": "ready",
}
RECORDS = [
    {"id": "1", "name": "s0", "args_schema": {"properties": {"n": {"maximum": 99}}}},
    {"id": "2", "name": "My_Env:s1", "args_schema": {"properties": {"n": {"maximum": 10}}}},
]
Answers = dict[str, Any]
"""Path → body, or a status where there is none."""


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "total": len(items)}


GOOD: Answers = {
    "/v2/auth/me": {"user_id": "u", "team_id": "t"},
    "/v2/models": page(MODEL),
    "/v1/training/jobs/m-1/raw-status": 404,
    "/environments/My_Env/mcp-config": {"registry_id": "r-1", "scenarios": ["s0", "My_Env:s1"]},
    "/v2/registry/r-1/scenarios": RECORDS,
}


async def findings(answers: Answers, **asked: int) -> list[Finding]:
    def handler(request: httpx.Request) -> httpx.Response:
        body = answers.get(request.url.path, 404)
        if isinstance(body, int):
            return httpx.Response(body, json={"detail": "no"})
        return httpx.Response(200, json=body)

    async with answered(handler, HUD) as client:
        parameters = JobParameters(**asked)
        return [finding async for finding in preflight(client, TASKS, "mine", parameters)]


def of(check: str, found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.message) for one in found if one.check == check]


async def test_everything_is_looked_up() -> None:
    found = await findings(GOOD, group_size=8, tasks_per_step=12)
    passed = {one.check for one in found if one.level == "ok"}
    assert passed >= {"key", "model", "ready", "tokens", "environments", "scenarios", "group_size"}
    bad = [one for one in found if one.level != "ok"]
    assert [one for one in bad if one.check != "model"] == of_args(found)
    [beyond] = [one for one in bad if one.check == "model"]
    assert (beyond.level, beyond.where) == ("warning", "group_size, tasks_per_step")
    [wrong] = of_args(found)
    assert wrong.where == "row 12"
    assert "args.n: 11 is above 10" in wrong.message


def of_args(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.check == "args"]


async def test_the_registry_is_asked_where_there_is_no_mcp_config() -> None:
    async def registered(*names: str) -> list[Finding]:
        rows = [{"id": f"r-{number}", "name": name} for number, name in enumerate(names, 1)]
        nothing = {"/environments/My_Env/mcp-config": 404}
        return await findings(GOOD | nothing | {"/v2/registry": page(*rows)})

    found = await registered("my-env", "my-env-2")
    assert of("environments", found) == [("ok", "My_Env exists")]
    assert [level for level, _ in of("scenarios", found)] == ["ok"]
    assert len(of_args(found)) == 1
    both = await registered("my-env", "My Env")
    assert of("environments", both) == [("failure", "2 environments are named My_Env")]
    near = [one for one in await registered("my-envs") if one.check == "environments"]
    assert [(one.level, one.fix) for one in near] == [("failure", "did you mean my-envs?")]


async def test_scenarios_that_are_not_listed_are_not_judged() -> None:
    answers = {
        **GOOD,
        "/environments/My_Env/mcp-config": {"registry_id": "r-1", "scenarios": {}},
        "/v2/registry/r-1/scenarios": 500,
    }
    found = await findings(answers)
    assert [level for level, _ in of("scenarios", found)] == ["warning"]
    assert of_args(found) == []


async def test_a_model_that_trains_or_is_not_ready_is_told() -> None:
    running = {"status": "running", "created_at": 1.0}
    answers = {**GOOD, "/v1/training/jobs/m-1/raw-status": running}
    assert [level for level, _ in of("ready", await findings(answers))] == ["warning"]
    answers = {**GOOD, "/v2/models": page({**MODEL, "status": "deploying"})}
    assert [level for level, _ in of("ready", await findings(answers))] == ["failure"]


async def test_a_refused_key_is_a_finding_before_it_is_an_error() -> None:
    refuse = httpx.Response(401, json={"detail": "bad key"})
    async with answered(lambda request: refuse, HUD) as client:
        found: list[Finding] = []
        with pytest.raises(HudUnauthorized):
            await _collect(preflight(client, TASKS, "mine"), found)
    assert [level for level, _ in of("key", found)] == ["failure"]


async def _collect(source: AsyncIterator[Finding], found: list[Finding]) -> None:
    async for finding in source:
        found.append(finding)


async def test_a_warning_fails_where_it_is_asked_to(hud: Command, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text(json.dumps({"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}))
    assert (await hud("preflight", str(file))).code == 0
    strict = await hud("preflight", str(file), "--fail-on", "warning")
    assert (strict.code, strict.data["verdict"]) == (5, "warning")
    run = await hud("run", str(file), "-y", "--fail-on", "warning")
    assert (run.code, run.kind) == (5, "preflight")
    assert (await hud("jobs")).data["jobs"] == []
    assert (await hud("preflight", "arith", "--fail-on", "warning")).code == 0


async def test_a_file_is_checked_without_a_model_too_and_the_group_size_of_a_run_judged(
    bare: Command,
) -> None:
    result = await bare("preflight", "arith")
    assert (result.code, result.data["tasks"], result.data["verdict"]) == (0, 132, "warning")
    [finding] = [finding for finding in result.data["findings"] if finding["check"] == "model"]
    assert finding["level"] == "warning"
    assert "model not checked" in finding["message"]
    for flags in (("--sample", "2"), ("--group-size", "1")):
        refused = await bare("preflight", "arith", *flags)
        assert (refused.code, refused.error["type"]) == (2, "usage")
    await forked(bare)
    result = await bare("preflight", "arith", "--group-size", "4")
    [found] = [finding for finding in result.data["findings"] if finding["check"] == "group_size"]
    assert found["message"].startswith("4 rollouts of each of")


PLAY = {"prompt": "Play", "evaluate_tool": {"name": "evaluate", "arguments": {"name": "max"}}}


async def preflight_beside(hud: Command, tmp_path: Path, lock: str | None, *rows: Any) -> Result:
    if lock is not None:
        (tmp_path / "hud.lock.yaml").write_text(lock)
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    return await hud("preflight", "tasks.json", "-m", "arith-rl")


def of_lock(result: Result) -> list[dict[str, Any]]:
    return [finding for finding in result.data["findings"] if finding["check"] == "lock"]


async def test_rows_without_servers_load_where_a_lock_file_names_the_image(
    hud: Command, tmp_path: Path
) -> None:
    alone = await preflight_beside(hud, tmp_path, None, PLAY)
    assert (alone.code, "mcp_config" in alone.error["message"]) == (2, True)
    beside = await preflight_beside(hud, tmp_path, V1_0, PLAY)
    assert (beside.data["format"], beside.data["tasks"]) == ("v4", 1)
    assert beside.data["lock"] == "hud.lock.yaml"
    assert [finding["level"] for finding in of_lock(beside)] == ["ok"]
    assert "not-to-be-shown" not in json.dumps(beside.documents)


async def test_what_disagrees_is_a_warning(hud: Command, tmp_path: Path) -> None:
    servers = {"hud": {"url": "u", "headers": {"Mcp-Image": "org/cards:0.1"}}}
    call = {"name": "evaluate", "arguments": {"name": "score"}}
    row = {**PLAY, "mcp_config": servers, "evaluate_tool": call}
    [finding] = of_lock(await preflight_beside(hud, tmp_path, V1_3, row))
    assert (finding["level"], "org/cards:0.1" in finding["message"]) == ("warning", True)
    assert finding["where"] == "tasks.json row 1"


async def test_a_lock_file_of_something_else_or_a_broken_one(hud: Command, tmp_path: Path) -> None:
    row = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
    assert of_lock(await preflight_beside(hud, tmp_path, V1_3, row)) == []
    broken = await preflight_beside(hud, tmp_path, "version: [", row)
    [finding] = of_lock(broken)
    assert (broken.code, finding["level"], finding["where"]) == (0, "warning", "hud.lock.yaml")
    needed = await preflight_beside(hud, tmp_path, "version: [", PLAY)
    assert (needed.code, needed.error["message"][:20]) == (2, "hud.lock.yaml line 1")


ROW = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
SECRET = "sk-hud-0123456789"
SERVERS = {
    "hud": {"url": "https://mcp.hud.ai/v3/mcp", "headers": {"Key": "${MY_KEY:" + SECRET + "}"}}
}
V4 = {"prompt": "Go.", "mcp_config": json.dumps(SERVERS), "evaluate_tool": '{"evaluate": {}}'}
"""As Hugging Face data sets have it."""


async def test_a_directory_is_read_with_all_below_it(hud: Command, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    (folder / "a.json").write_text(json.dumps([ROW]))
    (folder / "deep" / "b.jsonl").write_text(json.dumps({**ROW, "slug": "b"}))
    (folder / ".cache" / "c.json").write_text("{")
    (folder / ".hidden.json").write_text("{")
    (folder / "notes.txt").write_text("{")
    result = await hud("preflight", str(folder))
    assert (result.code, result.data["tasks"], result.data["loaded_from"]) == (0, 2, "directory")
    assert (result.data["name"], result.data["format"]) == ("tasks", "v6")


async def test_the_problems_of_a_directory_come_from_all_of_its_files(
    hud: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "a.json").write_text('[{"env": 3, "id": "s"}]')
    (folder / "b.jsonl").write_bytes(b'{"env": "e", "id": "s"}\n\0')
    (folder / "c.json").write_text(json.dumps(ROW))
    result = await hud("preflight", str(folder))
    assert (result.code, result.error["type"]) == (2, "usage")
    assert [(p["where"], p["field"]) for p in result.error["problems"]] == [
        ("a.json row 1", "env"),
        ("b.jsonl", ""),
    ]
    assert "line 2: NUL byte" in result.error["message"]


async def test_a_source_without_tasks_is_refused(hud: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "env.py").write_text("import os")
    for name, said in (
        ("empty", "no .json or .jsonl file in it"),
        ("env.py", "train {} -m MODEL"),
        ("nothing", "no file or taskset named"),
    ):
        path = tmp_path / name
        result = await hud("preflight", str(path))
        assert (result.code, result.error["type"]) == (2, "usage")
        assert said.format(path) in result.error["message"] + result.error["hint"]


@pytest.mark.parametrize(
    ("source", "is_offered"),
    [("org/arith-v1.1", True), ("sums/env.py", False), ("./sums", False), ("a/b/c", False)],
)
async def test_the_hub_is_offered_for_what_may_be_a_data_set_of_it(
    hud: Command, source: str, is_offered: bool
) -> None:
    result = await hud("preflight", source)
    assert "no file or taskset named" in result.error["message"]
    assert ("hf download" in result.error["hint"]) is is_offered


async def test_a_taskset_has_a_name_and_an_id(
    hud: Command, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_socket(served) as client:
        id_ = next(one.id for one in await client.tasks.tasksets() if one.name == "text")
    by_id, by_name = await hud("preflight", id_), await hud("preflight", "text")
    assert by_id.data | {"source": "text"} == by_name.data
    assert by_id.data["loaded_from"] == "taskset"
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.json").write_text(json.dumps(ROW))
    monkeypatch.chdir(tmp_path)
    assert (await hud("preflight", "text")).data["loaded_from"] == "taskset"
    assert (await hud("preflight", "./text")).data["loaded_from"] == "directory"


async def test_an_older_file_is_shown_with_its_form_and_variables(
    hud: Command, tmp_path: Path
) -> None:
    file = tmp_path / "old.jsonl"
    line = json.dumps([{**V4, "id": "a"}, {**V4, "id": "b"}])
    file.write_bytes(f"{json.dumps(V4)}\r\n\r\n{line}".encode())
    result = await hud("preflight", str(file))
    assert (result.code, result.data["format"], result.data["tasks"]) == (0, "v4", 3)
    assert result.data["variables"] == [
        {"name": "MY_KEY", "missing": False, "default": True, "tasks": 3}
    ]
    assert SECRET not in json.dumps(result.documents) + result.err


async def test_the_variables_of_a_row_are_filled_when_it_is_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "mine")
    sent: list[SubmitJob] = []
    async with over_socket(served) as client:

        async def take(self: RunCalls, body: SubmitJob, source: TaskSource) -> Any:
            sent.append(body)
            raise asyncio.CancelledError

        monkeypatch.setattr(RunCalls, "submit", take)
        row = {"prompt": "Go.", "mcp_config": SERVERS}
        body = SubmitJob(model_id=(await client.models())[0].id, dataset=JobDataset(tasks=[row]))
        with pytest.raises(asyncio.CancelledError):
            await submit(client, body)
    [taken] = sent
    assert taken.dataset.tasks[0]["mcp_config"]["hud"]["headers"] == {"Key": "mine"}
    assert row["mcp_config"] is SERVERS
