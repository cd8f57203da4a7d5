"""The policy's seat: a loopback endpoint for chat completions, whose answers a player gives.

An environment's agent asks it as it asks a gateway, and waits as long as the player thinks: the
reply begins at once, with blanks, which JSON allows, so that no client's timeout ends. What the
worker reports to the service can come here, too: it is passed on once the service answers.
"""

import asyncio
import json
from asyncio import Future, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from hud_tui.errors import HudError

BREATH_S = 20.0
"""Seconds between two blanks of a reply that is still waited for."""
MOST_HEAD, MOST_BODY = 64 << 10, 256 << 20
COMPLETIONS, SERVICE = "/chat/completions", "/service/"
"""How paths of completions end, and how those begin that are passed on."""

Request = dict[str, Any]
PassOn = Callable[[str, str, bytes], Awaitable[bytes]]
"""(method, target after `SERVICE`, body) → the body of the answer. Raises HudError."""


class Seat:
    """Holds one request at a time; one that is sent again takes the place of the one before."""

    def __init__(
        self, api_key: str, asked: Callable[[Request], object], pass_on: PassOn | None = None
    ) -> None:
        """`asked` is called with each new request for a completion; `answer` answers it. `pass_on`
        answers requests to the service; None: they are refused."""
        self._authorization = f"Bearer {api_key}"
        self._asked, self._pass_on = asked, pass_on
        self._request: Request | None = None
        self._answer: Future[bytes] | None = None
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve until the block ends; yields the gateway's URL."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MOST_HEAD)
        try:
            yield "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def request(self) -> Request | None:
        """What is to be answered; None if nobody waits."""
        return self._request if self._answer is not None and not self._answer.done() else None

    def answer(self, completion: Mapping[str, Any]) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(json.dumps(completion).encode())

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while (head := await _head(reader)) is not None:
                await self._respond(*head, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            pass  # the client left, or speaks no HTTP
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _respond(
        self, line: str, headers: Mapping[str, str], reader: StreamReader, writer: StreamWriter
    ) -> None:
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= MOST_BODY:
            raise ValueError(f"a body of {size} bytes")
        body = await reader.readexactly(size)
        method, target, *_ = f"{line} / ".split(" ")
        if headers.get("authorization") != self._authorization:
            return await _refuse(writer, 401, "another key")
        if self._pass_on is not None and target.startswith(SERVICE):
            passing = self._pass_on(method, target.removeprefix(SERVICE), body)
            return await _passed(asyncio.ensure_future(passing), writer)
        if method != "POST" or not urlsplit(target).path.endswith(COMPLETIONS):
            return await _refuse(writer, 404, f"only POST {COMPLETIONS} is answered here")
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
            return await _refuse(writer, 400, "no chat completion is asked for")
        await self._complete(request, writer)

    async def _complete(self, request: Request, writer: StreamWriter) -> None:
        is_again = self.request is not None and self.request == request
        if not is_again or self._answer is None:
            self._request, self._answer = request, asyncio.get_running_loop().create_future()
        answer = self._answer
        if not is_again:
            self._asked(request)
        await _hold(answer, writer)


async def _passed(answer: Future[bytes], writer: StreamWriter) -> None:
    """The service's answer, or its error; if it is away, a reply that begins without it."""
    try:
        await asyncio.wait([answer], timeout=BREATH_S)
        if not answer.done():
            await _hold(answer, writer)
        elif isinstance(error := answer.exception(), HudError):
            await _refuse(writer, error.status or 502, error.message)
        else:
            await _reply(writer, 200, answer.result())
    finally:
        answer.cancel()


async def _hold(answer: Future[bytes], writer: StreamWriter) -> None:
    """Begin a reply, and end it with the answer; if none comes, it ends without."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    writer.write(f"{head}\r\n\r\n".encode())
    while not answer.done():
        writer.write(_chunk(b" "))
        await writer.drain()
        await asyncio.wait([answer], timeout=BREATH_S)
    body = answer.result() if answer.exception() is None else b"{}"
    writer.write(_chunk(body) + _chunk(b""))
    await writer.drain()


async def _head(reader: StreamReader) -> tuple[str, dict[str, str]] | None:
    """The first line and the headers of a request; None if no further one comes."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    line, *rows = text[:-4].split("\r\n")
    pairs = (row.partition(":") for row in rows)
    return line, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _refuse(writer: StreamWriter, status: int, why: str) -> None:
    """An error in OpenAI's form."""
    body = json.dumps({"error": {"message": why, "type": "invalid_request_error"}}).encode()
    await _reply(writer, status, body)


async def _reply(writer: StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json"
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
