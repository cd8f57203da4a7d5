"""Frames between the service and an engine's own process: a length, then JSON.

Four bytes of length, most significant first.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, BinaryIO, TypeVar

import orjson

from hud_tui.service.engines.base import (
    DiskFull,
    EngineError,
    EngineRefused,
    NotFinite,
    PolicyLost,
    StateGone,
)

T = TypeVar("T")

KINDS: dict[str, type[EngineError]] = {
    "refused": EngineRefused,
    "lost": PolicyLost,
    "gone": StateGone,
    "not finite": NotFinite,
    "disk": DiskFull,
    "error": EngineError,
}
"""What an error is, by its name in a frame; the last one is any other."""


def failure(error: EngineError) -> dict[str, str]:
    """An error as a reply says it."""
    kind = next(name for name, type_ in KINDS.items() if isinstance(error, type_))
    return {"error": str(error), "kind": kind}


def raised(reply: dict[str, Any]) -> EngineError:
    """The error that a reply says."""
    return KINDS[reply["kind"]](reply["error"])


class Silent(EOFError):
    """The engine's process is there, and does not answer."""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream."""
    head = stream.read(4)
    size = int.from_bytes(head, "big")
    body = stream.read(size) if len(head) == 4 else b""
    return body if len(head) == 4 and len(body) == size else None


def frame(value: Any) -> bytes:
    """A value as one frame."""
    body = orjson.dumps(value)
    return len(body).to_bytes(4, "big") + body


async def in_time(
    answer: Coroutine[Any, Any, T], seconds: int, silent: Callable[[int], object]
) -> T:
    """Await an answer of the engine's process for so long.

    Args:
        answer: What is awaited.
        seconds: Of this process's own time: while it was stopped itself, by a shell or a
            machine that slept, nobody could have heard an answer.
        silent: Told after each second without one how many there were, and 0 once it is there.

    Raises:
        Silent: It did not come.
    """
    task = asyncio.ensure_future(answer)
    try:
        for passed in range(seconds):
            if (await asyncio.wait({task}, timeout=1))[0]:
                return task.result()
            silent(passed + 1)
        raise Silent(f"the engine's process did not answer for {seconds} s, and was ended")
    finally:
        silent(0)
        task.cancel()
