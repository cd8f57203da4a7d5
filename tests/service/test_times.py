"""The service says where the time of a run's steps went, and what became of every rollout."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.rl import stopwatch
from hud_tui.rl.timeline import (
    DISK,
    ENGINE,
    EVALUATING,
    EVALUATION,
    FORWARD_BACKWARD,
    GRADING,
    HEAD_MOVED,
    LOOP_PARTS,
    MOST_ROLLOUTS,
    MOST_SPANS,
    OPTIM_STEP,
    SAMPLING,
    SAVING,
    ZERO_VARIANCE,
    Account,
    account_of,
)
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.service import Service
from hud_tui.service.store.db import Store
from hud_tui.wire_time import RunTime, StepTime
from tests.conftest import calling, fork, submit, until
from tests.service.calls import (
    Json,
    cancel,
    leave,
    optim,
    pass_,
    payloads,
    ran,
    resume,
    set_head,
    steps,
    told,
    traces_of,
    tree,
)
from tests.toy_engine import ToyEngine


async def times(http: AsyncClient, run_id: str, **query: Any) -> RunTime:
    answer = await http.get(f"/v1/runs/{run_id}/time", params=query)
    return RunTime.model_validate(answer.raise_for_status().json())


async def discarded(http: AsyncClient, run_id: str, **query: Any) -> Json:
    answer = await http.get(f"/v1/runs/{run_id}/discarded", params=query)
    body: Json = answer.raise_for_status().json()
    return body


class Ticks:
    """A clock that a tick moves on by one, so that no test hangs on how fast the machine is."""

    at = 1e6

    def __call__(self) -> float:
        return self.at

    @classmethod
    def around(cls, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Something that takes one tick. A run that waits for it outside of a span has a gap."""

        async def ticking(*given: Any, **named: Any) -> Any:
            await asyncio.sleep(0)
            cls.at += 1
            return await work(*given, **named)

        return ticking


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> ToyEngine:
    """An engine of which each call takes a tick, as does whatever is asked of the store or done in
    a thread."""
    monkeypatch.setattr(stopwatch, "steady_clock", Ticks)
    for where, name in ((Store, "read"), (Store, "write"), (asyncio, "to_thread")):
        monkeypatch.setattr(where, name, Ticks.around(getattr(where, name)))
    engine = ToyEngine()
    for name in ("open", "sample", "forward_backward", "optim_step", "tokenizer"):
        monkeypatch.setattr(engine, name, Ticks.around(getattr(engine, name)))
    return engine


def gaps(time: StepTime) -> list[tuple[float, float]]:
    """Where nothing is known of a step."""
    found, at = [], 0.0
    for span in sorted(time.spans, key=lambda span: span.start):
        if span.start > at:
            found.append((at, span.start))
        at = max(at, span.start + span.seconds)
    return found


@pytest.mark.parametrize("ahead", [{}, {"max_staleness": 2}, {"substeps": 2}])
async def test_every_step_of_a_managed_run_is_accounted_for(
    tmp_path: Path, ticks: ToyEngine, ahead: Json
) -> None:
    async with Service(tmp_path, ticks) as service, calling(service) as http:
        model = await fork(http)
        asked = {"steps": 4, "heldout_every": 2, "eval_every": 2, "eval_samples": 1, **ahead}
        job = await ran(http, model["id"], **asked)
        told, rows = await times(http, job), await tree(http, model["id"])
    *taken, last = told.steps
    assert [time.step for time in told.steps] == [1, 2, 3, 4, 5]
    assert [time.checkpoint_id for time in taken] == [row["id"] for row in rows]
    assert (last.checkpoint_id, told.total) == (None, 4)
    assert all(one.end == other.start for one, other in pairwise(told.steps))
    for time in taken:
        spent = account_of(time)
        assert spent.accounted == pytest.approx(1.0), (time.spans, gaps(time))
        assert {FORWARD_BACKWARD, OPTIM_STEP, SAVING, DISK} <= spent.parts.keys()
        assert (EVALUATING in spent.parts) == (time.step == 3)
        assert len(time.model_dump_json()) < 4000
    assert EVALUATING in account_of(last).parts
    both = sum(map(account_of, taken), Account())
    assert {SAMPLING, ENGINE} <= both.parts.keys()
    if "max_staleness" not in ahead:  # with it, a batch may be there before a step begins
        assert both.at_once == 0
    for row, time in zip(rows, taken, strict=True):
        spent = account_of(time)
        assert row["metrics"]["step_s"] == pytest.approx(spent.seconds, abs=1e-4)
        assert row["metrics"]["wait_share"] == pytest.approx(spent.waiting, abs=1e-3)


