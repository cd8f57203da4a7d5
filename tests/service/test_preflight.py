"""Preflight's look-ups: key, model, environments and scenarios, as a service offers them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.client.preflight import preflight
from hud_tui.errors import HudUnauthorized
from hud_tui.rl.tasks.checks import Finding
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.settings import Settings
from hud_tui.wire import JobParameters
from tests.service.clients import answered
from tests.service.headless import Command, forked

pytestmark = pytest.mark.usefixtures("hurried")
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
    [finding] = [one for one in result.data["findings"] if one["check"] == "model"]
    assert finding["level"] == "warning"
    assert "model not checked" in finding["message"]
    for flags in (("--sample", "2"), ("--group-size", "1")):
        refused = await bare("preflight", "arith", *flags)
        assert (refused.code, refused.error["type"]) == (2, "usage")
    await forked(bare)
    result = await bare("preflight", "arith", "--group-size", "4")
    [found] = [one for one in result.data["findings"] if one["check"] == "group_size"]
    assert found["message"].startswith("4 rollouts of each of")
