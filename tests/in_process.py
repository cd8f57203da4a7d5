"""Calls an app in the test's own loop, and passes its answer on as it comes, as a socket would.

httpx's own transport waits for the whole answer, which a stream of events never is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, MutableMapping
from contextvars import Context
from email.utils import formatdate
from typing import Any

import httpx
from starlette.types import ASGIApp

log = logging.getLogger(__name__)


class InProcess(httpx.AsyncBaseTransport):
    """Each request is a task of its own, which outlives a caller that goes away, as in a server."""

    def __init__(self, app: ASGIApp, url: str) -> None:
        """`url`: where it is served, too."""
        self._app, self.url = app, url
        self._answering: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = Exchange(await request.aread())
        answering = asyncio.create_task(
            exchange.answer(self._app, _scope_of(request)), context=Context()
        )
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)
        try:
            start = await exchange.next()
        except BaseException:
            exchange.left.set()
            raise
        if start is None:
            raise httpx.RemoteProtocolError("it ended without an answer", request=request)
        headers = [*start["headers"], (b"date", formatdate(usegmt=True).encode())]
        return httpx.Response(start["status"], headers=headers, stream=exchange, request=request)

    async def ended(self) -> None:
        """Wait for what is still answered; streams end with their service's hub."""
        await asyncio.gather(*self._answering)


class Exchange(httpx.AsyncByteStream):
    """One request and the messages of its answer; also the answer's bytes."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._messages: asyncio.Queue[MutableMapping[str, Any] | None] = asyncio.Queue()
        self.left = asyncio.Event()
        """The caller has gone."""

    async def answer(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            log.exception("in %s", scope["path"])  # as a server: the answer has been sent
        finally:
            self._messages.put_nowait(None)

    async def next(self) -> MutableMapping[str, Any] | None:
        """The answer's next message; None at its end."""
        return await self._messages.get()

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self._messages.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.next()) is not None:
            yield message.get("body", b"")
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self.left.set()


def _scope_of(request: httpx.Request) -> dict[str, Any]:
    path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 1),
    }
