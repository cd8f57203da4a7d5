"""What somebody else began, by the ways round the front door: ids that a client chooses, the same
rollout by other routes, and what a key that is revoked still holds."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service.http import AT_ONCE, LARGE, DamagedRow
from hud_tui.service.routes import models as stream
from hud_tui.service.service import Service
from hud_tui.service.store.db import Db
from tests.conftest import Served, bearer, caller, ended, fork, submit
from tests.service.calls import Json, ask, cancel, detail, fork_from, new_key, payloads, steps
from tests.service.test_hosted import body

Team = dict[str, AsyncClient]


async def begun(http: AsyncClient) -> tuple[str, str]:
    """A job that a client reports, and a rollout of it that goes on: their ids."""
    job, trace = str(uuid4()), str(uuid4())
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "loop"})
    entered = {"job_id": job, "task_slug": "a"}
    assert (await http.post(f"/v2/trace/{trace}/enter", json=entered)).status_code == 200
    return job, trace


async def test_a_rollout_of_anothers_job_is_moved_to_no_other_job(team: Team) -> None:
    job, trace = await begun(team["tim"])
    for told in ({"job_id": str(uuid4()), "task_slug": "b"}, {"task_slug": "b"}):
        answer = await team["tom"].post(f"/v2/trace/{trace}/enter", json=told)
        assert (answer.status_code, "tim began this" in detail(answer)) == (403, True)
    shown = (await team["rea"].get(f"/v2/trace/{trace}")).json()
    assert (shown["job_id"], shown["task_slug"]) == (job, "a")


async def test_a_turn_of_anothers_rollout_is_not_sampled_into_it(team: Team, model: Json) -> None:
    _, trace = await begun(team["tim"])
    headers = {"Trace-Id": trace}
    assert (await ask(team["tom"], model["id"], headers=headers)).status_code == 403
    path = f"/v2/trace/{trace}/events"
    assert (await team["rea"].get(path)).json()["events"] == []
    assert (await ask(team["tim"], model["id"], headers=headers)).status_code == 200
    assert len((await team["rea"].get(path)).json()["events"]) == 2


async def test_no_hosted_rollout_is_made_in_anothers_job_nor_ends_theirs(
    team: Team, model: Json
) -> None:
    job, trace = await begun(team["tim"])
    own = str(uuid4())
    for more in ({"job_id": job}, {"job_id": own, "trace_id": trace}):
        asked = body(model["id"], **more)
        for sent in (asked, {**asked, "task": "no such task"}):
            answer = await team["tom"].post("/v2/rollouts/submit", json=sent)
            assert answer.status_code == 403, answer.text
    assert (await team["rea"].get(f"/v2/trace/{trace}")).json()["status"] == "running"
    assert (await team["rea"].get(f"/v2/jobs/{job}/traces")).json()["total"] == 1


async def test_who_enters_a_job_that_nobody_signed_does_not_own_it(
    team: Team, http: AsyncClient, service: Service, model: Json
) -> None:
    """It was begun before there were keys, so by the admin."""
    run = await submit(http, model["id"], steps=500)

    def forget(db: Db) -> None:
        db.execute("DELETE FROM author WHERE what = 'work'")

    await service.parts.store.write(forget)
    await team["tom"].post(f"/v2/trace/job/{run}/enter", json={"name": "mine"})
    answer = await cancel(team["tom"], run)
    assert (answer.status_code, "admin began this" in detail(answer)) == (403, True)
    await cancel(http, run)
    await ended(http, run)


async def driven(http: AsyncClient, model: Json) -> tuple[str, Json]:
    """A run that a client drives: its id, and what it was begun with."""
    run = str(uuid4())
    drive = {"model_id": model["id"], "name": "n", "driver": "d", "parameters": {}, "start": "base"}
    answer = await http.put(f"/v1/training/jobs/{run}/drive", json=drive)
    assert answer.status_code == 200, answer.text
    return run, drive


async def test_who_only_trains_takes_no_step_of_anothers_run_nor_speaks_for_it(team: Team) -> None:
    model = await fork(team["tim"])
    run, drive = await driven(team["tim"], model)
    path, headers = f"/v1/training/jobs/{run}/drive", {"HUD-TUI-Run": run}
    at = f"/v1/models/{model['id']}/train"
    inputs = await payloads(team["tom"], model["id"], [1.0, 0.0])
    tom = team["tom"]
    told = {"status": "failed", "error": {"code": "engine", "message": "m"}}
    for answer in (
        await tom.post(f"{at}/forward-backward", json={"inputs": inputs}, headers=headers),
        await tom.post(f"{at}/optim-step", json={"learning_rate": 0.1}, headers=headers),
        await tom.patch(path, json=told),
        await tom.put(path, json=drive),
    ):
        assert (answer.status_code, "tim began this" in detail(answer)) == (403, True)
    other = await tom.post(f"{at}/optim-step", json={"learning_rate": 0.1})
    assert (other.status_code, run in detail(other)) == (409, True)
    assert (await team["tim"].patch(path, json=told)).json()["status"] == "failed"
    again = await tom.put(path, json=drive)
    assert (again.status_code, "tim began this" in detail(again)) == (403, True)


async def test_no_evaluation_is_reported_for_anothers_run_nor_in_the_place_of_one(
    team: Team,
) -> None:
    model = await fork(team["tim"])
    run, _ = await driven(team["tim"], model)
    told = {
        "model_id": model["id"],
        "checkpoint_id": None,
        "status": "succeeded",
        "split": "heldout",
        "samples": 1,
        "num_tasks": 1,
        "parameters": {"max_tokens": 1, "temperature": 1, "seed": 0},
        "groups": [{"task_slug": "a", "rewards": [1.0]}],
        "seconds": 1.0,
        "name": "x",
    }
    of_his = f"/v1/evaluations/{uuid4()}"
    refused = await team["tom"].put(of_his, json={**told, "run_id": run})
    assert (refused.status_code, "tim began this" in detail(refused)) == (403, True)
    for name, status in (("tom", 403), ("tim", 409)):
        answer = await team[name].put(f"/v1/evaluations/{run}", json=told)
        assert answer.status_code == status, answer.text
    state = await team["rea"].get(f"/v1/training/jobs/{run}/raw-status")
    assert (state.status_code, state.json()["kind"]) == (200, "training")
    assert (await team["tim"].put(of_his, json={**told, "run_id": run})).status_code == 200


async def test_who_only_trains_unpins_only_what_they_pinned(team: Team) -> None:
    model = await fork(team["tim"])
    [first] = await steps(team["tim"], model, 1)
    path = f"/v2/models/{model['id']}/checkpoints/{first}/pin"
    assert (await team["tim"].put(path)).json()["pinned_by"] == "tim"
    assert (await team["tom"].put(path)).json()["pinned_by"] == "tim", "it was pinned before"
    refused = await team["tom"].delete(path)
    assert (refused.status_code, "tim pinned this" in detail(refused)) == (403, True)
    assert (await team["tim"].delete(path)).json()["pinned"] is False
    assert (await team["tom"].put(path)).json()["pinned_by"] == "tom"
    assert (await team["sue"].delete(path)).json()["pinned"] is False


async def test_no_fork_takes_the_name_that_a_base_is_called_by(team: Team) -> None:
    """Else who asks for the base is answered by the fork."""
    base = (await team["rea"].get("/v2/models")).json()["items"][0]
    owner, _, tail = base["model_name"].partition("/")
    assert all((owner, tail))
    for name in (tail, tail.upper(), base["model_name"]):
        answer = await fork_from(team["tim"], base["id"], name)
        assert (answer.status_code, "exists already" in detail(answer)) == (409, True)
    spaced = (await fork_from(team["tim"], base["id"], f" {tail}!")).json()
    assert spaced["model_name"] != tail
    assert (await team["rea"].get(f"/v2/models/{tail}")).json()["id"] == base["id"]


async def test_a_key_is_revoked_also_where_the_others_cannot_be_read(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_key(http, "ana", "read")

    async def fail() -> None:
        raise DamagedRow("a row")

    monkeypatch.setattr(service.access, "_renew", fail)
    assert (await http.delete("/v1/keys/ana")).status_code == 500
    assert (await http.get("/v2/models", headers=bearer(key))).status_code == 401


async def test_who_sends_large_bodies_slowly_keeps_no_other_key_out(http: AsyncClient) -> None:
    came, headers = asyncio.Semaphore(0), bearer(await new_key(http, "rea", "read"))

    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * (LARGE + 1)
        came.release()
        await asyncio.Event().wait()

    sending = [
        asyncio.ensure_future(http.post("/completions", content=slowly(), headers=headers))
        for _ in range(AT_ONCE)
    ]
    for _ in sending:
        await came.acquire()
    rows = [{"env": "arith", "id": "add", "args": {"a": 1, "b": 2, "note": "x" * LARGE}}]
    async with asyncio.timeout(10):
        answer = await http.post("/v2/tasks/upload", json={"taskset_name": "n", "tasks": rows})
    assert answer.status_code == 201
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)


async def test_the_stream_of_a_key_ends_with_it(
    served: Served, http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", 0.01)
    key = await new_key(http, "ana", "read")
    path = f"/v1/models/{model['id']}/train/events"
    async with caller(served) as client, client.stream("GET", path, headers=bearer(key)) as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines), await anext(lines)] == [": open", ": still here"]
        await http.delete("/v1/keys/ana")
        async with asyncio.timeout(10):
            assert {line async for line in lines} <= {": still here"}
