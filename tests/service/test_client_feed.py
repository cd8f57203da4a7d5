"""The feed of a model's training: streamed, cut, resumed, polled."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import httpx
import pytest

from hud_tui.client import feed as feed_module
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Feed
from hud_tui.errors import HudNotFound, HudUnauthorized
from hud_tui.events import (
    CheckpointAdded,
    Event,
    HeadMoved,
    RolloutDone,
    StepTaken,
    TreeRead,
    WorkChanged,
)
from hud_tui.rl.work import ENDED
from hud_tui.service.app import create_app
from hud_tui.service.routes import models as stream
from hud_tui.service.service import Service
from hud_tui.settings import local_settings
from hud_tui.wire import Checkpoint, Group, Model
from tests.conftest import PATIENCE_S, Served, on_socket, until
from tests.service.clients import answered, fork_of, over_socket, run_of
from tests.service.proxy import Proxy, proxy


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect and poll without the waits that are meant for people."""
    monkeypatch.setattr(feed_module, "backoff", lambda attempt: 0.01)
    monkeypatch.setattr(feed_module, "BUSY_S", 0.01)
    monkeypatch.setattr(feed_module, "IDLE_S", 0.01)


@pytest.fixture
async def client(served: Served) -> AsyncIterator[HudClient]:
    async with over_socket(served) as client:
        yield client


async def to_the_end(events: AsyncGenerator[Event, None]) -> list[Event]:
    """What comes until a job has ended."""
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            seen.append(event)
            run = event.run if isinstance(event, WorkChanged) else None
            if run is not None and run.status in ENDED:
                return seen
    raise AssertionError("a feed never ends")


async def follow_a_run(
    client: HudClient, model: Model, steps: int, feed: Feed | None = None
) -> list[Event]:
    """The events of a run, from the tree before it to its end."""
    body = await run_of(client, model, steps=steps, group_size=2, tasks_per_step=2)
    async with aclosing(aiter(feed or client.feed(model.id))) as events:
        first = await anext(events)
        await client.runs.submit(body)
        return [first, *await to_the_end(events)]


@asynccontextmanager
async def cut_off(served: Served) -> AsyncIterator[tuple[Proxy, HudClient]]:
    """A line to the service that can be cut, and a client at the end of it."""
    async with (
        proxy(served.url) as line,
        aclosing(HudClient(local_settings(line.url, served.api_key, ""))) as client,
    ):
        yield line, client


async def test_a_run_as_it_is_streamed(client: HudClient) -> None:
    model = await fork_of(client)
    feed = client.feed(model.id)
    assert feed.source == "connecting"
    events = await follow_a_run(client, model, 2, feed)
    assert events[0] == TreeRead(checkpoints=())
    assert feed.source == "stream"
    assert feed.trouble == ""
    steps = [e.type for e in events if e.type in ("checkpoint", "head", "step")]
    assert steps == [*["checkpoint", "head", "step"] * 2, "checkpoint"], "evaluated at the end"
    rollouts = [event for event in events if isinstance(event, RolloutDone) and not event.heldout]
    assert {event.step for event in rollouts} == {1, 2}
    async with aclosing(aiter(client.feed(model.id))) as later:
        tree, job = await anext(later), await anext(later)
    assert isinstance(tree, TreeRead)
    assert list(tree.checkpoints) == await client.checkpoints(model.id)
    assert isinstance(job, WorkChanged)
    assert job.work.status == "succeeded"


async def test_a_cut_line_loses_nothing_and_doubles_nothing(
    client: HudClient, served: Served
) -> None:
    model = await fork_of(client)
    body = await run_of(client, model, steps=6, group_size=2, tasks_per_step=2)
    async with (
        cut_off(served) as (line, other),
        aclosing(aiter(client.feed(model.id))) as whole,
        aclosing(aiter(other.feed(model.id))) as cut,
    ):
        await anext(whole)
        await anext(cut)
        await client.runs.submit(body)
        wanted = asyncio.create_task(to_the_end(whole))
        seen: list[Event] = []
        async with asyncio.timeout(PATIENCE_S):
            async for event in cut:
                seen.append(event)
                run = event.run if isinstance(event, WorkChanged) else None
                if run is not None and run.status in ENDED:
                    break
                if len(seen) % 3 == 0:
                    line.cut()
        assert seen == await wanted


