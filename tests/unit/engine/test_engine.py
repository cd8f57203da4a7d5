"""TinyEngine over its real worker process: batching, order, death and recovery."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import cast

import numpy as np
import pytest

from hud_tui.pipes import Pipe, write_document
from hud_tui.service.engines.base import (
    CODEC,
    PROGRESS,
    Adam,
    Datum,
    EngineError,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
)
from hud_tui.service.engines.tiny import dispatch as dispatch_module
from hud_tui.service.engines.tiny import parts
from hud_tui.service.engines.tiny.dispatch import DUE_S, REPEATS, Call, Dispatch, Sent
from hud_tui.service.engines.tiny.engine import BASES, TinyEngine, weights_path
from hud_tui.service.engines.tiny.memory import Memory
from hud_tui.service.engines.tiny.model import initial
from hud_tui.service.engines.tiny.parts import ROWS
from hud_tui.service.engines.tiny.turns import LATELY_S, Kind
from hud_tui.service.engines.tiny.worker import Mapped, Policy, Worker
from tests.conftest import PATIENCE_S, until
from tests.unit.engine.conftest import SMALL, some_datums

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


Told = dict[int, list[tuple[int, float]]]
LONGEST = 1500


def wordy(seed: int, max_tokens: int = LONGEST) -> SampleRequest:
    """Of the agent, a request whose answer hardly ends by itself."""
    return SampleRequest([3, 40, 41, 4], max_tokens, temperature=50.0, seed=(seed,))


async def listened(
    engine: TinyEngine, handle: str, requests: list[SampleRequest], told: Told
) -> list[Sampled]:
    """Sample, and keep what is told meanwhile."""

    def progress(index: int, before: int, new: Sampled) -> None:
        tokens = told.setdefault(index, [])
        assert before == len(tokens)
        tokens += zip(new.tokens, new.logprobs, strict=True)

    PROGRESS.set(progress)
    return await engine.sample(handle, requests)


async def test_tokens_are_told_as_they_are_sampled_to_those_who_listen(engine: TinyEngine) -> None:
    """Also in parts, and where their requests go with those of others; no number differs."""
    handle = await engine.open(BASES[-1].name)
    told, other = Told(), Told()
    requests = [wordy(0, 60)]
    busy = asyncio.create_task(engine.forward(handle, some_datums(8)))
    await asyncio.sleep(0)
    together = await asyncio.gather(
        asyncio.create_task(listened(engine, handle, requests, told)),
        asyncio.create_task(engine.sample(handle, [wordy(1, 60)])),
        asyncio.create_task(listened(engine, handle, [wordy(2, 60), wordy(3, 60)], other)),
    )
    await busy
    assert (set(told), set(other)) == ({0}, {0, 1})
    for sampled, heard in ((together[0], told), (together[2], other)):
        for index, tokens in heard.items():
            whole = list(zip(sampled[index].tokens, sampled[index].logprobs, strict=True))
            assert tokens == whole[: len(tokens)]
    many = [SampleRequest(PROMPT, 12, temperature=2.0, seed=(7, j)) for j in range(ROWS + 9)]
    small, heard = await engine.open(BASES[0].name), Told()
    sampled = await asyncio.create_task(listened(engine, small, many, heard))
    assert sampled == await engine.sample(small, many)
    assert set(heard) == set(range(len(many)))
    assert all(tokens[0][0] == sampled[index].tokens[0] for index, tokens in heard.items())


async def test_what_nobody_waits_for_any_more_is_sampled_no_further(engine: TinyEngine) -> None:
    handle, told = await engine.open(BASES[-1].name), Told()
    leaving = asyncio.create_task(listened(engine, handle, [wordy(0)], told))
    await until(lambda: bool(told))
    [sent] = engine._worker._first.sent
    later = asyncio.create_task(engine.sample(handle, [wordy(1, 20)]))
    leaving.cancel()
    [row] = (await sent.answer)["result"]
    assert len(told[0]) <= len(row["tokens"]) < LONGEST
    assert row["finish_reason"] == "length"
    assert await later == await engine.sample(handle, [wordy(1, 20)])
    [again] = await engine.sample(handle, [wordy(0, len(row["tokens"]))])
    assert again.tokens == row["tokens"]


def test_callers_who_left_after_their_answer_are_forgotten() -> None:
    here, there = os.pipe()
    try:
        worker = Worker(Mapped(here), here, lambda document: None)
        request = {
            "id": 1,
            "verb": "sample",
            "policy": {"weights": 0, "config": asdict(SMALL)},
            "requests": [vars(SampleRequest([1, 2], 1))],
            "callers": [(7, 1, False)],
        }
        worker._policy = request["policy"], Policy(initial(SMALL, seed=7), SMALL)
        for said in ({"verb": "leave", "caller": 3}, request, {"id": 2, "verb": "ready"}):
            write_document(there, said, CODEC)
        write_document(there, {"verb": "leave", "caller": 9}, CODEC)
        asked = worker.inbox.next()
        assert asked is not None
        assert len(worker.answer(asked)) == 1
        assert worker._gone == {3, 9}, "a request of theirs may wait"
        assert worker.inbox.next() is not None
        worker.answer(request)
        assert worker._gone == set()
    finally:
        os.close(here)
        os.close(there)


def queued(
    dispatch: Dispatch, kind: Kind, verb: str, policy: str = "a", rows: int = 0, of: str = ""
) -> Call:
    request = {"verb": verb, "policy": policy, "requests": [None] * rows}
    call = Call(request, kind, claimant=of)
    dispatch._queue.append(call)
    return call


def turns(dispatch: Dispatch, lane: int = 0) -> list[list[Call]]:
    """What a process would be sent, one after the other."""
    sent = []
    while calls := dispatch._next(dispatch._lanes[lane]):
        sent.append(calls)
    return sent


class Clock:
    """What dispatches go by."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(dispatch_module, "monotonic", lambda: clock.now)
    return clock


