"""Work that a client carries out ends when its driver is gone: after a lease of listening, which no
clock, halt or restart shortens."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui import patience
from hud_tui.service import http as service_http
from hud_tui.service import works as service_works
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, works
from hud_tui.service.store.events import newest
from tests.conftest import PATIENCE_S, calling, fork, until
from tests.toy_engine import ToyEngine

LEASE = round(jobs.LEASE_S / service_works.LISTEN_S)
"""Looks in a lease."""
ABANDONED = round(jobs.ABANDONED_S / service_works.LISTEN_S)


class Looks:
    """The service's looks at drivers, each when the test wants it."""

    def __init__(self) -> None:
        self._due = asyncio.Semaphore(0)
        self._waits = asyncio.Event()

    def __call__(self, pause_s: float) -> "Looks":
        self._is_first = True
        return self

    def __aiter__(self) -> "Looks":
        return self

    async def __anext__(self) -> float:
        if self._is_first:
            self._is_first = False
            return 0.0
        self._waits.set()
        await self._due.acquire()
        return 1.0

    async def pass_by(self, count: int) -> None:
        """So many more looks; returns after the last one, which must not be the service's last."""
        for _ in range(count):
            await self.begin_next()
        async with asyncio.timeout(PATIENCE_S):
            await self._waits.wait()

    async def begin_next(self) -> None:
        """One more look, which may be the service's last."""
        async with asyncio.timeout(PATIENCE_S):
            await self._waits.wait()
        self._waits.clear()
        self._due.release()


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr(service_works, "Looks", looks)
    return looks


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets both clocks of the service ahead, or the one that may go back also back."""

    def set_ahead(seconds: float) -> None:
        later = lambda: time() + seconds  # noqa: E731
        for module in (jobs, works, service_http):
            monkeypatch.setattr(module, "now", later)
        ran = patience.monotonic
        monkeypatch.setattr(patience, "monotonic", lambda: ran() + max(0.0, seconds))

    return set_ahead


async def drive(http: AsyncClient) -> str:
    """The path of a run's reports; a driver has begun it."""
    job_id = str(uuid4())
    model = await fork(http, f"model {job_id}")
    body = {"model_id": model["id"], "name": "n", "driver": "laptop:1"}
    body["parameters"] = {"steps": 1, "group_size": 2}
    await http.put(f"/v1/training/jobs/{job_id}/drive", json=body)
    return f"/v1/training/jobs/{job_id}/drive"


async def status_of(http: AsyncClient, reports: str) -> Any:
    return (await http.get(reports.replace("/drive", "/raw-status"))).json()


async def report(http: AsyncClient, reports: str, **said: Any) -> Any:
    return (await http.patch(reports, json=said)).json()


async def test_the_service_notices_that_a_driver_is_gone(http: AsyncClient, looks: Looks) -> None:
    reports = await drive(http)
    await looks.pass_by(LEASE - 1)
    assert (await report(http, reports))["status"] == "running"
    await looks.pass_by(LEASE)
    assert (await status_of(http, reports))["status"] == "running"
    await looks.pass_by(1)
    status = await status_of(http, reports)
    assert status["status"] == "interrupted"
    assert status["error"]["message"].endswith(
        f": hud-tui --headless --local jobs {status['id']} --resume"
    )
    assert (await report(http, reports))["status"] == "running", "it was only asleep"


async def test_who_may_not_report_on_a_run_does_not_keep_it_going(
    http: AsyncClient, team: dict[str, AsyncClient], looks: Looks
) -> None:
    reports = await drive(http)
    await looks.pass_by(LEASE)
    assert (await team["tom"].patch(reports, json={})).status_code == 403
    await looks.pass_by(1)
    assert (await status_of(http, reports))["status"] == "interrupted"


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_a_clock_that_jumps_and_a_service_that_was_halted_end_no_driver(
    http: AsyncClient, looks: Looks, jump: Callable[[float], None], seconds: float
) -> None:
    reports = await drive(http)
    await looks.pass_by(LEASE - 1)
    jump(seconds)
    await looks.pass_by(1)
    assert (await status_of(http, reports))["status"] == "running"
    await looks.pass_by(1)
    assert (await status_of(http, reports))["status"] == "interrupted", "none answers"


