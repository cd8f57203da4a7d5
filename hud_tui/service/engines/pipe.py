"""Frames between the service and an engine's own process: a length, then JSON.

Four bytes of length, most significant first.
"""

from typing import Any, BinaryIO

import orjson


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
