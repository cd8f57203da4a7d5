"""What goes wrong on a real server: it is killed, it forgets a run, it is full, it deletes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hud_tui.service.engines.base import Engine, EngineError, EngineLost, PolicyLost, StateGone
from hud_tui.service.engines.tinker import link
from hud_tui.service.engines.tinker.engine import TinkerEngine
from hud_tui.service.engines.tinker.link import read_pointer
from hud_tui.service.service import Service
from tests.conftest import calling, fork, submit, until
from tests.engines.conftest import Trial, on
from tests.engines.skyrl import SkyRL
from tests.service.calls import status_of, tree

pytestmark = pytest.mark.skyrl


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SkyRL]:
    """A server of the test's own, with two slots, that it may kill."""
    server = SkyRL(tmp_path / "skyrl", slots=3)  # the base takes one
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def engine(server: SkyRL, tmp_path: Path) -> AsyncIterator[TinkerEngine]:
    engine = on(server, tmp_path)
    await engine.start()
    yield engine
    await engine.stop()


def post(server: SkyRL, path: str, body: dict[str, Any], method: str = "POST") -> None:
    """Call the server behind the engine's back."""
    headers = {"Content-Type": "application/json", "X-API-Key": "tml-local"}
    request = Request(f"{server.url}/api/v1/{path}", json.dumps(body).encode(), headers)
    request.method = method
    with urlopen(request, timeout=30):
        pass


def saved_on(server: SkyRL, run: str) -> set[str]:
    with urlopen(f"{server.url}/api/v1/training_runs/{run}/checkpoints", timeout=30) as answer:
        return {one["tinker_path"] for one in json.load(answer)["checkpoints"]}


async def test_a_run_that_the_server_forgot_is_opened_again(server: SkyRL, trial: Trial) -> None:
    """As when its heartbeats were missed, a slot is lost, or somebody unloads it."""
    engine = trial.engine
    handle, datums, saved = await trial.stepped()
    after = await trial.logprobs(handle, datums)
    run = str(read_pointer(Path(saved.state_path)).state_path).split("/")[2]
    await asyncio.to_thread(post, server, "unload_model", {"model_id": run})
    with pytest.raises(PolicyLost, match="lost the training run"):
        await until(lambda: _passed(engine, handle, datums))
    await engine.close(handle)
    again = await engine.open(Path(saved.state_path))
    assert await trial.logprobs(again, datums) == pytest.approx(after, abs=2e-4)


async def _passed(engine: Engine, handle: str, datums: Any) -> bool:
    await engine.forward_backward(handle, datums, "ppo")
    return False


async def test_a_full_server_says_what_to_do(engine: TinkerEngine, trial: Trial) -> None:
    handles = [await engine.open(trial.base.name) for _ in range(3)]
    datums = await trial.datums(handles[0])
    for handle in handles[:2]:
        await engine.forward_backward(handle, datums, "ppo")
    assert engine.about().slots == 2
    with pytest.raises(EngineError, match=r"every adapter slot of .* is taken"):
        await engine.forward_backward(handles[2], datums, "ppo")
    await engine.close(handles[0])
    await engine.forward_backward(handles[2], datums, "ppo")
    assert (await trial.step(handles[2])).metrics["grad_norm"] > 0


async def test_a_state_that_was_deleted_is_said_to_be_gone(
    server: SkyRL, engine: TinkerEngine, trial: Trial
) -> None:
    _, datums, saved = await trial.stepped()
    _, _, run, kind, name = str(read_pointer(Path(saved.state_path)).state_path).split("/")
    place = f"training_runs/{run}/checkpoints/{kind}/{name}"
    await asyncio.to_thread(post, server, place, {}, "DELETE")
    back = await engine.open(Path(saved.state_path))
    with pytest.raises(StateGone, match="no longer has this checkpoint"):
        await engine.forward(back, datums)
    assert engine.about().slots == 1


async def test_the_engine_s_process_may_die(engine: TinkerEngine, trial: Trial) -> None:
    handle = await engine.open(trial.base.name)
    datums = await trial.datums(handle)
    waiting = asyncio.create_task(engine.forward_backward(handle, datums, "ppo"))
    await until(lambda: bool(engine._link._waiting))
    assert engine._link.pid is not None
    os.kill(engine._link.pid, signal.SIGKILL)
    with pytest.raises(EngineLost, match="process ended"):
        await waiting
    with pytest.raises(EngineLost):
        await until(lambda: _passed(engine, handle, datums))
    again = await engine.open(trial.base.name)
    assert len(await trial.sample(again)) == 4


async def test_what_a_crash_left_on_the_server_is_deleted(
    server: SkyRL, engine: TinkerEngine, trial: Trial, tmp_path: Path
) -> None:
    handle = await engine.open(trial.base.name)
    datums = await trial.datums(handle)
    steps = []
    for _ in range(2):
        await engine.forward_backward(handle, datums, "ppo")
        steps.append(Path((await trial.step(handle)).state_path))
    kept, orphan = (str(read_pointer(path).state_path) for path in steps)
    run = kept.split("/")[2]
    steps[1].unlink()  # as if the service had been killed before it was in the tree
    await engine.stop()
    later = on(server, tmp_path)
    await later.start()
    assert {kept, orphan} <= await asyncio.to_thread(saved_on, server, run)
    await later.open(trial.base.name)

    async def tidy() -> bool:
        return orphan not in await asyncio.to_thread(saved_on, server, run)

    await until(tidy)
    assert kept in await asyncio.to_thread(saved_on, server, run)
    await later.stop()


async def test_a_server_that_is_away_is_waited_for(
    server: SkyRL, engine: TinkerEngine, trial: Trial
) -> None:
    handle, datums, saved = await trial.stepped()
    after = await trial.logprobs(handle, datums)
    server.kill()
    lost = asyncio.create_task(engine.forward_backward(handle, datums, "ppo"))
    with pytest.raises(PolicyLost, match=r"stopped answering|does not answer|lost the training"):
        await asyncio.wait_for(_either(lost, server), link.RETURN_S)
    await engine.close(handle)
    again = await engine.open(Path(saved.state_path))
    assert await trial.logprobs(again, datums) == pytest.approx(after, abs=2e-4)
    assert engine.about().queue == "active"


async def _either(lost: "asyncio.Task[Any]", server: SkyRL) -> None:
    await until(lambda: lost.done(), 60.0)
    await asyncio.to_thread(server.start)
    await lost


async def test_a_managed_run_outlives_the_server_s_death(server: SkyRL, tmp_path: Path) -> None:
    engine = on(server, tmp_path / "data")
    async with Service(tmp_path / "data", engine) as service, calling(service) as http:
        model = await fork(http)
        job = await submit(http, model["id"], steps=3)

        async def reached(step: int) -> bool:
            now = await status_of(http, job)
            assert now["status"] in ("queued", "running", "succeeded"), now
            return bool(now["step"] >= step)

        await until(lambda: reached(1), 300.0)
        server.kill()
        await until(lambda: engine.about().queue != "active", 60.0)
        await asyncio.to_thread(server.start)
        await until(lambda: reached(3), 400.0)
        rows = await tree(http, model["id"])
    assert [row["step"] for row in rows] == [1, 2, 3]
    parents = [row["prev_model_checkpoint_id"] for row in rows]
    assert parents == [None, rows[0]["id"], rows[1]["id"]]
