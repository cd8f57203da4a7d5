"""An embedded service of its own, with a model that was trained for some steps."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hud_tui.client.client import HudClient
from hud_tui.events import WorkChanged
from hud_tui.local_service import connect_local, stop
from hud_tui.rl.work import ENDED
from hud_tui.settings import Paths
from hud_tui.wire_runs import JobConfig, JobDataset, JobParameters, SubmitJob
from tests.bench.terminal import places


@asynccontextmanager
async def service() -> AsyncIterator[tuple[HudClient, dict[str, str]]]:
    """A client of it, and the variables with which a program finds it; it ends with the block."""
    with tempfile.TemporaryDirectory() as home:
        environ = places(home)
        paths = Paths(*(Path(directory) for directory in environ.values()))
        client = await connect_local(paths, lambda text: None)
        try:
            yield client, environ
        finally:
            await client.aclose()
            await stop(paths)


async def train(client: HudClient, steps: int) -> None:
    """A fork of the arith base with so many steps; it has ended."""
    model = await client.fork((await client.model("arith-0.2M")).id, "bench")
    tasks = (await client.tasks.taskset("arith")).tasks
    parameters = JobParameters(steps=steps, group_size=2, tasks_per_step=2)
    body = SubmitJob(
        model_id=model.id, dataset=JobDataset(tasks=tasks), config=JobConfig(parameters=parameters)
    )
    job_id = (await client.runs.submit(body)).job_id
    async for event in client.feed(model.id):
        if (
            isinstance(event, WorkChanged)
            and event.work.id == job_id
            and event.work.status in ENDED
        ):
            return
