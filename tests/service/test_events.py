"""The event stream, over a real socket: order, resume without loss, honest resets."""

from asyncio import timeout
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient
from httpx_sse import EventSource, ServerSentEvent

from hud_tui.events import Event, StepTaken, WorkChanged
from hud_tui.service.routes import models as stream
from hud_tui.service.service import Service
from hud_tui.service.store import events as log
from hud_tui.wire import adapter
from tests.conftest import PATIENCE_S, Served, bearer, ended, fork, on_socket, submit
from tests.service.calls import Json, chat, set_head, step, traces_of, tree
from tests.toy_engine import ToyEngine


@pytest.fixture
async def wire(served: Served) -> AsyncIterator[AsyncClient]:
    async with connected(served.url, served.api_key) as client:
        yield client


@asynccontextmanager
async def connected(url: str, api_key: str) -> AsyncIterator[AsyncClient]:
    headers = bearer(api_key)
    async with AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        yield client


@asynccontextmanager
async def restarted(data: Path) -> AsyncIterator[AsyncClient]:
    """A service of its own on a directory that may have been served before."""
    async with (
        Service(data, ToyEngine()) as service,
        on_socket(service) as url,
        connected(url, service.api_key) as http,
    ):
        yield http


@asynccontextmanager
async def following(
    http: AsyncClient, model_id: str, last: str | None = None
) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
    headers = {"Last-Event-ID": last} if last is not None else {}
    url = f"/v1/models/{model_id}/train/events"
    async with timeout(PATIENCE_S), http.stream("GET", url, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield EventSource(answer).aiter_sse()


async def take(events: AsyncIterator[ServerSentEvent], count: int) -> list[ServerSentEvent]:
    return [await anext(events) for _ in range(count)]


async def until_done(events: AsyncIterator[ServerSentEvent]) -> list[ServerSentEvent]:
    """Everything up to the end of a run."""
    found = []
    async for event in events:
        found.append(event)
        if is_done(event):
            return found
    raise AssertionError("the stream ended first")


def is_done(event: ServerSentEvent) -> bool:
    known = read(event)
    run = known.run if isinstance(known, WorkChanged) else None
    return run is not None and run.status not in ("queued", "running")


def read(event: ServerSentEvent) -> Event:
    known: Event = adapter(Event).validate_json(event.data)
    assert known.type == event.event
    return known


async def test_a_step_arrives_in_order(wire: AsyncClient, model: Json) -> None:
    async with following(wire, model["id"]) as events:
        await submit(wire, model["id"], steps=2)
        found = await until_done(events)
    kinds = [event.event for event in found]
    assert kinds[:3] == ["work", "work", "rollout"]
    others = [kind for kind in kinds if kind != "rollout"]
    steps = ["checkpoint", "head", "step", "work"] * 2
    evaluated = ["work", "checkpoint", "work", "work"]
    assert others == ["work", "work", *steps, *evaluated], "evaluated at the end"
    ids = [int(event.id) for event in found]
    assert ids == sorted(set(ids))
    taken = [read(event) for event in found if event.event == "step"]
    assert all(isinstance(one, StepTaken) and one.groups[0].trace_ids for one in taken)


async def test_a_reader_far_behind_is_spared_the_rollouts_of_steps_that_are_over(
    wire: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_FRAMES", 0)
    model = await fork(wire)
    async with following(wire, model["id"]) as events:
        job_id = await submit(wire, model["id"], steps=4)
        assert (await ended(wire, job_id))["status"] == "succeeded"
        whole = await until_done(events)
    kinds = Counter(event.event for event in whole)
    rollouts = len(await traces_of(wire, job_id))
    assert (kinds["step"], kinds["rollout"]) == (4, rollouts), "who is slow gets everything"
    first = str(int(whole[0].id) - 1)
    monkeypatch.setattr(log, "FAR", 40)
    last_step = max(int(event.id) for event in whole if event.event == "step")
    async with following(wire, model["id"], first) as events:
        found = await until_done(events)
    assert [one.id for one in found] == [
        one.id for one in whole if one.event != "rollout" or int(one.id) > last_step
    ]
    assert len(found) < len(whole)
    near = str(int(whole[-1].id) - 30)
    async with following(wire, model["id"], near) as events:
        found = await until_done(events)
    assert [one.id for one in found] == [one.id for one in whole if int(one.id) > int(near)]


async def test_without_an_id_it_starts_now(wire: AsyncClient, model: Json) -> None:
    await step(wire, model)
    async with following(wire, model["id"]) as events:
        second = await step(wire, model)
        [added] = await take(events, 1)
    assert added.event == "checkpoint"
    assert second["checkpoint_id"] in added.data


async def test_it_says_at_once_that_it_is_open_and_keeps_saying(
    wire: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", 0.01)
    model = await fork(wire)
    await step(wire, model)
    async with wire.stream("GET", f"/v1/models/{model['id']}/train/events") as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines) for _ in range(3)] == [": open", ": still here", ": still here"]
        assert int(answer.headers["X-Last-Event-ID"]) >= 3


async def test_set_head_and_outside_rollouts_are_told(wire: AsyncClient, model: Json) -> None:
    first = await step(wire, model)
    await step(wire, model)
    async with following(wire, model["id"]) as events:
        await set_head(wire, model["id"], first["checkpoint_id"])
        await set_head(wire, model["id"], first["checkpoint_id"])
        trace = "a" * 32
        entry = {"model": model["model_name"], "task_slug": "t"}
        await wire.post(f"/v2/trace/{trace}/enter", json=entry)
        await chat(wire, model["id"], headers={"Trace-Id": trace})
        for _ in range(2):
            await wire.post(f"/v2/trace/{trace}/exit", json={"reward": 0.5})
        await step(wire, model)
        found = [read(event) for event in await take(events, 3)]
    assert [event.type for event in found] == ["head", "rollout", "checkpoint"]
    head, rollout, _ = found
    assert (head.checkpoint_id, head.cause) == (first["checkpoint_id"], "set")  # type: ignore[union-attr]
    assert (rollout.task_slug, rollout.reward) == ("t", 0.5)  # type: ignore[union-attr]


async def test_ids_survive_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    async with restarted(data) as http:
        model = await fork(http)
        async with following(http, model["id"]) as events:
            await step(http, model)
            before = await take(events, 3)
    async with restarted(data) as http:
        async with following(http, model["id"], before[0].id) as events:
            await step(http, model)
            after = await take(events, 5)
        assert len(await tree(http, model["id"])) == 2
    assert [one.data for one in after[:2]] == [one.data for one in before[1:]]
    assert [int(one.id) for one in after] == sorted({int(one.id) for one in after})


@pytest.mark.parametrize("last", ["999999", "-3", "x", "", "9" * 40])
async def test_an_id_that_was_never_given_resets(wire: AsyncClient, model: Json, last: str) -> None:
    await step(wire, model)
    async with following(wire, model["id"], last) as events:
        [reset] = await take(events, 1)
        assert (reset.event, reset.data) == ("reset", "{}")
        await step(wire, model)
        [added] = await take(events, 1)
    assert added.event == "checkpoint"


async def test_an_id_that_is_no_longer_kept_resets(
    wire: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_EVENTS", 4)
    monkeypatch.setattr(log, "PRUNE_EVERY", 2)
    model = await fork(wire)
    async with following(wire, model["id"]) as events:
        seen = []
        for _ in range(4):
            await step(wire, model)
            seen += await take(events, 3)
        first, newest = seen[0], seen[-1]
    async with following(wire, model["id"], first.id) as events:
        assert (await take(events, 1))[0].event == "reset"
    async with following(wire, model["id"], str(int(newest.id) - 2)) as events:
        assert [one.event for one in await take(events, 2)] == ["head", "step"]


async def test_a_follower_that_falls_behind_what_is_kept_is_told_so(
    wire: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_EVENTS", 4)
    monkeypatch.setattr(log, "PRUNE_EVERY", 2)
    model, parts = await fork(wire), service.parts
    for _ in range(4):
        await step(wire, model)
    newest = await parts.store.read(log.newest)
    signal = parts.hub.signal(model["id"])
    assert await parts.frames.after(parts.store, model["id"], 1, signal) == (newest, stream.RESET)
    assert await parts.frames.after(parts.store, model["id"], newest, signal) == (newest, b"")


async def test_streams_end_when_the_service_stops(served: Served) -> None:
    async with connected(served.url, served.api_key) as http:
        model = await fork(http)
        async with http.stream("GET", f"/v1/models/{model['id']}/train/events") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": open"
            served.service.parts.hub.close()
            assert [line async for line in lines] == []


async def test_readers_that_wait_ask_the_store_once_together(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight who follow a model cost the thread that training writes on what one costs."""
    parts = served.service.parts
    asked = 0
    read = parts.store.read

    async def counted(query: Any, *args: Any) -> Any:
        nonlocal asked
        asked += query.__name__ == "_after"
        return await read(query, *args)

    monkeypatch.setattr(parts.store, "read", counted)
    async with connected(served.url, served.api_key) as http:
        id_ = (await fork(http))["id"]
    signal = parts.hub.signal(id_)
    for _ in range(8):
        assert await parts.frames.after(parts.store, id_, 0, signal) == (0, b"")
    assert asked == 1
    parts.hub.grew({id_})
    await signal.wait()
    await parts.frames.after(parts.store, id_, 0, signal)
    await parts.frames.after(parts.store, id_, 0, parts.hub.signal(id_))
    assert asked == 3
