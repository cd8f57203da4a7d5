"""The feed of a model's training events, from whatever the service offers.

If the service has an event stream, it is read as events arrive; a lost connection resumes after the
last event received. For a service without one, such as HUD, the tree and the job are polled, and
the same events are derived from what changed.

Source: WHATWG HTML Living Standard, 9.2 Server-sent events.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from email.utils import parsedate_to_datetime
from math import inf
from time import monotonic
from typing import Literal, Protocol

import httpx
from httpx_sse import EventSource, ServerSentEvent
from pydantic import ValidationError

from hud_tui.client.rollout_calls import RolloutCalls
from hud_tui.client.transport import Arrived, Connection, malformed
from hud_tui.errors import HudError, HudMalformed, HudNotFound, HudUnauthorized, HudUnreachable
from hud_tui.events import (
    CheckpointAdded,
    Event,
    HeadMoved,
    RolloutDone,
    StepTaken,
    TreeRead,
    WorkChanged,
)
from hud_tui.patience import backoff
from hud_tui.rl.checkpoint_tree import is_same, step_metrics
from hud_tui.rl.text import one_line
from hud_tui.rl.work import is_active
from hud_tui.wire import Checkpoint, Group, WorkState, adapter


class Reader(Protocol):
    """The part of a client that a feed uses."""

    wire: Connection

    @property
    def rollouts(self) -> RolloutCalls: ...

    async def tree(
        self, model_id: str, arrived: Arrived | None = None
    ) -> tuple[Checkpoint, ...]: ...

    async def known_job(self, ref: str) -> WorkState | None: ...


# Differences between two reads of a tree, as the events that a service would have sent.


_NUMBER = re.compile(r"(\d{1,15})$")


def changes(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> list[Event]:
    """Events that lead from one tree to the other, both oldest first, in the order of
    `hud_tui.events`; a single `TreeRead` if there are other changes than new steps, head moves and
    updated checkpoints."""
    has_grown = len(new) >= len(old) and all(map(is_same, old, new))
    if not has_grown:
        return [TreeRead(checkpoints=tuple(new))]
    before, after = _head(old), _head(new)
    fresh = new[len(old) :]
    events: list[Event] = [
        CheckpointAdded(checkpoint=now)
        for was, now in zip(old, new, strict=False)
        if _is_updated(was, now)
    ]
    for position, checkpoint in enumerate(fresh, len(old) + 1):
        events.append(CheckpointAdded(checkpoint=checkpoint))
        if checkpoint.id == after and before != after:
            events.append(HeadMoved(checkpoint_id=after, previous=before, cause="step"))
        events.append(step_taken(checkpoint, position))
    if before != after and all(checkpoint.id != after for checkpoint in fresh):
        events.append(HeadMoved(checkpoint_id=after, previous=before, cause="set"))
    return events


def step_taken(checkpoint: Checkpoint, position: int) -> StepTaken:
    """The event of the step that made a checkpoint. The step's number is the one that the service
    reports, else that in the checkpoint's name, else `position`."""
    return StepTaken(
        step=checkpoint.step or _number(checkpoint.name) or position,
        checkpoint_id=checkpoint.id,
        job_id=checkpoint.job_id,
        metrics=step_metrics(checkpoint),
        groups=list(checkpoint.groups),
    )


def _is_updated(was: Checkpoint, now: Checkpoint) -> bool:
    """Whether a row changed, apart from being the head."""
    return was is not now and was.model_copy(update={"is_active": now.is_active}) != now


def _head(tree: Sequence[Checkpoint]) -> str | None:
    return next((c.id for c in reversed(tree) if c.is_active), None)


def _number(name: str | None) -> int | None:
    digits = _NUMBER.search(name or "")
    return int(digits.group(1)) if digits else None


# A response body that reports when data arrives.


MAX_LINE = 64 * 1024 * 1024
"""Maximum length of a line, bytes."""


class MonitoredStream(httpx.AsyncByteStream):
    """A body that calls `on_bytes` for each chunk, including keep-alives, and bounds the line
    length."""

    def __init__(self, body: object, on_bytes: Callable[[], None]) -> None:
        assert isinstance(body, httpx.AsyncByteStream)
        self._body = body
        self._on_bytes = on_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._body:
            self._on_bytes()
            end = chunk.rfind(b"\n")
            length = length + len(chunk) if end < 0 else len(chunk) - end
            if length > MAX_LINE:
                raise HudMalformed("the event stream has a line that does not end")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


