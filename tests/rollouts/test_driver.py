"""The driver's loop against the real service: steps, failures, cancel, edits, evaluation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hud_tui.client.client import HudClient
from hud_tui.errors import HudConflict, HudNotFound, HudUnclear, HudUnreachable
from hud_tui.rollouts.control import status_from_files
from hud_tui.rollouts.process import WorkerProcess
from hud_tui.wire_training import OptimStep, OptimStepResult
from tests.conftest import Served, until
from tests.rollouts.driving import (
    SUMS,
    begun,
    check_tree,
    driver_of,
    order_for,
    settings_of,
    write_sums,
)
from tests.service.clients import fork_of, over_socket

BROKEN = [*SUMS[:3], {"args": {"a": 1, "b": 1, "fault": "error"}}]


async def test_a_run_takes_its_steps_and_is_a_run_like_any_other(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        order = order_for(model, write_sums(tmp_path / "env"), served.service.data_dir)
        folder = begun(tmp_path / "state", order)
        status = await driver_of(folder, settings_of(served.url, served.api_key)).run()
        assert status == "succeeded"
        await check_tree(client, model.id, 3)
        tree = await client.checkpoints(model.id)
        assert {node.job_id for node in tree} == {order.job_id}
        job = await client.job_status(model.id)
        assert (job.id, job.status, job.step, job.steps) == (order.job_id, "succeeded", 3, 3)
        assert job.parameters is not None
        assert job.parameters["learning_rate"] == 0.3
        page = await client.run_page()
        [row] = [one for one in page.items if one.id == order.job_id]
        assert (row.kind, row.step, row.taskset) == ("training", 3, "sums.py")
        traces = await client.job_traces(order.job_id, 2)
        assert len(traces) >= 12
        assert {trace.step for trace in traces} == {2}
    state = folder.state()
    assert (state.step, state.batch, state.failed) == (3, None, 0)
    assert folder.groups() == []


async def test_the_last_checkpoint_is_evaluated_on_the_held_out_tasks(
    served: Served, tmp_path: Path
) -> None:
    held = [{**row, "columns": {"split": "heldout"}} for row in SUMS[:2]]
    source = write_sums(tmp_path / "env", [*held, *SUMS[2:]])
    async with over_socket(served) as client:
        model = await fork_of(client)
        more = {"parameters": {"steps": 2, "eval_every": 1, "eval_samples": 2}}
        order = order_for(model, source, served.service.data_dir, **more)
        folder = begun(tmp_path / "state", order)
        await driver_of(folder, settings_of(served.url, served.api_key)).run()
        tree = await client.checkpoints(model.id)
    for node in tree:
        [evaluation] = node.evaluations
        assert (evaluation.num_tasks, evaluation.num_traces) == (2, 4)
        assert evaluation.job_id == order.job_id


async def test_the_group_of_a_failed_rollout_is_dropped_and_the_failure_kept(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        source = write_sums(tmp_path / "env", BROKEN)
        more = {"parameters": {"steps": 2, "tasks_per_step": 4}}
        order = order_for(model, source, served.service.data_dir, **more)
        folder = begun(tmp_path / "state", order)
        status = await driver_of(folder, settings_of(served.url, served.api_key)).run()
        assert status == "succeeded"
        await check_tree(client, model.id, 2)
    state, failures = folder.state(), folder.failures()
    assert state.failed == len(failures) >= 8
    assert state.groups_lost == state.failed // 4
    assert sum(one["groups_lost"] for one in failures) == state.groups_lost
    assert (failures[0]["file"], failures[0]["line"]) == ("sums.py", 12)
    assert failures[0]["trace_id"]


async def test_the_run_stops_after_so_many_failed_rollouts(served: Served, tmp_path: Path) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        source = write_sums(tmp_path / "env", BROKEN)
        more = {"failed": "stop", "stop_after": 3, "parameters": {"tasks_per_step": 4}}
        order = order_for(model, source, served.service.data_dir, **more)
        folder = begun(tmp_path / "state", order)
        status = await driver_of(folder, settings_of(served.url, served.api_key)).run()
        assert status == "failed"
        job = await client.job_status(order.job_id)
        assert job.error is not None
        assert "sums.py:12 in add: KeyError" in str(job.error)
        assert await client.checkpoints(model.id) == []
    assert folder.state().error is not None


async def test_an_environment_of_which_no_rollout_is_graded_ends_its_run(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        source = write_sums(tmp_path / "env", BROKEN[3:])
        order = order_for(model, source, served.service.data_dir)
        folder = begun(tmp_path / "state", order)
        status = await driver_of(folder, settings_of(served.url, served.api_key)).run()
        assert status == "failed"
        job = await client.job_status(order.job_id)
        assert "no rollout of 3 batches was graded" in str(job.error)


async def test_cancel_is_heard_the_step_is_whole_and_resume_goes_on_with_an_edited_file(
    served: Served, tmp_path: Path
) -> None:
    source = write_sums(tmp_path / "env")
    async with over_socket(served) as client:
        model = await fork_of(client)
        order = order_for(
            model, source, served.service.data_dir, parameters={"steps": 200, "learning_rate": 1e-6}
        )
        folder = begun(tmp_path / "state", order)
        settings = settings_of(served.url, served.api_key)
        running = asyncio.create_task(driver_of(folder, settings).run())
        await until(lambda: folder.state().step >= 2)
        assert (await client.cancel_job(order.job_id)).cancelled == 1
        assert await running == "cancelled"
        assert (await client.job_status(order.job_id)).status == "cancelled"
        taken = folder.state().step
        await check_tree(client, model.id, taken)

        source.write_text("#" + json.dumps(SUMS[:4]))
        order = order.model_copy(update={"parameters": {**order.parameters, "steps": taken + 2}})
        folder.save_order(order)
        assert await driver_of(folder, settings).run() == "succeeded"
        await check_tree(client, model.id, taken + 2)
        assert "changed" not in (await client.job_status(order.job_id)).status


async def test_a_step_that_another_client_takes_meanwhile_is_refused(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        order = order_for(
            model,
            write_sums(tmp_path / "env"),
            served.service.data_dir,
            parameters={"steps": 99, "learning_rate": 1e-6},
        )
        folder = begun(tmp_path / "state", order)
        running = asyncio.create_task(
            driver_of(folder, settings_of(served.url, served.api_key)).run()
        )
        await until(lambda: folder.state().step >= 1)
        other = await fork_of(client, "another")
        assert other.id != model.id
        await _is_refused(client, model.id, order.job_id)
        folder.ask_to_cancel()
        assert await running == "cancelled"


async def _is_refused(client: HudClient, model_id: str, job_id: str) -> None:
    with pytest.raises(HudConflict, match=job_id):
        await client.optim_step(model_id, OptimStep(learning_rate=0.1))


async def test_the_head_is_moved_meanwhile_and_the_run_goes_on_from_there(
    served: Served, tmp_path: Path
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        order = order_for(
            model, write_sums(tmp_path / "env"), served.service.data_dir, parameters={"steps": 6}
        )
        folder = begun(tmp_path / "state", order)
        running = asyncio.create_task(
            driver_of(folder, settings_of(served.url, served.api_key)).run()
        )
        await until(lambda: folder.state().step >= 2)
        first = (await client.checkpoints(model.id))[0]
        await client.set_head(model.id, first.id)
        assert await running == "succeeded"
        tree = await client.checkpoints(model.id)
    assert len(tree) == 6
    children = [node for node in tree if node.prev_model_checkpoint_id == first.id]
    assert len(children) == 2


async def test_a_worker_that_ends_by_itself_again_and_again_ends_the_run(
    served: Served, tmp_path: Path
) -> None:
    rows = [{"args": {"a": 1, "b": 1, "fault": "exit"}}]
    workers: list[WorkerProcess] = []
    async with over_socket(served) as client:
        model = await fork_of(client)
        source = write_sums(tmp_path / "env", rows)
        order = order_for(model, source, served.service.data_dir)
        folder = begun(tmp_path / "state", order)
        settings = settings_of(served.url, served.api_key)
        assert await driver_of(folder, settings, workers).run() == "failed"
        job = await client.job_status(order.job_id)
        assert "ended with code 7" in str(job.error)
    assert len(workers) == 6


async def test_on_a_service_without_driven_runs_and_keys_the_tree_says_what_was_done(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HUD's: its run is a job that reports rollouts."""

    async def unknown(self: HudClient, *args: object) -> None:
        raise HudNotFound(404, "not found")

    step, lost = HudClient.optim_step, iter((True, False))

    async def answer_lost(self: HudClient, *args: Any, **more: Any) -> OptimStepResult:
        result = await step(self, *args, **more)
        if next(lost, False):
            raise HudUnclear(HudUnreachable("no answer"))
        return result

    for name in ("drive", "report", "settle"):
        monkeypatch.setattr(HudClient, name, unknown)
    monkeypatch.setattr(HudClient, "optim_step", answer_lost)
    async with over_socket(served) as client:
        model = await fork_of(client)
        order = order_for(model, write_sums(tmp_path / "env"), served.service.data_dir)
        folder = begun(tmp_path / "state", order)
        settings = settings_of(served.url, served.api_key)
        assert await driver_of(folder, settings).run() == "succeeded"
        await check_tree(client, model.id, 3)
        job = await client.job(order.job_id)
        assert (job.name, job.group_size) == ("sums", 4)
    assert next(lost, None) is None
    assert status_from_files(folder).step == 3