async def test_each_part_of_a_step_is_measured(http: AsyncClient) -> None:
    model = await fork(http)
    job = await ran(http, model["id"], steps=3)
    for time in (await times(http, job)).steps[:-1]:
        kinds = {span.kind for span in time.spans}
        assert kinds <= LOOP_PARTS.keys()
        assert kinds >= {SAMPLING, GRADING, FORWARD_BACKWARD, OPTIM_STEP, SAVING, DISK}
        assert account_of(time).accounted > 0.5  # on a busy machine, of steps of milliseconds


async def test_one_step_or_the_newest_are_told(http: AsyncClient) -> None:
    model = await fork(http)
    job = await ran(http, model["id"], steps=4)
    assert [time.step for time in (await times(http, job, step=2)).steps] == [2]
    assert (await times(http, job, step=9)).steps == []
    assert [time.step for time in (await times(http, job, last=2)).steps] == [4, 5]
    assert (await times(http, job, last=0)).steps == []
    assert (await http.get("/v1/runs/none/time")).status_code == 404


async def test_a_step_under_way_is_told(tmp_path: Path) -> None:
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        model = await fork(http)
        job = await submit(http, model["id"], steps=100)
        await until(lambda: _samples(http, job))
        told = await times(http, job)
        assert told.steps[-1].checkpoint_id is None
        assert told.steps[-1].step == told.total + 1
        await cancel(http, job)


async def _samples(http: AsyncClient, job: str) -> bool:
    told = await times(http, job)
    return bool(told.total and told.steps[-1].spans)


async def test_an_interrupted_run_begins_again_where_it_is_resumed(http: AsyncClient) -> None:
    model = await fork(http)
    job = await submit(http, model["id"], steps=500)
    await until(lambda: _samples(http, job))
    await cancel(http, job)
    before = (await times(http, job)).total
    await resume(http, job)
    await until(lambda: _more(http, job, before))
    await cancel(http, job)
    steps_ = (await times(http, job, last=500)).steps
    assert [time.step for time in steps_] == list(range(1, len(steps_) + 1))
    assert all(one.end <= other.start for one, other in pairwise(steps_))


async def _more(http: AsyncClient, job: str, before: int) -> bool:
    return (await times(http, job)).total > before


async def test_rollouts_of_groups_without_variance_are_discarded_with_that_reason(
    http: AsyncClient,
) -> None:
    model = await fork(http)
    job = await ran(http, model["id"], steps=3, group_size=4, tasks_per_step=6)
    rows, traces = await tree(http, model["id"]), await traces_of(http, job, limit=1000)
    flat = sum(
        len(group["rewards"])
        for row in rows
        for group in row["groups"]
        if len(set(group["rewards"])) == 1
    )
    told, listed = await times(http, job), await discarded(http, job)
    assert told.discarded == ({ZERO_VARIANCE: flat} if flat else {})
    assert (listed["total"], len(listed["items"])) == (flat, flat)
    by_id = {trace["id"]: trace for trace in traces}
    for item in listed["items"]:
        trace = by_id[item["trace_id"]]
        assert item["reason"] == ZERO_VARIANCE
        assert (item["reward"], item["task_slug"]) == (trace["reward"], trace["task_slug"])
        assert (item["step"], item["rollout"]) == (trace["step"], trace["rollout"])
    assert [item["step"] for item in listed["items"]] == sorted(
        (item["step"] for item in listed["items"]), reverse=True
    )
    reasons = {item["trace_id"]: ZERO_VARIANCE for item in listed["items"]}
    chosen = [trace for trace in traces if not trace["heldout"]][:30]
    for trace in [*chosen, by_id[next(iter(reasons), traces[0]["id"])]]:
        told_of = (await http.get(f"/v2/trace/{trace['id']}")).json()
        assert told_of["discarded"] == reasons.get(trace["id"])
        verb, _, words = trace["task_slug"].partition("-")
        if verb == "uppercase":
            assert told_of["expected"] == words.upper()
        assert told_of["expected"], trace["task_slug"]
    pages = [await discarded(http, job, limit=3, offset=at) for at in range(0, flat, 3)]
    assert [item for page in pages for item in page["items"]] == listed["items"]
    spent = sum((account_of(time) for time in told.steps), Account())
    assert (spent.rollouts, spent.discarded) == (3 * 24, told.discarded)


