"""What goes wrong on a real server, and what is said of it. SkyRL neither bills nor pauses: a gate
before it answers as Tinker's cloud does then."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import httpx
import pytest

from hud_tui.service import works
from hud_tui.service.engines.base import Engine, EngineError, EngineLost, PolicyLost, StateGone
from hud_tui.service.engines.tinker import link
from hud_tui.service.engines.tinker.engine import TinkerEngine
from hud_tui.service.engines.tinker.link import pointed_states, read_pointer
from hud_tui.service.service import Service
from hud_tui.service_file import ServiceReady
from hud_tui.tinker_options import Options
from tests.conftest import PATIENCE_S, bearer, calling, fork, submit, until
from tests.engines.conftest import Trial
from tests.engines.gate import Gate, gate_before
from tests.engines.skyrl import SkyRL
from tests.engines.tinker import on
from tests.service.calls import chat, set_head, status_of, step, told, tree

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
        return {checkpoint["tinker_path"] for checkpoint in json.load(answer)["checkpoints"]}


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
    await until(lambda: engine._link._pipe is not None and engine._link._pipe.waits)
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
        await reach(http, job, 1)
        server.kill()
        await until(lambda: engine.about().queue != "active", 60.0)
        await asyncio.to_thread(server.start)
        await reach(http, job, 3)
        await check_chain(http, model, 3)


LONG_S = 400.0


async def reach(http: httpx.AsyncClient, job: str, place: int) -> None:
    async def reached() -> bool:
        now = await status_of(http, job)
        assert now["status"] in ("queued", "running", "succeeded"), now
        return bool(now["step"] >= place)

    await until(reached, LONG_S)


async def check_chain(http: httpx.AsyncClient, model: dict[str, Any], count: int) -> None:
    """So many steps are in the tree, each once, in a row."""
    rows = await tree(http, model["id"])
    assert [row["step"] for row in rows] == [*range(1, count + 1)]
    parents = [row["prev_model_checkpoint_id"] for row in rows]
    assert parents == [None, *(row["id"] for row in rows[:-1])]


@pytest.fixture
async def gate(skyrl: SkyRL) -> AsyncIterator[Gate]:
    async with gate_before(skyrl) as gate:
        yield gate


@pytest.fixture
async def service(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    monkeypatch.setattr(works, "POLL_S", 0.05)
    engine = TinkerEngine(Options(gate.url, has_key=False), tmp_path / "data" / "tinker")
    async with Service(tmp_path / "data", engine) as service:
        yield service


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(service) as http:
        yield http


async def begin(http: httpx.AsyncClient, model: dict[str, Any], steps: int) -> str:
    """Submit small batches of the taskset whose rewards are dense; the run's id."""
    return await submit(http, model["id"], "text", steps=steps, tasks_per_step=4, group_size=4)


async def begun(http: httpx.AsyncClient, steps: int) -> tuple[dict[str, Any], str]:
    """A fresh fork, and a run on it that has taken its first step."""
    model = await fork(http)
    job = await begin(http, model, steps)
    await reach(http, job, 1)
    return model, job


async def said(service: Service, model_id: str, key: str) -> list[str]:
    jobs = [event["work"] for event in await told(service, model_id, "work")]
    return [job[key] for job in jobs if job.get(key)]


@pytest.mark.parametrize(
    ("path", "code", "body", "words"),
    [
        (
            "retrieve_future",
            408,
            {"queue_state": "paused_capacity", "queue_state_reason": "2 h at most"},
            "paused: the server is short of capacity (2 h at most)",
        ),
        ("retrieve_future", 408, {"queue_state": "paused_rate_limit"}, "paused: too many training"),
        ("forward_backward", 402, {"detail": "the balance is 0"}, "asks for payment (402)"),
        ("asample", 429, {"detail": "slow down"}, "takes no more requests for now (429)"),
    ],
)
async def test_a_run_says_what_it_waits_for_and_goes_on(
    gate: Gate, http: httpx.AsyncClient, path: str, code: int, body: Any, words: str
) -> None:
    model, job = await begun(http, 2)
    gate.shut(path, code, body)

    async def says_so() -> bool:
        return words in ((await status_of(http, job))["waits"] or "")

    await until(says_so, LONG_S)
    shown = (await http.get(f"/v2/models/{model['id']}")).json()["engine"]
    assert words in shown["queue"]
    gate.open()
    await reach(http, job, 2)

    async def moves() -> bool:
        return (await status_of(http, job))["waits"] is None

    await until(moves)


