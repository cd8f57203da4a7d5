"""Managed runs, end to end: solved, without spread, unwritten; and what they leave."""

import asyncio
import errno
import sqlite3
from collections import Counter
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.rl.loop import FLAT_IN_A_ROW
from hud_tui.service import context, engine_rollouts, managed_run
from hud_tui.service.engines.base import Adam
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, models, works
from hud_tui.service.store.db import Db
from hud_tui.wire import WorkState
from tests.conftest import at_end, ended, fork, submit, tasks_of, until
from tests.service.calls import (
    Held,
    Json,
    cancel,
    detail,
    optim,
    pass_,
    payloads,
    ran,
    reach,
    resume,
    set_head,
    status_of,
    told,
    traces_of,
    tree,
)
from tests.toy_engine import ToyEngine


@pytest.fixture
def gate(engine: ToyEngine) -> Held:
    held = Held(engine, "sample", lambda handle, requests: len(requests) > 4)
    held.go_on.set()
    return held


async def test_a_run_learns(http: AsyncClient, model: Json) -> None:
    job_id = await submit(http, model["id"], steps=12)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["error"]) == ("succeeded", 12, None)
    rows = await tree(http, model["id"])
    rewards = [row["mean_reward"] for row in rows]
    assert len(rows) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2
    assert [row["is_active"] for row in rows] == [False] * 11 + [True]
    assert [row["prev_model_checkpoint_id"] for row in rows[1:]] == [row["id"] for row in rows[:-1]]
    assert {row["job_id"] for row in rows} == {job_id}


async def test_rollouts_of_a_second_run_are_told_by_the_trees_steps(
    http: AsyncClient, model: Json, service: Service
) -> None:
    for _ in range(2):
        job_id = await ran(http, model["id"], steps=2, tasks_per_step=1, group_size=2)
    rollouts, steps = [
        [one["step"] for one in await told(service, model["id"], kind) if one["job_id"] == job_id]
        for kind in ("rollout", "step")
    ]
    assert sorted(set(rollouts)) == steps
    rows = await traces_of(http, job_id)
    assert {row["step"] for row in rows} == {1, 2}, "a trace's counts within its job"


async def test_a_run_steps_as_a_loop_could(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[Any] = []
    steps: list[Adam] = []
    forward_backward, optim_step = engine.forward_backward, engine.optim_step

    async def passed(handle: str, datums: Any, loss_fn: str, config: Any = None) -> Any:
        passes.append((loss_fn, config, sorted({round(d.advantage, 6) for d in datums})))
        return await forward_backward(handle, datums, loss_fn, config)

    async def stepped(handle: str, adam: Adam, directory: Any) -> Any:
        steps.append(adam)
        return await optim_step(handle, adam, directory)

    monkeypatch.setattr(engine, "forward_backward", passed)
    monkeypatch.setattr(engine, "optim_step", stepped)
    asked = {
        **{"loss_fn": "ppo", "loss_fn_config": {"clip_high_threshold": 1.28}},
        **{"reward_scale": 2.0, "norm_adv_by_std": True, "group_size": 2, "steps": 1},
        **{"beta1": 0.0, "beta2": 0.5, "eps": 1e-6, "weight_decay": 0.01, "learning_rate": 0.25},
    }
    model = await fork(http)
    job_id = await ran(http, model["id"], **asked)
    [(loss_fn, config, advantages)] = passes
    assert (loss_fn, config) == ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28})
    assert set(advantages) <= {-2.0, 0.0, 2.0}, "two rewards are one deviation from their mean"
    assert 2.0 in advantages
    assert steps == [Adam(0.25, beta1=0.0, beta2=0.5, eps=1e-6, weight_decay=0.01)]
    kept = (await status_of(http, job_id))["parameters"]
    assert {name: kept[name] for name in asked if name != "loss_fn_config"} == {
        name: value for name, value in asked.items() if name != "loss_fn_config"
    }


async def test_a_run_of_an_older_version_is_resumed_as_it_was(
    http: AsyncClient, service: Service, gate: Held
) -> None:
    gate.go_on.clear()
    model = await fork(http)
    job_id = await submit(http, model["id"], steps=2)
    await until(lambda: gate.waiting > 0)
    assert (await cancel(http, job_id)).is_success
    added = ["loss_fn_config", "reward_scale", "norm_adv_by_std"]
    added += ["beta1", "beta2", "eps", "weight_decay"]
    paths = ", ".join(f"'$.{name}'" for name in added)
    forget = f"UPDATE work SET parameters = json_remove(parameters, {paths})"
    await service.parts.store.write(lambda db: db.execute(forget))
    gate.go_on.set()
    assert (await resume(http, job_id)).status_code == 200
    assert (await ended(http, job_id))["status"] == "succeeded"