async def test_small_samples_of_a_policy_go_together_and_training_keeps_its_turn() -> None:
    dispatch = Dispatch(Memory())
    train = queued(dispatch, "own", "optim_step")
    first, other = [queued(dispatch, "small", "sample", policy, 8) for policy in "ab"]
    part, later = queued(dispatch, "part", "sample"), queued(dispatch, "part", "gradients")
    second = queued(dispatch, "small", "sample", rows=8)
    too_many = queued(dispatch, "small", "sample", rows=ROWS)
    cancelled = queued(dispatch, "small", "sample", rows=8)
    cancelled.reply.cancel()
    assert turns(dispatch) == [[train], [first, second], [other], [part], [later], [too_many]]


async def test_each_process_has_its_share_and_none_takes_what_others_could_begin() -> None:
    dispatch = Dispatch(Memory(), cores=2)
    one, two = dispatch._lanes
    small = [queued(dispatch, "small", "sample", rows=1) for _ in range(12)]
    assert dispatch._next(one) == small[:6]
    one.sent.append(Sent(small[:6], asyncio.Future()))
    assert dispatch._next(one) == [], "others can still join it"
    assert dispatch._next(two) == small[6:]
    one.sent.clear()
    few = [queued(dispatch, "small", "sample", rows=1) for _ in range(4)]
    assert dispatch._next(one) == few, "not worth two processes"
    one.sent.append(Sent(few, asyncio.Future()))
    own = queued(dispatch, "own", "optim_step")
    parts = [queued(dispatch, "part", "gradients") for _ in range(4)]
    assert dispatch._next(two) == [parts[0]], "what only the first one can do waits for that"
    assert dispatch._next(one) == [], "training is sent in its turn"
    one.sent.clear()
    assert dispatch._next(one) == [own]
    one.sent.append(Sent([own], asyncio.Future()))
    assert dispatch._next(one) == [parts[1]], "there are enough for both"
    assert dispatch._next(one) == [], "the last ones are for whoever is free first"
    assert dispatch._next(two) == [parts[2]]


async def test_a_chat_that_is_due_does_not_wait_for_all_parts_of_a_call(clock: Clock) -> None:
    dispatch = Dispatch(Memory())
    lane = dispatch._first
    parts = [queued(dispatch, "part", "sample") for _ in range(4)]
    chats = [queued(dispatch, "small", "sample", policy, 1) for policy in "ab"]
    assert dispatch._next(lane) == [parts[0]], "the oldest first"
    clock.now = 2 * DUE_S
    lane.sent.append(Sent([parts[0]], asyncio.Future()))
    assert dispatch._next(lane) == [], "no part goes ahead of it"
    lane.sent.clear()
    assert turns(dispatch) == [[chats[0]], [parts[1]], [chats[1]], [parts[2]], [parts[3]]]


