"""A disk without room: said before a run is submitted, answered as such, and nothing is lost."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from errno import EDQUOT, EFBIG, EIO, ENOENT, ENOSPC, EROFS
from pathlib import Path
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.data_dir import DEFAULT_BYTES
from hud_tui.service.engines.base import About
from hud_tui.service.http import refusal
from hud_tui.service.policies import size_of
from hud_tui.service.service import Service
from hud_tui.service.store import checkpoints
from hud_tui.service.store.db import Db
from tests.conftest import PATIENCE_S, Process, Served, ended, fork, serve_process, submit, tasks_of
from tests.service.calls import (
    Json,
    chat,
    detail,
    fork_from,
    optim,
    pass_,
    payloads,
    ran,
    saved_steps,
    set_head,
    step,
    tree,
)
from tests.service.clients import over_socket, trained
from tests.service.headless import Command
from tests.toy_engine import ToyEngine

Call = Callable[[AsyncClient, Json], Awaitable[Response]]
FILLER = "x" * 100_000


def fill(db: Db) -> None:
    """Leave the database no page: it may not grow, and what is free is taken."""
    [pages] = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    size = len(FILLER)
    while size:
        try:
            db.execute("INSERT INTO span VALUES (?, ?, ?)", ("fill", str(uuid4()), FILLER[:size]))
        except sqlite3.OperationalError:
            size //= 2


def empty(db: Db) -> None:
    db.execute("PRAGMA max_page_count = 1073741823")


async def _step(http: AsyncClient, model: Json) -> Response:
    return await optim(http, model["id"])


async def _fork(http: AsyncClient, model: Json) -> Response:
    return await fork_from(http, model["id"], str(uuid4()))


async def _forks(http: AsyncClient, model: Json) -> Response:
    """Until no page has room for one more row."""
    while (answer := await _fork(http, model)).status_code == 201:
        pass
    return answer


async def _spans(http: AsyncClient, model: Json) -> Response:
    path = f"/telemetry/v3/api/trace/{uuid4().hex}/telemetry-upload"
    return await http.post(path, json={"telemetry": [{"span_id": "a", "text": FILLER}]})


async def _enter(http: AsyncClient, model: Json) -> Response:
    return await http.post(f"/v2/trace/{uuid4().hex}/enter", json={"task_slug": FILLER[:9000]})


async def _submit(http: AsyncClient, model: Json) -> Response:
    body = {"model_id": model["id"], "dataset": {"tasks": await tasks_of(http)}}
    return await http.post("/v1/training/jobs", json={**body, "config": {"parameters": {}}})


CALLS: list[Call] = [_step, _forks, _spans, _enter, _submit]


@pytest.mark.parametrize("call", CALLS)
async def test_a_full_database_is_said_and_nothing_is_kept(
    http: AsyncClient, service: Service, call: Call
) -> None:
    model, store = await fork(http), service.parts.store
    await step(http, model)
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    before = await tree(http, model["id"])
    await store.read(fill)
    answer = await call(http, model)
    assert answer.status_code == 507, answer.text
    assert "disk of the data directory is full" in detail(answer)
    assert await tree(http, model["id"]) == before
    assert {path.name for path in saved_steps(service.data_dir)} == {row["id"] for row in before}
    await store.read(empty)
    await step(http, model)


async def test_a_run_ends_with_the_reason_and_goes_on_once_there_is_room(
    http: AsyncClient, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    model, store = await fork(http), service.parts.store
    job_id = await submit(http, model["id"], steps=3)
    await store.read(fill)
    status = await ended(http, job_id)
    assert (status["status"], status["error"]["code"]) == ("failed", "disk")
    assert "data directory is full" in status["error"]["message"]
    assert "Traceback" not in caplog.text
    await store.read(empty)
    resumed = await http.post(f"/v1/training/jobs/{job_id}/resume")
    assert resumed.status_code == 200, resumed.text
    assert (await ended(http, job_id))["status"] == "succeeded"


async def test_a_database_that_is_locked_or_read_only_says_so(
    http: AsyncClient, service: Service
) -> None:
    store = service.parts.store
    await store.read(lambda db: db.execute("PRAGMA busy_timeout = 10"))
    model = await fork(http)
    with closing(sqlite3.connect(service.data_dir / "service.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        locked = await _fork(http, model)
        other.rollback()
    assert (locked.status_code, "locked" in detail(locked)) == (503, True)
    await store.read(lambda db: db.execute("PRAGMA query_only = 1"))
    refused = await _fork(http, model)
    assert (refused.status_code, "cannot be written to" in detail(refused)) == (507, True)
    await store.read(lambda db: db.execute("PRAGMA query_only = 0"))
    assert (await _fork(http, model)).status_code == 201


async def test_a_service_stops_whole_where_the_end_of_rollouts_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(db: Db) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with Service(tmp_path, ToyEngine()) as service:
        monkeypatch.setattr("hud_tui.service.store.traces.end_queued", full)
    assert "could not be written" in caplog.text
    with pytest.raises(RuntimeError, match="shutdown"):
        await service.parts.store.read(checkpoints.used)


def _limit(process: Process, size: int) -> None:
    """No file of the service's or its engine's may grow beyond this."""
    pid = process.ready.pid
    engines = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, engines)):
        resource.prlimit(one, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def test_a_checkpoint_that_does_not_fit_is_no_step(tmp_path: Path) -> None:
    """Half a checkpoint of the tiny engine has room, in a file of its own process."""
    async with serve_process(tmp_path) as process, process.client() as http:
        model = await fork(http)
        await step(http, model)
        before = await tree(http, model["id"])
        await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
        _limit(process, 1_000_000)
        answer = await optim(http, model["id"])
        assert answer.status_code == 507, answer.text
        assert "disk of the data directory is full" in detail(answer)
        assert await tree(http, model["id"]) == before
        assert [path.name for path in saved_steps(tmp_path)] == [before[0]["id"]]
        _limit(process, resource.RLIM_INFINITY)
        await step(http, model)
        served = await set_head(http, model["id"], before[0]["id"])
        assert served.status_code == 200
        await chat(http, model["id"])


def test_a_start_without_room_says_so(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    result = subprocess.run(
        [sys.executable, "-m", "hud_tui.service", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # it would be cut off for all others
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert "disk of the data directory is full" in result.stderr
    assert "Traceback" not in result.stderr


def test_failures_of_files() -> None:
    for number, status in (
        (ENOSPC, 507),
        (EDQUOT, 507),
        (EFBIG, 507),
        (EROFS, 507),
        (EIO, 500),
        (ENOENT, None),
    ):
        found = refusal(OSError(number, os.strerror(number)))
        assert (found and found.status) == status


async def test_other_failures_are_still_bugs(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: object) -> None:
        raise FileNotFoundError(ENOENT, "no such file")

    with monkeypatch.context() as patch:
        patch.setattr(service.parts.store, "write", fails)
        with pytest.raises(FileNotFoundError):
            await _enter(http, {})


async def test_the_catalog_tells_the_size_of_the_newest_checkpoint(
    http: AsyncClient, model: Json, service: Service
) -> None:
    assert model["disk"] is None
    before = (await http.get(f"/v2/models/{model['id']}")).json()
    assert before["disk"] is None, "nothing was measured, and this engine does not say"
    await ran(http, model["id"], steps=2)
    [row] = [m for m in (await http.get("/v2/models")).json()["items"] if m["id"] == model["id"]]
    again = (await fork(http, "another"))["disk"] | {"free_bytes": row["disk"]["free_bytes"]}
    assert again == row["disk"], "a run may begin at once"
    sizes = [size_of(path) for path in saved_steps(service.data_dir)]
    assert row["disk"]["checkpoint_bytes"] in sizes
    assert (row["disk"]["used_bytes"], row["disk"]["max_bytes"]) == (sum(sizes), DEFAULT_BYTES)


async def test_a_pointer_to_a_server_is_not_the_size_of_a_checkpoint(
    http: AsyncClient, engine: ToyEngine
) -> None:
    engine.place = About("tinker", "http://trainer:8000", saves_per_step=2)
    model = await fork(http)
    await ran(http, model["id"], steps=2)
    shown = (await http.get(f"/v2/models/{model['id']}")).json()
    assert (shown["disk"], shown["engine"]["saves_per_step"]) == (None, 2)


async def test_the_question_names_it(
    bare: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no() -> str:
        return "n"

    async with over_socket(served) as client:
        model = await trained(client, steps=3, group_size=2)
        disk = (await client.model(model.id)).disk
    assert disk is not None
    size = disk.checkpoint_bytes
    monkeypatch.setattr("hud_tui.service.data_dir.free_bytes", lambda data_dir: 3 * size)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("hud_tui.cli.output._line", no)
    asked = await bare("run", "arith", "--steps", "7")
    assert asked.code == 2
    assert "7 checkpoints of" in asked.err
    assert "the disk has room for at most 3 of 7 checkpoints" in asked.err
    assert "beyond 10 GB in total" in asked.err


async def test_a_run_that_has_no_room_at_all_is_refused(
    http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(http, model["id"], steps=1)
    monkeypatch.setattr("hud_tui.service.data_dir.free_bytes", lambda data_dir: 10)
    answer = await _submit(http, model)
    assert answer.status_code == 507
    assert "10 are free" in detail(answer)
    assert (await http.get(f"/v1/training/jobs/{model['id']}/raw-status")).json()["step"] == 1
