"""Feed: a model's training as it happens, from whatever the service offers.

Where the service sends events, they are read as they come, and a cut line resumes
after the last event that arrived. Where it does not, as HUD itself, the tree and the
job are read again and again, and the same events made from what changed.

Source: WHATWG HTML Living Standard, 9.2 Server-sent events.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from time import monotonic
from typing import TYPE_CHECKING, Literal

import httpx
from httpx_sse import EventSource, ServerSentEvent
from pydantic import ValidationError

from hud_tui.client.bodies import adapter, malformed
from hud_tui.client.heard import Heard
from hud_tui.client.lag import Lag
from hud_tui.client.poll import Poller
from hud_tui.client.retry import backoff
from hud_tui.errors import (
    HudError,
    HudNotFound,
    HudUnauthorized,
    HudUnreachable,
)
from hud_tui.events import (
    CheckpointAdded,
    Event,
    HeadMoved,
    JobChanged,
    RolloutDone,
    StepTaken,
)
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

SILENCE_S = 20.0
"""A stream that says nothing for so long is cut; a keep-alive comes every 5 s."""
KINDS = {
    "checkpoint": CheckpointAdded,
    "head": HeadMoved,
    "rollout": RolloutDone,
    "step": StepTaken,
    "job": JobChanged,
}


class Feed:
    """An endless async iterator of a model's events; the first is a `TreeRead`.

    It reconnects by itself, and says in its attributes how it is doing. It ends only by
    raising: `HudUnauthorized`, or `HudNotFound` where the model is gone.
    """

    def __init__(self, client: "HudClient", model_id: str) -> None:
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
        """Seconds that what comes is older than what happens; see `hud_tui.client.lag`."""
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
            answer.stream = Heard(answer.stream, self._hear)
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
        """Whether this answer is one; False where the service has none to give.

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
