"""The driver's loop against the real service, whatever fails, is edited, cancelled or killed."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing, suppress
from itertools import chain
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest

from hud_tui.client.client import HudClient
from hud_tui.client.run_calls import RunCalls
from hud_tui.client.training_calls import TrainingCalls
from hud_tui.errors import HudConflict, HudError, HudNotFound, HudUnclear, HudUnreachable
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.drawing import Drawing
from hud_tui.rl.loop import FLAT_IN_A_ROW
from hud_tui.rl.metrics import TASK_COUNTS
from hud_tui.rl.rollouts import rollout_groups
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.timeline import (
    ENVIRONMENT,
    EVALUATING,
    FORWARD_BACKWARD,
    GRADING,
    OPTIM_STEP,
    SAMPLING,
    SAVING,
    account_all,
    account_of,
)
from hud_tui.rollouts import driver as driver_module
from hud_tui.rollouts import service as service_link
from hud_tui.rollouts import worker_rollouts
from hud_tui.rollouts.control import status_from_files
from hud_tui.rollouts.process import WorkerProcess
from hud_tui.rollouts.run_files import RunFolder
from hud_tui.service.store import jobs
from hud_tui.service_file import ServiceReady
from hud_tui.settings import local_settings
from hud_tui.wire import BASE, WorkState
from hud_tui.wire_rollouts import TraceEnter
from hud_tui.wire_runs import DriveReport, DriveRun, KeepEvaluation
from hud_tui.wire_training import OptimStep, OptimStepResult
from tests.conftest import PATIENCE_S, serve_process, until
from tests.rollouts.drive import MOMENTS, driving
from tests.rollouts.driving import (
    SUMS,
    Driven,
    begun,
    check_tree,
    driver_of,
    order_for,
    settings_of,
    write_sums,
)
from tests.service.calls import Held
from tests.service.headless import point_at
from tests.ways import Way, assert_is_whole, follow_threads

BROKEN = [*SUMS[:3], {"args": {"a": 1, "b": 1, "fault": "error"}}]


async def test_a_run_takes_its_steps_and_is_a_run_like_any_other(driven: Driven) -> None:
    client, folder, began = driven.client, driven.begin(), monotonic()
    job_id = folder.order().job_id
    assert await driven.drive(folder) == "succeeded"
    took_s = monotonic() - began
    assert not [task for task in asyncio.all_tasks() if "report_until" in repr(task.get_coro())]
    await driven.check(3)
    assert {node.job_id for node in await client.checkpoints(driven.model.id)} == {job_id}
    job = await client.job_status(driven.model.id)
    assert (job.id, job.status, job.step, job.steps) == (job_id, "succeeded", 3, 3)
    assert job.parameters is not None
    assert job.parameters["learning_rate"] == 0.3
    [row] = [item for item in (await client.runs.run_page()).items if item.id == job_id]
    assert (row.kind, row.step, row.taskset) == ("training", 3, "sums")
    assert 0 < (row.busy_s or 0) < took_s
    traces = await client.rollouts.job_traces(job_id, 2)
    assert len(traces) >= 12
    assert {trace.step for trace in traces} == {2}
    state = folder.state()
    assert (state.step, state.batch, state.failed) == (3, None, 0)
    tree = await client.checkpoints(driven.model.id)
    assert state.tokens == sum(node.num_tokens or 0 for node in tree) > 0
    assert folder.groups() == []


async def test_groups_are_rolled_out_while_a_step_is_taken(driven: Driven) -> None:
    client, folder = driven.client, driven.begin(parameters={"steps": 4, "max_staleness": 1})
    training = Held(driven.served.service.parts.engine, "optim_step")
    running = asyncio.create_task(driven.drive(folder))

    async def is_rolled_out_ahead() -> bool:
        return training.waiting > 0 and len({g["iteration"] for g in folder.groups()}) == 2

    await until(is_rolled_out_ahead)
    training.go_on.set()
    assert await running == "succeeded"
    await driven.check(4)
    first, *later = tree = await client.checkpoints(driven.model.id)
    assert first.sampled_from is None
    samplers = [BASE, *(node.id for node in tree)]
    stale = [node.sampled_from is not None for node in later]
    assert any(stale), "a batch after one without a gradient is sampled from the head"
    for number, node in enumerate(later):
        sampler = samplers[number] if stale[number] else samplers[number + 1]
        assert node.sampled_from in (None, {sampler: node.num_traces})
        assert node.metrics["staleness_max"] == float(stale[number])
        traces = await client.rollouts.checkpoint_traces(driven.model.id, node.id)
        trained = {trace.trace_id for trace in traces}
        listed = await client.rollouts.job_traces(folder.order().job_id, number + 2)
        assert {trace.sampled_from for trace in listed if trace.id in trained} == {sampler}
    assert folder.groups() == []


async def test_groups_that_were_rolled_out_ahead_go_with_the_head_that_sampled_them(
    driven: Driven,
) -> None:
    client, folder = driven.client, driven.begin(parameters={"steps": 5, "max_staleness": 2})
    training = Held(driven.served.service.parts.engine, "optim_step")
    training.go_on.set()
    running = asyncio.create_task(driven.drive(folder))
    await until(lambda: folder.state().step >= 3)
    training.go_on.clear()
    await until(lambda: training.waiting > 0)
    tree = await client.checkpoints(driven.model.id)
    moving = asyncio.create_task(client.set_head(driven.model.id, tree[0].id))
    training.go_on.set()
    await moving
    known = len(await client.checkpoints(driven.model.id))
    assert await running == "succeeded"
    tree = await client.checkpoints(driven.model.id)
    assert len(tree) == 5
    above = {BASE, tree[0].id}
    for node in tree[known:]:
        assert set(node.sampled_from or [node.prev_model_checkpoint_id]) <= above
        above.add(node.id)


@pytest.mark.parametrize("ahead", [0, 1])
async def test_tasks_are_drawn_by_what_every_process_of_the_run_saw(
    driven: Driven, ahead: int
) -> None:
    chosen = {"steps": 200, "learning_rate": 1e-6, "draw": "signal", "max_staleness": ahead}
    rows = [{**row, "slug": f"sum-{number}"} for number, row in enumerate(SUMS)]
    folder = driven.begin(rows, parameters=chosen)
    running = asyncio.create_task(driven.drive(folder))
    await until(lambda: folder.state().step >= 2)
    await driven.client.cancel_job(folder.order().job_id)
    assert await running == "cancelled"
    parameters = {**folder.order().parameters, "steps": folder.state().step + 3}
    folder.save_order(folder.order().model_copy(update={"parameters": parameters}))
    assert await driven.drive(folder) == "succeeded"

    tasks = [Task("sums", "add", slug=row["slug"]) for row in rows]
    drawing = Drawing(folder.order().parameters)
    batches = dict(folder.seen())
    assert list(batches) == list(range(folder.state().iteration))
    for iteration, groups in batches.items():
        assert {task.slug for task in drawing.tasks_of(tasks, iteration)} == set(groups)
        drawing.saw(iteration, groups.items())

    tree = await driven.client.checkpoints(driven.model.id)
    assert {node.draw for node in tree} == {"signal"}
    assert Tree.of(tree).own(ROOT).reward is None
    for node in tree:
        assert sum(node.metrics[key] for key in TASK_COUNTS) == len(SUMS)
    first = next(
        groups for groups in batches.values() if any(len({*row}) > 1 for row in groups.values())
    )
    assert {group.task_slug for group in tree[0].groups} == set(first)
    assert tree[-1].metrics["tasks_unseen"] == len(SUMS) - len({*chain(*batches.values())})


async def test_several_steps_on_one_batch(driven: Driven) -> None:
    folder = driven.begin(parameters={"steps": 5, "substeps": 2})
    assert await driven.drive(folder) == "succeeded"
    tree = await driven.client.checkpoints(driven.model.id)
    assert [node.step for node in tree] == [1, 2, 3, 4, 5]
    rewards = [[group.rewards for group in node.groups] for node in tree]
    assert rewards[0] == rewards[1]
    assert rewards[2] == rewards[3]
    assert tree[1].sampled_from == {BASE: tree[1].num_traces}
    assert tree[2].sampled_from is None
    state = folder.state()
    assert (state.step, folder.groups()) == (5, [])
    assert state.iteration >= 3, "more if one had no gradient"


async def test_every_step_is_accounted_for_and_evaluated_on_the_held_out_tasks(
    driven: Driven,
) -> None:
    held = [{**row, "columns": {"split": "heldout"}} for row in SUMS[:2]]
    parameters = {"steps": 3, "eval_every": 1, "eval_samples": 2}
    folder = driven.begin([*held, *SUMS[2:]], parameters=parameters)
    await driven.drive(folder)
    for node in await driven.client.checkpoints(driven.model.id):
        [evaluation] = node.evaluations or ()
        assert (evaluation.num_tasks, evaluation.num_traces) == (2, 4)
        assert evaluation.job_id == folder.order().job_id
    told = await driven.client.runs.run_time(folder.order().job_id)
    assert [time.step for time in told.steps] == [1, 2, 3]
    for time in told.steps:
        spent = account_of(time)
        assert not time.is_outside
        wanted = {SAMPLING, ENVIRONMENT, GRADING, FORWARD_BACKWARD, OPTIM_STEP, SAVING}
        assert wanted <= spent.parts.keys()
        assert spent.rollouts % 12 == 0, "more if a batch had no gradient"
        assert len(time.model_dump_json()) < 12_000
        assert all(bar.sampling_s and bar.grading_s for bar in time.rollouts)
    # a busy machine may pause between two calls of one of them
    best = min(map(account_of, told.steps), key=lambda spent: spent.idle)
    assert best.accounted >= 0.98 or best.idle < 0.05, told.steps
    assert EVALUATING in account_of(told.steps[1]).parts
    assert sum(told.discarded.values()) == sum(account_all(told.steps).discarded.values())


async def test_rollouts_of_a_driven_run_are_discarded_with_a_reason(driven: Driven) -> None:
    folder = driven.begin(BROKEN, failed="resample", parameters={"steps": 2, "tasks_per_step": 4})
    await driven.drive(folder)
    job_id = folder.order().job_id
    told = await driven.client.runs.run_time(job_id)
    assert (told.discarded["resampled"], told.discarded["failed"]) == (16, 8)
    listed = (await driven.client.runs.discarded(job_id)).items
    assert Counter(item.reason for item in listed) == told.discarded
    lost = [item for item in listed if item.reason in ("resampled", "failed")]
    assert len({item.task_slug for item in lost}) == 1
    for item in lost:
        trace = await driven.client.rollouts.trace(item.trace_id)
        assert trace.status == "error"


async def test_a_step_takes_the_way_that_is_written_down(driven: Driven) -> None:
    way = Way("From `train env.py` to a step")
    await follow_threads(driven.served.service, way)
    folder = driven.begin(parameters={"steps": 1})
    with way.traced():
        assert await driven.drive(folder) == "succeeded"
    assert_is_whole(way, 30)


async def test_a_run_that_ends_in_its_evaluation_makes_only_the_rest_of_it(driven: Driven) -> None:
    client, held = driven.client, {"columns": {"split": "heldout"}}
    rows = [{**row, **held} for row in SUMS[:4]]
    rows.append({"args": {"a": 8, "b": 8, "fault": "wait"}, **held})
    folder = driven.begin([*rows, *SUMS[4:]], parameters={"steps": 1, "eval_samples": 2})
    running = asyncio.create_task(driven.drive(folder))

    async def graded() -> list[str | None]:
        with suppress(HudNotFound):
            found = await client.rollouts.job_traces(
                str(uuid5(UUID(folder.order().job_id), "evaluation 1"))
            )
            return [trace.task_slug for trace in found if trace.reward is not None]
        return []

    async def is_halfway() -> bool:
        return len(await graded()) == 8

    await until(is_halfway)
    await client.cancel_job(folder.order().job_id)
    assert await running == "cancelled"
    (driven.directory / "env" / "go").touch()
    assert await driven.drive(folder) == "succeeded"
    [node] = await client.checkpoints(driven.model.id)
    [evaluation] = node.evaluations or ()
    assert (evaluation.num_tasks, evaluation.num_traces) == (5, 10)
    assert set(Counter(await graded()).values()) == {2}, "none is made twice"


async def test_its_evaluation_goes_on_when_the_service_took_its_driver_for_gone(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_rollouts, "BEAT_S", 0.02)
    client, store = driven.client, driven.served.service.parts.store
    rows = [{"args": {"a": 8, "b": 8, "fault": "wait"}, "columns": {"split": "heldout"}}, *SUMS]
    folder = driven.begin(rows, parameters={"steps": 1})
    running = asyncio.create_task(driven.drive(folder))

    async def statuses() -> list[str]:
        url = client.wire.rl("/v1/models/{}/evaluations", driven.model.id)
        return [evaluation.status for evaluation in await client.wire.get(url, list[WorkState])]

    async def is_evaluating() -> bool:
        return await statuses() == ["running"]

    await until(is_evaluating)
    await store.write(jobs.end_abandoned, lambda work_id: jobs.ABANDONED_S)
    await until(is_evaluating)
    (driven.directory / "env" / "go").touch()
    assert await running == "succeeded"
    assert await statuses() == ["succeeded"]


async def test_a_client_is_closed_when_no_call_can_use_it_any_more(driven: Driven) -> None:
    settings = settings_of(driven.served.url, driven.served.api_key)
    link = service_link.ServiceLink(lambda: HudClient(settings), lambda: False)
    clients = []
    for _ in range(service_link.MOST_FORGOTTEN + 1):
        clients.append(link.client)
        await clients[-1].whoami()
        await link.forget()
    is_closed = [client.wire.http.is_closed for client in clients]
    assert is_closed == [True, *[False] * service_link.MOST_FORGOTTEN]
    await link.close()
    assert all(client.wire.http.is_closed for client in clients)


@pytest.mark.parametrize("is_away_at", ["start", "a step"])
async def test_a_cancel_is_heard_while_the_service_is_away(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, is_away_at: str
) -> None:
    monkeypatch.setattr(service_link, "RETRY_S", 0.02)
    monkeypatch.setattr(worker_rollouts, "BEAT_S", 0.02)
    folder = driven.begin(parameters={"steps": 500})
    settings = [settings_of(driven.served.url, driven.served.api_key)]
    calls = driver_of(folder, lambda: settings[0] if settings else None)
    if is_away_at == "start":
        settings.clear()
    running = asyncio.create_task(calls.run())
    if is_away_at == "a step":
        await until(lambda: folder.state().step >= 1)
        settings.clear()
        await calls._service.forget()
    await asyncio.sleep(0.1)
    folder.ask_to_cancel()
    assert await asyncio.wait_for(running, PATIENCE_S) == "cancelled"
    assert folder.state().status == "cancelled"


async def test_a_run_that_the_service_does_not_let_begin_fails_with_what_it_says(
    driven: Driven,
) -> None:
    other = DriveRun(model_id=driven.model.id, name="sums", driver="here:1", parameters={})
    await driven.client.runs.drive(str(uuid4()), other)
    folder = driven.begin()
    assert await driven.drive(folder) == "failed"
    assert "is training this model" in (folder.state().error or {})["message"]


async def test_what_a_lost_report_told_is_told_with_the_next_and_once(driven: Driven) -> None:
    driver = driver_of(driven.begin(), lambda: None)
    driver._wasted = 3
    driver._watch.discard("stale", [{"trace_id": "t"}])
    told = []
    for is_lost in (True, False, False):
        with suppress(HudUnreachable), driver._reporting() as report:
            told.append((report.wasted, report.time.discarded))
            if is_lost:
                raise HudUnreachable("no answer")
    assert told == [(3, {"stale": ["t"]}), (3, {"stale": ["t"]}), (0, {})]


async def test_a_cancel_before_its_first_report_is_not_lost(driven: Driven) -> None:
    folder = driven.begin()
    folder.ask_to_cancel()
    assert await driven.drive(folder) == "cancelled"


async def test_the_group_of_a_failed_rollout_is_dropped_and_the_failure_kept(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hud_tui.driver")
    folder = driven.begin(BROKEN, parameters={"steps": 2, "tasks_per_step": 4})
    assert await driven.drive(folder) == "succeeded"
    await driven.check(2)
    state, failures = folder.state(), folder.failures()
    assert state.failed == len(failures) >= 8
    assert state.groups_lost == state.failed // 4
    assert sum(failure["groups_lost"] for failure in failures) == state.groups_lost
    assert (failures[0]["file"], failures[0]["line"]) == ("sums.py", 12)
    cause = f"rollout {failures[0]['trace_id']} failed: sums.py:12 in add: KeyError: 'shelf'"
    assert cause in caplog.text


@pytest.mark.parametrize(
    ("rows", "order", "said", "rollouts"),
    [
        (
            BROKEN,
            {"failed": "stop:3", "parameters": {"tasks_per_step": 4}},
            "sums.py:12 in add: KeyError",
            range(4, 17),
        ),
        (BROKEN[3:], {}, "no rollout of 3 batches was graded", [12]),
        (BROKEN[3:], {"failed": "resample"}, "no rollout of 3 batches was graded", [36]),
    ],
    ids=["so many failed", "none was graded", "none was graded in three attempts"],
)
async def test_a_run_ends_over_rollouts_that_fail(
    driven: Driven, rows: list[Any], order: dict[str, Any], said: str, rollouts: Sequence[int]
) -> None:
    folder = driven.begin(rows, **order)
    assert await driven.drive(folder) == "failed"
    job = await driven.client.job_status(folder.order().job_id)
    assert said in str(job.error)
    assert await driven.client.checkpoints(driven.model.id) == []
    assert (folder.state().error or {})["failure"]["type"] == "KeyError"
    assert folder.state().rollouts in rollouts


async def test_others_are_refused_cancel_is_heard_and_resume_goes_on_with_an_edited_file(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hud_tui.driver")
    client, folder = driven.client, driven.begin(parameters={"steps": 200, "learning_rate": 1e-6})
    order = folder.order()
    running = asyncio.create_task(driven.drive(folder))
    await until(lambda: folder.state().step >= 2)
    with pytest.raises(HudConflict, match=order.job_id):
        await client.training.optim_step(driven.model.id, OptimStep(learning_rate=0.1))
    assert (await client.cancel_job(order.job_id)).cancelled == 1
    assert await running == "cancelled"
    assert (await client.job_status(order.job_id)).status == "cancelled"
    taken = folder.state().step
    await driven.check(taken)

    write_sums(driven.directory / "env", SUMS[:4])
    parameters = {**order.parameters, "steps": taken + 2}
    folder.save_order(order.model_copy(update={"parameters": parameters}))
    assert await driven.drive(folder) == "succeeded"
    await driven.check(taken + 2)
    said = [line for line in caplog.messages if "changed" in line]
    assert said == [f"sums.py was changed at step {taken}"]


async def test_a_run_that_the_service_has_ended_stops_here(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "BEAT_S", 0.05)
    folder = driven.begin([{"args": {"a": 1, "b": 1, "fault": "wait"}}])
    running = asyncio.create_task(driven.drive(folder))
    await until(lambda: folder.state().status == "running")
    await driven.client.runs.report(folder.order().job_id, DriveReport(status="failed"))
    assert await running == "cancelled"


async def test_batches_without_a_gradient_are_told_and_end_the_run(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hud_tui.driver")
    folder = driven.begin(parameters={"group_size": 1, "tasks_per_step": 1})
    assert await driven.drive(folder) == "failed"
    assert folder.state().rollouts == FLAT_IN_A_ROW
    for number in range(1, FLAT_IN_A_ROW + 1):
        said = f"step 1 is sampled again: batch {number} had no gradient: sampled again"
        assert said in caplog.messages


@pytest.mark.parametrize(("refusals", "status"), [(3, "succeeded"), (4, "failed")])
async def test_a_step_that_is_refused_is_sent_three_times_more(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, refusals: int, status: str
) -> None:
    step, left = TrainingCalls.optim_step, iter(range(refusals))

    async def refused(self: TrainingCalls, *args: Any, **more: Any) -> OptimStepResult:
        if next(left, None) is not None:
            raise HudConflict(409, "its gradients were dropped")
        return await step(self, *args, **more)

    monkeypatch.setattr(driver_module, "RETRY_S", 0.01)
    monkeypatch.setattr(TrainingCalls, "optim_step", refused)
    folder = driven.begin(parameters={"steps": 1})
    assert await driven.drive(folder) == status
    state = folder.state()
    assert state.step == (status == "succeeded")
    assert (state.error or {}).get("code") == (None if state.step else "conflict")


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("trouble", [HudUnreachable("no answer"), HudUnclear(HudUnreachable("?"))])
async def test_a_step_that_is_not_answered_is_asked_for_by_its_key(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, lost: str, trouble: HudError
) -> None:
    """It was taken, or is sent again; the worker is told where the service is now."""
    step, left, workers = TrainingCalls.optim_step, iter((trouble,)), list[WorkerProcess]()
    folder, sent = driven.begin(parameters={"steps": 2}), 0

    async def unanswered(
        self: TrainingCalls, model: str, body: OptimStep, key: str, run: str | None
    ) -> OptimStepResult:
        nonlocal sent
        batch, error = folder.state().batch, next(left, None)
        assert batch is not None
        assert batch.step_key == key, "on disk before it is sent"
        sent += 1
        if error is not None and lost == "request":
            raise error
        result = await step(self, model, body, key, run)
        if error is not None:
            raise error
        return result

    monkeypatch.setattr(driver_module, "RETRY_S", 0.01)
    monkeypatch.setattr(TrainingCalls, "optim_step", unanswered)
    assert await driven.drive(folder, workers) == "succeeded"
    await driven.check(2)
    assert (sent, len(workers)) == (3 if lost == "request" else 2, 2)
    assert folder.state().attempt == 1, "no batch was sampled again"


def test_groups_are_sent_together_up_to_a_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "MOST_TOKENS", 20)

    def group(task: str, outputs: int, **prompt: list[int]) -> dict[str, Any]:
        sample = {**prompt, "output_token_ids": [0] * outputs, "output_logprobs": [0.0] * outputs}
        run = {"samples": [sample], "reward": 1.0, "trace_id": uuid4().hex}
        return {"task": task, "runs": [run, {**run, "samples": []}]}

    small, prompted = group("small", 5), group("prompted", 4, prompt_token_ids=[0, 0])
    large = group("large", 11)
    chunks = driver_module.chunks_of([small, prompted, small, large, small, small, small])
    tasks = [[each["task"] for each in chunk] for chunk in chunks]
    assert tasks == [["small", "prompted"], ["small"], ["large"], ["small", "small"], ["small"]]
    body = driver_module.pass_body([prompted], 2, {})
    assert driver_module.pass_body([prompted], 2, {"reward_scale": 0.5}).reward_scale == 0.5
    assert body.inputs[1] == prompted["runs"][1]["trace_id"], "its turns are elsewhere"
    assert not isinstance(body.inputs[0], str)
    assert driver_module.chunks_of([]) == [[]]


async def test_each_rollout_says_its_attempt_however_late_a_report_comes(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_rollouts, "BEAT_S", 10 * PATIENCE_S)
    folder = driven.begin([{"args": {"a": 1, "b": b, "fault": "error"}} for b in (1, 2, 3)])
    for attempts in ({1, 2, 3}, {1, 2, 3, 4, 5, 6}):  # then it is resumed
        assert await driven.drive(folder) == "failed"
        traces = await driven.client.rollouts.job_traces(folder.order().job_id)
        assert {(trace.step, trace.attempt) for trace in traces} == {(1, n) for n in attempts}
        assert [len(group.rollouts) for group in rollout_groups(traces)] == [4] * 3 * len(attempts)


async def test_rollouts_that_nobody_makes_any_more_are_cancelled(driven: Driven) -> None:
    client, run_id, evaluation_id = driven.client, str(uuid4()), str(uuid4())
    run = DriveRun(model_id=driven.model.id, name="sums", driver="here:1", parameters={"steps": 2})
    about = {"model_id": driven.model.id, "run_id": run_id, "driver": "here:1"}
    one = KeepEvaluation(**about, samples=1, num_tasks=1)

    async def unfinished(job_id: str) -> str:
        trace_id = uuid4().hex
        await client.rollouts.enter_trace(trace_id, TraceEnter(job_id=job_id, task_slug="add"))
        assert (await client.rollouts.trace(trace_id)).status == "running"
        return trace_id

    async def is_cancelled(trace_id: str) -> bool:
        found = await client.rollouts.trace(trace_id)
        return found.status == "cancelled" and found.ended_at is not None

    await client.runs.drive(run_id, run)
    left = await unfinished(run_id)
    await client.runs.drive(run_id, run)
    assert await is_cancelled(left), "its driver was killed, and another one began"
    await client.runs.keep_evaluation(evaluation_id, one)
    left = await unfinished(evaluation_id)
    await client.runs.keep_evaluation(evaluation_id, one.model_copy(update={"status": "cancelled"}))
    assert await is_cancelled(left)
    left = await unfinished(run_id)
    await client.runs.report(run_id, DriveReport(note="halfway"))
    assert (await client.rollouts.trace(left)).status == "running"
    await client.runs.report(run_id, DriveReport(status="succeeded"))
    assert await is_cancelled(left)


async def test_the_head_is_moved_meanwhile_and_the_run_goes_on_from_there(driven: Driven) -> None:
    client, folder = driven.client, driven.begin(parameters={"steps": 6})
    running = asyncio.create_task(driven.drive(folder))
    await until(lambda: folder.state().step >= 2)
    first = (await client.checkpoints(driven.model.id))[0]
    await client.set_head(driven.model.id, first.id)
    assert await running == "succeeded"
    tree = await client.checkpoints(driven.model.id)
    assert len(tree) == 6
    assert len([node for node in tree if node.prev_model_checkpoint_id == first.id]) == 2


async def test_a_worker_that_ends_by_itself_again_and_again_ends_the_run(driven: Driven) -> None:
    workers: list[WorkerProcess] = []
    folder = driven.begin([{"args": {"a": 1, "b": 1, "fault": "exit"}}])
    assert await driven.drive(folder, workers) == "failed"
    job = await driven.client.job_status(folder.order().job_id)
    assert "ended with code 7" in str(job.error)
    assert len(workers) == 6


async def test_on_a_service_without_driven_runs_and_keys_the_tree_says_what_was_done(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HUD's: its run is a job that reports rollouts."""

    async def unknown(self: object, *args: object) -> None:
        raise HudNotFound(404, "not found")

    step, lost = TrainingCalls.optim_step, iter((True, False))

    async def answer_lost(self: TrainingCalls, *args: Any, **more: Any) -> OptimStepResult:
        result = await step(self, *args, **more)
        if next(lost, False):
            raise HudUnclear(HudUnreachable("no answer"))
        return result

    for calls, name in ((RunCalls, "drive"), (RunCalls, "report"), (TrainingCalls, "settle")):
        monkeypatch.setattr(calls, name, unknown)
    monkeypatch.setattr(TrainingCalls, "optim_step", answer_lost)
    folder = driven.begin()
    assert await driven.drive(folder) == "succeeded"
    await driven.check(3)
    job = await driven.client.job(folder.order().job_id)
    assert (job.name, job.group_size) == ("sums", 4)
    assert next(lost, None) is None
    assert status_from_files(driven.client, folder).step == 3


