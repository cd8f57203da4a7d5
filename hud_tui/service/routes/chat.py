"""The gateway as OpenAI's clients know it: completions and models, with ``/v1`` and without.

Errors come in HUD's form and in OpenAI's: a ``detail`` and an ``error`` object.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hud_tui.service import gateway
from hud_tui.service.bodies import dumps, read, reply
from hud_tui.service.completions import Answered, chunks, whole
from hud_tui.service.engines.base import Base, EngineError, EngineLost, StateGone
from hud_tui.service.refusals import Refused
from hud_tui.service.routes import parts_of, path
from hud_tui.service.store import models
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Chat, Completion

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
MOST_MODELS = 10_000
HUNG_UP = 499
"""What a request ends with that nobody waits for any more; nobody sees it. As nginx has it."""


class HungUp(Exception):
    """The client has closed the connection."""


def openai(handler: Handler) -> Handler:
    """Says what goes wrong in a handler as OpenAI's clients read it, too."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except HungUp:
            return Response(status_code=HUNG_UP)
        except Refused as refused:
            kind, code = "invalid_request_error", refused.code
            if refused.status == 404 and code is None:
                code = "not_found"
            return _error(refused.status, refused.detail, str(refused), kind, code, refused.param)
        except StateGone as error:
            return _error(410, str(error), str(error), "invalid_request_error", "expired")
        except EngineLost as error:
            said = f"{error}. Nothing was sampled: ask again"
            return _error(503, said, said, "server_error", "engine_lost")
        except EngineError as error:
            said = f"the engine refused: {error}"
            return _error(500, said, said, "server_error")

    return answer


@openai
async def chat(request: Request) -> Response:
    return await _complete(request, await read(request, Chat))


@openai
async def completion(request: Request) -> Response:
    return await _complete(request, await read(request, Completion))


@openai
async def list_models(request: Request) -> Response:
    """Every model that can be asked, bases first."""
    parts = parts_of(request)
    rows, _ = await parts.store.read(models.catalog, MOST_MODELS, 0)
    bases = parts.bases()
    found = [_model(row, bases[row.base]) for row in rows if row.base in bases]
    return reply({"object": "list", "data": found})


@openai
async def get_model(request: Request) -> Response:
    parts = parts_of(request)
    model = await parts.store.read(models.find, path(request, "model_id"))
    return reply(_model(model, parts.base(model)))


async def _complete(request: Request, body: Chat | Completion) -> Response:
    trace_id = request.headers.get("trace-id")
    work = gateway.complete(parts_of(request), body, trace_id)
    answered = await _while_there(request, work)
    if not body.stream:
        return reply(whole(answered))
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(answered), headers=headers, media_type="text/event-stream")


async def _stream(answered: Answered) -> AsyncIterator[bytes]:
    for chunk in chunks(answered):
        yield b"data: " + dumps(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


async def _while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await work for as long as the client waits for it. Raises HungUp."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HungUp
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    """Return when the client closes the connection; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _model(model: ModelRow, base: Base) -> dict[str, Any]:
    return {
        "id": model.slug,
        "object": "model",
        "created": int(model.created_at),
        "owned_by": model.base.partition("/")[0],
        "root": model.base,
        "parent": model.forked_from,
        "max_model_len": base.context,
    }


def _error(
    status: int, detail: Any, message: str, kind: str, code: str | None = None,
    param: str | None = None,
) -> Response:  # fmt: skip
    error = {"message": message, "type": kind, "param": param, "code": code}
    return reply({"detail": detail, "error": error}, status)


ROUTES = [
    route
    for prefix in ("", "/v1")
    for route in (
        Route(f"{prefix}/chat/completions", chat, methods=["POST"]),
        Route(f"{prefix}/completions", completion, methods=["POST"]),
        Route(f"{prefix}/models", list_models),
        Route(f"{prefix}/models/{{model_id:path}}", get_model),
    )
]