async def test_trouble_is_told_while_the_service_is_away(service: Service) -> None:
    async with on_socket(service) as url:
        client = HudClient(local_settings(url, service.api_key, ""))
        model = await fork_of(client)
        feed = client.feed(model.id)
        seen: list[Event] = []

        async def read() -> None:
            async for event in feed:
                seen.append(event)

        reading = asyncio.create_task(read())
        await until(lambda: len(seen) == 1)
    await until(lambda: feed.trouble != "")
    assert feed.source == "connecting"
    assert feed.retry_at is not None
    async with on_socket(service, int(url.rpartition(":")[2])):
        await until(lambda: feed.trouble == "")
        assert (feed.source, feed.retry_at) == ("stream", None)
        await client.runs.submit(
            await run_of(client, model, steps=1, group_size=2, tasks_per_step=1)
        )
        await until(lambda: any(isinstance(event, StepTaken) for event in seen))
        reading.cancel()
        await asyncio.wait([reading])
        await client.aclose()


async def test_a_keep_alive_counts_as_heard_and_who_waits_may_leave(
    client: HudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", 0.01)
    feed = client.feed((await fork_of(client)).id)
    async with aclosing(aiter(feed)) as events:
        await anext(events)
        first = feed.heard_at
        waiting = asyncio.ensure_future(anext(events))
        await until(lambda: feed.heard_at != first)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_a_model_that_is_none_and_a_key_that_is_wrong_end_the_feed(served: Served) -> None:
    async with over_socket(served) as client:
        with pytest.raises(HudNotFound):
            await anext(aiter(client.feed("no-such-model")))
    stranger = HudClient(local_settings(served.url, "wrong", ""))
    with pytest.raises(HudUnauthorized):
        await anext(aiter(stranger.feed("no-such-model")))
    await stranger.aclose()


class Plain(httpx.AsyncBaseTransport):
    """The embedded service without what only it has, as HUD is."""

    def __init__(self, service: Service, strip: tuple[str, ...] = ()) -> None:
        self._inner = httpx.ASGITransport(create_app(service))
        self._strip = strip

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/train/events"):
            return httpx.Response(404, json={"detail": "Not Found"}, request=request)
        answer = await self._inner.handle_async_request(request)
        if not request.url.path.endswith("/checkpoints"):
            return answer
        rows = json.loads(await answer.aread())
        kept = [{k: v for k, v in row.items() if k not in self._strip} for row in rows]
        return httpx.Response(answer.status_code, json=kept, request=request)


@asynccontextmanager
async def polled(service: Service, *strip: str) -> AsyncIterator[HudClient]:
    settings = local_settings("http://127.0.0.1", service.api_key, "")
    async with aclosing(HudClient(settings, Plain(service, strip))) as client:
        yield client


async def test_polling_makes_the_same_events_and_sees_a_head_that_somebody_set(
    service: Service,
) -> None:
    async with polled(service) as client:
        model = await fork_of(client)
        feed = client.feed(model.id)
        events = await follow_a_run(client, model, 3, feed)
        assert feed.source == "poll"
        assert isinstance(events[0], TreeRead)
        tree = await client.checkpoints(model.id)
        added = [e.checkpoint.id for e in events if isinstance(e, CheckpointAdded)]
        said = list(dict.fromkeys(added))
        assert said == [c.id for c in tree], "the last may be said anew: it is evaluated"
        steps = [(e.step, e.checkpoint_id) for e in events if isinstance(e, StepTaken)]
        assert steps == [(c.step, c.id) for c in tree]
        last = [event for event in events if isinstance(event, HeadMoved)][-1]
        assert (last.checkpoint_id, last.cause) == (tree[-1].id, "step")
        async with aclosing(aiter(client.feed(model.id))) as later:
            await anext(later)
            await anext(later)
            await client.set_head(model.id, tree[0].id)
            moved = await anext(later)
        assert moved == HeadMoved(checkpoint_id=tree[0].id, previous=tree[-1].id, cause="set")


async def test_groups_are_joined_from_traces_where_checkpoints_have_none(service: Service) -> None:
    def told(groups: list[Group]) -> list[tuple[str | None, list[float]]]:
        return sorted((group.task_slug, sorted(group.rewards)) for group in groups)

    async with polled(service, "groups", "job_id") as client, polled(service) as whole:
        model = await fork_of(client)
        events = await follow_a_run(client, model, 1)
        [step, *_] = [event for event in events if isinstance(event, StepTaken)]
        [checkpoint] = await whole.checkpoints(model.id)
    assert told(step.groups) == told(checkpoint.groups)


async def test_polling_says_that_a_job_ended_after_its_last_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step lands while the poller reads; the job's end is never told before it, and once."""
    monkeypatch.setattr(feed_module, "BUSY_S", 1000.0)
    monkeypatch.setattr(feed_module, "IDLE_S", 3000.0)
    landed = False

    def server(request: httpx.Request) -> httpx.Response:
        nonlocal landed
        if request.url.path.endswith("/checkpoints"):
            return httpx.Response(200, json=[{"id": "c1", "is_active": True}] if landed else [])
        if request.url.path.endswith("/raw-status"):
            status, landed = "succeeded" if begun else "running", begun
            return httpx.Response(200, json={"status": status, "id": "j"})
        return httpx.Response(404, json={"detail": "none"})

    begun = False
    async with answered(server) as client:
        poller = feed_module.Poller(client, "m")
        await poller.whole()
        assert poller.interval_s == 1000.0
        begun = True
        told = [event.type for event in await poller.news()]
        assert (told[0], told[-1]) == ("checkpoint", "work")
        assert (poller.interval_s, await poller.news()) == (3000.0, [])


async def test_polling_rests_between_two_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "IDLE_S", 1e6)
    reads = 0

    def server(request: httpx.Request) -> httpx.Response:
        nonlocal reads
        is_tree = request.url.path.endswith("/checkpoints")
        reads += is_tree
        return httpx.Response(200, json=[]) if is_tree else httpx.Response(404, json={})

    async with answered(server) as client, aclosing(aiter(client.feed("m"))) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert reads == 1
        waiting.cancel()
        await asyncio.wait([waiting])


