"""Writes with an Idempotency-Key: asked again they are answered again, and not done again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.service import Service
from hud_tui.service.store import replies
from tests.conftest import calling, ended, fork, tasks_of
from tests.conftest import submit as submit_run
from tests.service.calls import Held, Json, detail, optim, pass_, payloads, set_head, step, tree
from tests.toy_engine import ToyEngine

RATE = {"learning_rate": 0.1}


async def ask(http: AsyncClient, model: Json, call: str, body: Any, key: str = "k") -> Response:
    path = f"/v1/models/{model['id']}/train/{call}"
    return await http.post(path, json=body, headers={"Idempotency-Key": key})


async def settle(http: AsyncClient, model: Json, key: str = "k") -> Json:
    path = f"/v1/models/{model['id']}/train/calls/{key}/settle"
    return dict((await http.post(path)).json())


async def batch(http: AsyncClient, model: Json) -> Json:
    return {"inputs": await payloads(http, model["id"], [1.0, 0.0])}


async def backward_body(http: AsyncClient, model: Json) -> Json:
    path = f"/v1/models/{model['id']}/train/forward"
    passed = (await http.post(path, json=await batch(http, model))).json()
    return {
        "forward_id": passed["forward_id"],
        "weights": [[0.1 * on for on in datum["mask"]] for datum in passed["data"]],
    }


@pytest.mark.parametrize(
    ("call", "make"), [("forward-backward", batch), ("backward", backward_body)]
)
async def test_a_pass_counts_once(http: AsyncClient, model: Json, call: str, make: Any) -> None:
    body = await make(http, model)
    first = await ask(http, model, call, body)
    again = await ask(http, model, call, body)
    assert first.status_code == again.status_code == 200, again.text
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    await optim(http, model["id"])
    [node] = await tree(http, model["id"])
    assert node["num_datums"] == 2
    stepped = await ask(http, model, call, body)
    assert stepped.content == first.content, "the step took its gradients; it is still done"
    assert (await settle(http, model))["reply"] == first.json()


async def test_a_key_is_its_requests_alone(http: AsyncClient, model: Json) -> None:
    body = await batch(http, model)
    for key in (" ", "k" * 256):
        answer = await ask(http, model, "forward-backward", body, key)
        assert (answer.status_code, "1 to 255" in detail(answer)) == (400, True)
    refused = await ask(http, model, "optim-step", RATE, "again")
    assert refused.status_code == 409, "nothing is accumulated"
    await ask(http, model, "forward-backward", body)
    other = await ask(http, model, "forward-backward", body | {"reward_scale": 2.0})
    assert (other.status_code, "another request" in detail(other)) == (422, True)
    assert (await ask(http, model, "optim-step", RATE)).status_code == 422
    elsewhere = await fork(http, "elsewhere")
    assert (await ask(http, elsewhere, "forward-backward", body)).status_code == 200
    again = await ask(http, model, "optim-step", RATE, "again")
    assert again.status_code == 200, "a refusal is not kept: nothing was done"


async def test_duplicates_wait_for_the_first(http: AsyncClient, engine: ToyEngine) -> None:
    model, step_ = await fork(http), Held(engine, "optim_step")
    await pass_(http, model["id"], (await batch(http, model))["inputs"])
    asked = [asyncio.create_task(ask(http, model, "optim-step", RATE)) for _ in range(4)]
    await step_.begun.wait()
    asked_what = asyncio.create_task(settle(http, model))
    await asyncio.sleep(0)
    assert not any(task.done() for task in [*asked, asked_what])
    step_.go_on.set()
    answers = await asyncio.gather(*asked)
    assert len({answer.content for answer in answers}) == step_.calls == 1
    reply = answers[0].json()
    assert await asked_what == {"state": "done", "call": "optim-step", "reply": reply}
    again = await ask(http, model, "optim-step", RATE)
    assert (again.json(), again.headers["idempotency-replayed"]) == (reply, "true")
    assert len(await tree(http, model["id"])) == 1


async def test_a_pass_whose_gradients_were_dropped_says_so(http: AsyncClient, model: Json) -> None:
    first = (await step(http, model))["checkpoint_id"]
    body = await batch(http, model)
    await ask(http, model, "forward-backward", body)
    await set_head(http, model["id"], first)
    again = await ask(http, model, "forward-backward", body)
    assert (again.status_code, "dropped" in detail(again)) == (409, True)
    assert (await settle(http, model))["state"] == "dropped"


async def test_what_was_settled_first_is_never_done(http: AsyncClient, model: Json) -> None:
    first = (await step(http, model))["checkpoint_id"]
    for _ in range(2):
        assert await settle(http, model) == {"state": "never", "call": None, "reply": None}
    headers = {"Idempotency-Key": "k"}
    body = {"source_model_id": model["id"], "name": "late"}
    head = f"/v2/models/{model['id']}/head"
    for late in (
        await ask(http, model, "forward-backward", await batch(http, model)),
        await http.post("/v2/models/fork", json=body, headers=headers),
        await http.put(head, json={"checkpoint_id": first}, headers=headers),
    ):
        assert (late.status_code, "abandoned" in detail(late)) == (409, True)


async def test_a_run_is_submitted_once(http: AsyncClient, model: Json) -> None:
    rows = (await tasks_of(http))[:2]
    body = {"model_id": model["id"], "dataset": {"tasks": rows}}
    body["config"] = {"parameters": {"steps": 1, "seed": 1}}
    headers = {"Idempotency-Key": "k"}

    async def submit(**changes: Any) -> Response:
        return await http.post("/v1/training/jobs", json=body | changes, headers=headers)

    first, again = await asyncio.gather(submit(), submit())
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    await ended(http, first.json()["job_id"])
    assert (await submit()).json() == first.json()
    assert (await http.get("/v2/jobs")).json()["total"] == 1
    assert (await submit(dataset={"tasks": rows[:1]})).status_code == 422


async def twice(
    http: AsyncClient, method: str, path: str, body: Any, key: str = "k"
) -> list[Response]:
    """The same request, delivered twice at once."""
    headers = {"Idempotency-Key": key}
    asked = (http.request(method, path, json=body, headers=headers) for _ in range(2))
    return list(await asyncio.gather(*asked))


def same(answers: list[Response], status: int = 200) -> Json:
    """The one answer that both got, of which one is a copy."""
    assert [answer.status_code for answer in answers] == [status, status], answers[-1].text
    assert answers[0].content == answers[1].content
    copies = [answer.headers.get("idempotency-replayed") for answer in answers]
    assert sorted(copies, key=str) == [None, "true"]
    return dict(answers[0].json())


async def test_a_model_is_forked_once(http: AsyncClient) -> None:
    base = (await http.get("/v2/models")).json()["items"][0]
    body = {"source_model_id": base["id"], "name": "mine"}
    made = same(await twice(http, "POST", "/v2/models/fork", body), 201)
    names = [row["name"] for row in (await http.get("/v2/models")).json()["items"]]
    assert names.count("mine") == 1
    headers = {"Idempotency-Key": "k"}
    other = await http.post("/v2/models/fork", json=body | {"name": "other"}, headers=headers)
    assert (other.status_code, "another request" in detail(other)) == (422, True)
    taken = await http.post("/v2/models/fork", json=body)
    assert taken.status_code == 409, "without the key it is another request"
    settled = await settle(http, base)
    assert (settled["state"], settled["reply"]) == ("done", made)


async def test_a_head_is_set_once(http: AsyncClient, model: Json) -> None:
    first, _ = [(await step(http, model))["checkpoint_id"] for _ in range(2)]
    path, body = f"/v2/models/{model['id']}/head", {"checkpoint_id": first}
    made = same(await twice(http, "PUT", path, body))
    third = (await step(http, model))["checkpoint_id"]
    late = await http.put(path, json=body, headers={"Idempotency-Key": "k"})
    assert late.json() == made
    assert [row["id"] for row in await tree(http, model["id"]) if row["is_active"]] == [third]
    other = {"checkpoint_id": third}
    refused = await http.put(path, json=other, headers={"Idempotency-Key": "k"})
    assert refused.status_code == 422
    assert (await settle(http, model))["call"] == "head"


async def settle_of_job(http: AsyncClient, job_id: str, key: str = "k") -> Json:
    answer = await http.post(f"/v1/training/jobs/{job_id}/calls/{key}/settle")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_run_is_cancelled_and_resumed_once(http: AsyncClient, model: Json) -> None:
    job_id = await submit_run(http, model["id"], steps=10_000, learning_rate=1e-6)
    path, body = "/v2/rollouts/cancel_job", {"job_id": job_id}
    stopped = same(await twice(http, "POST", path, body))
    assert stopped == {"cancelled": 1, "status": "cancelled"}
    for other in ("cancel", "cancel_user_jobs"):
        answer = await http.post(f"/v2/rollouts/{other}", json=body if other == "cancel" else {})
        assert answer.json()["status"] == "not_running"
    resume = f"/v1/training/jobs/{job_id}/resume"
    resumed = same(await twice(http, "POST", resume, {}, "again"))
    assert resumed["status"] == "queued"
    late = await http.post(path, json=body, headers={"Idempotency-Key": "k"})
    assert late.json() == stopped, "it was answered before, so the run that goes on is left alone"
    assert (await settle_of_job(http, job_id))["reply"] == stopped
    assert (await settle_of_job(http, job_id, "again"))["reply"] == resumed
    assert (await settle_of_job(http, job_id, "new"))["state"] == "never"
    refused = await http.post(path, json=body, headers={"Idempotency-Key": "new"})
    assert (refused.status_code, "abandoned" in detail(refused)) == (409, True)
    await http.post(path, json=body)
    assert (await ended(http, job_id))["status"] == "cancelled"


async def test_what_stops_rollouts_is_answered_once(http: AsyncClient) -> None:
    for path, body in (
        ("/v2/rollouts/cancel", {"job_id": "0" * 32, "trace_id": "1" * 32}),
        ("/v2/rollouts/cancel_user_jobs", {}),
    ):
        await http.post(f"/v2/trace/job/{'0' * 32}/enter", json={"name": "loop", "group": 1})
        entered = {"job_id": "0" * 32, "task_slug": "a", "model": "m"}
        await http.post(f"/v2/trace/{'1' * 32}/enter", json=entered)
        same(await twice(http, "POST", path, body, path.rpartition("/")[2]))


async def test_a_restart_remembers_steps_and_forgets_what_only_waited(tmp_path: Path) -> None:
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        model = await fork(http)
        body = await batch(http, model)
        await ask(http, model, "forward-backward", body, "pass")
        stepped = await ask(http, model, "optim-step", RATE, "step")
        await ask(http, model, "forward-backward", body, "waiting")
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        again = await ask(http, model, "optim-step", RATE, "step")
        assert (again.json(), len(await tree(http, model["id"]))) == (stepped.json(), 1)
        passed = await ask(http, model, "forward-backward", body, "pass")
        assert passed.headers["idempotency-replayed"] == "true"
        anew = await ask(http, model, "forward-backward", body, "waiting")
        assert (anew.status_code, "idempotency-replayed" in anew.headers) == (200, False)


async def test_keys_are_bounded_for_each_model_alone(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MOST_REPLIES", 2)
    quiet, busy = await fork(http, "quiet"), await fork(http, "busy")
    await settle(http, quiet, "mine")
    for key in ("a", "b", "c"):
        await settle(http, busy, key)
    body = await batch(http, busy)
    for model, key, status in ((busy, "b", 409), (busy, "a", 200), (quiet, "mine", 409)):
        answer = await ask(http, model, "forward-backward", body, key)
        assert answer.status_code == status