async def test_claimants_take_turns_however_many_requests_each_has() -> None:
    dispatch = Dispatch(Memory())
    flood = [queued(dispatch, "part", "sample", of="ana") for _ in range(4)]
    chats = [queued(dispatch, "small", "sample", policy, 1, of="ana") for policy in "ab"]
    parts = [queued(dispatch, "part", "gradients", of="ben") for _ in range(2)]
    step = queued(dispatch, "own", "optim_step", of="ben")
    late = queued(dispatch, "small", "sample", "b", 1, of="cem")
    assert turns(dispatch) == [
        *([flood[0]], [parts[0]], [late, chats[1]]),  # a chat goes with another's
        *([flood[1]], [parts[1]], [flood[2]], [step]),
        *([flood[3]], [chats[0]]),
    ]


async def test_of_claimants_that_had_no_turn_yet_the_one_who_asked_first_is_next() -> None:
    """Whatever their names."""
    dispatch = Dispatch(Memory())
    asked = [queued(dispatch, "part", "sample", of=name) for name in ("zoe", "ana", "max", "bob")]
    assert turns(dispatch) == [[call] for call in asked]


async def test_a_claimants_own_requests_go_with_it_before_those_of_others() -> None:
    dispatch = Dispatch(Memory())
    others = [queued(dispatch, "small", "sample", rows=ROWS // 2, of="ana") for _ in range(3)]
    dispatch._turns.take("ana", "part", trains=False, now=0.0)
    own = [queued(dispatch, "small", "sample", rows=ROWS // 4, of="ben") for _ in range(2)]
    assert turns(dispatch) == [[*own, others[0]], others[1:]]


async def test_while_somebody_trains_nothing_of_others_is_sent_ahead(clock: Clock) -> None:
    dispatch = Dispatch(Memory())
    lane = dispatch._first
    flood = [queued(dispatch, "part", "sample", of="ana") for _ in range(4)]
    lane.sent.append(Sent([flood[0]], asyncio.Future()))
    assert dispatch._next(lane) == [flood[0]], "nobody trains"
    lane.sent.clear()
    step = queued(dispatch, "own", "optim_step", of="ben")
    assert dispatch._next(lane) == [step]
    lane.sent.append(Sent([step], asyncio.Future()))
    assert dispatch._next(lane) == [], "the next call of the step would wait for both"
    training = queued(dispatch, "part", "gradients", of="ben")
    assert dispatch._next(lane) == [], "it is not ben's turn"
    lane.sent.clear()
    assert dispatch._next(lane) == [flood[1]]
    lane.sent.append(Sent([flood[1]], asyncio.Future()))
    assert dispatch._next(lane) == [training], "who trains need not wait for the service"
    clock.now = LATELY_S
    assert dispatch._next(lane) == [flood[2]], "no more call is expected of ben"


async def test_the_first_process_is_kept_free_for_who_trains(clock: Clock) -> None:
    dispatch = Dispatch(Memory(), cores=2)
    one, two = dispatch._lanes
    for verb in ("open", "optim_step"):
        first = queued(dispatch, "own", verb, of="ana" if verb == "open" else "ben")
        assert dispatch._next(one) == [first]
    flood = [queued(dispatch, "part", "sample", of="ana") for _ in range(4)]
    dispatch._starts.failed(clock.now, clock.now)
    assert dispatch._next(one) == [flood[0]], "it is the only process"
    two.answers = True
    assert dispatch._next(one) == [], "one of the others is there"
    await dispatch._bury(two)
    [part] = dispatch._next(one)
    assert part is flood[1], "that one has ended"
    dispatch._queue.insert(0, part)
    dispatch._starts.succeeded()
    assert dispatch._next(one) == [], "opening a policy is not training"
    part = queued(dispatch, "part", "gradients", of="ben")
    assert dispatch._next(one) == [part]
    assert dispatch._next(two) == [flood[1]]
    opening = queued(dispatch, "own", "open", of="ana")
    assert dispatch._next(one) == [opening], "no other process can do it"
    flood[2].losses = REPEATS + 1
    assert dispatch._next(one) == [flood[2]], "the others died of it"
    dispatch._queue.append(flood[2])
    assert dispatch._next(two) == [flood[3]], "no other process does it"
    assert dispatch._next(one) == [flood[2]]
    flood[2:] = [queued(dispatch, "part", "sample", of="ana") for _ in range(2)]
    two.driver = one.driver = cast("asyncio.Task[None]", object())
    dispatch._wake()
    assert (one.wake.is_set(), two.wake.is_set()) == (False, True), "who may do something"
    clock.now = LATELY_S
    assert dispatch._next(one) == [flood[2]], "nobody trains any more"


async def test_the_first_process_is_woken_when_it_is_no_longer_kept_free(clock: Clock) -> None:
    """By the next one that is sent something, since no request need come for it."""

    class Taking:
        def send(self, **request: object) -> asyncio.Future[object]:
            return asyncio.Future()

    dispatch = Dispatch(Memory(), cores=2)
    one, two = dispatch._lanes
    for lane in (one, two):
        lane.pipe, lane.driver = cast("Pipe", Taking()), cast("asyncio.Task[None]", object())
    dispatch._turns.take("ben", "own", trains=True, now=clock.now)
    flood = [queued(dispatch, "part", "sample", of="ana") for _ in range(4)]
    await dispatch._send(two)
    assert (two.sent[0].calls, one.wake.is_set()) == ([flood[0]], False)
    two.sent.clear()
    clock.now = LATELY_S
    await dispatch._send(two)
    assert (two.sent[0].calls, one.wake.is_set()) == ([flood[1]], True)


async def test_processes_that_fail_have_no_share_and_one_that_is_being_started_no_more_work() -> (
    None
):
    dispatch = Dispatch(Memory(), cores=3)
    _, two, three = dispatch._lanes
    for lane in (two, three):
        lane.driver = cast("asyncio.Task[None]", object())
    small = [queued(dispatch, "small", "sample", rows=1) for _ in range(12)]
    two.taken = dispatch._next(two)
    assert two.taken == small[:4], "a third"
    dispatch._first.taken = dispatch._next(dispatch._first)
    dispatch._wake()
    assert (two.wake.is_set(), three.wake.is_set()) == (False, True)
    two.taken, dispatch._first.taken = [], []
    dispatch._queue.extendleft(small[:8])
    dispatch._starts.failed(monotonic(), monotonic())
    assert len(dispatch._next(dispatch._first)) == 12, "nobody else can be counted on"


async def test_who_waits_for_any_process_is_told_that_the_engine_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch_module, "PATIENCE_S", 0.01)
    engine = TinyEngine(2)
    handle = await engine.open(BASES[0].name)
    many = [SampleRequest(PROMPT, 8, seed=(j,)) for j in range(8 * ROWS)]
    await engine.sample(handle, many)
    for pid in engine._worker.pids:
        os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.create_task(engine.sample(handle, many))
    await until(lambda: all(lane.sent for lane in engine._worker._lanes))
    await engine.stop()
    with pytest.raises(EngineLost, match="process ended"):
        await waiting
    assert engine._worker.pids == []


async def test_a_step_that_nobody_waits_for_any_more_is_not_told() -> None:
    dispatch, told = Dispatch(Memory()), list[str]()
    lane, said = dispatch._first, {"event": "stepped", "path": "p"}
    dispatch._hear(lane, said)
    call = Call({"verb": "optim_step"}, stepped=told.append)
    lane.sent.append(Sent([call], asyncio.Future()))
    dispatch._hear(lane, said)
    call.reply.cancel()
    dispatch._hear(lane, said)
    assert told == ["p"]


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
async def test_a_part_is_with_the_worker_before_the_one_before_it_is_answered(
    engine: TinyEngine, end: signal.Signals
) -> None:
    handle = await engine.open(BASES[0].name)
    wanted = [asked(1, 2 * ROWS), asked(2, 2 * ROWS), asked(4)]
    alone = [await engine.sample(handle, requests) for requests in wanted]
    pid, queue = worker_of(engine), engine._worker._queue
    os.kill(pid, signal.SIGSTOP)
    asking = [asyncio.create_task(engine.sample(handle, requests)) for requests in wanted]
    await until(lambda: len(queue) == 3)  # of four parts and a small one
    os.kill(pid, end)
    found = await asyncio.gather(*asking, return_exceptions=True)
    if end == signal.SIGKILL:
        assert all(isinstance(one, EngineLost) for one in found)
        handle = await engine.open(BASES[0].name)
        found = [await engine.sample(handle, requests) for requests in wanted]
    assert [[one.tokens for one in rows] for rows in found] == [
        [one.tokens for one in rows] for rows in alone
    ]


async def test_a_handle_of_a_process_that_ended_is_lost_each_time_and_no_longer_kept(
    engine: TinyEngine,
) -> None:
    closed = await engine.open(BASES[0].name)
    await engine.close(closed)
    with pytest.raises(EngineError, match="closed") as told:
        await engine.sample(closed, asked(1))
    assert not isinstance(told.value, EngineLost)
    handle, other = [await engine.open(BASES[0].name) for _ in range(2)]
    view, policy = engine.view(handle), engine._opened.find(handle)
    assert view is not None
    weights = weakref.ref(policy.weights) if policy is not None else None
    del policy
    os.kill(worker_of(engine), signal.SIGKILL)
    with pytest.raises(EngineLost):
        await engine.start()
    again = await engine.open(BASES[0].name)
    assert len(engine._opened) == 1
    gc.collect()
    assert weights is not None
    assert weights() is None, "its memory is free"
    for lost in (handle, handle, view, other, other):
        with pytest.raises(EngineLost, match="open the policy again"):
            await engine.sample(lost, asked(1))
    assert engine.view(handle) is None
    await engine.close(handle)
    for never in (f"tiny-{10**6}", "nobody's"):
        with pytest.raises(EngineError, match="closed"):
            await engine.sample(never, asked(1))
    assert await engine.sample(again, asked(1))


async def test_a_worker_that_does_not_answer_is_said_and_ended(
    engine: TinyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await engine.open(BASES[0].name)
    pid = worker_of(engine)
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as hasty:  # a worker that starts may take longer on a busy machine
        hasty.setattr(dispatch_module, "ANSWER_S", 2)
        hasty.setattr(dispatch_module, "REPORTED_S", 1)
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


async def test_after_a_stop_before_anything_began_it_starts_again(engine: TinyEngine) -> None:
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    assert engine._worker._first.wake.is_set()
    await engine.stop()
    with pytest.raises(EngineLost):
        await starting
    async with asyncio.timeout(PATIENCE_S):
        await engine.start()


async def test_a_sliced_pass_is_the_same_pass_or_none_where_a_slice_fails(
    engine: TinyEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datums = some_datums(24, logprob=-4.0)
    whole, cut = [await engine.open(BASES[0].name) for _ in range(2)]
    expected = await engine.forward_backward(whole, datums, "ppo")
    lines = await engine.forward(whole, datums)
    stepped = await engine.optim_step(whole, ADAM, tmp_path)
    monkeypatch.setattr(parts, "SLICE", 30)
    assert len(list(parts.cut(datums))) > 3
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
    monkeypatch.setattr(parts, "SLICE", 30)
    handle = await engine.open(BASES[0].name)
    passing = asyncio.create_task(
        engine.forward_backward(handle, some_datums(64, logprob=-4.0), "ppo")
    )
    await until(lambda: bool(engine._worker._first.sent))
    assert len(await engine.sample(handle, asked(1))) == 1
    assert not passing.done()
    await passing


def test_a_turn_stays_in_the_slice_of_the_one_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    game = [Datum(list(range(3 * n + 2)), [3 * n + 2, 3 * n + 3]) for n in range(5)]
    monkeypatch.setattr(parts, "SLICE", 18)
    assert list(parts.cut([*game, *game])) == [slice(0, 5), slice(5, 10)]
    assert list(parts.cut(game[::-1])) == [
        slice(0, 1),
        slice(1, 2),
        slice(2, 4),
        slice(4, 5),
    ]
    monkeypatch.setattr(parts, "SLICE", 64)
    assert list(parts.cut([*game, *game])) == [slice(0, 10)]
    larger = 2 * parts.PARAMETERS
    assert list(parts.cut([*game, *game], larger)) == [slice(0, 10)]
    assert list(parts.cut([*game, *game], 2 * larger)) == [slice(0, 5), slice(5, 10)]


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
    assert max(sizes.pop("tiny/agent-1M"), sizes.pop("tiny/tools-1M")) <= 2_200_000
    assert all(size <= 400_000 for size in sizes.values())


@pytest.mark.parametrize("engine", ["tiny", "tinker"])
def test_a_worker_ends_when_its_input_does(engine: str, tmp_path: Path) -> None:
    given = {"tiny": "0", "tinker": str(tmp_path)}[engine]
    command = [sys.executable, "-m", f"hud_tui.service.engines.{engine}.worker", given]
    ended = subprocess.run(command, input=b"", capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")
