"""A line to a service that can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

TURNS = 4
"""Turns of asyncio's loop that an accept takes at most."""


class Proxy:
    """Forwards bytes both ways until it is cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.forwarded = 0
        """Bytes that came from the service."""

    def cut(self) -> None:
        """End every line as a broken network would; new ones may be opened."""
        for line in self._lines:
            line.transport.abort()
        self._lines.clear()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.add(writer)
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection(*self._target)
            self._lines.add(here)
            await asyncio.gather(self._copy(reader, here, False), self._copy(there, writer, True))
        except OSError:
            writer.close()

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, counted: bool
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                self.forwarded += len(data) if counted else 0
                sink.write(data)
                await sink.drain()
        sink.close()

    async def close(self) -> None:
        await all_accepted()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()


async def all_accepted() -> None:
    """After a server stops to listen, let asyncio end the accepts it has begun."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    """A line to the service at this URL."""
    line = Proxy(url)
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line.url = f"http://127.0.0.1:{port}"
    try:
        yield line
    finally:
        server.close()
        await line.close()
        await server.wait_closed()
