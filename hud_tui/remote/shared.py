"""The shared connection's process on this machine: whether it answers, and its end if it hangs.

Source: PROTOCOL.mux of OpenSSH; the process greets whoever connects to its socket.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

HUNG_S = 6.0
"""Seconds that it may take to greet; then it counts as hung."""
LOOKS = 12
"""Looks in that time. They are counted, so that a pause of all processes is none of it alone."""
WATCH_S = 3.0
"""Seconds between two checks while something runs over it."""


async def end_hung(socket: Path) -> bool:
    """End the shared connection with this socket if its process hangs, so that the next command
    opens another; returns whether it did. Without one nothing happens."""
    greeting = asyncio.create_task(greets(socket))
    try:
        for _ in range(LOOKS):
            await asyncio.wait([greeting], timeout=HUNG_S / LOOKS)
            if greeting.done():
                return False
        _kill(socket)
        return True
    finally:
        greeting.cancel()


@asynccontextmanager
async def watched(socket: Path) -> AsyncIterator[None]:
    """End the shared connection if it hangs now or meanwhile: what runs over it then fails."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await end_hung(socket)

    await end_hung(socket)
    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def greets(socket: Path) -> bool:
    """Whether an ssh greets who connects to its socket; waits for it. False: nobody listens."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    try:
        return bool(await reader.read(1))
    except OSError:
        return False
    finally:
        writer.transport.abort()


def _kill(socket: Path) -> None:
    """Kill the process that names itself after the socket, where the system shows that (Linux), and
    remove the socket."""
    title = f"ssh: {socket} [mux]".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().rstrip(b"\0 ") == title:
                os.kill(int(entry.name), signal.SIGKILL)
    socket.unlink(missing_ok=True)