# The delay between an event at the service and its arrival.
#
# A slow connection may deliver events later and later although data arrives all the time. The
# delay is measured by the service's clock: an event has a time, and the ``Date`` header gives
# the service's time when the stream was opened.


FRESH_S = 2.0
"""Seconds for which the delay of the last event counts as the present delay."""


SET_BACK_S = 2.0
"""Seconds by which an event is older than the one before it where the service's clock was set."""


class Lag:
    def __init__(self) -> None:
        self._ahead: float | None = None
        """The service's Unix seconds minus `monotonic()`; None if the service did not send its
        time."""
        self._updated_at, self._behind, self._stamp = -inf, 0.0, -inf

    def opened(self, headers: Mapping[str, str]) -> None:
        """Take the service's time from a response that just arrived."""
        try:
            there = parsedate_to_datetime(headers.get("date", "")).timestamp()
        except (ValueError, OverflowError):
            return
        self._ahead = there - monotonic()

    def update(self, stamp: float) -> None:
        """Record the arrival of an event with this service time, Unix seconds; 0 if unknown."""
        if stamp and self._ahead is not None:
            arrived_at = monotonic()
            if stamp < self._stamp - SET_BACK_S:  # events come in their order: its clock was set
                self._ahead -= self._stamp + arrived_at - self._updated_at - stamp
            self._ahead = max(self._ahead, stamp - arrived_at)  # none comes before it happens
            self._updated_at, self._stamp = arrived_at, stamp
            self._behind = arrived_at + self._ahead - stamp

    @property
    def behind_s(self) -> float:
        """Delay of arriving events, seconds; 0 if none arrive."""
        return self._behind if monotonic() - self._updated_at < FRESH_S else 0.0


# Rewards by task of a step, for a service whose checkpoints do not report them.
#
# HUD lists a checkpoint's traces with their rewards, and a job's traces with their
# task: the two are joined here by the trace's id.


class GroupReader:
    """Joins traces to tasks for one model; caches the task of each trace."""

    def __init__(self, client: Reader, model_id: str) -> None:
        self._client = client
        self._model_id = model_id
        self._slugs: dict[str, str] = {}

    async def groups(self, checkpoint: Checkpoint) -> Sequence[Group]:
        """The checkpoint's own groups, else those joined from traces; empty if unavailable."""
        if checkpoint.groups or not checkpoint.num_traces:
            return checkpoint.groups
        try:
            return await self._joined(checkpoint)
        except HudError:
            return []  # groups are optional: the step is shown without them

    async def _joined(self, checkpoint: Checkpoint) -> list[Group]:
        traces = await self._client.rollouts.checkpoint_traces(self._model_id, checkpoint.id)
        rewarded = [trace for trace in traces if trace.reward is not None]
        if rewarded and any(plain_id(trace.trace_id) not in self._slugs for trace in rewarded):
            await self._learn(rewarded[0].trace_id)
        groups: dict[str, Group] = {}
        for trace in rewarded:
            slug = self._slugs.get(plain_id(trace.trace_id))
            if slug is not None and trace.reward is not None:
                group = groups.setdefault(slug, Group(task_slug=slug, rewards=[]))
                group.rewards.append(trace.reward)
                group.trace_ids.append(trace.trace_id)
        return list(groups.values())

    async def _learn(self, trace_id: str) -> None:
        """Cache the tasks of all traces of this trace's job."""
        job_id = (await self._client.rollouts.trace(trace_id)).job_id
        if job_id is None:
            return
        for trace in await self._client.rollouts.job_traces(job_id):
            if trace.task_slug is not None:
                self._slugs[plain_id(trace.id)] = trace.task_slug


def plain_id(trace_id: str) -> str:
    """The 32 hex digits of a trace id, which comes with and without dashes."""
    return trace_id.replace("-", "").lower()


# Polling: events derived from the differences between two reads.


BUSY_S, IDLE_S = 1.0, 3.0
"""Seconds between two reads while a job is active, and while none is. After a slower read the pause
is as long as the read took, so that polling uses at most half of the connection."""


