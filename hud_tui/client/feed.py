"""Feed: a model's training as it happens, from whatever the service offers.

Where the service sends events, they are read as they come, and a cut line resumes
after the last event that arrived. Where it does not, as HUD itself, the tree and the
job are read again and again, and the same events made from what changed.

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

from hud_tui.client.transport import Arrived, Connection, adapter, backoff, malformed
from hud_tui.errors import HudError, HudMalformed, HudNotFound, HudUnauthorized, HudUnreachable
from hud_tui.events import (
    CheckpointAdded,
    EvaluationChanged,
    Event,
    HeadMoved,
    JobChanged,
    RolloutDone,
    StepTaken,
    TreeRead,
)
from hud_tui.rl.checkpoint_tree import is_same
from hud_tui.rl.run import is_active
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, CheckpointTrace, Group, JobStatus, Trace


class Reader(Protocol):
    """What a feed asks of a client."""

    wire: Connection

    def rl(self, path: str, *names: str) -> str: ...

    async def tree(
        self, model_id: str, arrived: Arrived | None = None
    ) -> tuple[Checkpoint, ...]: ...

    async def known_job(self, ref: str) -> JobStatus | None: ...

    async def checkpoint_traces(
        self, model_id: str, checkpoint_id: str
    ) -> list[CheckpointTrace]: ...

    async def trace(self, trace_id: str) -> Trace: ...

    async def job_traces(self, job_id: str) -> list[Trace]: ...


# What happened between two readings of a tree, as the events a service would have sent.


_NUMBER = re.compile(r"(\d{1,15})$")


def changes(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> list[Event]:
    """Events that lead from one tree to the other, in the order of `hud_tui.events`.

    Args:
        old: The tree as it was read before, oldest first, shape (N,).
        new: The tree as it was read now, shape (M,).

    Returns:
        One `TreeRead` where more happened than steps, moves of the head, and what is said
        anew of a checkpoint.
    """
    if not _grew(old, new):
        return [TreeRead(checkpoints=tuple(new))]
    before, after = _head(old), _head(new)
    fresh = new[len(old) :]
    events: list[Event] = [
        CheckpointAdded(checkpoint=now)
        for was, now in zip(old, new, strict=False)
        if _is_retold(was, now)
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
    """The step that made a checkpoint, numbered by the service, its name or its place."""
    return StepTaken(
        step=checkpoint.step or _number(checkpoint.name) or position,
        checkpoint_id=checkpoint.id,
        job_id=checkpoint.job_id,
        metrics=_metrics(checkpoint),
        groups=checkpoint.groups,
    )


def _metrics(checkpoint: Checkpoint) -> dict[str, float]:
    """The checkpoint's metrics, with the typed fields of the same meaning where absent."""
    typed = {"reward_mean": checkpoint.mean_reward, "learning_rate": checkpoint.learning_rate}
    return {k: v for k, v in typed.items() if v is not None} | checkpoint.metrics