CORRUPTED = {"error": "the model is corrupted", "category": "server"}


async def test_a_corrupted_run_is_opened_again_and_said_to_have_been(
    gate: Gate, service: Service, http: httpx.AsyncClient
) -> None:
    model, job = await begun(http, 2)
    gate.shut("retrieve_future", 200, CORRUPTED, kind="ForwardBackward", times=1)
    await reach(http, job, 2)
    notes = set(await said(service, model["id"], "note"))
    [note] = [note for note in notes if "says that the run is corrupted" in note]
    assert note.startswith("step 2: http")
    assert note.endswith("sampled again from step-000001")
    assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]


async def test_a_step_whose_answer_is_lost_is_in_the_tree_once(
    gate: Gate, http: httpx.AsyncClient
) -> None:
    """Whether the server had saved it by then, or it is taken again."""
    model, job = await begun(http, 3)
    gate.shut("retrieve_future", 200, CORRUPTED, kind="OptimStep", times=1)
    await reach(http, job, 3)
    await check_chain(http, model, 3)


async def test_a_run_that_the_server_lost_is_opened_again_and_said_to_have_been(
    skyrl: SkyRL, service: Service, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    model, job = await begun(http, 6)
    run = pointed_states(tmp_path / "data" / "checkpoints").pop().split("/")[2]
    await asyncio.to_thread(post, skyrl, "unload_model", {"model_id": run})
    await reach(http, job, 6)
    notes = await said(service, model["id"], "note")
    assert any("lost the training run" in note for note in notes), notes


async def test_a_key_that_is_revoked_ends_the_run_with_the_reason(
    gate: Gate, http: httpx.AsyncClient
) -> None:
    model = await fork(http)
    await step(http, model)
    gate.shut("forward_backward", 403, {"detail": "this key was revoked"})
    job = await begin(http, model, steps=1)

    async def ends() -> bool:
        return (await status_of(http, job))["status"] == "failed"

    await until(ends, LONG_S)
    told = (await status_of(http, job))["error"]["message"]
    assert "refused the key: set TINKER_API_KEY" in told
    assert "this key was revoked" in told


async def test_a_checkpoint_that_was_deleted_there_is_expired_here(
    skyrl: SkyRL, service: Service, http: httpx.AsyncClient
) -> None:
    model = await fork(http)
    first, _ = await step(http, model), await step(http, model)
    run, name = first["sampler_path"].removeprefix("tinker://").split("/")
    place = f"training_runs/{run}/checkpoints/weights/{name}"
    await asyncio.to_thread(post, skyrl, place, {}, "DELETE")
    assert (await set_head(http, model["id"], first["checkpoint_id"])).status_code == 200
    body = {"model": model["id"], "messages": [{"role": "user", "content": "3 + 4 = ?"}]}
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 410
    assert "no longer has this checkpoint" in answer.text
    states = [row["state"] for row in await tree(http, model["id"])]
    assert states == ["expired", "full"]


async def test_nothing_of_the_sdk_reaches_the_terminal(skyrl: SkyRL, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hud_tui.service", "--engine", "tinker", "--data-dir", str(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TINKER_BASE_URL": skyrl.url},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    ready = ServiceReady.model_validate_json(line)
    async with httpx.AsyncClient(
        base_url=ready.url, headers=bearer(ready.api_key), timeout=300.0
    ) as http:
        model = await fork(http)
        taken = await step(http, model)
        assert taken["sampler_path"].startswith("tinker://")
        reply = await chat(http, model["id"], return_token_ids=True, max_tokens=6)
        again = await chat(
            http,
            model["id"],
            prompt_token_ids=[*reply["choices"][0]["prompt_token_ids"], 65],
            continuation_from=1,
            return_token_ids=True,
            max_tokens=6,
        )
        given = reply["choices"][0]["prompt_token_ids"]
        assert again["choices"][0]["prompt_token_ids"][: len(given) + 1] == [*given, 65]
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert "TrainingClient initialized" in (tmp_path / "tinker" / "worker.log").read_text()
