"""How long `hud-tui --headless status` takes, as a multiple of a bare script's time.

Run: python -m tests.bench.bench_headless
Both run as processes of their own against one embedded service with a run of 20 steps,
by turns, and the least time of each counts. The bare script (bare_status.py) makes the
same four GETs with httpx and json.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from hud_tui.client.client import HudClient
from hud_tui.connect import connect_local, stop
from hud_tui.events import JobChanged
from hud_tui.rl.job_words import ENDED
from hud_tui.settings import Paths
from hud_tui.wire import JobConfig, JobDataset, JobParameters, SubmitJob

GOAL = 1.6
STEPS, REPEATS = 20, 12
HUD = ("-m", "hud_tui", "--headless", "status")
BARE = ("-m", "tests.bench.bare_status")


def main() -> int:
    ratio = asyncio.run(_measure())
    print(f"headless status / bare script: {ratio:.2f} (goal: at most {GOAL})")
    return ratio > GOAL


async def _measure() -> float:
    async with _service() as client:
        await _train(client)
        settings = client.settings
        environ = {"HUD_API_KEY": settings.api_key} | {
            f"HUD_{name}_URL": settings.api_url for name in ("API", "RL", "GATEWAY", "WEB")
        }
        return await asyncio.to_thread(_ratio, os.environ | environ)


def _ratio(environ: Mapping[str, str]) -> float:
    times: dict[tuple[str, ...], list[float]] = {HUD: [], BARE: []}
    for _ in range(REPEATS):
        for command, taken in times.items():
            start = perf_counter()
            subprocess.run(
                [sys.executable, *command], env=environ, stdout=subprocess.DEVNULL, check=True
            )
            taken.append(perf_counter() - start)
    return min(times[HUD]) / min(times[BARE])


@asynccontextmanager
async def _service() -> AsyncIterator[HudClient]:
    with tempfile.TemporaryDirectory() as place:
        paths = Paths(*(Path(place, kind) for kind in ("config", "state", "data")))
        client = await connect_local(paths, lambda text: None)
        try:
            yield client
        finally:
            await client.aclose()
            await stop(paths)


async def _train(client: HudClient) -> None:
    """A fork of the arith base with STEPS steps, so that there is a status to show."""
    model = await client.fork((await client.model("arith-0.2M")).id, "bench")
    tasks = (await client.taskset("arith")).tasks
    parameters = JobParameters(steps=STEPS, group_size=2, tasks_per_step=2)
    body = SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=tasks),
        config=JobConfig(parameters=parameters),
    )
    job_id = (await client.submit(body)).job_id
    async for event in client.feed(model.id):
        if isinstance(event, JobChanged) and event.job.id == job_id and event.job.status in ENDED:
            return


if __name__ == "__main__":
    sys.exit(main())
