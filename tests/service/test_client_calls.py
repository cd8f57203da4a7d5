"""Every call of the client, against the embedded service."""

import pytest

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound
from hud_tui.wire import UploadTasks
from tests.service.clients import trained


async def test_the_catalog_is_read_to_its_true_total(client: HudClient) -> None:
    bases = await client.models()
    for number in range(101):
        await client.fork(bases[0].id, f"fork {number}")
    models = await client.models()
    assert len(models) == len({model.id for model in models}) == len(bases) + 101


async def test_a_run_from_submission_to_its_traces(client: HudClient) -> None:
    model = await trained(client, steps=2, group_size=2, tasks_per_step=2)
    [job_id] = [job.id for job in await client.jobs()]
    assert (await client.job_status(model.id)).id == job_id
    assert (await client.job(job_id)).id == job_id
    every = await client.job_traces(job_id)
    of_two = [t for t in await client.job_traces(job_id, step=2) if not t.heldout]
    assert len(of_two) == 4
    assert {trace.id for trace in of_two} < {trace.id for trace in every}
    events = await client.trace_events(of_two[0].id)
    assert {"user_message", "agent_message"} <= {event.kind for event in events.events}
    assert (await client.trace(of_two[0].id)).reward == of_two[0].reward
    [_, last] = await client.checkpoints(model.id)
    traces = await client.checkpoint_traces(model.id, last.id)
    assert {trace.trace_id for trace in traces} == {trace.id for trace in of_two}
    assert (await client.cancel_job(job_id)).cancelled == 0


async def test_a_taskset_comes_back_as_it_was_uploaded(client: HudClient) -> None:
    row = {"env": {"name": "arith"}, "task_id": "add", "args": {"a": 1, "b": 2}, "name": "one"}
    await client.upload(UploadTasks(taskset_name="mine", tasks=[row]))
    export = await client.taskset("mine")
    assert (export.name, [task["name"] for task in export.tasks]) == ("mine", ["one"])
    assert "mine" in [taskset.name for taskset in await client.tasksets()]
    with pytest.raises(HudNotFound):
        await client.taskset("not mine")
