"""The client's calls; a tree read again and again, and one that is long on its way."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.client import feed as feed_module
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Feed, Poller, changes
from hud_tui.client.tree_reader import TreeReader
from hud_tui.errors import HudMalformed, HudNotFound, HudRefused
from hud_tui.events import CheckpointAdded, HeadMoved, StepTaken, TreeRead
from hud_tui.service.store import checkpoints as store_rows
from hud_tui.settings import local_settings
from hud_tui.wire import Checkpoint, Evaluation, adapter
from hud_tui.wire_tasks import UploadTasks
from tests.conftest import Served, until
from tests.service.clients import KEY, answered, over_socket, train, trained
from tests.service.proxy import proxy


async def test_a_run_from_submission_to_its_traces(client: HudClient) -> None:
    model = await trained(client, steps=2, group_size=2, tasks_per_step=2)
    [job_id] = [job.id for job in await client.jobs()]
    assert (await client.job_status(model.id)).id == job_id
    assert (await client.job(job_id)).id == job_id
    every = await client.rollouts.job_traces(job_id)
    of_two = [t for t in await client.rollouts.job_traces(job_id, step=2) if not t.heldout]
    assert len(of_two) == 4
    assert {trace.id for trace in of_two} < {trace.id for trace in every}
    events = await client.rollouts.trace_events(of_two[0].id)
    assert {"user_message", "agent_message"} <= {event.kind for event in events.events}
    assert (await client.rollouts.trace(of_two[0].id)).reward == of_two[0].reward
    [_, last] = await client.checkpoints(model.id)
    traces = await client.rollouts.checkpoint_traces(model.id, last.id)
    assert {trace.trace_id for trace in traces} == {trace.id for trace in of_two}
    assert (await client.cancel_job(job_id)).cancelled == 0


async def test_a_taskset_comes_back_as_it_was_uploaded(client: HudClient) -> None:
    row = {"env": {"name": "arith"}, "task_id": "add", "args": {"a": 1, "b": 2}, "name": "one"}
    await client.tasks.upload(UploadTasks(taskset_name="mine", tasks=[row]))
    export = await client.tasks.taskset("mine")
    assert (export.name, [task["name"] for task in export.tasks]) == ("mine", ["one"])
    assert "mine" in [taskset.name for taskset in await client.tasks.tasksets()]
    with pytest.raises(HudNotFound):
        await client.tasks.taskset("not mine")


TREE = adapter(list[Checkpoint])


def row(number: int, head: bool = False, **more: Any) -> dict[str, Any]:
    parent = f"c{number - 1}" if number > 1 else None
    return {
        "id": f"c{number}",
        "name": f"step-{number:06d}",
        "prev_model_checkpoint_id": parent,
        "is_active": head,
        "metrics": {"kl": 0.1 * number, 'q"},[': 1.0},
        "unknown": {"kept": [1, "]"]},
        **more,
    }


def tree(size: int, head: int) -> list[dict[str, Any]]:
    return [row(number, number == head) for number in range(1, size + 1)]


def checkpoints(size: int, head: int) -> list[Checkpoint]:
    return [Checkpoint.model_validate(one) for one in tree(size, head)]


def dumped(rows: Sequence[dict[str, Any]], indent: int | None = None) -> bytes:
    return json.dumps(rows, indent=indent, ensure_ascii=False).encode()


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6), st.booleans())
def test_every_reading_is_what_the_body_says(sizes: list[tuple[int, int]], wide: bool) -> None:
    async def read() -> None:
        reader = TreeReader()
        for size, head in sizes:
            body = dumped(tree(size, head), indent=1 if wide else None)
            assert list(await reader.read(body)) == TREE.validate_json(body)

    asyncio.run(read())


async def test_an_equal_body_is_the_same_tuple_and_old_rows_the_same_objects() -> None:
    reader = TreeReader()
    first = await reader.read(dumped(tree(5, 5)))
    assert await reader.read(dumped(tree(5, 5))) is first
    second = await reader.read(dumped(tree(7, 7)))
    assert all(new is old for new, old in zip(second, first[:4], strict=False))
    assert second[4] is not first[4]  # it was the head


async def test_only_the_rows_between_which_a_head_moved_are_read_anew() -> None:
    reader = TreeReader()
    first = await reader.read(dumped(tree(9, 3)))
    second = await reader.read(dumped(tree(11, 7)))
    fresh = [
        place
        for place, (new, old) in enumerate(zip(second, first, strict=False), 1)
        if new is not old
    ]
    assert fresh == [3, 7]
    assert list(second) == TREE.validate_json(dumped(tree(11, 7)))


@pytest.mark.parametrize(
    "rows",
    [
        [row(1), row(2, metrics={"x": float("nan"), "y": float("inf")}), row(3)],
        [row(1), row(2, unknown='},{"id":"no row"}'), row(3)],
        [row(1), row(2, unknown=[{"a": 1}, {"id": "no row"}, {"id": 5}]), row(3)],
        [row(1), row(2, name='},{"id":'), row(3, name="\\"), row(4, name='"}')],
        [row(1), {"name": "in another order", "id": "x"}, row(3)],
        [row(1), row(2, name="é和😀"), row(3), row(4, unknown="x" * 300_000), row(5)],
    ],
    ids=["NaN", "a text like a row", "rows in a row", "quotes", "order", "long"],
)
@pytest.mark.parametrize("indent", [None, 2])
async def test_what_looks_like_the_next_row_is_not_taken_for_it(
    rows: list[dict[str, Any]], indent: int | None
) -> None:
    reader = TreeReader()
    body = dumped(rows, indent)
    wanted = TREE.validate_json(body)
    assert str(list(await reader.read(body))) == str(wanted)
    longer = dumped([*rows, row(9)], indent)
    assert str(list(await reader.read(longer))) == str([*wanted, Checkpoint.model_validate(row(9))])


async def test_the_collector_goes_on_after_a_reading_however_it_ended() -> None:
    assert gc.isenabled()
    await TreeReader().read(dumped(tree(3, 3)))
    with pytest.raises(HudMalformed):
        await TreeReader().read(dumped(tree(3, 3))[:-5])
    assert gc.isenabled()


async def test_ten_thousand_rows_leave_the_loop_its_turns() -> None:
    reading = asyncio.create_task(TreeReader().read(dumped(tree(10_000, 1))))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(await reading) == 10_000
    assert turns > 10


async def test_a_body_that_is_no_tree_is_malformed_and_the_last_one_stays() -> None:
    for body in (
        b"",
        b"{}",
        b"null",
        b"[",
        b"[1]",
        b'[{"id": "a"}',
        b'[{"id": "a"},]',
        b'[{"id": "a"} {"id": "b"}]',
        b'[{"id": "a"}] x',
        b'[{"id": 1.5}]',
        b'[{"id": "a", "is_active": "perhaps"}]',
        b"\xff",
        b"[" * 100_000,
    ):
        reader = TreeReader()
        good = await reader.read(dumped(tree(3, 3)))
        with pytest.raises(HudMalformed):
            await reader.read(body)
        assert await reader.read(dumped(tree(3, 3))) is good


def test_a_step_is_a_checkpoint_then_the_head_then_the_step() -> None:
    added, moved, step = changes(checkpoints(2, 2), checkpoints(3, 3))
    assert isinstance(added, CheckpointAdded)
    assert added.checkpoint.id == "c3"
    assert moved == HeadMoved(checkpoint_id="c3", previous="c2", cause="step")
    assert isinstance(step, StepTaken)
    assert (step.step, step.checkpoint_id, step.metrics["kl"]) == (3, "c3", pytest.approx(0.3))
    unnumbered = Checkpoint(id="x", mean_reward=0.5, metrics={})
    [_, step] = changes(checkpoints(2, 2), [*checkpoints(2, 2), unnumbered])
    assert isinstance(step, StepTaken)
    assert (step.step, step.metrics) == (3, {"reward_mean": 0.5}), "counted by its place"


def test_rows_that_are_as_they_were_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read keeps each row whose bytes are the same, and there may be thousands."""
    known = checkpoints(3, 3)
    monkeypatch.setattr(Checkpoint, "model_copy", None)
    assert changes(known, [*known]) == []


