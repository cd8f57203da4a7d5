"""Whatever is killed, at whatever moment: nothing is trained twice, and nothing is lost."""

import asyncio
import os
import random
import signal
from contextlib import aclosing, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from hud_tui.client.client import HudClient
from hud_tui.rollouts import driver as driver_module
from hud_tui.rollouts.process import WorkerProcess
from hud_tui.rollouts.run_files import RunFolder
from hud_tui.service_file import ServiceReady
from hud_tui.settings import local_settings
from tests.conftest import PATIENCE_S, serve_process, until
from tests.rollouts.drive import MOMENTS, driving
from tests.rollouts.driving import Driven, begun, check_tree, order_for, write_sums
from tests.service.headless import point_at

KILLS = 50


async def test_the_worker_is_killed_fifty_times(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "DEATHS_IN_A_ROW", KILLS)
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
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_driver_is_killed(
    driven: Driven, moment: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(monkeypatch, driven.served.url, driven.served.api_key)
    folder = driven.begin(mode="hud")
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
                base = next(one for one in await client.models() if "arith" in one.model_name)
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
