"""Hosted rollouts: the service samples and grades what a client names."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service import runner
from hud_tui.service.service import Service
from tests.conftest import at_end, calling, fork, until
from tests.service.calls import Held, Json, cancel
from tests.toy_engine import ToyEngine

JOB = str(uuid4())


def body(model: str, **more: Any) -> dict[str, Any]:
    config = {"model": model, "completion_kwargs": {"max_tokens": 8, "temperature": 1.0}}
    return {
        "trace_id": str(uuid4()),
        "job_id": JOB,
        "env": "arith",
        "task": "add",
        "slug": "add-1-2",
        "args": {"a": 1, "b": 2},
        "agent": {"type": "openai_compatible", "config": config},
        "group_id": "g-1",
        **more,
    }


async def submitted(http: AsyncClient, asked: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post("/v2/rollouts/submit", json=asked)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def ended(http: AsyncClient, trace_id: str) -> dict[str, Any]:
    return await at_end(http, f"/v2/trace/{trace_id}")


async def test_a_rollout_is_sampled_graded_and_kept(http: AsyncClient, model: Json) -> None:
    asked = body(model["model_name"])
    assert await submitted(http, asked) == {
        "job_id": JOB,
        "trace_id": asked["trace_id"],
        "status": "queued",
    }
    trace = await ended(http, asked["trace_id"])
    assert trace["status"] == "completed"
    assert 0 <= trace["reward"] <= 1
    assert trace["stop_reason"] in ("done", "length")
    assert trace["evaluation_result"]["score"] == trace["reward"]
    [row] = (await http.get(f"/v2/jobs/{JOB}/traces")).json()["items"]
    assert (row["task_slug"], row["group_id"]) == ("add-1-2", "g-1")
    assert 1 <= row["num_tokens"] <= 8
    assert (await http.get(f"/v2/jobs/{JOB}")).json()["status"] == "completed"
    assert (await submitted(http, asked))["status"] == "completed"
    assert await ended(http, asked["trace_id"]) == trace, "the same again changes nothing"
    trained = {"inputs": [asked["trace_id"]]}
    path = f"/v1/models/{model['id']}/train/forward-backward"
    assert (await http.post(path, json=trained)).status_code == 200


async def test_what_cannot_be_rolled_out_is_refused(http: AsyncClient, model: Json) -> None:
    for change, status, said in (
        ({"env": "nowhere"}, 404, "no such environment"),
        ({"task": "divide"}, 404, "no scenario divide"),
        ({"args": {"a": 1}}, 422, "args.b is missing"),
        ({"agent": {"type": "claude", "config": {}}}, 422, "openai_compatible"),
        ({"agent": {"type": "openai_compatible", "config": {}}}, 404, "no such model"),
        ({"verifier": {"env": "e", "id": "s"}}, 422, "verifiers"),
        ({"trace_id": "x"}, 404, "no such trace"),
        ({"job_id": 3}, 422, "string"),
    ):
        answer = await http.post(
            "/v2/rollouts/submit", json={**body(model["model_name"]), **change}
        )
        assert answer.status_code == status, answer.text
        assert said in answer.text


async def test_a_refused_turn_ends_the_rollout_as_an_error(http: AsyncClient) -> None:
    model = (await fork(http))["model_name"]
    config = {"model": model, "checkpoint": "none"}
    asked = body(model, agent={"type": "openai_compatible", "config": config})
    await submitted(http, asked)
    trace = await ended(http, asked["trace_id"])
    assert (trace["status"], trace["reward"]) == ("error", None)
    assert "no such checkpoint" in trace["error"]


async def test_rollouts_that_wait_are_cancelled_with_their_job(
    http: AsyncClient, service: Service, engine: ToyEngine
) -> None:
    model, sampling = (await fork(http))["model_name"], Held(engine, "sample")
    service.hosted._line = asyncio.Semaphore(1)
    asked = [body(model) for _ in range(4)]
    for one in asked:
        await submitted(http, one)
    await sampling.begun.wait()
    assert (await http.get(f"/v2/jobs/{JOB}")).json()["status"] == "running"
    assert (await http.get(f"/v2/jobs/{JOB}/summary")).json()["pending"] == 4
    one = {"trace_id": asked[3]["trace_id"]}
    assert (await http.post("/v2/rollouts/cancel", json=one)).json() == {"status": "cancelled"}
    assert (await cancel(http, JOB)).json() == {"cancelled": 3, "status": "cancelled"}
    sampling.go_on.set()
    await until(lambda: not service.hosted._tasks)
    states = [await ended(http, one["trace_id"]) for one in asked]
    assert {(trace["status"], trace["reward"]) for trace in states} == {("cancelled", None)}


async def test_more_than_can_wait_are_refused(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MOST", 0)
    asked = body((await fork(http))["model_name"])
    assert (await http.post("/v2/rollouts/submit", json=asked)).status_code == 429


async def test_what_waits_when_the_service_stops_ends_as_an_error(tmp_path: Path) -> None:
    engine = ToyEngine()
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model, asked = (await fork(http))["model_name"], body("")
        asked["agent"]["config"]["model"] = model
        service.hosted._line = asyncio.Semaphore(0)
        await submitted(http, asked)
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        trace = await ended(http, asked["trace_id"])
        assert (trace["status"], trace["reward"]) == ("error", None)
        assert "was stopped" in trace["error"]


async def test_a_refusal_ends_the_job_that_the_client_began(http: AsyncClient) -> None:
    model = (await fork(http))["model_name"]
    await http.post(f"/v2/trace/job/{JOB}/enter", json={"name": "eval"})
    assert (await http.get(f"/v2/jobs/{JOB}")).json()["status"] == "pending"
    asked = body(model, env="nowhere")
    refused = await http.post("/v2/rollouts/submit", json=asked)
    assert refused.status_code == 404
    trace = (await http.get(f"/v2/trace/{asked['trace_id']}")).json()
    assert (trace["status"], trace["error"]) == ("error", refused.json()["detail"])
    job = (await http.get(f"/v2/jobs/{JOB}")).json()
    assert job["status"] == "error"
    assert job["metadata"]["reason"] == refused.json()["detail"]
    [listed] = (await http.get("/v2/jobs")).json()["items"]
    assert listed == job
    good = body(model)
    await submitted(http, good)
    await ended(http, good["trace_id"])
    assert (await http.get(f"/v2/jobs/{JOB}")).json()["status"] == "completed"


async def test_a_refusal_leaves_what_nobody_began_and_what_has_ended(http: AsyncClient) -> None:
    asked = body((await fork(http))["model_name"])
    assert (await http.post("/v2/rollouts/submit", json={**asked, "env": "x"})).status_code == 404
    assert (await http.get("/v2/jobs")).json()["total"] == 0
    assert (await http.get(f"/v2/trace/{asked['trace_id']}")).status_code == 404
    await submitted(http, asked)
    before = await ended(http, asked["trace_id"])
    assert (await http.post("/v2/rollouts/submit", json={**asked, "env": "x"})).status_code == 404
    assert await ended(http, asked["trace_id"]) == before


async def test_no_way_to_sample_is_left_out_in_silence(http: AsyncClient) -> None:
    config: dict[str, Any] = {"model": (await fork(http))["model_name"]}
    asked = body("", agent={"type": "openai_compatible", "config": config})
    for given, status, said in (
        ({"response_format": {"type": "json_object"}}, 400, "response_format is not supported"),
        ({"extra_body": {"top_k": 4}}, 422, "top_k"),
        ({"n": 3}, 422, "completion_kwargs"),
        ({"temperature": "hot"}, 422, "agent"),
        ({"max_tokens": 0}, 422, "agent"),
        (7, 422, "agent"),
    ):
        config["completion_kwargs"] = given
        answer = await http.post("/v2/rollouts/submit", json=asked)
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
    fine = {"extra_body": {"return_token_ids": True}, "top_p": 0.9, "reasoning_effort": "low"}
    config["completion_kwargs"] = fine
    await submitted(http, asked)
    assert (await ended(http, asked["trace_id"]))["status"] == "completed"