def test_the_number_of_a_step_is_reported_or_named_or_counted() -> None:
    for fields, number in (
        ({"step": 5, "name": "step-000007"}, 5),
        ({"name": "step-000007"}, 7),
        ({"name": "final"}, 3),
        ({}, 3),
    ):
        node = Checkpoint.model_validate({"id": "c", **fields})
        assert feed_module.step_taken(node, 3).step == number


@pytest.mark.parametrize(("status", "source"), [(200, "connecting"), (404, "poll")])
async def test_what_waits_after_a_failure_goes_on_as_it_began(
    status: int, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that has ended is opened again; a service without one is polled on."""
    monkeypatch.setattr(feed_module, "backoff", lambda attempt: 1e6)
    trees, streamed = 0, sse('id: 1\nevent: head\ndata: {"checkpoint_id":"c1"}\n\n')

    def server(request: httpx.Request) -> httpx.Response:
        nonlocal trees
        trees += request.url.path.endswith("/checkpoints")
        if trees > 1:
            return httpx.Response(400, json={"detail": "not now"})
        if request.url.path.endswith("/train/events") and status == 404:
            return httpx.Response(404, json={})
        return streamed(request)

    async with answered(server) as client:
        feed = client.feed("m")
        async with aclosing(aiter(feed)) as events:
            await anext(events)
            waiting = asyncio.ensure_future(to_the_end(events))
            await until(lambda: feed.trouble != "")
            assert feed.source == source
            waiting.cancel()
            await asyncio.wait([waiting])


def test_the_delay_of_events_is_told_by_the_service_s_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [5000.0]
    monkeypatch.setattr(feed_module, "monotonic", lambda: now[0])
    lag = feed_module.Lag()
    lag.update(1.0)
    assert lag.behind_s == 0.0, "its time is not known"
    lag.opened({"date": "nonsense"})
    lag.opened({"date": "Thu, 01 Jan 1970 01:00:00 GMT"})
    for at, behind_s in ((3590.0, 10.0), (0.0, 10.0), (3597.0, 3.0), (3605.0, 0.0)):
        lag.update(at)
        assert lag.behind_s == behind_s, at
    now[0] += feed_module.FRESH_S
    assert lag.behind_s == 0.0
    lag.update(3602.0)
    assert lag.behind_s == 0.0
    lag.update(3601.5)
    assert lag.behind_s == 0.5


def sse(*frames: str) -> Callable[[httpx.Request], httpx.Response]:
    """A service whose stream says this, then ends; and whose tree has one checkpoint."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/train/events"):
            headers = {"Content-Type": "text/event-stream; charset=utf-8"}
            return httpx.Response(200, content=_sent(frames), headers=headers)
        if request.url.path.endswith("/checkpoints"):
            return httpx.Response(200, json=[{"id": "c1", "is_active": True}])
        return httpx.Response(404, json={"detail": "none"})

    return answer


