"""TinyEngine over its real worker process: batching, order, death and recovery."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hud_tui.service.engines.base import (
    Adam,
    Datum,
    EngineError,
    EngineLost,
    EngineRefused,
    SampleRequest,
)
from hud_tui.service.engines.tiny import engine as engine_module
from hud_tui.service.engines.tiny.engine import (
    BASES,
    LARGE,
    ROWS,
    Call,
    Dispatch,
    TinyEngine,
    weights_path,
)
from tests.conftest import until
from tests.unit.engine.conftest import some_datums

ADAM = Adam(1e-3)
PROMPT = [3, *map(ord, "3 + 4 = ?"), 1, 4]


@pytest.fixture
async def engine() -> AsyncIterator[TinyEngine]:
    engine = TinyEngine()
    yield engine
    await engine.stop()


def asked(seed: int, count: int = 1) -> list[SampleRequest]:
    return [SampleRequest(PROMPT, 8, seed=(seed, j)) for j in range(count)]


def worker_of(engine: TinyEngine) -> int:
    pid = engine._worker.pid
    assert pid is not None
    return pid


async def test_each_base_samples_trains_and_continues(engine: TinyEngine, tmp_path: Path) -> None:
    for base in BASES:
        handle = await engine.open(base.name)
        [out] = await engine.sample(handle, asked(1))
        datum = Datum(PROMPT, out.tokens, out.logprobs, advantage=0.5)
        metrics = await engine.forward_backward(handle, [datum], "ppo")
        assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
        [[*lp]] = await engine.forward(handle, [datum])
        assert lp == pytest.approx(out.logprobs, abs=1e-5)
        saved = await engine.optim_step(handle, Adam(1e-5), tmp_path)
        size = os.stat(saved.state_path).st_size
        assert size == pytest.approx(base.state_bytes, rel=0.02), "as the catalog says"
        again = await engine.open(Path(saved.state_path))
        assert await engine.sample(again, asked(2)) == await engine.sample(handle, asked(2))
        [[*stepped]] = await engine.forward(again, [datum])
        assert sum(stepped) > sum(lp)


async def test_calls_at_once_get_what_each_would_get_alone(engine: TinyEngine) -> None:
    handle, other = await engine.open(BASES[0].name), await engine.open(BASES[0].name)
    alone = [await engine.sample(handle, asked(seed, 3)) for seed in range(4)]
    at_once = await asyncio.gather(
        *(engine.sample(handle, asked(seed, 3)) for seed in range(4)),
        engine.forward(handle, some_datums(2)),
        engine.sample(other, asked(0, 3)),
    )
    assert [[out.tokens for out in rows] for rows in at_once[:4]] == [
        [out.tokens for out in rows] for rows in alone
    ]
    assert [out.tokens for out in at_once[5]] == [out.tokens for out in alone[0]]
    many = [SampleRequest(PROMPT, 1, seed=(i,)) for i in range(ROWS + 9)]
    sampled = await engine.sample(handle, many)
    assert len(sampled) == len(many), "more than a batch holds"
    assert sampled[-1].tokens == (await engine.sample(handle, many[-1:]))[0].tokens


async def test_queued_samples_of_a_policy_go_together_and_training_keeps_its_turn() -> None:
    dispatch = Dispatch()

    def queue(verb: str, handle: str, rows: int = 0) -> Call:
        request = {"verb": verb, "handle": handle}
        call = Call({**request, "requests": [None] * rows} if rows else request)
        dispatch._queue.append(call)
        return call

    train = queue("optim_step", "a")
    first, other = queue("sample", "a", 8), queue("sample", "b", 8)
    later = queue("forward", "a")
    second, too_many = queue("sample", "a", 8), queue("sample", "a", ROWS)
    cancelled = queue("sample", "a", 8)
    cancelled.reply.cancel()
    assert dispatch._next(LARGE) == [], "training is sent in its turn"
    turns = [dispatch._next()]
    assert dispatch._next(LARGE) == [], "others can still join it"
    while calls := dispatch._next():
        turns.append(calls)
    assert turns == [[train], [first, second], [other], [later], [too_many]]


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
async def test_a_large_batch_is_with_the_worker_before_the_one_before_it_is_answered(
    engine: TinyEngine, end: signal.Signals
) -> None:
    handle = await engine.open(BASES[0].name)
    wanted = [asked(1, ROWS), asked(2, ROWS), asked(3, LARGE - 1), asked(4)]
    alone = [await engine.sample(handle, requests) for requests in wanted]
    pid, queue = worker_of(engine), engine._worker._queue
    os.kill(pid, signal.SIGSTOP)
    asking = [asyncio.create_task(engine.sample(handle, requests)) for requests in wanted[:3]]
    await until(lambda: [len(call.request["requests"]) for call in queue] == [LARGE - 1])
    asking.append(asyncio.create_task(engine.sample(handle, wanted[3])))
    await until(lambda: len(queue) == 2)  # a small one waits where others can join it
    os.kill(pid, end)
    found = await asyncio.gather(*asking, return_exceptions=True)
    if end == signal.SIGKILL:
        assert all(isinstance(one, EngineLost) for one in found)
        handle = await engine.open(BASES[0].name)
        found = [await engine.sample(handle, requests) for requests in wanted]
    assert [[one.tokens for one in rows] for rows in found] == [
        [one.tokens for one in rows] for rows in alone
    ]


async def test_a_killed_worker_fails_what_waits_and_the_next_call_recovers(
    engine: TinyEngine, tmp_path: Path
) -> None:
    handle = await engine.open(BASES[0].name)
    waiting = [asyncio.create_task(engine.sample(handle, asked(i, 64))) for i in range(4)]
    waiting.append(asyncio.create_task(engine.forward(handle, some_datums(3))))
    await asyncio.sleep(0)
    os.kill(worker_of(engine), signal.SIGKILL)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, EngineLost) for result in results)
    with pytest.raises(EngineLost, match="open the policy again"):
        await engine.optim_step(handle, Adam(1e-3), tmp_path)
    again = await engine.open(BASES[0].name)
    assert len(await engine.sample(again, asked(1, 2))) == 2


async def test_a_worker_that_does_not_answer_is_said_and_ended(
    engine: TinyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await engine.open(BASES[0].name)
    pid = worker_of(engine)
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as hasty:  # a worker that starts may take longer on a busy machine
        hasty.setattr(engine_module, "ANSWER_S", 2)
        hasty.setattr(engine_module, "REPORTED_S", 1)
        asking = asyncio.create_task(engine.sample(handle, asked(1)))
        queued = asyncio.create_task(engine.open(BASES[0].name))
        await until(lambda: engine.about().queue != "active")
        assert engine.about().queue == f"the engine's process ({pid}), which does not answer"
        for waiting in (asking, queued):
            with pytest.raises(EngineLost, match="did not answer for 2 s, and was ended"):
                await waiting
    assert engine.about().queue == "active"
    assert await engine.sample(await engine.open(BASES[0].name), asked(1))
    assert worker_of(engine) != pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_stop_ends_the_worker_and_an_interrupt_of_the_terminal_does_not(
    engine: TinyEngine,
) -> None:
    handle = await engine.open(BASES[0].name)
    pid = worker_of(engine)
    os.kill(pid, signal.SIGINT)
    assert len(await engine.sample(handle, asked(1))) == 1
    await engine.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await engine.start()
    assert worker_of(engine) != pid


async def test_a_sliced_pass_is_the_same_pass_or_none_where_a_slice_fails(
    engine: TinyEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datums = some_datums(24, logprob=-4.0)
    whole, cut = [await engine.open(BASES[0].name) for _ in range(2)]
    expected = await engine.forward_backward(whole, datums, "ppo")
    lines = await engine.forward(whole, datums)
    stepped = await engine.optim_step(whole, ADAM, tmp_path)
    monkeypatch.setattr(engine_module, "TOKENS", 30)
    assert len(list(engine_module.cut(datums))) > 3
    assert await engine.forward_backward(cut, datums, "ppo") == pytest.approx(expected, rel=1e-4)
    assert np.concatenate(await engine.forward(cut, datums)) == pytest.approx(
        np.concatenate(lines), abs=1e-4
    )
    again = await engine.optim_step(cut, ADAM, tmp_path)
    assert again.metrics == pytest.approx(stepped.metrics, rel=1e-4)
    endless = [[1.0] * len(datum.output) for datum in datums]
    endless[-1] = [1e308] * len(datums[-1].output)
    with pytest.raises(EngineError, match="not finite"):
        await engine.backward(cut, datums, endless)
    with pytest.raises(EngineRefused, match="nothing was accumulated"):
        await engine.optim_step(cut, ADAM, tmp_path)


async def test_others_get_their_turn_within_a_long_pass(
    engine: TinyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "TOKENS", 30)
    handle = await engine.open(BASES[0].name)
    passing = asyncio.create_task(
        engine.forward_backward(handle, some_datums(64, logprob=-4.0), "ppo")
    )
    await until(lambda: engine._worker._waiting.is_set())
    assert len(await engine.sample(handle, asked(1))) == 1
    assert not passing.done()
    await passing


def test_a_turn_stays_in_the_slice_of_the_one_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    game = [Datum(list(range(3 * n + 2)), [3 * n + 2, 3 * n + 3]) for n in range(5)]
    monkeypatch.setattr(engine_module, "TOKENS", 18)
    assert list(engine_module.cut([*game, *game])) == [slice(0, 5), slice(5, 10)]
    assert list(engine_module.cut(game[::-1])) == [
        slice(0, 1),
        slice(1, 2),
        slice(2, 4),
        slice(4, 5),
    ]
    monkeypatch.setattr(engine_module, "TOKENS", 64)
    assert list(engine_module.cut([*game, *game])) == [slice(0, 10)]
    larger = 2 * engine_module.PARAMETERS
    assert list(engine_module.cut([*game, *game], larger)) == [slice(0, 10)]
    assert list(engine_module.cut([*game, *game], 2 * larger)) == [slice(0, 5), slice(5, 10)]


LOOK = """
import os, sys

class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            sys.meta_path.remove(self)
            print(os.environ.get("OPENBLAS_NUM_THREADS"))

sys.meta_path.insert(0, Look())
import NAME
"""


@pytest.mark.parametrize("name", ["hud_tui.service.engines.tiny.worker", "tests.pretrain.__main__"])
def test_numpy_is_loaded_with_one_thread(name: str) -> None:
    env = {key: value for key, value in os.environ.items() if not key.endswith("_THREADS")}
    command = [sys.executable, "-c", LOOK.replace("NAME", name)]
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "1"


def test_the_shipped_weights_are_small() -> None:
    sizes = {base.name: weights_path(base.name).stat().st_size for base in BASES}
    assert sizes.pop("tiny/agent-1M") <= 2_200_000
    assert all(size <= 400_000 for size in sizes.values())


@pytest.mark.parametrize("engine", ["tiny", "tinker"])
def test_a_worker_ends_when_its_input_does(engine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"hud_tui.service.engines.{engine}.worker", str(tmp_path)]
    ended = subprocess.run(command, input=b"", capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")