async def test_a_service_that_was_down_listens_for_a_whole_lease(
    tmp_path: Path, engine: ToyEngine, looks: Looks, jump: Callable[[float], None]
) -> None:
    async with Service(tmp_path, engine) as service, calling(service) as http:
        reports, dead = await drive(http), await drive(http)
    jump(60.0)
    async with Service(tmp_path, engine) as service, calling(service) as http:
        await looks.pass_by(LEASE)
        statuses = [(await status_of(http, each))["status"] for each in (reports, dead)]
        assert statuses == ["running", "running"]
        await report(http, reports)
        await looks.pass_by(1)
        statuses = [(await status_of(http, each))["status"] for each in (reports, dead)]
        assert statuses == ["running", "interrupted"]


async def test_a_full_disk_that_keeps_reports_from_being_stored_ends_no_driver(
    http: AsyncClient, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = await drive(http)

    def full(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "end_abandoned", full)
        await looks.pass_by(2 * LEASE)
    await looks.pass_by(LEASE)
    assert (await status_of(http, reports))["status"] == "running"


async def test_what_was_to_be_cancelled_is_cancelled_when_its_driver_is_gone(
    http: AsyncClient, looks: Looks
) -> None:
    reports, trace_id = await drive(http), uuid4().hex
    job_id = (await status_of(http, reports))["id"]
    await http.post(f"/v2/trace/{trace_id}/enter", json={"job_id": job_id, "task_slug": "add"})
    cancelled = await http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})
    assert cancelled.json()["cancelled"] == 1
    assert (await status_of(http, reports))["status"] == "running"
    await looks.pass_by(LEASE)
    await looks.pass_by(1)
    assert (await status_of(http, reports))["status"] == "cancelled"
    assert (await http.get(f"/v2/trace/{trace_id}")).json()["status"] == "cancelled"


async def test_rollouts_end_later_than_their_run(http: AsyncClient, looks: Looks) -> None:
    """A driver that was only asleep still reports theirs."""
    reports, trace_id = await drive(http), uuid4().hex
    job_id = (await status_of(http, reports))["id"]
    await http.post(f"/v2/trace/{trace_id}/enter", json={"job_id": job_id, "task_slug": "add"})
    await looks.pass_by(ABANDONED)
    assert (await status_of(http, reports))["status"] == "interrupted"
    assert (await http.get(f"/v2/trace/{trace_id}")).json()["status"] == "running"
    assert (await report(http, reports))["status"] == "running"
    await looks.pass_by(ABANDONED)
    assert (await http.get(f"/v2/trace/{trace_id}")).json()["status"] == "running"
    await looks.begin_next()

    async def is_over() -> bool:
        return bool((await http.get(f"/v2/trace/{trace_id}")).json()["status"] == "cancelled")

    await until(is_over)


async def test_an_evaluation_whose_driver_is_gone_is_interrupted_and_goes_on_with_a_report(
    http: AsyncClient, looks: Looks
) -> None:
    body = {"model_id": (await fork(http))["id"], "driver": "laptop:1", "num_tasks": 1}
    body |= {"samples": 1, "status": "running"}
    evaluation = f"/v1/evaluations/{(work_id := str(uuid4()))}"
    assert (await http.put(evaluation, json=body)).status_code == 200
    await looks.pass_by(LEASE + 1)
    [job] = (await http.get("/v2/jobs")).json()["items"]
    assert (job["status"], "resume the evaluation" in job["metadata"]["reason"]) == (
        "interrupted", True,
    )  # fmt: skip
    refused = await http.post(f"/v1/training/jobs/{work_id}/resume")
    assert refused.json()["detail"] == (
        "this evaluation is driven from laptop:1: resume it there:"
        f" hud-tui --headless --local jobs {work_id} --resume"
    )
    reports = f"/v1/training/jobs/{work_id}/drive"
    assert (await report(http, reports))["status"] == "running"
    cancelled = await http.post("/v2/rollouts/cancel_job", json={"job_id": work_id})
    assert cancelled.json()["cancelled"] == 1
    assert (await report(http, reports))["asked"] == "cancel"
    await http.put(evaluation, json={**body, "status": "cancelled"})
    assert (await http.patch(reports, json={})).status_code == 409


async def test_an_end_that_is_reported_twice_happens_once(
    service: Service, http: AsyncClient
) -> None:
    reports = await drive(http)
    job_id = (await status_of(http, reports))["id"]
    seen = []
    for _ in range(2):
        error = {"code": "interrupted", "message": "killed"}
        answer = await report(http, reports, status="interrupted", error=error)
        assert answer["error"]["message"] == "killed"
        job = await service.parts.store.read(works.get, job_id)
        seen.append((job["finished_at"], await service.parts.store.read(newest)))
    assert seen[0] == seen[1]