async def _sent(frames: tuple[str, ...]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame.encode()


TREE = TreeRead(checkpoints=(Checkpoint(id="c1", is_active=True),))
HEAD = HeadMoved(checkpoint_id="c1")


async def first_events(server: Callable[[httpx.Request], httpx.Response], n: int) -> list[Event]:
    async with answered(server) as client, aclosing(aiter(client.feed("m"))) as events:
        return [await anext(events) for _ in range(n)]


async def test_the_tree_is_read_again_where_something_may_be_missing() -> None:
    head = 'id: 1\nevent: head\ndata: {"checkpoint_id":"c1"}\n\n'
    unreadable, unknown = "id: 1\nevent: head\ndata: {nonsense}\n\n", "event: weather\ndata: {}\n\n"
    assert await first_events(sse(head, "event: reset\n\n"), 3) == [TREE, HEAD, TREE]
    assert await first_events(sse(unreadable), 2) == [TREE, TREE]
    assert await first_events(sse(unknown, head), 2) == [TREE, HEAD], "nothing is missing"


def orphan(id_: str, parent: str) -> str:
    row = {"id": id_, "prev_model_checkpoint_id": parent}
    return f"event: checkpoint\ndata: {json.dumps({'checkpoint': row})}\n\n"


async def test_a_checkpoint_whose_parent_never_came_reads_the_tree_again_once() -> None:
    server = sse(orphan("c2", "c1"), orphan("c9", "c8"), orphan("c9", "c8"), orphan("c7", "c8"))
    [first, known, again, *others] = await first_events(server, 6)
    assert first == again == TREE
    ids = [each.checkpoint.id for each in [known, *others] if isinstance(each, CheckpointAdded)]
    assert ids == ["c2", "c9", "c9", "c7"]


async def test_a_tree_that_is_read_again_in_vain_is_read_by_the_next_connection() -> None:
    """The stream's position is past the event already."""
    trees, stream = 0, sse("id: 1\n" + orphan("c9", "c8"))

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal trees
        if request.url.path.endswith("/checkpoints"):
            trees += 1
            if trees == 2:
                return httpx.Response(400, json={"detail": "not now"})
        return stream(request)

    assert await first_events(answer, 2) == [TREE, TREE]


async def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_LINE", 1000)
    async with answered(sse("data: " + "x" * 5000)) as client:
        feed = client.feed("m")
        async with aclosing(aiter(feed)) as events:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await until(lambda: "does not end" in feed.trouble)
            waiting.cancel()
            await asyncio.wait([waiting])


@pytest.mark.parametrize("status", [408, 429, 500])
async def test_a_stream_that_is_refused_for_now_is_asked_for_again(status: int) -> None:
    stream, refused = sse('id: 1\nevent: head\ndata: {"checkpoint_id":"c1"}\n\n'), 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal refused
        if request.url.path.endswith("/train/events") and refused < 2:
            refused += 1
            return httpx.Response(status, json={"detail": "not now"})
        return stream(request)

    async with answered(answer) as client:
        feed = client.feed("m")
        async with aclosing(aiter(feed)) as events:
            assert [await anext(events)] == [TREE]
            assert (feed.source, refused) == ("stream", 2)


async def test_a_stream_may_be_longer_than_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_LINE", 60)
    heads = [f'event: head\ndata: {{"checkpoint_id":"c{number}"}}\n\n' for number in range(9)]
    moved = [HeadMoved(checkpoint_id=f"c{number}") for number in range(9)]
    assert await first_events(sse(*heads), 10) == [TREE, *moved], "in one connection"
