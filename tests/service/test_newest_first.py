"""What is listed newest first after the clock went back; and the taskset of a job."""

import httpx
import pytest

from hud_tui.client.runs import RunList
from hud_tui.rl.checkpoint_tree import own_models
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, models
from hud_tui.tui.rollout_reader import job_rows
from hud_tui.wire import Model
from hud_tui.wire_runs import JobDataset
from tests.conftest import ended
from tests.service.clients import fork_of, in_process, run_of

DAY_S = 86_400.0


async def test_the_newest_is_first_whatever_the_clock_says(
    service: Service, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 5 * DAY_S
    for store in (jobs, models):
        monkeypatch.setattr(store, "now", lambda: clock)
    async with in_process(service) as client:
        table = RunList(client, dict, dict)
        made: list[tuple[Model, str]] = []
        for _ in range(3):
            model = await fork_of(client, f"fork {len(made)}")
            job_id = (await client.runs.submit(await run_of(client, model, steps=1))).job_id
            await ended(http, job_id)
            made.insert(0, (model, job_id))
            assert [row.id for row in await table.read()] == [id_ for _, id_ in made]
            clock -= DAY_S
        ids = [id_ for _, id_ in made]
        listed = await client.jobs()
        assert [job.id for job in listed] == ids
        assert [row.key for row in job_rows(listed, "", clock)] == ids
        assert [row.id for row in await RunList(client, dict, dict).read()] == ids
        own = own_models(await client.models())
        assert [model.id for model in own] == [model.id for model, _ in made]


async def test_a_job_names_its_run_s_taskset(service: Service, http: httpx.AsyncClient) -> None:
    async with in_process(service) as client:
        model = await fork_of(client)
        whole = await run_of(client, model, steps=1)
        some = whole.model_copy(update={"dataset": JobDataset(tasks=whole.dataset.tasks[:8])})
        for body, name in ((whole, "arith"), (some, "8 arith tasks")):
            start = "base" if body is whole else (await client.checkpoints(model.id))[-1].id
            job_id = (await client.runs.submit(body.model_copy(update={"start": start}))).job_id
            await ended(http, job_id)
            [job] = [job for job in await client.jobs() if job.id == job_id]
            assert job.taskset_name == name
            assert bool(job.taskset_id) is (body is whole)
            if job.taskset_id:
                assert [one.id for one in await client.jobs(taskset_id=job.taskset_id)] == [job_id]
