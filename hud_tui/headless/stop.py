"""``stop``: end the embedded service that runs in the background."""

import asyncio
from collections.abc import Awaitable, Callable

from hud_tui.headless.output import emit

Stop = Callable[[], Awaitable[int | None]]
"""Stops it and returns which process it was, as `hud_tui.connect.stop`."""


def report(end: Stop, document: bool) -> int:
    """Stop it, and say which process it was."""
    pid = asyncio.run(_wait(end))
    if document:
        emit("stop", {"stopped": pid is not None, "pid": pid})
    else:
        print("no embedded service runs" if pid is None else f"stopped the service, process {pid}")
    return 0


async def _wait(end: Stop) -> int | None:
    return await end()
