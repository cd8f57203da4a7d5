"""A tree that is long on its way: it is told how much has come, and nothing is sent twice."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from hud_tui.client import feed as feed_module
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Feed, Poller
from hud_tui.errors import HudRefused
from hud_tui.events import HeadMoved, TreeRead
from hud_tui.settings import local_settings
from tests.conftest import Served, until
from tests.service.clients import KEY, answered, over_socket, trained
from tests.service.proxy import proxy

ROWS = [{"id": f"c{number}", "name": "x" * 100} for number in range(100)]
BODY = json.dumps(ROWS).encode()


class Slow(httpx.AsyncBaseTransport):
    """A service that sends the tree piece by piece, as it is told to, and knows its mark."""

    def __init__(self, etag: str | None = '"1"') -> None:
        self.go = asyncio.Semaphore(0)
        self.etag, self.asked, self.bodies = etag, 0, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/checkpoints"):
            return httpx.Response(404, json={"detail": "none"}, request=request)
        self.asked += 1
        headers = {} if self.etag is None else {"ETag": self.etag}
        if self.etag is not None and request.headers.get("if-none-match") == self.etag:
            return httpx.Response(304, headers=headers, request=request)
        self.bodies += 1
        headers["Content-Length"] = str(len(BODY))
        return httpx.Response(200, headers=headers, content=self._pieces(), request=request)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for at in range(0, len(BODY), 1000):
            await self.go.acquire()
            yield BODY[at : at + 1000]

    def send(self, pieces: int = len(BODY) // 1000 + 1) -> None:
        for _ in range(pieces):
            self.go.release()


def slow_client(service: Slow) -> HudClient:
    return HudClient(local_settings("http://127.0.0.1", KEY, ""), service)


async def test_two_who_ask_at_once_are_sent_it_once() -> None:
    service = Slow()
    async with aclosing(slow_client(service)) as client:
        both = asyncio.gather(client.tree("m"), client.tree("m"))
        await until(lambda: service.bodies > 0)
        service.send()
        one, other = await both
    assert one is other
    assert service.bodies == 1


async def test_that_nothing_is_new_is_no_answer_where_nothing_is_known() -> None:
    async with answered(lambda request: httpx.Response(304)) as client:
        with pytest.raises(HudRefused):
            await client.tree("m")


async def test_the_embedded_service_sends_a_tree_once(served: Served) -> None:
    async with (
        proxy(served.url) as line,
        aclosing(HudClient(local_settings(line.url, served.api_key, ""))) as client,
    ):
        model = await trained(client, steps=3, group_size=4, tasks_per_step=4)
        first = await client.tree(model.id)
        before = line.forwarded
        assert await client.tree(model.id) is first
        assert line.forwarded - before < 500
        await client.set_head(model.id, first[0].id)
        assert [node.is_active for node in await client.tree(model.id)] == [True, False, False]


async def test_who_reads_a_tree_while_another_renews_it_is_sent_what_is_new(served: Served) -> None:
    trees, store = served.service.parts.trees, served.service.parts.store
    async with over_socket(served) as client:
        model = await trained(client, steps=2, group_size=2, tasks_per_step=2)
        [first, _] = await client.tree(model.id)
        before = await trees.read(store, model.id)
        await client.set_head(model.id, first.id)
        one, other = await asyncio.gather(*[trees.read(store, model.id) for _ in range(2)])
    assert one == other != before
    assert [row["is_active"] for row in json.loads(other[0])] == [True, False]


async def test_a_feed_says_how_much_of_the_tree_has_come() -> None:
    service = Slow()
    async with aclosing(slow_client(service)) as client:
        feed = Feed(client, "m")
        async with aclosing(aiter(feed)) as events:
            first = asyncio.ensure_future(anext(events))
            service.send(3)
            await until(lambda: feed.reading == (3000, len(BODY)))
            assert feed.heard_at is not None
            service.send()
            assert isinstance(await first, TreeRead)
            assert feed.reading is None


async def test_a_long_reading_is_followed_by_as_long_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(feed_module, "monotonic", lambda: now)
    service = Slow(etag=None)
    async with aclosing(slow_client(service)) as client:
        poller = Poller(client, "m")
        reading = asyncio.create_task(poller.whole())
        await until(lambda: service.bodies > 0)
        now = 40.0
        service.send()
        await reading
        assert poller.interval_s == 40.0
        service.send()
        await poller.news()
        assert poller.interval_s == feed_module.IDLE_S
        assert service.bodies == 2, "one without marks is asked for all of it"


class Streaming(Slow):
    """The same, with a stream of events that says where it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids = 0, list[str | None]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/train/events"):
            assert not self.open or not request.url.path.endswith("/checkpoints")
            return await super().handle_async_request(request)
        self.ids.append(request.headers.get("last-event-id"))
        headers = {"Content-Type": "text/event-stream", "X-Last-Event-ID": "7"}
        return httpx.Response(200, headers=headers, stream=_Endless(self), request=request)


class _Endless(httpx.AsyncByteStream):
    def __init__(self, service: Streaming) -> None:
        self._service = service
        service.open += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'id: 8\nevent: head\ndata: {"checkpoint_id":"c1"}\n\n'
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self._service.open -= 1


async def test_no_stream_waits_unread_while_the_tree_comes_and_nothing_is_missed() -> None:
    service = Streaming()
    async with aclosing(slow_client(service)) as client:
        feed = Feed(client, "m")
        async with aclosing(aiter(feed)) as events:
            first = asyncio.ensure_future(anext(events))
            await until(lambda: service.bodies > 0)
            assert service.open == 0
            service.send()
            assert isinstance(await first, TreeRead)
            assert isinstance(await anext(events), HeadMoved)
            assert service.open == 1
    assert service.ids == [None, "7"]
    assert service.open == 0