async def test_a_tempered_run_trains_as_it_sampled(http: AsyncClient) -> None:
    for temperature in (0.5, 2.0):
        model = await fork(http, f"at {temperature}")
        await ran(http, model["id"], steps=2, temperature=temperature)
        for node in await tree(http, model["id"]):
            assert node["metrics"]["ratio_max"] == pytest.approx(1.0)
            assert node["metrics"]["kl_sample_train"] == pytest.approx(0.0, abs=1e-6)


async def test_status_has_every_parameter(http: AsyncClient, model: Json) -> None:
    job_id = await ran(http, model["id"], steps=2, reasoning_effort="low")
    for ref in (job_id, job_id.replace("-", ""), model["id"], model["model_name"]):
        status = WorkState.model_validate(await status_of(http, ref))
        assert (status.id, status.model_id) == (job_id, model["id"])
        assert status.model == model["model_name"]
    assert (status.name, status.fine_tuned_model) == ("arith on arith-rl", "arith-rl")
    assert status.trained_tokens
    assert status.parameters == {
        "reasoning_effort": "low", "steps": 2, "group_size": 8, "tasks_per_step": 4,
        "learning_rate": 0.3, "loss_fn": "importance_sampling", "loss_fn_config": {},
        "reward_scale": 1.0, "norm_adv_by_std": False,
        "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0,
        "temperature": 1.0, "max_tokens": 12, "seed": 0, "heldout_every": 5,
    }  # fmt: skip
    assert (await http.get("/v1/training/jobs/nothing/raw-status")).status_code == 404


async def test_a_run_is_a_job_with_traces(http: AsyncClient, model: Json) -> None:
    job_id = await ran(http, model["id"], steps=2, tasks_per_step=2, group_size=3)
    [job] = (await http.get("/v2/jobs")).json()["items"]
    assert (job["id"], job["status"], job["group_size"]) == (job_id, "succeeded", 3)
    assert job["metadata"] == {
        "kind": "training", "model_id": model["id"], "model": model["model_name"],
        "step": 2, "steps": 2, "attempt": 1, "sampled_step": 2, "reason": None,
    }  # fmt: skip
    page = (await http.get(f"/v2/jobs/{job_id}/traces?step=1&limit=3&offset=1")).json()
    assert (len(page["items"]), page["offset"]) == (3, 1)
    row = page["items"][0]
    assert (row["step"], row["rollout"], row["heldout"]) == (1, 1, False)
    assert row["num_tokens"] > 0
    assert row["completion"]
    assert row["stop_reason"] in ("done", "length")
    events = (await http.get(f"/v2/trace/{row['id']}/events")).json()
    assert [event["kind"] for event in events["events"]] == ["user_message", "agent_message"]
    answer = events["events"][1]
    assert len(answer["tokens"]) == len(answer["sample"]["output_logprobs"]) == row["num_tokens"]
    assert events["reward"] == row["reward"]


async def test_a_busy_model_is_left_alone(http: AsyncClient, model: Json, gate: Held) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    gate.go_on.clear()
    job_id = await submit(http, model["id"], steps=1)
    body = {"model_id": model["id"], "dataset": {"tasks": await tasks_of(http)}}
    for answer in (
        await pass_(http, model["id"], inputs),
        await optim(http, model["id"]),
        await http.post("/v1/training/jobs", json=body),
    ):
        assert (answer.status_code, job_id in detail(answer)) == (409, True)
    gate.go_on.set()
    await ended(http, job_id)
    assert (await pass_(http, model["id"], inputs)).status_code == 200


async def test_set_head_in_the_middle_branches(http: AsyncClient, model: Json, gate: Held) -> None:
    job_id = await submit(http, model["id"], steps=6)
    await reach(http, job_id, 2)
    gate.go_on.clear()
    await until(lambda: gate.waiting > 0)
    rows = await tree(http, model["id"])
    answer = await set_head(http, model["id"], rows[0]["id"])
    assert answer.status_code == 200
    known = len(await tree(http, model["id"]))
    gate.go_on.set()
    assert (await ended(http, job_id))["status"] == "succeeded"
    rows = await tree(http, model["id"])
    assert len(rows) == 6
    assert rows[known]["prev_model_checkpoint_id"] == rows[0]["id"]
    ratio = rows[known]["metrics"]["ratio_max"]
    assert ratio == pytest.approx(1.0), "what was sampled from the old head is not trained on"


async def test_cancel_stops_between_rollouts(http: AsyncClient, model: Json, gate: Held) -> None:
    job_id = await submit(http, model["id"], steps=50)
    await reach(http, job_id, 2)
    gate.go_on.clear()
    assert (await cancel(http, job_id)).json() == {"cancelled": 1, "status": "cancelled"}
    status, rows = await status_of(http, job_id), await tree(http, model["id"])
    assert (status["status"], status["step"]) == ("cancelled", len(rows))
    assert (await cancel(http, job_id)).json()["cancelled"] == 0


