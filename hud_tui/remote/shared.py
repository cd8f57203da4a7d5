"""The shared connection's process on this machine: whether it answers, and its end if it hangs.

Source: PROTOCOL.mux of OpenSSH; the process greets whoever connects to its socket.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

HUNG_S = 6.0
"""Seconds that it may take to greet; then it counts as hung."""


async def end_hung(socket: Path) -> bool:
    """End the shared connection with this socket if its process hangs, so that the next command
    opens another; returns whether it did. Without one nothing happens."""
    try:
        async with asyncio.timeout(HUNG_S):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except TimeoutError:
        _kill(socket)
        return True
    except OSError:  # nobody listens: ssh opens one
        return False
    return False


def _kill(socket: Path) -> None:
    """Kill the process that names itself after the socket, where the system shows that (Linux), and
    remove the socket."""
    title = f"ssh: {socket} [mux]".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().rstrip(b"\0 ") == title:
                os.kill(int(entry.name), signal.SIGKILL)
    socket.unlink(missing_ok=True)
