"""The event stream of a model, as server-sent events out of the log.

Every reader is served from the store, however slow it is, so nothing piles up in memory, and
nothing is dropped but the rollouts of steps that are over, where a reader is far behind.
Source: WHATWG HTML, section 9.2 (server-sent events).
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hud_tui.service.frames import RESET
from hud_tui.service.parts import Parts
from hud_tui.service.routes import find_model, parts_of
from hud_tui.service.store import events

KEEP_ALIVE_S = 5.0
"""Between two comments. No blank line ends them: some readers would take it for an event."""


async def follow(request: Request) -> Response:
    """From after Last-Event-ID, else from now on; `X-Last-Event-ID` says where that is."""
    parts, model = parts_of(request), await find_model(request)
    tail = await parts.store.read(events.newest)
    last, reset = tail, False
    given = request.headers.get("last-event-id")
    if given is not None:
        last = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1
        if last < 0 or not await parts.store.read(events.can_resume, model.id, last):
            last, reset = tail, True
    headers = {"Cache-Control": "no-store", "X-Last-Event-ID": str(last)}
    stream = _stream(parts, model.id, last, reset)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(parts: Parts, model_id: str, last: int, reset: bool) -> AsyncIterator[bytes]:
    yield b": open\n"
    if reset:
        yield RESET
    while not parts.hub.closed:
        signal = parts.hub.signal(model_id)
        last, frames = await parts.frames.after(parts.store, model_id, last, signal)
        if frames:
            yield frames
            continue
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await signal.wait()
        except TimeoutError:
            yield b": still here\n"


ROUTES = [Route("/v1/models/{model_id:path}/train/events", follow)]
