"""Answer: what came back for a request, read piece by piece."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic

import httpx

from hud_tui.rl.text import one_line

MAX_BODY = 256 * 1024 * 1024
"""Bytes of the largest answer that is read."""
MOST_ETAG = 1000
"""Characters of a mark that is sent back."""
SLOWEST = 1000
"""Bytes a second below which an answer is given up that takes longer than any silence may."""
Arrived = Callable[[int, int | None], None]
"""(bytes of the body that have come, how many there will be or None)."""


@dataclass(frozen=True)
class Answer:
    body: bytes
    request_id: str
    """The service's; empty where it has none."""
    etag: str
    """Of the body; empty where the service gives none."""
    unchanged: bool
    """Whether the body is the one that is known, and was not sent again."""


async def read_body(answer: httpx.Response, arrived: Arrived | None) -> bytes:
    """All of it, or as much as there may be; `arrived` is told of every piece.

    Raises:
        httpx.ReadTimeout: It comes in drops, each of them in time, and would never end.
    """
    patience_s, begun = _patience(answer.request), monotonic()
    body, length = bytearray(), answer.headers.get("content-length", "")
    total = int(length) if length.isdecimal() and len(length) < 20 else None
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > MAX_BODY:
            raise httpx.DecodingError(f"the answer is larger than {MAX_BODY >> 20} MB")
        took_s = monotonic() - begun
        if took_s > patience_s and answer.num_bytes_downloaded < SLOWEST * took_s:
            raise httpx.ReadTimeout(f"after {took_s:.0f} s it is not whole, and hardly grows")
        if arrived is not None:
            arrived(answer.num_bytes_downloaded, total)
    return bytes(body)


def _patience(request: httpx.Request) -> float:
    """Seconds that the service may be silent."""
    timeout: dict[str, float | None] = request.extensions.get("timeout", {})
    return timeout.get("read") or inf


def request_id(answer: httpx.Response) -> str:
    """By the usual names; empty where the service gives none."""
    found = (answer.headers.get(name) for name in ("x-request-id", "request-id"))
    return one_line(next(filter(None, found), ""), 100)


def etag_of(answer: httpx.Response) -> str:
    """Its mark by which it is asked for again; empty where the service gives none."""
    etag: str = answer.headers.get("etag", "")
    return etag if len(etag) <= MOST_ETAG and etag.isprintable() and etag.isascii() else ""
