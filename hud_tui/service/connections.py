"""Connections: how many there may be, and how long one may keep the service waiting.

Whoever reaches the port may open connections, with a key or without. One that says nothing,
or its headers drop by drop, is closed; where there are too many, the one that has been silent
the longest makes room for the newest, so that who has something to say gets to say it.
"""

import asyncio
import resource
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST = 1000
"""Connections at once, where the limit on open files allows it; twice as many for a moment."""
YOUNG_S = 1.0
"""A connection that is younger may still be about to say something."""
FILES = 2**16
"""Open files that are asked for; beyond 2000 connections there is room for everything else."""
SPARE = 256
"""Open files that are not for connections: database, checkpoints, the engine's process."""
HEADERS_S = 10.0
"""Longest from a connection's, or a request's, beginning until its headers are whole."""
HEADER_BYTES = 2**16
"""Most of a request's headers."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open: longer than clients keep theirs (httpx: 5), as
one that closes while a client writes to it loses the call."""


def raise_open_files() -> int:
    """Raise this process's limit on open files as far as it goes; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (FILES, 10_240, 4096):  # macOS refuses more than its own maximum
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            except (OSError, ValueError):
                continue
            return most
    return FILES if soft == resource.RLIM_INFINITY else soft


def room(files: int) -> int:
    """How many connections so many open files are enough for."""
    return max(16, min(MOST, (files - SPARE) // 2))


def bounded(most: int) -> type["Connection"]:
    """The protocol of a server that has at most so many connections."""
    return type("BoundedConnection", (Connection,), {"most": most, "silent": {}, "idle": {}})


class Connection(HttpToolsProtocol):
    """uvicorn's, with bounds on what comes before a request's headers are whole."""

    most: ClassVar[int] = MOST
    silent: ClassVar[dict["Connection", float]] = {}
    """Those that have not made a request yet, oldest first, and since when they are there."""
    idle: ClassVar[dict["Connection", float]] = {}
    """Those between two requests, longest idle first, and since when."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        """Since the last request's end, or of its body where it was answered before that came."""
        self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.silent[self] = self.loop.time()
        self._wait(HEADERS_S)
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_serving:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_serving or self.transport.is_closing():
            return
        if self._patience is None:  # uvicorn's own timer ends with the first byte
            self._wait(HEADERS_S)
        if self._header_bytes > HEADER_BYTES and not self._in_body:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._forget()
        self._header_bytes, self._in_body = 0, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if not self._is_serving:  # it was answered before its body had come
            self._wait(KEEP_ALIVE_S)
        self._header_bytes, self._in_body = 0, False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_serving:
            self.idle[self] = self.loop.time()

    @property
    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the connection that has been silent the longest, else the longest idle one."""
        waiting = self.silent if len(self.silent) > 1 else self.idle or self.silent
        gone, since = next(iter(waiting.items()))
        if self.loop.time() - since > YOUNG_S or len(self.connections) > 2 * self.most:
            gone._forget()
            gone.transport.abort()

    def _wait(self, seconds: float) -> None:
        """Close the connection unless a request has come by then."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _forget(self) -> None:
        """It no longer keeps anybody waiting."""
        self.silent.pop(self, None)
        self.idle.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