async def test_a_run_that_is_cancelled_before_it_holds_its_model_takes_no_step(
    http: AsyncClient, model: Json, gate: Held, service: Service
) -> None:
    """It has its rollouts, and waits for whoever else trains the model."""
    gate.go_on.clear()
    job_id = await submit(http, model["id"], steps=5)
    await gate.begun.wait()
    session = service.parts.session(await service.parts.store.read(models.find, model["id"]))
    async with session.lock:
        gate.go_on.set()
        await until(lambda: "waiters:1" in repr(session.lock))
        cancelling = asyncio.create_task(cancel(http, job_id))
        [(run, _)] = service.works._tasks.values()
        await until(run.stop.requested.is_set)
    assert (await cancelling).json()["status"] == "cancelled"
    assert await tree(http, model["id"]) == []


async def test_cancel_all_says_what_it_did(http: AsyncClient, gate: Held) -> None:
    gate.go_on.clear()
    models = [await fork(http, name) for name in ("a", "b")]
    jobs = [await submit(http, model["id"]) for model in models]
    body = (await http.post("/v2/rollouts/cancel_user_jobs", json={})).json()
    assert (body["jobs_cancelled"], body["total_tasks_cancelled"]) == (2, 2)
    assert {row["job_id"] for row in body["job_details"]} == set(jobs)
    for job_id in jobs:
        assert (await status_of(http, job_id))["status"] == "cancelled"


async def test_resume_takes_the_steps_that_are_left(
    http: AsyncClient, model: Json, gate: Held
) -> None:
    job_id = await submit(http, model["id"], steps=8)
    await reach(http, job_id, 3)
    await http.post("/v2/rollouts/cancel", json={"job_id": job_id})
    before = await tree(http, model["id"])
    gate.go_on.clear()
    resumed = await resume(http, job_id)
    assert (resumed.status_code, resumed.json()["step"]) == (200, len(before))
    twice = await resume(http, job_id)
    assert (twice.status_code, "nothing to resume" in detail(twice)) == (409, True)
    gate.go_on.set()
    assert (await ended(http, job_id))["step"] == 8
    rows = await tree(http, model["id"])
    assert len(rows) == 8
    assert rows[len(before)]["prev_model_checkpoint_id"] == before[-1]["id"]
    done = await resume(http, job_id)
    assert (done.status_code, "succeeded" in detail(done)) == (409, True)


async def test_a_resumed_run_goes_on_as_if_never_stopped(
    http: AsyncClient, engine: ToyEngine
) -> None:
    whole, parts = await fork(http, "whole"), await fork(http, "parts")
    await ran(http, whole["id"], steps=6)
    engine.rest_after(2)
    job_id = await submit(http, parts["id"], steps=6)
    await reach(http, job_id, 2)
    await cancel(http, job_id)
    engine.go_on()
    await resume(http, job_id)
    await ended(http, job_id)
    one, other = await tree(http, whole["id"]), await tree(http, parts["id"])
    assert [row["groups"] for row in one] == [row["groups"] for row in other]


async def test_the_engine_stops_in_a_run(http: AsyncClient, engine: ToyEngine) -> None:
    for verb in ("sample", "forward_backward", "optim_step", "open"):
        model = await fork(http, verb)
        engine.kill_next = verb
        status = await ended(http, await submit(http, model["id"], steps=2))
        assert (status["status"], engine.kill_next) == ("succeeded", ""), status
        assert len(await tree(http, model["id"])) == 2
        rows = await traces_of(http, status["id"])
        keys = ("step", "task_slug", "rollout", "evaluates")
        places = {tuple(row[key] for key in keys) for row in rows}
        assert len(rows) == len(places), "a step that is repeated has its rollouts once"