class Poller:
    """Polls one model's tree and job, and returns what changed."""

    def __init__(
        self, client: Reader, model_id: str, arrived: Arrived = lambda size, total: None
    ) -> None:
        """`arrived` is called with the progress of a tree's download."""
        self._client, self._arrived = client, arrived
        self._took_s = 0.0
        """Duration of the last read."""
        self._model_id = model_id
        self._groups = GroupReader(client, model_id)
        self._tree: tuple[Checkpoint, ...] | None = None
        self._job: WorkState | None = None

    @property
    def interval_s(self) -> float:
        """Seconds to wait before the next `news`."""
        busy = self._job is not None and is_active(self._job.status)
        return max(BUSY_S if busy else IDLE_S, self._took_s)

    async def whole(self) -> list[Event]:
        """The current tree, and the model's latest job if there is one."""
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        self._tree, self._job = tree, job
        first: list[Event] = [TreeRead(checkpoints=tree)]
        return first if job is None else [*first, WorkChanged(work=job)]

    async def news(self) -> list[Event]:
        """Events since the last call; the first call is `whole`. Raises HudError: a read failed;
        nothing is lost, the next call catches up."""
        if self._tree is None:
            return await self.whole()
        # The job is read first: if it has ended, the tree read afterwards has all of its steps.
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        events = [] if tree is self._tree else changes(self._tree, tree)
        self._tree = tree
        events = await self._with_groups(events)
        if job is not None and job != self._job:
            events.append(WorkChanged(work=job))
        self._job = job
        return events

    async def _read(self) -> tuple[Checkpoint, ...]:
        began = monotonic()
        tree = await self._client.tree(self._model_id, self._arrived)
        self._took_s = monotonic() - began
        return tree

    async def _with_groups(self, events: list[Event]) -> list[Event]:
        """The events, with rewards by task added to the newest step."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if not isinstance(event, StepTaken):
                continue
            checkpoint = next(c for c in self._tree or () if c.id == event.checkpoint_id)
            groups = await self._groups.groups(checkpoint)
            events[index] = event.model_copy(update={"groups": groups})
            break
        return events


SILENCE_S = 20.0
"""Seconds of silence after which a stream is reopened; keep-alives arrive every 5 s."""
KINDS = {
    "checkpoint": CheckpointAdded,
    "head": HeadMoved,
    "rollout": RolloutDone,
    "step": StepTaken,
    "work": WorkChanged,
}


class Feed:
    """An endless async iterator of a model's events; the first is a `TreeRead`.

    It reconnects by itself; its attributes report the state of the connection. It ends only by
    raising: `HudUnauthorized`, or `HudNotFound` if the model no longer exists.
    """

    def __init__(self, client: Reader, model_id: str) -> None:
        self.source: Literal["connecting", "stream", "poll"] = "connecting"
        self.heard_at: float | None = None
        """`time.monotonic()` of the last data from the service, including keep-alives."""
        self.trouble = ""
        """Why it is reconnecting, in one clean line; empty if it is connected."""
        self.retry_at: float | None = None
        """`time.monotonic()` of the next attempt; None if it is connected."""
        self.reading: tuple[int, int | None] | None = None
        """Download of a tree: bytes received, and total (None if unknown); None while there is no
        download."""
        self._lag = Lag()
        self._client = client
        self._model_id = model_id
        self._poller = Poller(client, model_id, self._arrive)
        self._last_id = ""
        self._begun = False
        self._passed_on: set[str] = set()
        """Ids of the checkpoints that were passed on."""
        self._failures = 0

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self._events()

    @property
    def behind_s(self) -> float:
        """Delay of arriving events, seconds; see `Lag`."""
        return self._lag.behind_s

    async def _events(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                async with aclosing(self._polled() if self._polls else self._streamed()) as events:
                    async for event in events:
                        yield event
            except (HudUnauthorized, HudNotFound):
                raise
            except HudError as error:
                await self._wait(error)

    @property
    def _polls(self) -> bool:
        return self.source == "poll"

    async def _streamed(self) -> AsyncGenerator[Event, None]:
        """Events of one connection; ends if the service has no stream."""
        self.source = "connecting"
        if not self._begun and await self._find_beginning():
            for event in await self._whole():
                yield event
        if self._polls:
            return
        async with self._open() as answer:
            if not await self._is_stream(answer):
                self._poll()
                return
            answer.stream = MonitoredStream(answer.stream, self._mark_answered)
            self._opened(answer)
            async with aclosing(self._messages(answer)) as events:
                async for event in events:
                    yield event
        raise HudUnreachable("the service ended the stream")

    async def _find_beginning(self) -> bool:
        """Ask for the stream's position before reading the tree; return whether it is known.

        The stream is then opened after the tree is read: an open stream that is not read would slow
        down the download of the tree.
        """
        if self._last_id:
            return True
        async with self._open() as answer:
            if not await self._is_stream(answer):
                self._poll()
                return False
            self._opened(answer)
        return bool(self._last_id)

    def _open(self) -> AbstractAsyncContextManager[httpx.Response]:
        url = self._client.wire.rl("/v1/models/{}/train/events", self._model_id)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        return self._client.wire.stream(url, headers, SILENCE_S)

    def _opened(self, answer: httpx.Response) -> None:
        self._mark_answered()
        self._lag.opened(answer.headers)
        self.source = "stream"
        # The present position: if the connection is lost before the first event, none is missed.
        self._last_id = self._last_id or answer.headers.get("x-last-event-id", "")

    def _poll(self) -> None:
        self.source = "poll"
        self._poller = Poller(self._client, self._model_id, self._arrive)

    async def _messages(self, answer: httpx.Response) -> AsyncGenerator[Event, None]:
        # If the position is unknown, the tree is read after the stream is opened, so that no
        # event is missed between the two.
        if not self._begun:
            for event in await self._whole():
                yield event
        async for message in EventSource(answer).aiter_sse():
            self._last_id = message.id or self._last_id
            if message.event == "reset":
                for event in await self._whole():
                    yield event
            elif (told := self._read(message)) is not None:
                for event in await self._with_parent(told):
                    yield event

    async def _with_parent(self, event: Event) -> list[Event]:
        """The event; after the whole tree if the parent of its checkpoint was never passed on."""
        if not isinstance(event, CheckpointAdded):
            return [event]
        checkpoint = event.checkpoint
        parent = checkpoint.prev_model_checkpoint_id
        lacks = parent is not None and not self._passed_on & {checkpoint.id, parent}
        missed = await self._whole() if lacks else []
        self._passed_on |= {checkpoint.id, parent or checkpoint.id}  # looked for once
        return [*missed, event]

    async def _whole(self) -> list[Event]:
        self._begun = False  # if it fails, the next connection begins with it
        try:
            events = await self._poller.whole()
        finally:
            self.reading = None
        self._begun = True
        trees = (event.checkpoints for event in events if isinstance(event, TreeRead))
        self._passed_on = {checkpoint.id for tree in trees for checkpoint in tree}
        return events

    async def _polled(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                news = await self._poller.news()
            finally:
                self.reading = None
            self._mark_answered()
            for event in news:
                yield event
            await asyncio.sleep(self._poller.interval_s)

    async def _is_stream(self, answer: httpx.Response) -> bool:
        """Whether this answer is an event stream; False if the service does not have one. Raises
        HudRefused: the service is overloaded or failing."""
        if answer.is_success:
            kind: str = answer.headers.get("content-type", "")
            return kind.startswith("text/event-stream")
        if answer.status_code in (408, 429) or answer.status_code >= 500:
            raise self._client.wire.failures.refusal(answer, await _short(answer))
        return False  # a wrong model or key is reported by reading the tree

    def _read(self, message: ServerSentEvent) -> Event | None:
        """The event of a message; None for an unknown kind, which a newer service may send."""
        kind = KINDS.get(message.event)
        if kind is None:
            return None
        try:
            event: Event = adapter(kind).validate_json(message.data)
        except ValidationError as error:
            self._begun = False  # the event is lost, so read the tree again
            raise malformed(f"event {message.event}", error) from error
        self._lag.update(event.at)
        return event

    def _arrive(self, size: int, total: int | None) -> None:
        self.reading = size, total
        self._mark_answered()

    def _mark_answered(self) -> None:
        self.heard_at = monotonic()
        self.trouble, self.retry_at, self._failures = "", None, 0

    async def _wait(self, error: HudError) -> None:
        if self.source == "stream":
            self.source = "connecting"
        self._failures += 1
        delay = backoff(self._failures) if error.retry_after is None else error.retry_after
        self.trouble = one_line(error.message)
        self.retry_at = monotonic() + delay
        await asyncio.sleep(delay)


async def _short(answer: httpx.Response) -> bytes:
    """The beginning of an error body."""
    async for chunk in answer.aiter_bytes(4096):
        return chunk
    return b""
