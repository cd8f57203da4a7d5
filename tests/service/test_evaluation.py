"""At its end a run samples the held-out tasks once more, from its last checkpoint: its number."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.events import CheckpointAdded
from hud_tui.rl.run import Run
from hud_tui.service import managed_run as managed
from hud_tui.service.batches import IN_A_ROW
from hud_tui.service.engines.base import Datum, EngineLost, Sampled, SampleRequest, StateGone
from hud_tui.service.service import Service
from tests.conftest import Served, calling, ended, fork, submit, tasks_of
from tests.service.calls import (
    Json,
    cancel,
    conversation,
    ran,
    resume,
    set_head,
    status_of,
    step,
    traces_of,
    tree,
)
from tests.service.clients import over_socket
from tests.toy_engine import ToyEngine

HELDOUT = 36


class Gate:
    """Lets an engine's samples through, or holds those of an evaluation up."""

    def __init__(self, engine: ToyEngine) -> None:
        self.sizes: list[int] = []
        """Requests of each evaluating call."""
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        """What an evaluation meets."""
        self._sample = engine.sample
        engine.sample = self.sample  # type: ignore[method-assign]

    async def sample(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        if not any(request.seed[-1] == 0 and len(request.seed) == 4 for request in requests):
            self.sizes.append(len(requests))
            self.reached.set()
            if self.error is not None:
                raise self.error
            await self.open.wait()
        return await self._sample(handle, requests)


@pytest.fixture
def gate(engine: ToyEngine) -> Gate:
    return Gate(engine)


async def test_the_last_checkpoint_is_evaluated_from_its_own_weights(
    http: AsyncClient, model: Json, service: Service, engine: ToyEngine
) -> None:
    job = await ran(http, model["id"], steps=3)
    *before, last = await tree(http, model["id"])
    assert all(not row.get("evaluations") for row in before)
    [found] = last["evaluations"]
    rows = [row for row in await traces_of(http, job) if row["evaluates"]]
    assert {row["evaluates"] for row in rows} == {last["id"]}
    assert {(row["step"], row["heldout"], row["checkpoint_id"]) for row in rows} == {
        (3, True, None)
    }
    assert found["mean_reward"] == pytest.approx(fmean(row["reward"] for row in rows))
    counts = (found["split"], found["num_tasks"], found["num_traces"], found["job_id"])
    assert counts == ("heldout", HELDOUT, HELDOUT, job)
    own = await engine.open(service.data_dir / last["checkpoint_name"])
    parents = await engine.open(service.data_dir / before[-1]["checkpoint_name"])
    for row in rows[:5]:
        said = (await conversation(http, row["id"]))[1]["sample"]
        datum = Datum(said["prompt_token_ids"], said["output_token_ids"])
        assert await engine.forward(own, [datum]) == [pytest.approx(said["output_logprobs"])]
        assert await engine.forward(parents, [datum]) != [pytest.approx(said["output_logprobs"])]


async def test_the_step_s_own_numbers_stay_as_they_were(http: AsyncClient, model: Json) -> None:
    """mean_reward and heldout_reward are of the rollouts before the step, as HUD has them."""
    job = await ran(http, model["id"], steps=2)
    last = (await tree(http, model["id"]))[-1]
    rows = [r for r in await traces_of(http, job) if r["step"] == 2 and r["evaluates"] is None]
    trained = fmean(row["reward"] for row in rows if not row["heldout"])
    assert last["mean_reward"] == last["metrics"]["reward_mean"] == pytest.approx(trained)
    heldout = fmean(row["reward"] for row in rows if row["heldout"])
    assert last["metrics"]["heldout_reward"] == pytest.approx(heldout)
    path = f"/v2/models/{model['id']}/checkpoints/{last['id']}/traces"
    assert len((await http.get(path)).json()) == last["num_traces"] == 32


async def test_a_run_without_held_out_tasks_is_not_evaluated(
    http: AsyncClient, model: Json
) -> None:
    rows = [row for row in await tasks_of(http) if not row.get("columns")]
    body = {"model_id": model["id"], "dataset": {"tasks": rows}}
    body["config"] = {"parameters": {"steps": 1}}
    job = (await http.post("/v1/training/jobs", json=body)).json()["job_id"]
    assert (await ended(http, job))["status"] == "succeeded"
    [row] = await tree(http, model["id"])
    assert not row.get("evaluations")


async def test_it_runs_until_it_is_evaluated_and_says_so_wherever_the_head_is_set_meanwhile(
    http: AsyncClient, model: Json, gate: Gate
) -> None:
    job = await submit(http, model["id"], steps=2)
    await gate.reached.wait()
    first, _ = await tree(http, model["id"])
    assert (await set_head(http, model["id"], first["id"])).status_code == 200
    path = f"/v2/models/{model['id']}/checkpoints"
    etag = (await http.get(path)).headers["etag"]
    status = await status_of(http, job)
    assert (status["status"], status["step"], status["estimated_finish"]) == ("running", 2, None)
    assert status["note"] == "evaluation of step-000002 on the held-out tasks: 36 tasks"
    gate.open.set()
    after = await ended(http, job)
    assert (after["status"], after["note"]) == ("succeeded", None)
    again = await http.get(path, headers={"If-None-Match": etag})
    first, last = again.json()
    assert (again.status_code, first["is_active"], len(last["evaluations"])) == (200, True, 1)
    assert not first.get("evaluations")


async def test_others_get_their_turn_between_its_parts(
    http: AsyncClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "EVALUATED_AT_ONCE", 10)
    gate.open.set()
    model = await fork(http)
    await ran(http, model["id"], steps=1)
    assert gate.sizes == [10, 10, 10, 6]
    [row] = await tree(http, model["id"])
    assert row["evaluations"][0]["num_traces"] == HELDOUT


async def test_cancelled_in_its_evaluation_it_ends_at_once_and_resuming_does_only_that(
    http: AsyncClient, model: Json, gate: Gate, engine: ToyEngine
) -> None:
    job = await submit(http, model["id"], steps=2)
    await gate.reached.wait()
    await cancel(http, job)
    status = await ended(http, job)
    assert (status["status"], status["step"]) == ("cancelled", 2)
    assert not (await tree(http, model["id"]))[-1].get("evaluations")
    before = {row["id"] for row in await traces_of(http, job)}
    engine.kill_next = "forward_backward"
    gate.open.set()
    assert (await resume(http, job)).status_code == 200
    assert (await ended(http, job))["status"] == "succeeded"
    assert engine.kill_next == "forward_backward", "no step was taken"
    rows = await tree(http, model["id"])
    assert (len(rows), len(rows[-1]["evaluations"])) == (2, 1)
    more = [row for row in await traces_of(http, job) if row["id"] not in before]
    assert len(more) == HELDOUT
    assert all(row["evaluates"] for row in more)


async def test_a_service_that_ends_in_an_evaluation_interrupts_it_and_it_can_be_resumed(
    tmp_path: Path,
) -> None:
    engine = ToyEngine()
    gate = Gate(engine)
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model = await fork(http)
        job = await submit(http, model["id"], steps=1)
        await gate.reached.wait()
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        status = await ended(http, job)
        assert (status["status"], status["error"]["code"]) == ("interrupted", "interrupted")
        await resume(http, job)
        status = await ended(http, job)
        assert (status["status"], status["step"]) == ("succeeded", 1)
        [row] = await tree(http, model["id"])
        assert len(row["evaluations"]) == 1


async def test_an_engine_that_stops_is_asked_again_and_a_few_times_only(
    http: AsyncClient, gate: Gate
) -> None:
    gate.error = EngineLost("the engine stopped")
    model = await fork(http)
    job = await submit(http, model["id"], steps=1)
    status = await ended(http, job)
    assert (status["status"], status["step"], status["error"]["code"]) == ("failed", 1, "engine")
    said = status["error"]["message"]
    assert "all steps were taken" in said
    assert "Resume the run to repeat only that" in said
    assert len(gate.sizes) == 1 + managed.LOST_IN_A_ROW
    gate.error = None
    gate.open.set()
    await resume(http, job)
    assert (await ended(http, job))["status"] == "succeeded"
    [row] = await tree(http, model["id"])
    assert len(row["evaluations"]) == 1


async def test_a_checkpoint_that_its_server_lost_is_not_evaluated(
    http: AsyncClient, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.error = StateGone("the server no longer has this checkpoint")
    model = await fork(http)
    await ran(http, model["id"], steps=1)
    [row] = await tree(http, model["id"])
    assert (row.get("evaluations"), row["state"]) == (None, "expired")
    assert "step-000001 is not evaluated" in caplog.text


async def test_a_solved_run_is_evaluated_too_and_one_that_is_resumed_only_that(
    http: AsyncClient, engine: ToyEngine, gate: Gate
) -> None:
    optim_step = engine.optim_step

    async def then_solved(*args: Any) -> Any:
        saved = await optim_step(*args)
        engine.flatten(solved=True)
        return saved

    engine.optim_step = then_solved  # type: ignore[method-assign]
    model = await fork(http)
    job = await submit(http, model["id"], steps=3)
    await gate.reached.wait()
    await cancel(http, job)
    cancelled = await ended(http, job)
    assert (cancelled["status"], cancelled["attempt"]) == ("cancelled", IN_A_ROW + 1)
    gate.open.set()
    await resume(http, job)
    status = await ended(http, job)
    assert (status["status"], status["step"]) == ("succeeded", 1)
    assert (status["attempt"], status["reason"][:6]) == (IN_A_ROW + 1, "solved")
    [row] = await tree(http, model["id"])
    assert [one["mean_reward"] for one in row["evaluations"]] == [1.0]


async def test_a_run_that_took_no_step_evaluates_nobody_else_s_checkpoint(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    await step(http, model)
    engine.flatten(solved=True)
    job = await submit(http, model["id"], steps=1)
    assert (await ended(http, job))["step"] == 0
    [row] = await tree(http, model["id"])
    assert not row.get("evaluations")


async def test_who_follows_renews_the_checkpoint(served: Served) -> None:
    async with over_socket(served) as client, calling(served.service) as http:
        model = await fork(http)
        run, told = Run(), False
        feed = aiter(client.feed(model["id"]))
        run = run.fold(await anext(feed))
        job = await submit(http, model["id"], steps=2)
        while run.job is None or run.job.id != job or run.job.status != "succeeded":
            event = await anext(feed)
            told |= isinstance(event, CheckpointAdded) and bool(event.checkpoint.evaluations)
            run = run.fold(event)
        await feed.aclose()  # type: ignore[attr-defined]
    assert (told, len(run.tree)) == (True, 2)
    assert run.head is not None
    assert run.head.evaluations[0].num_tasks == HELDOUT
    assert run.series.length == 2
