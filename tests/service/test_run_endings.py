"""How managed runs end: solved, without spread, or unwritten; and what they leave."""

import errno
import sqlite3
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service import context
from hud_tui.service.batches import IN_A_ROW
from hud_tui.service.service import Service
from hud_tui.service.store import jobs
from hud_tui.service.store.db import Db
from tests.conftest import ended, fork, submit, until
from tests.service.calls import Json, pass_, payloads, ran, resume, told, traces_of, tree
from tests.toy_engine import ToyEngine


async def test_zero_variance_ends_the_run_and_every_attempt_at_its_step_has_its_own_mark(
    http: AsyncClient, engine: ToyEngine
) -> None:
    engine.flatten()
    model = await fork(http)
    job_id = await submit(http, model["id"], steps=3)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["reason"]) == ("failed", 0, None)
    assert status["error"]["code"] == "zero_variance"
    said = status["error"]["message"]
    assert "the last 20 batches scored 0.0: too hard for this model: choose easier tasks" in said
    assert "every group had zero variance" in said
    assert (await tree(http, model["id"])) == []
    assert status["attempt"] == IN_A_ROW + 1
    [listed] = (await http.get("/v2/jobs")).json()["items"]
    rows = await traces_of(http, job_id, step=1)
    assert (listed["num_traces"], listed["metadata"]["sampled_step"]) == (len(rows), 1)
    trained = Counter(row["attempt"] for row in rows if not row["heldout"])
    assert trained == dict.fromkeys(range(1, IN_A_ROW + 1), 32)
    places = {(row["attempt"], row["task_slug"], row["rollout"]) for row in rows}
    assert len(places) == len(rows)
    await resume(http, job_id)
    assert (await ended(http, job_id))["attempt"] == 2 * IN_A_ROW + 1
    rows = await traces_of(http, job_id)
    counts = Counter(row["attempt"] for row in rows if not row["heldout"])
    assert counts == dict.fromkeys(range(1, 2 * IN_A_ROW + 1), 32), "it goes on counting"


async def test_a_solved_taskset_ends_the_run_well(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    await ran(http, model["id"], steps=1)
    engine.flatten(solved=True)
    job_id = await submit(http, model["id"], steps=3)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["error"]) == ("succeeded", 0, None)
    why = "solved: every rollout of the last 20 batches scored 1.0; no gradient left"
    assert status["reason"] == why
    listed = (await http.get(f"/v2/jobs/{job_id}")).json()
    assert (listed["status"], listed["metadata"]["reason"]) == ("succeeded", why)
    assert (await resume(http, job_id)).status_code == 409


async def test_a_step_that_is_taken_begins_the_count_of_attempts_anew(
    http: AsyncClient, model: Json, service: Service
) -> None:
    job_id = await submit(http, model["id"], steps=3)
    assert (await ended(http, job_id))["attempt"] == 1
    trained = [row for row in await traces_of(http, job_id) if row["evaluates"] is None]
    assert {(row["step"], row["attempt"]) for row in trained} == {(1, 1), (2, 1), (3, 1)}
    done = await told(service, model["id"], "rollout")
    assert {event["attempt"] for event in done} == {1, None}, "None: the evaluation"


@pytest.mark.usefixtures("hurried")
async def test_a_step_that_finds_no_open_file_is_taken_again(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, failures = engine.optim_step, [2]

    async def short_of_files(*given: Any) -> Any:
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await take(*given)

    monkeypatch.setattr(engine, "optim_step", short_of_files)
    model = await fork(http)
    job_id = await submit(http, model["id"], steps=2)
    status = await ended(http, job_id)
    assert (status["status"], status["step"]) == ("succeeded", 2)
    assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]
    failures[0] = 100
    job_id = await submit(http, model["id"], steps=2)
    status = await ended(http, job_id)
    assert status["status"] == "failed"
    assert "Too many open files" in status["error"]["message"]


async def drive(http: AsyncClient) -> str:
    """The id of a run that a driver has begun."""
    model, job_id = await fork(http), str(uuid4())
    body = {"model_id": model["id"], "name": "n", "driver": "laptop:1"}
    body["parameters"] = {"steps": 1, "group_size": 2}
    await http.put(f"/v1/training/jobs/{job_id}/drive", json=body)
    return job_id


async def test_the_service_notices_that_a_driver_is_gone(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LEASE_S", 0.0)
    assert (await ended(http, await drive(http)))["status"] == "interrupted"


async def test_a_run_whose_driver_is_gone_says_how_it_is_resumed(
    service: Service, http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rollouts end later: a driver that was only asleep still reports theirs."""
    job_id, trace_id = await drive(http), uuid4().hex
    await http.post(f"/v2/trace/{trace_id}/enter", json={"job_id": job_id, "task_slug": "add"})
    for silence, rollout in (("LEASE_S", "running"), ("ABANDONED_S", "cancelled")):
        monkeypatch.setattr(jobs, silence, 0.0)
        await service.parts.store.write(jobs.end_abandoned)
        status = await ended(http, job_id)
        assert status["status"] == "interrupted"
        assert status["error"]["message"].endswith(
            f": hud-tui --headless --local jobs {job_id} --resume"
        )
        assert (await http.get(f"/v2/trace/{trace_id}")).json()["status"] == rollout


# A run whose end cannot be written down has ended all the same.


class Disk:
    """Full at first: nothing says how a run ended."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full, self.refused, self._finish = True, 0, jobs.finish
        patch.setattr(jobs, "finish", self.finish)

    def finish(self, db: Db, *args: Any) -> Any:
        if self.full:
            self.refused += 1
            raise sqlite3.OperationalError("database or disk is full")
        return self._finish(db, *args)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(context, "RETRY_S", (0.01, 0.02))
    return Disk(monkeypatch)


async def stored(service: Service, job_id: str) -> str:
    return str((await service.parts.store.read(jobs.training, job_id))["status"])


async def test_it_is_seen_and_written_once_it_can_be(
    http: AsyncClient, model: Json, service: Service, disk: Disk
) -> None:
    job_id = await ran(http, model["id"], steps=1)
    await until(lambda: disk.refused > 2)
    assert await stored(service, job_id) == "running"
    [job] = (await http.get("/v2/jobs")).json()["items"]
    assert job["status"] == (await http.get(f"/v2/jobs/{job_id}")).json()["status"] == "succeeded"
    again = await http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})
    assert again.json()["cancelled"] == 0
    disk.full = False

    async def written() -> bool:
        return await stored(service, job_id) == "succeeded"

    await until(written)


async def test_the_model_is_free(
    http: AsyncClient, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "RETRY_S", (3600.0, 3600.0))
    model = await fork(http)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await ran(http, model["id"], steps=1)
    disk.full = False
    assert (await pass_(http, model["id"], inputs)).status_code == 200


async def test_it_can_be_resumed(
    http: AsyncClient, service: Service, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "RETRY_S", (3600.0, 3600.0))
    model = await fork(http)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "start", disk.finish)
        job_id = await submit(http, model["id"], steps=2)
        assert (await ended(http, job_id))["status"] == "failed"
    assert await stored(service, job_id) == "queued"
    disk.full = False
    assert (await http.post(f"/v1/training/jobs/{job_id}/resume")).status_code == 200
    assert (await ended(http, job_id))["status"] == "succeeded"
    assert len(await tree(http, model["id"])) == 2
