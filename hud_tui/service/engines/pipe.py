"""Frames between the service and an engine's own process: a length, then JSON.

Four bytes of length, most significant first.
"""

from typing import Any, BinaryIO

import orjson

from hud_tui.service.engines.base import (
    DiskFull,
    EngineError,
    EngineRefused,
    NotFinite,
    PolicyLost,
    StateGone,
)

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
