"""A run whose end cannot be written down has ended all the same."""

import sqlite3
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.service import runner
from hud_tui.service.service import Service
from hud_tui.service.store import jobs
from hud_tui.service.store.db import Db
from tests.conftest import ended, fork, submit, until
from tests.service.calls import Json, pass_, payloads, tree


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
    monkeypatch.setattr(runner, "RETRY_S", (0.01, 0.02))
    return Disk(monkeypatch)


async def stored(service: Service, job_id: str) -> str:
    return str((await service.parts.store.read(jobs.training, job_id))["status"])


async def test_it_is_seen_and_written_once_it_can_be(
    http: AsyncClient, model: Json, service: Service, disk: Disk
) -> None:
    job_id = await submit(http, model["id"], steps=1)
    assert (await ended(http, job_id))["status"] == "succeeded"
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
    monkeypatch.setattr(runner, "RETRY_S", (3600.0, 3600.0))
    model = await fork(http)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    job_id = await submit(http, model["id"], steps=1)
    await ended(http, job_id)
    disk.full = False
    assert (await pass_(http, model["id"], inputs)).status_code == 200


async def test_it_can_be_resumed(
    http: AsyncClient, service: Service, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RETRY_S", (3600.0, 3600.0))
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
