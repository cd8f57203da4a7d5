"""The policy's seat: a loopback endpoint for chat completions, whose answers a player gives.

An environment's agent asks it as it asks a gateway, and waits as long as the player thinks: the
reply begins at once, with blanks, which JSON allows, so that no client's timeout ends.
"""

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

BREATH_S = 20.0
"""Seconds between two blanks of a reply that is still waited for."""
MOST_HEAD, MOST_BODY = 64 << 10, 256 << 20
COMPLETIONS = "/chat/completions"
STATUS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}

Request = dict[str, Any]


class Seat:
    """Holds one request at a time; one that is sent again takes the place of the one before."""

    def __init__(self, api_key: str, asked: Callable[[Request], object]) -> None:
        """`asked` is called with each new request for a completion; `answer` answers it."""
        self._authorization = f"Bearer {api_key}"
        self._asked = asked
        self._request: Request | None = None
        self._answer: asyncio.Future[Mapping[str, Any]] | None = None
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
        """Answer the request."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(completion)

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
        if method != "POST" or not urlsplit(target).path.endswith(COMPLETIONS):
            return await _refuse(writer, 404, f"only POST {COMPLETIONS} is answered here")
        try:
            request = json.loads(body)
        except ValueError:
            request = None
        if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
            return await _refuse(writer, 400, "no chat completion is asked for")
        await self._complete(request, writer)

    async def _complete(self, request: Request, writer: StreamWriter) -> None:
        is_again = self.request is not None and self.request == request
        if not is_again or self._answer is None:
            self._request, self._answer = request, asyncio.get_running_loop().create_future()
        answer = self._answer
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
        writer.write(f"{head}\r\n\r\n".encode())
        if not is_again:
            self._asked(request)
        while not answer.done():
            writer.write(_chunk(b" "))
            await writer.drain()
            await asyncio.wait([answer], timeout=BREATH_S)
        writer.write(_chunk(json.dumps(answer.result()).encode()) + _chunk(b""))
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
    head = f"HTTP/1.1 {status} {STATUS[status]}\r\nContent-Type: application/json"
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
