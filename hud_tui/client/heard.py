"""Heard: a stream's body that says when something comes."""

from collections.abc import AsyncIterator, Callable

import httpx

from hud_tui.errors import HudMalformed

MAX_LINE = 64 * 1024 * 1024
"""Bytes of the longest line of a stream."""


class Heard(httpx.AsyncByteStream):
    """A body that reports each arrival, keep-alives too, and refuses a line without end."""

    def __init__(self, body: object, heard: Callable[[], None]) -> None:
        assert isinstance(body, httpx.AsyncByteStream)
        self._body = body
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._body:
            self._heard()
            end = chunk.rfind(b"\n")
            length = length + len(chunk) if end < 0 else len(chunk) - end
            if length > MAX_LINE:
                raise HudMalformed("the event stream has a line without an end")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