async def test_a_batch_that_the_head_left_is_kept_with_its_reason(tmp_path: Path) -> None:
    engine = ToyEngine()
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model = await fork(http)
        [first, *_] = await steps(http, model, 2)
        sample, moved = engine.sample, []

        async def move_then_sample(*given: Any) -> Any:
            if not moved:
                moved.append(await set_head(http, model["id"], first))
            return await sample(*given)

        engine.sample = move_then_sample  # type: ignore[method-assign]
        job = await ran(http, model["id"], steps=1, tasks_per_step=2, group_size=4)
        told, listed = await times(http, job), await discarded(http, job)
        left = [item for item in listed["items"] if item["reason"] == HEAD_MOVED]
        assert told.discarded[HEAD_MOVED] == len(left) == 8
        assert {item["step"] for item in left} == {1}
        assert account_of(told.steps[0]).discarded[HEAD_MOVED] == 8
        for item in left:
            assert (await http.get(f"/v2/trace/{item['trace_id']}")).status_code == 200


async def test_of_a_loop_outside_the_service_tells_what_it_sees(http: AsyncClient) -> None:
    model = await fork(http)
    for reward in (1.0, 0.0):
        trace = uuid4().hex
        await http.post(f"/v2/trace/{trace}/enter", json={"task_slug": "a", "model": model["id"]})
        await leave(http, trace, reward)
    failed = uuid4().hex
    await http.post(f"/v2/trace/{failed}/enter", json={"task_slug": "b", "model": model["id"]})
    await leave(http, failed, None, status="error", error="boom")
    kept = {"model_id": model["id"], "num_tasks": 1, "samples": 1, "status": "running"}
    await http.put(f"/v1/evaluations/{(evaluation := str(uuid4()))}", json=kept)
    other = {"task_slug": "c", "model": model["id"], "job_id": evaluation}
    await http.post(f"/v2/trace/{(evaluates := uuid4().hex)}/enter", json=other)
    await leave(http, evaluates, None, status="error", error="of no training")
    for rewards in ([1.0, 0.0], [1.0, 1.0, 0.0, 1.0]):
        await pass_(http, model["id"], await payloads(http, model["id"], rewards), group_size=2)
        await optim(http, model["id"])
    told = await times(http, model["id"])
    assert [time.step for time in told.steps] == [1, 2]
    assert all(time.is_outside for time in told.steps)
    first, second = map(account_of, told.steps)
    assert {SAMPLING, FORWARD_BACKWARD, OPTIM_STEP, SAVING} <= first.parts.keys()
    assert first.idle > 0
    assert first.discarded == {"failed": 1}
    assert told.discarded["failed"] == 1
    assert second.is_outside


async def test_the_time_of_a_step_is_bounded_however_much_happens_in_it(http: AsyncClient) -> None:
    model = await fork(http)
    trace_ids = [uuid4().hex for _ in range(150)]
    for number, trace in enumerate(trace_ids):
        body = {"task_slug": f"t{number}", "model": model["id"]}
        await http.post(f"/v2/trace/{trace}/enter", json=body)
        await leave(http, trace, 1.0)
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]), group_size=2)
    await optim(http, model["id"])
    [time] = (await times(http, model["id"])).steps
    assert len(time.spans) <= MOST_SPANS
    assert len(time.rollouts) <= MOST_ROLLOUTS
    assert account_of(time).rollouts == 150


async def test_a_followers_event_has_the_same_time(http: AsyncClient, service: Service) -> None:
    model = await fork(http)
    job = await ran(http, model["id"], steps=2)
    stored = (await times(http, job)).steps[:2]
    events = [event["time"] for event in await told(service, model["id"], "step")]
    assert [StepTime.model_validate(event) for event in events] == stored


@pytest.mark.parametrize("engine", [TinyEngine])
async def test_the_tiny_engine_says_how_long_it_saves(tmp_path: Path, engine: Any) -> None:
    async with Service(tmp_path, engine()) as service, calling(service) as http:
        model = await fork(http)
        job = await ran(http, model["id"], steps=2)
        [_, second, _] = (await times(http, job)).steps
    spent = account_of(second)
    assert spent.parts[SAVING] > 0
    assert spent.parts[OPTIM_STEP] > 0
    assert spent.share(ENGINE) < 0.5


async def test_what_an_evaluation_takes_the_engine_for_is_waited_for(tmp_path: Path) -> None:
    async with Service(tmp_path, TinyEngine()) as service, calling(service) as http:
        model = await fork(http)
        job = await submit(http, model["id"], steps=500)
        await until(lambda: _samples(http, job))
        body = {"checkpoint_id": None, "split": "all", "parameters": {"samples": 64}}
        await http.post(f"/v1/models/{model['id']}/evaluations", json=body)
        await until(lambda: _waits(http, job))
        await cancel(http, job)


async def _waits(http: AsyncClient, job: str) -> bool:
    steps_ = (await times(http, job, last=500)).steps
    return any(span.kind == EVALUATION for time in steps_ for span in time.spans)
