"""A line to a service that lies: it drops, delays, cuts, doubles and makes up what it carries."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

PAGE = b"<html><body>Sign in to the network</body></html>"
MOST_HEAD = 65_536


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    raw: bytes
    """All of it, as it came."""

    @property
    def settles(self) -> bool:
        return self.path.endswith("/settle")

    @property
    def streams(self) -> bool:
        return self.path.endswith("/train/events")


def made_up(status: str, body: bytes = b"", *headers: str) -> bytes:
    """An answer that no service gave."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chopped(answer: bytes) -> bytes:
    """Half of an answer's body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n" + body[: len(body) // 2]


JSON = "Content-Type: application/json"
INSTEAD: dict[str, Callable[[bytes], bytes]] = {
    "portal": lambda answer: made_up("200 OK", PAGE, "Content-Type: text/html"),
    "empty": lambda answer: made_up("200 OK"),
    "no content": lambda answer: made_up("204 No Content"),
    "other JSON": lambda answer: made_up("200 OK", b'{"ok": true}', JSON),
    "a list": lambda answer: made_up("200 OK", b"[]", JSON),
    "redirect": lambda answer: made_up("302 Found", b"", "Location: http://portal.invalid/"),
    "gateway": lambda answer: made_up("502 Bad Gateway", PAGE),
    "timeout": lambda answer: made_up("504 Gateway Timeout", b'{"detail": "upstream"}'),
    "not gzip": lambda answer: made_up("200 OK", b"\x1f\x8b garbage", "Content-Encoding: gzip"),
    "too long": lambda answer: answer.replace(b"ontent-length: ", b"ontent-length: 9").replace(
        b"ontent-Length: ", b"ontent-Length: 9"
    ),
    "cut": chopped,
    "no answer": lambda answer: b"",
    "half a head": lambda answer: b"HTTP/1.1 200 O",
}
"""What comes in an answer's place, by name."""
WAYS = ("drop", "late", "slow", "trickle", "reset", "reset before", "double", "double later")
"""Other ways to fail."""
FAULTS = (*(f"{name}, done" for name in INSTEAD), *(f"{name}, dropped" for name in INSTEAD), *WAYS)


class Lying:
    """Carries one request a connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there = (parts.hostname, parts.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.late_s = 1.0
        """How late a request or an answer is that comes late: after its sender has given up."""
        self.choose: Callable[[Request], str] = lambda request: ""
        """The fault of a request; empty for none."""
        self.keyless = False
        """Whether it stands before a service that keeps no keys."""

    async def settled(self) -> None:
        """Until all has arrived that is still to arrive."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            request = await _read(reader)
            if request.streams:
                self._tasks.discard(task)  # it lasts as long as its reader stays
                await self._stream(request, reader, writer, cut=bool(self.choose(request)))
            else:
                await self._carry(request, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _carry(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.settles and self.keyless:
            return await _say(writer, made_up("404 Not Found", b'{"detail": "Not Found"}'))
        fault = self.choose(request)
        name, _, then = fault.partition(", ")
        if name in INSTEAD:
            answer = await self._ask(request) if then == "done" else made_up("200 OK", b"{}")
            return await _say(writer, INSTEAD[name](answer))
        await self._fail(fault, request, writer)

    async def _fail(self, fault: str, request: Request, writer: asyncio.StreamWriter) -> None:
        match fault:
            case "drop":
                return
            case "reset before":
                writer.transport.abort()
            case "reset":
                await self._ask(request)
                writer.transport.abort()
            case "late":
                await asyncio.sleep(self.late_s)
                await self._ask(request)
            case "slow":
                answer = await self._ask(request)
                await asyncio.sleep(self.late_s)
                await _say(writer, answer)
            case "trickle":
                await self._trickle(await self._ask(request), writer)
            case "double":
                answers = await asyncio.gather(self._ask(request), self._ask(request))
                await _say(writer, answers[1])
            case "double later":
                await _say(writer, await self._ask(request))
                writer.close()
                await self._ask(request)
            case _:
                await _say(writer, await self._ask(request))

    async def _trickle(self, answer: bytes, writer: asyncio.StreamWriter) -> None:
        """A byte at a time, each long before anybody gives up waiting for one."""
        head, mark, body = answer.partition(b"\r\n\r\n")
        await _say(writer, head + mark)
        for at in range(len(body)):
            if writer.is_closing():
                return
            await _say(writer, body[at : at + 1])
            await asyncio.sleep(self.late_s / 10)

    async def _ask(self, request: Request) -> bytes:
        """The service's whole answer."""
        reader, writer = await asyncio.open_connection(*self._there)
        try:
            writer.write(request.raw)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    async def _stream(
        self, request: Request, listener: asyncio.StreamReader, out: asyncio.StreamWriter, cut: bool
    ) -> None:
        """Until either side ends; a line that is cut ends in the middle of its first piece."""
        reader, writer = await asyncio.open_connection(*self._there)
        writer.write(request.raw)
        left = asyncio.create_task(listener.read())
        try:
            while not left.done():
                piece = asyncio.create_task(reader.read(4096))
                await asyncio.wait((piece, left), return_when=asyncio.FIRST_COMPLETED)
                if not piece.done():
                    piece.cancel()
                    return
                data = piece.result()
                await _say(out, data[: len(data) // 2] if cut else data)
                if cut or not data:
                    return
        finally:
            left.cancel()
            writer.close()


async def _say(writer: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        if writer.is_closing():
            return
        writer.write(data)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request:
    """One request, made to ask for a connection of its own."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    kept = [line for line in lines[1:-2] if not line.lower().startswith("connection:")]
    sizes = (line for line in kept if line.lower().startswith("content-length:"))
    body = await reader.readexactly(int(next(sizes, "0:0").partition(":")[2]))
    raw = "\r\n".join([lines[0], *kept, "Connection: close", "", ""]).encode("latin-1") + body
    return Request(method, path.partition("?")[0], raw)


@asynccontextmanager
async def lying(url: str) -> AsyncIterator[Lying]:
    """A line to the service at this URL, which tells the truth until it is told what to do."""
    line = Lying(url)
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0, limit=MOST_HEAD)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
        for task in list(line._tasks):
            task.cancel()
        await asyncio.gather(*line._tasks, return_exceptions=True)
        await server.wait_closed()