def test_a_head_that_somebody_set_also_back_behind_steps() -> None:
    assert changes(checkpoints(3, 3), checkpoints(3, 3)) == []
    moved = HeadMoved(checkpoint_id="c1", previous="c3", cause="set")
    assert changes(checkpoints(3, 3), checkpoints(3, 1)) == [moved]
    events = changes(checkpoints(1, 1), checkpoints(3, 0))
    assert [event.type for event in events] == ["checkpoint", "step", "checkpoint", "step", "head"]
    assert events[-1] == HeadMoved(checkpoint_id=None, previous="c1", cause="set")


def test_anything_else_is_the_whole_tree() -> None:
    for old, new in (
        (checkpoints(3, 3), checkpoints(2, 2)),
        (checkpoints(2, 2), [Checkpoint(id="other"), *checkpoints(2, 2)[1:]]),
        (
            checkpoints(2, 2),
            [checkpoints(2, 2)[0], Checkpoint.model_validate(row(2, True, mean_reward=1))],
        ),
    ):
        assert changes(old, new) == [TreeRead(checkpoints=tuple(new))]


def test_what_is_said_anew_of_a_checkpoint_is_no_other_step() -> None:
    old, new = checkpoints(2, 2), checkpoints(3, 3)
    scored = Evaluation(mean_reward=0.5, num_tasks=2, num_traces=2)
    new[1] = new[1].model_copy(update={"evaluations": [scored]})
    anew, added, moved, step = changes(old, new)
    assert anew == CheckpointAdded(checkpoint=new[1])
    assert [event.type for event in (added, moved, step)] == ["checkpoint", "head", "step"]
    assert isinstance(step, StepTaken)
    assert step.step == 3


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


async def test_a_tree_is_one_state_though_a_step_is_taken_while_its_rows_are_read(
    served: Served,
) -> None:
    """The rows to read are chosen before the store is reached, where a step may come first."""
    trees, parts = served.service.parts.trees, served.service.parts
    async with over_socket(served) as client:
        model = await trained(client, steps=2, group_size=2, tasks_per_step=2)
        await client.tree(model.id)
        first, _ = [row["id"] for row in json.loads((await trees.read(parts.store, model.id))[0])]
        await client.set_head(model.id, first)
        read = parts.store.read
        taken = asyncio.Event()

        async def late(query: Any, *args: Any) -> Any:
            if query is store_rows.rows and not taken.is_set():
                taken.set()
                await train(client, model, steps=1, group_size=2, tasks_per_step=2)
            return await read(query, *args)

        parts.store.read = late  # type: ignore[method-assign]
        try:
            body, _ = await trees.read(parts.store, model.id)
        finally:
            parts.store.read = read  # type: ignore[method-assign]
    assert taken.is_set()
    assert [row["is_active"] for row in json.loads(body)] == [False, False, True]


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