def _grew(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> bool:
    """Whether `new` is `old`, but for what is said anew, with rows added at its end."""
    return len(new) >= len(old) and all(is_same(a, b) for a, b in zip(old, new, strict=False))


def _is_retold(was: Checkpoint, now: Checkpoint) -> bool:
    """Whether a row says something else than before, beside whether it is the head."""
    return was is not now and was.model_copy(update={"is_active": now.is_active}) != now


def _head(tree: Sequence[Checkpoint]) -> str | None:
    return next((c.id for c in reversed(tree) if c.is_active), None)


def _number(name: str | None) -> int | None:
    found = _NUMBER.search(name or "")
    return int(found.group(1)) if found else None


# Heard: a stream's body that says when something comes.


MAX_LINE = 64 * 1024 * 1024
"""Bytes of the longest line of a stream."""


class MonitoredStream(httpx.AsyncByteStream):
    """A body that reports each arrival, keep-alives too, and refuses a line without end."""

    def __init__(self, body: object, heard: Callable[[], None]) -> None:
        assert isinstance(body, httpx.AsyncByteStream)
        self._body = body
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._body:
            self._heard()
            end = chunk.rfind(b"\n")
            length = length + len(chunk) if end < 0 else len(chunk) - end
            if length > MAX_LINE:
                raise HudMalformed("the event stream has a line without an end")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


# Lag: how far what is heard of a service is behind what happens there.
#
# A line may carry less than a run says. What comes over it then is old, though it comes all the
# time. By the service's own clock: an event says when it happened, and the ``Date`` of an answer
# what the time was there when the stream was opened.


FRESH_S = 2.0
"""So long after an event its age says how far behind it came; a line that was late is not
silent between two of them."""


class Lag:
    def __init__(self) -> None:
        self._ahead: float | None = None
        """The service's Unix seconds at 0 of `monotonic`; None if it did not say."""
        self._heard, self._behind = -inf, 0.0

    def opened(self, headers: Mapping[str, str]) -> None:
        """Take the service's time from an answer that has just come."""
        try:
            there = parsedate_to_datetime(headers.get("date", "")).timestamp()
        except (ValueError, OverflowError):
            return
        self._ahead = there - monotonic()

    def hear(self, at: float) -> None:
        """Note an event that happened at these Unix seconds there; 0 where that is unknown."""
        if at and self._ahead is not None:
            self._heard = monotonic()
            self._behind = max(0.0, self._heard + self._ahead - at)

    @property
    def behind_s(self) -> float:
        """Seconds from what was heard last to now, while more of it comes; else 0."""
        return self._behind if monotonic() - self._heard < FRESH_S else 0.0


# A step's rewards by task, for a service whose checkpoints do not carry them.
#
# HUD lists a checkpoint's traces with their rewards, and a job's traces with their
# task: the two are joined here by the trace's id.


class GroupReader:
    """Joins traces to tasks for one model, remembering which task a trace was of."""

    def __init__(self, client: Reader, model_id: str) -> None:
        self._client = client
        self._model_id = model_id
        self._slugs: dict[str, str] = {}

    async def groups(self, checkpoint: Checkpoint) -> list[Group]:
        """The checkpoint's own groups, else the joined ones; empty if neither is to be had."""
        if checkpoint.groups or not checkpoint.num_traces:
            return checkpoint.groups
        try:
            return await self._joined(checkpoint)
        except HudError:
            return []  # the step itself is known; its groups are an extra

    async def _joined(self, checkpoint: Checkpoint) -> list[Group]:
        traces = await self._client.checkpoint_traces(self._model_id, checkpoint.id)
        rewarded = [trace for trace in traces if trace.reward is not None]
        if rewarded and any(plain_id(trace.trace_id) not in self._slugs for trace in rewarded):
            await self._learn(rewarded[0].trace_id)
        found: dict[str, Group] = {}
        for trace in rewarded:
            slug = self._slugs.get(plain_id(trace.trace_id))
            if slug is not None and trace.reward is not None:
                group = found.setdefault(slug, Group(task_slug=slug, rewards=[]))
                group.rewards.append(trace.reward)
                group.trace_ids.append(trace.trace_id)
        return list(found.values())

    async def _learn(self, trace_id: str) -> None:
        """Note the tasks of all traces of the job that this trace belongs to."""
        job_id = (await self._client.trace(trace_id)).job_id
        if job_id is None:
            return
        for trace in await self._client.job_traces(job_id):
            if trace.task_slug is not None:
                self._slugs[plain_id(trace.id)] = trace.task_slug


def plain_id(trace_id: str) -> str:
    """The 32 hex digits of a trace id, which comes with and without dashes."""
    return trace_id.replace("-", "").lower()


# Poller: the events of a model's training, made from what changed between two readings.


BUSY_S, IDLE_S = 1.0, 3.0
"""Seconds between two readings while a job runs, and while none does. A reading that takes
longer is followed by as long a rest: polling takes half of a line at most."""


class Poller:
    """Reads one model's tree and job, and says what is new."""

    def __init__(
        self, client: Reader, model_id: str, arrived: Arrived = lambda size, total: None
    ) -> None:
        """
        Args:
            client: The service.
            model_id: The model's.
            arrived: Is told of every piece of a tree that comes.
        """
        self._client, self._arrived = client, arrived
        self._took_s = 0.0
        """Of the last reading."""
        self._model_id = model_id
        self._groups = GroupReader(client, model_id)
        self._tree: tuple[Checkpoint, ...] | None = None
        self._job: JobStatus | None = None

    @property
    def interval_s(self) -> float:
        """Seconds to wait before the next `news`."""
        busy = self._job is not None and is_active(self._job.status)
        return max(BUSY_S if busy else IDLE_S, self._took_s)

    async def whole(self) -> list[Event]:
        """The tree as it is, and the model's latest job where there is one."""
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        self._tree, self._job = tree, job
        first: list[Event] = [TreeRead(checkpoints=tree)]
        return first if job is None else [*first, JobChanged(job=job)]

    async def news(self) -> list[Event]:
        """What happened since the last call; the first time, `whole`.

        Raises:
            HudError: A reading failed; nothing is lost, the next call finds it.
        """
        if self._tree is None:
            return await self.whole()
        # The job before the tree: of one that has ended, the tree then has every step.
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        events = [] if tree is self._tree else changes(self._tree, tree)
        self._tree = tree
        events = await self._with_groups(events)
        if job is not None and job != self._job:
            events.append(JobChanged(job=job))
        self._job = job
        return events

    async def _read(self) -> tuple[Checkpoint, ...]:
        began = monotonic()
        tree = await self._client.tree(self._model_id, self._arrived)
        self._took_s = monotonic() - began
        return tree

    async def _with_groups(self, events: list[Event]) -> list[Event]:
        """The newest step with its rewards by task; older ones went by while nobody looked."""
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
"""A stream that says nothing for so long is cut; a keep-alive comes every 5 s."""
KINDS = {
    "checkpoint": CheckpointAdded,
    "head": HeadMoved,
    "rollout": RolloutDone,
    "step": StepTaken,
    "job": JobChanged,
    "evaluation": EvaluationChanged,
}


class Feed:
    """An endless async iterator of a model's events; the first is a `TreeRead`.

    It reconnects by itself, and says in its attributes how it is doing. It ends only by
    raising: `HudUnauthorized`, or `HudNotFound` where the model is gone.
    """

    def __init__(self, client: Reader, model_id: str) -> None:
        self.source: Literal["connecting", "stream", "poll"] = "connecting"
        self.heard_at: float | None = None
        """`time.monotonic()` of the service's last word, a keep-alive counts."""
        self.trouble = ""
        """Why it is reconnecting, in one clean line; empty when all is well."""
        self.retry_at: float | None = None
        """`time.monotonic()` of the next attempt; None when all is well."""
        self.reading: tuple[int, int | None] | None = None
        """Of a tree that comes: the bytes that have, and how many there will be, where the
        service says so; None while none comes."""
        self._lag = Lag()
        self._client = client
        self._model_id = model_id
        self._poller = Poller(client, model_id, self._arrive)
        self._last_id = ""
        self._begun = False
        self._failures = 0

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self._events()

    @property
    def behind_s(self) -> float:
        """Seconds that what comes is older than what happens; see `hud_tui.client.feed`."""
        return self._lag.behind_s

    async def _events(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                async with aclosing(self._attempt()) as events:
                    async for event in events:
                        yield event
            except (HudUnauthorized, HudNotFound):
                raise
            except HudError as error:
                await self._wait(error)

    def _attempt(self) -> AsyncGenerator[Event, None]:
        return self._polled() if self._polls else self._streamed()

    @property
    def _polls(self) -> bool:
        return self.source == "poll"

    async def _streamed(self) -> AsyncGenerator[Event, None]:
        """One connection's events; returns where the service has no stream."""
        self.source = "connecting"
        if not self._begun and await self._find_beginning():
            for event in await self._whole():
                yield event
            self._begun = True
        if self._polls:
            return
        async with self._open() as answer:
            if not await self._is_stream(answer):
                self._poll()
                return
            answer.stream = MonitoredStream(answer.stream, self._hear)
            self._opened(answer)
            async with aclosing(self._messages(answer)) as events:
                async for event in events:
                    yield event
        raise HudUnreachable("the service ended the stream")

    async def _find_beginning(self) -> bool:
        """Ask where the stream begins, before the tree is read; whether the service says so.

        What it says from there on comes once the tree has: a stream that nobody reads meanwhile
        would take the line from it.
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
        url = self._client.rl("/v1/models/{}/train/events", self._model_id)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        return self._client.wire.stream(url, headers, SILENCE_S)

    def _opened(self, answer: httpx.Response) -> None:
        self._hear()
        self._lag.opened(answer.headers)
        self.source = "stream"
        # Where the stream begins, so that a cut before its first event loses nothing.
        self._last_id = self._last_id or answer.headers.get("x-last-event-id", "")

    def _poll(self) -> None:
        self.source = "poll"
        self._poller = Poller(self._client, self._model_id, self._arrive)

    async def _messages(self, answer: httpx.Response) -> AsyncGenerator[Event, None]:
        # Where nobody says where it begins, the stream is open before the tree is read, so that
        # nothing falls between the two.
        if not self._begun:
            for event in await self._whole():
                yield event
            self._begun = True
        async for message in EventSource(answer).aiter_sse():
            self._last_id = message.id or self._last_id
            if message.event == "reset":
                for event in await self._whole():
                    yield event
            elif (known := self._read(message)) is not None:
                yield known

    async def _whole(self) -> list[Event]:
        try:
            return await self._poller.whole()
        finally:
            self.reading = None

    async def _polled(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                news = await self._poller.news()
            finally:
                self.reading = None
            self._hear()
            for event in news:
                yield event
            await asyncio.sleep(self._poller.interval_s)

    async def _is_stream(self, answer: httpx.Response) -> bool:
        """Whether this answer is one; False if the service has none to give.

        Raises:
            HudRefused: The service is too busy or broken now.
        """
        if answer.is_success:
            kind: str = answer.headers.get("content-type", "")
            return kind.startswith("text/event-stream")
        if answer.status_code in (408, 429) or answer.status_code >= 500:
            raise self._client.wire.failures.refusal(answer, await _short(answer))
        return False  # if it is the model or the key, reading the tree says so

    def _read(self, message: ServerSentEvent) -> Event | None:
        """The event of a message; None for a kind that a newer service may send."""
        kind = KINDS.get(message.event)
        if kind is None:
            return None
        try:
            event: Event = adapter(kind).validate_json(message.data)
        except ValidationError as error:
            self._begun = False  # what it said is lost, so the tree is read again
            raise malformed(f"event {message.event}", error) from error
        self._lag.hear(event.at)
        return event

    def _arrive(self, size: int, total: int | None) -> None:
        self.reading = size, total
        self._hear()

    def _hear(self) -> None:
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