async def test_an_engine_that_keeps_stopping_fails_the_run(
    http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def dies(verb: str) -> None:
        nonlocal calls
        if verb == "forward_backward":
            calls += 1
            engine.kill_next = verb
            ToyEngine._reach(engine, verb)

    monkeypatch.setattr(engine, "_reach", dies)
    model = await fork(http)
    status = await ended(http, await submit(http, model["id"], steps=2))
    assert (status["status"], status["error"]["code"]) == ("failed", "engine")
    assert calls == 1 + engine_rollouts.LOST_IN_A_ROW
    assert (await tree(http, model["id"])) == []


async def test_zero_variance_ends_the_run_and_every_attempt_at_its_step_has_its_own_mark(
    http: AsyncClient, engine: ToyEngine
) -> None:
    engine.flatten()
    model = await fork(http)
    job_id = await submit(http, model["id"], steps=3, group_size=2, tasks_per_step=2)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["reason"]) == ("failed", 0, None)
    assert status["error"]["code"] == "zero_variance"
    said = status["error"]["message"]
    assert "the last 20 batches had reward 0: too hard for this model: choose easier tasks" in said
    assert "every group had zero variance" in said
    assert (await tree(http, model["id"])) == []
    assert status["attempt"] == FLAT_IN_A_ROW + 1
    [listed] = (await http.get("/v2/jobs")).json()["items"]
    rows = await traces_of(http, job_id, step=1)
    assert (listed["num_traces"], listed["metadata"]["sampled_step"]) == (len(rows), 1)
    trained = Counter(row["attempt"] for row in rows if not row["heldout"])
    assert trained == dict.fromkeys(range(1, FLAT_IN_A_ROW + 1), 4)
    places = {(row["attempt"], row["task_slug"], row["rollout"]) for row in rows}
    assert len(places) == len(rows)
    await resume(http, job_id)
    assert (await ended(http, job_id))["attempt"] == 2 * FLAT_IN_A_ROW + 1
    rows = await traces_of(http, job_id)
    counts = Counter(row["attempt"] for row in rows if not row["heldout"])
    assert counts == dict.fromkeys(range(1, 2 * FLAT_IN_A_ROW + 1), 4), "it goes on counting"


async def test_a_solved_taskset_ends_the_run_well(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    await ran(http, model["id"], steps=1)
    engine.flatten(solved=True)
    job_id = await submit(http, model["id"], steps=3, group_size=2, tasks_per_step=2)
    status = await ended(http, job_id)
    assert (status["status"], status["step"], status["error"]) == ("succeeded", 0, None)
    why = "solved: every rollout of the last 20 batches had reward 1; no gradient left"
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


@pytest.mark.usefixtures("hurried")
async def test_a_batch_whose_rollouts_cannot_be_stored_is_trained_on_once(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored while it is passed, and the pass is made again with them."""
    add, failures = managed_run.add_rollouts, [0]

    def short_of_files(*given: Any) -> None:
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        add(*given)

    monkeypatch.setattr(managed_run, "add_rollouts", short_of_files)
    taken = []
    for failures[0] in (0, 2):
        model = await fork(http, f"{failures[0]} failures")
        status = await ended(http, await submit(http, model["id"], steps=2, seed=1))
        assert (status["status"], status["step"]) == ("succeeded", 2)
        taken.append([row["num_datums"] for row in await tree(http, model["id"])])
    assert failures == [0]
    assert taken[0] == taken[1]


# A run whose end cannot be written down has ended all the same.


class Disk:
    """Full at first: nothing says how a run ended."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full, self.refused, self._finish = True, 0, works.finish
        patch.setattr(works, "finish", self.finish)

    def finish(self, db: Db, *args: Any, **columns: Any) -> Any:
        if self.full:
            self.refused += 1
            raise sqlite3.OperationalError("database or disk is full")
        return self._finish(db, *args, **columns)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(context, "backoff", lambda failures: 0.01)
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


async def test_an_evaluation_is_resumed_where_its_end_could_not_be_stored(
    http: AsyncClient, service: Service, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "backoff", lambda failures: 3600.0)
    model = await fork(http)
    url = f"/v1/models/{model['id']}/evaluations"
    with monkeypatch.context() as patch:
        patch.setattr(works, "mark", disk.finish)
        body = {"tasks": await tasks_of(http), "parameters": {"samples": 1}}
        evaluation = f"/v1/evaluations/{(await http.post(url, json=body)).json()['id']}"
        await until(lambda: disk.refused > 1)
    assert (await http.get(evaluation)).json()["status"] == "queued"
    disk.full = False
    resume = evaluation.replace("evaluations", "training/jobs") + "/resume"
    assert (await http.post(resume)).status_code == 200
    assert (await at_end(http, evaluation))["status"] == "succeeded"


async def test_the_model_is_free(
    http: AsyncClient, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "backoff", lambda failures: 3600.0)
    model = await fork(http)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await ran(http, model["id"], steps=1)
    disk.full = False
    assert (await pass_(http, model["id"], inputs)).status_code == 200


async def test_it_can_be_resumed(
    http: AsyncClient, service: Service, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "backoff", lambda failures: 3600.0)
    model = await fork(http)
    with monkeypatch.context() as patch:
        patch.setattr(works, "mark", disk.finish)
        job_id = await submit(http, model["id"], steps=2)
        assert (await ended(http, job_id))["status"] == "failed"
    assert await stored(service, job_id) == "queued"
    disk.full = False
    assert (await http.post(f"/v1/training/jobs/{job_id}/resume")).status_code == 200
    assert (await ended(http, job_id))["status"] == "succeeded"
    assert len(await tree(http, model["id"])) == 2
