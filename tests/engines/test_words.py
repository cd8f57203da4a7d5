"""What a run says while, and after, its server stands still, forgets, or asks for payment.

SkyRL neither bills nor pauses: a gate before it answers as Tinker's cloud does then.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.service import runner
from hud_tui.service.engines.tinker.engine import TinkerEngine
from hud_tui.service.engines.tinker.link import pointed_states
from hud_tui.service.service import Service
from hud_tui.settings import Options
from tests.conftest import calling, fork, tasks_of, until
from tests.engines.gate import Gate, gate_before
from tests.engines.skyrl import SkyRL
from tests.engines.test_failures import post
from tests.service.calls import set_head, status_of, step, told, tree

pytestmark = pytest.mark.skyrl
LONG_S = 300.0


@pytest.fixture
async def gate(skyrl: SkyRL) -> AsyncIterator[Gate]:
    async with gate_before(skyrl) as gate:
        yield gate


@pytest.fixture
async def service(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    monkeypatch.setattr(runner, "POLL_S", 0.05)
    engine = TinkerEngine(Options(gate.url, has_key=False), tmp_path / "data" / "tinker")
    async with Service(tmp_path / "data", engine) as service:
        yield service


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(service) as http:
        yield http


async def begin(http: httpx.AsyncClient, model: dict[str, Any], steps: int) -> str:
    """Submit small batches of the taskset whose rewards are dense; the run's id."""
    parameters = {"steps": steps, "tasks_per_step": 4, "group_size": 4}
    body = {
        "model_id": model["id"],
        "dataset": {"tasks": await tasks_of(http, "text")},
        "config": {"parameters": parameters},
    }
    answer = await http.post("/v1/training/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def reach(http: httpx.AsyncClient, job: str, place: int) -> None:
    async def reached() -> bool:
        now = await status_of(http, job)
        assert now["status"] in ("queued", "running", "succeeded"), now
        return bool(now["step"] >= place)

    await until(reached, LONG_S)


async def said(service: Service, model_id: str, key: str) -> list[str]:
    jobs = [event["job"] for event in await told(service, model_id, "job")]
    return [job[key] for job in jobs if job.get(key)]


@pytest.mark.parametrize(
    ("path", "code", "body", "words"),
    [
        (
            "retrieve_future",
            408,
            {"queue_state": "paused_capacity", "queue_state_reason": "2 h at most"},
            "paused: the server is short of capacity (2 h at most)",
        ),
        ("retrieve_future", 408, {"queue_state": "paused_rate_limit"}, "paused: too many training"),
        ("forward_backward", 402, {"detail": "the balance is 0"}, "asks for payment (402)"),
        ("asample", 429, {"detail": "slow down"}, "takes no more requests for now (429)"),
    ],
)
async def test_a_run_says_what_it_waits_for_and_goes_on(
    gate: Gate, http: httpx.AsyncClient, path: str, code: int, body: Any, words: str
) -> None:
    model = await fork(http)
    job = await begin(http, model, steps=2)
    await reach(http, job, 1)
    gate.shut(path, code, body)

    async def says_so() -> bool:
        return words in ((await status_of(http, job))["waits"] or "")

    await until(says_so, LONG_S)
    shown = (await http.get(f"/v2/models/{model['id']}")).json()["engine"]
    assert words in shown["queue"]
    gate.open()
    await reach(http, job, 2)

    async def moves() -> bool:
        return (await status_of(http, job))["waits"] is None

    await until(moves)


CORRUPTED = {"error": "the model is corrupted", "category": "server"}


async def test_a_corrupted_run_is_opened_again_and_said_to_have_been(
    gate: Gate, service: Service, http: httpx.AsyncClient
) -> None:
    model = await fork(http)
    job = await begin(http, model, steps=2)
    await reach(http, job, 1)
    gate.shut("retrieve_future", 200, CORRUPTED, kind="ForwardBackward", times=1)
    await reach(http, job, 2)
    notes = set(await said(service, model["id"], "note"))
    [note] = [note for note in notes if "says that the run is corrupted" in note]
    assert note.startswith("step 2: http")
    assert note.endswith("sampled again from step-000001")
    assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]


async def test_a_step_whose_answer_is_lost_is_in_the_tree_once(
    gate: Gate, http: httpx.AsyncClient
) -> None:
    """Whether the server had saved it by then, or it is taken again."""
    model = await fork(http)
    job = await begin(http, model, steps=3)
    await reach(http, job, 1)
    gate.shut("retrieve_future", 200, CORRUPTED, kind="OptimStep", times=1)
    await reach(http, job, 3)
    rows = await tree(http, model["id"])
    assert [row["step"] for row in rows] == [1, 2, 3]
    parents = [row["prev_model_checkpoint_id"] for row in rows]
    assert parents == [None, rows[0]["id"], rows[1]["id"]]


async def test_a_run_that_the_server_lost_is_opened_again_and_said_to_have_been(
    skyrl: SkyRL, service: Service, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    model = await fork(http)
    job = await begin(http, model, steps=6)
    await reach(http, job, 1)
    run = pointed_states(tmp_path / "data" / "checkpoints").pop().split("/")[2]
    await asyncio.to_thread(post, skyrl, "unload_model", {"model_id": run})
    await reach(http, job, 6)
    notes = await said(service, model["id"], "note")
    assert any("lost the training run" in note for note in notes), notes


async def test_a_key_that_is_revoked_ends_the_run_with_the_reason(
    gate: Gate, http: httpx.AsyncClient
) -> None:
    model = await fork(http)
    await step(http, model)
    gate.shut("forward_backward", 403, {"detail": "this key was revoked"})
    job = await begin(http, model, steps=1)

    async def ends() -> bool:
        return (await status_of(http, job))["status"] == "failed"

    await until(ends, LONG_S)
    told = (await status_of(http, job))["error"]["message"]
    assert "refused the key: set TINKER_API_KEY" in told
    assert "this key was revoked" in told


async def test_a_checkpoint_that_was_deleted_there_is_expired_here(
    skyrl: SkyRL, service: Service, http: httpx.AsyncClient
) -> None:
    model = await fork(http)
    first, _ = await step(http, model), await step(http, model)
    run, name = first["sampler_path"].removeprefix("tinker://").split("/")
    place = f"training_runs/{run}/checkpoints/weights/{name}"
    await asyncio.to_thread(post, skyrl, place, {}, "DELETE")
    assert (await set_head(http, model["id"], first["checkpoint_id"])).status_code == 200
    body = {"model": model["id"], "messages": [{"role": "user", "content": "3 + 4 = ?"}]}
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 410
    assert "no longer has this checkpoint" in answer.text
    states = [row["state"] for row in await tree(http, model["id"])]
    assert states == ["expired", "full"]
