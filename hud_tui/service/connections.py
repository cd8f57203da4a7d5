"""Connections: how many there may be, and how long one may stay silent.

Anybody who reaches the port may open connections, with or without a key. A connection that sends
no request, or sends its headers too slowly, is closed; when there are too many, the one that has
been silent the longest is closed for the newest.
"""

import asyncio
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hud_tui.service.routes.gateway import ABORT

MOST = 1000
"""Most open connections, if the limit on open files allows; twice as many for a moment."""
HANDSHAKES = 500
"""Most connections with TLS that have sent no request yet; twice as many for a moment."""
TLS_BUFFER = 2**15
"""Bytes that a connection with TLS holds for what it reads: two records."""
YOUNG_S = 1.0
"""Age in seconds below which a connection is not closed to make room."""
FILES = 2**16
"""Requested limit on open files: 2000 connections and everything else."""
SPARE = 256
"""Open files reserved for the database, the checkpoints and the engine's process."""
HEADERS_S = 10.0
"""Seconds that a connection or request may take to send its headers."""
HEADER_BYTES = 2**16
"""Maximum size of a request's headers, bytes."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open. Longer than clients keep theirs (httpx: 5): a request
is lost if the server closes while the client sends."""


def raise_open_files() -> int:
    """Raise this process's limit on open files as far as possible; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (FILES, 10_240, 4096):  # macOS refuses more than its own maximum
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            except (OSError, ValueError):
                continue
            return most
    return FILES if soft == resource.RLIM_INFINITY else soft


def room(files: int) -> int:
    """Number of connections that a limit on open files allows."""
    return max(16, min(MOST, (files - SPARE) // 2))


def bounded(most: int) -> type["Connection"]:
    """Protocol class of a server with at most this many connections."""
    return type("BoundedConnection", (Connection,), {"most": most, "silent": {}, "idle": {}})


def secured(plain: type["Connection"], tls: ssl.SSLContext) -> type["Connection"]:
    """The same class for connections that begin with TLS; its connections count with the others."""
    # asyncio's 256 KB stay until the next garbage collection: 3000 connections a second held 0.9 GB
    SSLProtocol.max_size = TLS_BUFFER
    return type("SecuredConnection", (plain,), {"tls": tls})


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits on size and time until a request's headers are complete."""

    most: ClassVar[int] = MOST
    tls: ClassVar[ssl.SSLContext | None] = None
    """What a connection begins with, if anything."""
    silent: ClassVar[dict["Connection", float]] = {}
    """Connections that have not sent a request yet, oldest first, with the time each was opened."""
    idle: ClassVar[dict["Connection", float]] = {}
    """Connections between two requests, longest idle first, with the time of the last one."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        """Bytes since the last request ended, or since its body if it was answered before that
        arrived."""
        self._in_body = False
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = None
        """What was read by TLS before its transport is known here."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.silent[self] = self.loop.time()
        self._wait(HEADERS_S)
        if len(self.connections) > self.most:
            self._make_room(len(self.connections) > 2 * self.most)
        elif self.tls is not None and len(self.silent) > HANDSHAKES:
            self._make_room(len(self.silent) > 2 * HANDSHAKES)
        if self.tls is not None:
            transport.pause_reading()  # until TLS reads
            self._early = []
            self._handshake = self.loop.create_task(self._secure(transport, self.tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Go on with TLS. asyncio's own servers tell of a connection after its handshake, so that
        those without one could not be counted."""
        secure = None
        if not transport.is_closing():  # made room for others
            with suppress(OSError):  # what fails is closed
                secure = await self.loop.start_tls(
                    transport, self, tls, server_side=True, ssl_handshake_timeout=HEADERS_S
                )
        if secure is None or transport.is_closing():
            self._forget()
            self.connections.discard(self)
            transport.abort()
        else:
            early, self._early = self._early or [], None
            super().connection_made(secure)  # its scheme is https
            for data in early:
                self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:  # an answer would not be encrypted
            self._early.append(data)
            return
        if not self._is_serving:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_serving or self.transport.is_closing():
            return
        if self._patience is None:  # uvicorn stops its own timer at the first byte
            self._wait(HEADERS_S)
        if self._header_bytes > HEADER_BYTES and not self._in_body:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._forget()
        self._header_bytes, self._in_body = 0, True
        self.scope["state"][ABORT] = self.transport.abort
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if not self._is_serving:  # the request was answered before its body arrived
            self._wait(KEEP_ALIVE_S)
        self._header_bytes, self._in_body = 0, False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_serving:
            self.idle[self] = self.loop.time()

    @property
    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self, at_once: bool) -> None:
        """Close the connection that has been silent the longest, else the longest idle one; a young
        one only `at_once`."""
        waiting = self.silent if len(self.silent) > 1 else self.idle or self.silent
        gone, since = next(iter(waiting.items()))
        if at_once or self.loop.time() - since > YOUNG_S:
            gone._forget()
            gone.transport.abort()

    def _wait(self, seconds: float) -> None:
        """Close the connection unless a request arrives within this time."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _forget(self) -> None:
        """Remove it from `silent` and `idle`."""
        self.silent.pop(self, None)
        self.idle.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