KILLS = 20


async def test_the_worker_is_killed_many_times(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_rollouts, "DEATHS_IN_A_ROW", KILLS + 1)
    workers: list[WorkerProcess] = []
    chance = random.Random(5)
    running = asyncio.create_task(driven.drive(driven.begin(parameters={"steps": 9}), workers))
    for kill in range(1, KILLS + 1):
        await until(lambda kill=kill: len(workers) >= kill or running.done())
        await asyncio.sleep(chance.uniform(0, 0.4))  # where in its life it dies is the point
        pid = workers[-1].pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if running.done():
            break
    assert await running == "succeeded"
    await driven.check(9)
    assert len(workers) > 3, "often enough to die in each phase; how often, its speed decides"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("when", "staleness"), [("before", 0), ("after", 2)])
async def test_the_driver_is_killed(
    driven: Driven, moment: str, when: str, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(monkeypatch, driven.served.url, driven.served.api_key)
    folder = driven.begin(mode="hud", parameters={"max_staleness": staleness})
    assert await _end_of(driving(folder, moment, when)) == -signal.SIGKILL
    assert await _end_of(driving(folder)) == 0
    await driven.check(3)
    job = await driven.client.job_status(folder.order().job_id)
    assert (job.status, job.step) == ("succeeded", 3)
    assert folder.state().step == 3


async def test_the_service_is_killed_and_comes_back_at_another_port(tmp_path: Path) -> None:
    data, state, chance = tmp_path / "data", tmp_path / "state", random.Random(3)
    driver: ForkServerProcess | None = None
    folder: RunFolder | None = None
    for kill in range(4):
        async with serve_process(data) as process, aclosing(client_of(process.ready)) as client:
            if driver is None:
                base = next(model for model in await client.models() if "arith" in model.model_name)
                model = await client.fork(base.id, "sums")
                parameters = {"steps": 12, "learning_rate": 3e-4}
                source = write_sums(tmp_path / "env")
                folder = begun(state, order_for(model, source, data, parameters=parameters))
                driver = driving(folder)
            assert folder is not None
            wanted = min(folder.state().step + 2, 12)
            await until(lambda folder=folder, wanted=wanted: folder.state().step >= wanted)
            if kill == 3:
                assert await _end_of(driver) == 0
                await check_tree(client, model.id, 12)
                job = await client.job_status(folder.path.name)
                assert (job.status, job.step) == ("succeeded", 12)
            await asyncio.sleep(chance.uniform(0, 0.3))


async def _end_of(driver: ForkServerProcess) -> int | None:
    """The exit code of a driver that ends."""
    await asyncio.to_thread(driver.join, PATIENCE_S)
    if driver.exitcode is None:
        driver.kill()
    return driver.exitcode


def client_of(ready: ServiceReady) -> HudClient:
    return HudClient(local_settings(ready.url, ready.api_key, ready.telemetry_url))
