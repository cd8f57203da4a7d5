"""Many processes: the same numbers, whoever computes them, and whoever dies."""

import asyncio
import bisect
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hud_tui.pipes import Pipe
from hud_tui.service.engines.base import (
    CLAIMANT,
    STEPPED,
    Adam,
    Datum,
    EngineError,
    EngineLost,
    Sampled,
    SampleRequest,
    Saved,
)
from hud_tui.service.engines.tiny import dispatch, parts, starts
from hud_tui.service.engines.tiny import memory as memory_module
from hud_tui.service.engines.tiny.engine import BASES, TinyEngine
from hud_tui.service.engines.tiny.memory import PAGE, Memory
from hud_tui.service.engines.tiny.starts import LONGEST_S, Starts
from tests.conftest import PATIENCE_S, until
from tests.unit.engine.conftest import some_datums

AGENT = BASES[-1].name
SOON_S, NEVER_S = 0.02, 3600.0
PROMPT = [3, *map(ord, "3 + 4 = ?"), 1, 4]


@pytest.fixture
async def engines() -> AsyncIterator[Callable[[int], TinyEngine]]:
    """Makes engines of so many processes, and stops them."""
    made: list[TinyEngine] = []

    def make(cores: int) -> TinyEngine:
        made.append(TinyEngine(cores))
        return made[-1]

    yield make
    for engine in made:
        await engine.stop()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that failed is replaced soon, however often."""
    monkeypatch.setattr(starts, "backoff", lambda failures, longest_s: SOON_S)


def asked(count: int, prompt: list[int] = PROMPT) -> list[SampleRequest]:
    """Groups of eight, of prompts that differ in one token, with their last tokens' logprobs."""
    return [
        SampleRequest([*prompt[:-1], 40 + i // 8, prompt[-1]], 12, seed=(3, i), top_logprobs=i % 2)
        for i in range(count)
    ]


def turns(requests: list[SampleRequest], sampled: list[Sampled]) -> list[Datum]:
    """One in four without a gradient."""
    return [
        Datum(request.prompt, out.tokens, [lp - 0.1 for lp in out.logprobs], float(i % 4 - 2))
        for i, (request, out) in enumerate(zip(requests, sampled, strict=True))
    ]


def content(saved: Saved) -> bytes:
    return Path(saved.state_path).read_bytes()


async def everything(
    engine: TinyEngine, base: str, count: int, directory: Path
) -> dict[str, object]:
    """What an engine can compute, over two steps: rollouts (of two turns where the context is
    long), logprobs, metrics, and the weights and moments on disk."""
    found: dict[str, object] = {}
    handle = await engine.open(base)
    prompt = PROMPT if base != AGENT else [3, *range(40, 40 + 150), 4]
    for step in range(2):
        requests = asked(count, prompt)
        sampled = await engine.sample(handle, requests)
        if base == AGENT:
            requests = [
                SampleRequest([*request.prompt, *out.tokens, 7, 8, 9], 12, seed=(4, i))
                for i, (request, out) in enumerate(zip(requests, sampled, strict=True))
            ]
            found[f"rollouts {step}.1"] = sampled
            sampled = await engine.sample(handle, requests)
        datums = turns(requests, sampled)
        found[f"rollouts {step}"] = sampled
        found[f"logprobs {step}"] = await engine.forward(handle, datums)
        found[f"metrics {step}"] = await engine.forward_backward(handle, datums, "ppo")
        weights = [[0.5 + datum.advantage] * len(datum.output) for datum in datums]
        found[f"custom {step}"] = await engine.backward(handle, datums, weights)
        saved = await engine.optim_step(handle, Adam(1e-3), directory)
        found[f"norm {step}"] = saved.metrics
        found[f"state {step}"] = content(saved)
    return found


@pytest.mark.parametrize(("base", "count", "cores"), [(AGENT, 5, 2), (BASES[0].name, 24, 4)])
async def test_every_number_is_the_same_with_any_number_of_processes(
    engines: Callable[[int], TinyEngine],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    base: str,
    count: int,
    cores: int,
) -> None:
    monkeypatch.setattr(parts, "ROWS", 4)
    monkeypatch.setattr(parts, "CHUNK", 250)
    monkeypatch.setattr(parts, "SLICE", 2000)
    alone = await everything(engines(1), base, count, tmp_path)
    engine = engines(cores)
    assert await everything(engine, base, count, tmp_path) == alone
    assert len(engine._worker.pids) == cores


@pytest.mark.usefixtures("at_once")
async def test_a_part_s_process_that_dies_is_started_again_and_does_it_again(
    engines: Callable[[int], TinyEngine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the middle of sampling, of reading and of training."""
    monkeypatch.setattr(parts, "CHUNK", 300)
    requests = asked(200)
    alone = engines(1)
    handle = await alone.open(BASES[0].name)
    rollouts = await alone.sample(handle, requests)
    datums = turns(requests, rollouts)
    expected = [
        rollouts,
        await alone.forward(handle, datums),
        await alone.forward_backward(handle, datums, "ppo"),
    ]
    steps = [await alone.optim_step(handle, Adam(1e-3), tmp_path)]

    engine = engines(2)
    handle = await engine.open(BASES[0].name)
    found = []
    killed = set()
    for work in (
        lambda: engine.sample(handle, requests),
        lambda: engine.forward(handle, datums),
        lambda: engine.forward_backward(handle, datums, "ppo"),
    ):
        second = engine._worker._lanes[1]
        first = asyncio.create_task(work())
        await until(lambda second=second: bool(second.sent) and second.pipe is not None)
        assert second.pipe is not None
        killed.add(second.pipe.pid)
        os.kill(second.pipe.pid, signal.SIGKILL)
        found.append(await first)
        await until(lambda second=second: second.pipe is None or second.pipe.pid not in killed)
    steps.append(await engine.optim_step(handle, Adam(1e-3), tmp_path))
    assert found == expected
    assert len(killed) == 3
    assert [step.metrics for step in steps] == [steps[0].metrics] * 2
    assert content(steps[0]) == content(steps[1])


async def test_what_is_accumulated_is_lost_with_the_first_process_whatever_others_do(
    engines: Callable[[int], TinyEngine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parts, "CHUNK", 100)
    engine = engines(2)
    handle = await engine.open(BASES[0].name)
    passing = asyncio.create_task(
        engine.forward_backward(handle, some_datums(64, logprob=-4.0), "ppo")
    )
    first, second = engine._worker._lanes
    await until(lambda: bool(second.sent))
    assert first.pipe is not None
    os.kill(first.pipe.pid, signal.SIGKILL)
    with pytest.raises(EngineLost):
        await passing
    with pytest.raises(EngineLost, match="open the policy again"):
        await engine.optim_step(handle, Adam(1e-3), tmp_path)
    again = await engine.open(BASES[0].name)
    await engine.forward_backward(again, some_datums(64, logprob=-4.0), "ppo")
    assert (await engine.optim_step(again, Adam(1e-3), tmp_path)).metrics["grad_norm"] > 0


@pytest.mark.usefixtures("at_once")
async def test_a_part_whose_processes_die_again_and_again_is_done_by_the_first_one(
    engines: Callable[[int], TinyEngine],
) -> None:
    engine = engines(2)
    handle = await engine.open(BASES[0].name)
    expected = await engine.sample(handle, asked(200))
    first, second = engine._worker._lanes
    assert first.pipe is not None
    os.kill(first.pipe.pid, signal.SIGSTOP)  # so that the second one has all of it
    work = asyncio.create_task(engine.forward(handle, some_datums(1)))
    waiting = asyncio.create_task(engine.sample(handle, asked(200)))
    killed: set[int] = set()

    def kill() -> bool:
        if second.sent and second.pipe is not None and second.pipe.pid not in killed:
            killed.add(second.pipe.pid)
            os.kill(second.pipe.pid, signal.SIGKILL)
        return len(killed) > dispatch.REPEATS

    await until(kill)
    lost = second.calls
    await until(lambda: not second.sent)
    assert max(call.losses for call in lost) > dispatch.REPEATS
    os.kill(first.pipe.pid, signal.SIGCONT)
    assert await waiting == expected
    assert len(await work) == 1


NOWHERE, KILLED = ("/nowhere",), ("/bin/sh", "-c", "kill -9 $$")
"""A process that cannot be started, and one that dies at once."""


def fail_others(
    engine: TinyEngine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], pause_s: float
) -> list[dispatch.Lane]:
    """Let every process beside the first one fail, with pauses between attempts. Returns those that
    were tried, in order."""
    tried = list[dispatch.Lane]()
    start = engine._worker._start

    def counted(lane: dispatch.Lane) -> Coroutine[Any, Any, Pipe]:
        tried.append(lane)
        return start(lane)

    monkeypatch.setattr(starts, "backoff", lambda failures, longest_s: pause_s)
    monkeypatch.setattr(engine._worker, "_start", counted)
    monkeypatch.setattr(dispatch, "WORKER", words)
    return tried


async def trained(engine: TinyEngine, handle: str, directory: Path) -> list[object]:
    """The metrics and the bytes of two steps."""
    found = list[object]()
    for _ in range(2):
        datums = some_datums(64, logprob=-4.0)
        found.append(await engine.forward_backward(handle, datums, "ppo"))
        saved = await engine.optim_step(handle, Adam(1e-3), directory)
        found += [saved.metrics, content(saved)]
    return found


@pytest.mark.parametrize("pause_s", [SOON_S, NEVER_S])
async def test_processes_that_die_at_once_fail_no_chat_and_cost_who_trains_nothing(
    engines: Callable[[int], TinyEngine],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pause_s: float,
) -> None:
    """As where memory is short; whether another one is tried again and again, or once."""
    CLAIMANT.set("who chats")
    chats = partial(asyncio.create_task, context=copy_context())
    CLAIMANT.set("who trains")
    alone, engine = engines(1), engines(2)
    expected = await trained(alone, await alone.open(BASES[0].name), tmp_path)
    chatted = await alone.sample(await alone.open(AGENT), asked(2))
    handle, other = await engine.open(BASES[0].name), await engine.open(AGENT)
    waiting = await engine.open(BASES[0].name)
    await engine.forward_backward(waiting, some_datums(4, logprob=-4.0), "ppo")
    tried = fail_others(engine, monkeypatch, KILLED, pause_s)
    engine._worker._turns.take("who trains", "own", trains=True, now=inf)
    async with asyncio.timeout(PATIENCE_S):
        assert await chats(engine.sample(other, asked(2))) == chatted
        training = asyncio.create_task(trained(engine, handle, tmp_path))
        while not training.done():
            assert await chats(engine.sample(other, asked(2))) == chatted
    assert await training == expected
    saved = await engine.optim_step(waiting, Adam(1e-3), tmp_path)
    assert saved.metrics["grad_norm"] > 0, "what was accumulated before is there"
    assert len(tried) > 1 if pause_s == SOON_S else len(tried) == 1


@pytest.mark.parametrize("words", [NOWHERE, KILLED])
async def test_one_attempt_tells_that_no_other_process_can_be_started_with_many_cores(
    engines: Callable[[int], TinyEngine],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    engine = engines(8)
    handle = await engine.open(BASES[0].name)
    tried = fail_others(engine, monkeypatch, words, NEVER_S)
    engine._worker._turns.take("who trains", "own", trains=True, now=inf)
    async with asyncio.timeout(PATIENCE_S):
        assert len(await engine.sample(handle, asked(1))) == 1
        assert tried == [engine._worker._lanes[1]]
        assert len(await engine.sample(handle, asked(200))) == 200
    assert tried == [engine._worker._lanes[1]]


async def test_others_are_started_again_once_one_of_them_has_answered(
    engines: Callable[[int], TinyEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(3)
    handle = await engine.open(BASES[0].name)
    words = dispatch.WORKER
    tried = fail_others(engine, monkeypatch, KILLED, SOON_S)
    await engine.sample(handle, asked(200))
    assert len(tried) > 1
    monkeypatch.setattr(dispatch, "WORKER", words)
    async with asyncio.timeout(PATIENCE_S):
        while len(engine._worker.pids) < 3:
            await engine.sample(handle, asked(200))
    assert not engine._worker._starts.are_failing


def test_attempts_are_ever_fewer_and_those_that_were_started_together_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hud_tui.patience.random", lambda: 0.0)
    failing, now, pauses = Starts(), 100.0, list[float]()
    assert (failing.pause_s(now), failing.are_failing) == (0.0, False)
    for _ in range(12):
        failing.began(now)
        others = failing.pause_s(now)
        for _ in range(7):
            failing.failed(now, now + 1)
        pauses.append(failing.pause_s(now + 1))
        assert others == (pauses[-2] if len(pauses) > 1 else 0.0), "one is tried at a time"
        now += 1 + pauses[-1]
        assert failing.pause_s(now) == 0.0
    assert pauses == [min(LONGEST_S, 0.5 * 2**n) for n in range(12)]
    assert failing.are_failing
    failing.succeeded()
    assert (failing.pause_s(0.0), failing.are_failing) == (0.0, False)


async def test_another_process_is_started_rather_than_the_first_one_taken_from_who_trains(
    engines: Callable[[int], TinyEngine],
) -> None:
    engine = engines(2)
    handle = await engine.open(BASES[0].name)
    await engine.sample(handle, asked(1))
    assert len(engine._worker.pids) == 1
    engine._worker._turns.take("who trains", "own", trains=True, now=inf)
    await engine.sample(handle, asked(1))
    assert len(engine._worker.pids) == 2


async def test_it_has_views_so_that_no_step_waits_for_who_samples(
    engines: Callable[[int], TinyEngine],
) -> None:
    """What a view does is in the contract of engines, some of which have none."""
    engine = engines(1)
    handle = await engine.open(BASES[0].name)
    view = engine.view(handle)
    assert view is not None
    assert await engine.sample(view, asked(4)) == await engine.sample(handle, asked(4))


async def test_only_the_first_process_stays_where_nothing_is_to_be_done(
    engines: Callable[[int], TinyEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "IDLE_S", 0.05)
    engine = engines(2)
    await engine.start()
    assert len(engine._worker.pids) == 1
    handle = await engine.open(BASES[0].name)
    await engine.sample(handle, asked(2))
    assert len(engine._worker.pids) == 1, "one is enough for that"
    rollouts = await engine.sample(handle, asked(200))
    await until(lambda: len(engine._worker.pids) == 1)
    assert await engine.sample(handle, asked(200)) == rollouts


@pytest.mark.parametrize("others", [1, 40])
async def test_a_pass_leaves_nothing_where_a_turn_without_a_gradient_fails(
    engines: Callable[[int], TinyEngine],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    others: int,
) -> None:
    """In its first slice, or after those with a gradient."""
    monkeypatch.setattr(parts, "SLICE", 100)
    engine = engines(1)
    first, second = [await engine.open(BASES[0].name) for _ in range(2)]
    datums = some_datums(20, logprob=-4.0)
    for handle in (first, second):
        await engine.forward_backward(handle, datums, "ppo")
    measure, still = engine._measure, [replace(each, advantage=0.0) for each in some_datums(others)]
    left = len(list(parts.cut(still)))

    async def fails(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return await measure(*arguments)
        raise EngineError("it failed")

    monkeypatch.setattr(engine, "_measure", fails)
    with pytest.raises(EngineError, match="it failed"):
        await engine.forward_backward(second, [*datums[:4], *still], "cross_entropy")
    saved = [await engine.optim_step(each, Adam(1e-3), tmp_path) for each in (first, second)]
    assert content(saved[0]) == content(saved[1]), "that of the pass before it"


async def test_where_a_file_cannot_be_in_memory_a_temporary_one_serves(
    engines: Callable[[int], TinyEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    expected = engines(1)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr("mmap.MADV_REMOVE", raising=False)
    engine = engines(2)
    rollouts = [
        await one.sample(await one.open(BASES[0].name), asked(40)) for one in (expected, engine)
    ]
    assert rollouts[0] == rollouts[1]
    assert os.fstat(engine._memory.descriptor).st_nlink == 0, "it has no name"


def test_memory_that_is_not_used_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, size = Memory(), 1 << 20
    monkeypatch.setattr(memory_module, "KEPT", 3 * size)
    regions = [memory.take(size) for _ in range(4)]
    for region in regions:
        os.pwrite(memory.descriptor, b"x" * size, region.start)
    del region

    def written() -> int:
        return os.fstat(memory.descriptor).st_blocks * 512 >> 20

    assert written() == 4
    del regions[:3]
    assert written() == 4, "it is soon taken again"
    del regions[:]
    if sys.platform == "linux":
        assert written() == 0


def test_memory_that_is_free_is_used_again() -> None:
    memory = Memory()
    first, second, third = [memory.take(n * PAGE - 5) for n in (1, 2, 3)]
    assert [first.start, second.start, third.start] == [0, PAGE, 3 * PAGE]
    second.trim(1)
    again = memory.take(PAGE)
    assert again.start == 2 * PAGE
    del first, second, again
    whole = memory.take(3 * PAGE)
    assert whole.start == 0, "gaps that touch are one"
    del whole, third
    assert memory.take(6 * PAGE).start == 0
    assert os.fstat(memory.descriptor).st_size == 6 * PAGE


def test_memory_is_taken_back_while_other_memory_is_as_garbage_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory()
    kept = [memory.take(PAGE) for _ in range(4)]

    def insort(gaps: list[tuple[int, int]], gap: tuple[int, int]) -> None:
        bisect.insort(gaps, gap)
        if kept:
            kept.pop(0)

    monkeypatch.setattr(memory_module, "insort", insort)
    kept.pop(1)
    assert kept == []
    assert memory.take(4 * PAGE).start == 0, "all gaps are one"


@pytest.mark.parametrize("count", [1, 16, 32, 33, 64, 65, 100, 256, 304])
def test_parts_of_a_call_depend_on_it_alone_and_are_about_equal(count: int) -> None:
    cut = parts.of_requests(asked(count))
    assert [i for part in cut for i in range(count)[part]] == list(range(count))
    sizes = [part.stop - part.start for part in cut]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= parts.ROWS
    assert len(cut) == 1 or len(cut) % 2 == 0


def test_a_part_of_long_conversations_has_fewer_of_them() -> None:
    cut = parts.of_requests([SampleRequest([65] * 1000, 300)] * 8)
    assert [part.stop - part.start for part in cut] == [2] * 4
    assert len(parts.of_requests([SampleRequest([65] * 5000, 300)])) == 1


def test_the_parts_of_a_pass_are_its_turns_in_order_of_length() -> None:
    random = np.random.default_rng(1)
    datums = [Datum(random.integers(0, 9, n).tolist(), [1, 2]) for n in random.integers(2, 400, 60)]
    found = parts.of_datums(datums)
    flat = [i for part in found for sequence in part for i in sequence]
    lengths = [len(datums[i].prompt) for i in flat]
    assert lengths == sorted(lengths)
    assert sorted(flat) == list(range(60))
    for part in found:
        own = [datums[i] for sequence in part for i in sequence]
        assert len(parts.of_datums(own)) == 1, "whoever is given a part cuts it no further"
        assert len(part) == 1 or len(part) * (len(own[-1].prompt) + 1) <= parts.CHUNK


async def test_new_weights_are_sampled_before_they_are_saved(
    engines: Callable[[int], TinyEngine], tmp_path: Path
) -> None:
    """And the old ones again, if they could not be saved."""
    engine, requests = engines(2), asked(16)
    handle = await engine.open(BASES[0].name)
    before = await engine.sample(handle, requests)
    datums = turns(requests, before)
    early = list[asyncio.Task[list[Sampled]]]()
    paths = list[str]()

    def stepped(path: str) -> None:
        paths.append(path)
        early.append(loop.create_task(engine.sample(handle, requests)))

    loop, token = asyncio.get_running_loop(), STEPPED.set(stepped)
    (tmp_path / "file").touch()
    await engine.forward_backward(handle, datums, "ppo")
    with pytest.raises(EngineError):
        await engine.optim_step(handle, Adam(1e-2), tmp_path / "file")
    assert await engine.sample(handle, requests) == before
    saved = await engine.optim_step(handle, Adam(1e-2), tmp_path)
    STEPPED.reset(token)
    after = await engine.sample(handle, requests)
    assert [await sampled for sampled in early] == [after, after] != [before, before]
    assert paths[1] == saved.state_path
