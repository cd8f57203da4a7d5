"""The embedded service as an ASGI app: the same paths and bodies as HUD's."""

import asyncio
import logging
import sqlite3

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hud_tui.service.bodies import AT_ONCE, reply
from hud_tui.service.disk import refusal
from hud_tui.service.engines.base import (
    DiskFull,
    EngineError,
    EngineLost,
    NotFinite,
    StateGone,
)
from hud_tui.service.gate import Gate
from hud_tui.service.refusals import Refused
from hud_tui.service.routes import (
    catalog,
    chat,
    environments,
    events,
    jobs,
    keyed,
    projects,
    rollouts,
    runs,
    tasksets,
    telemetry,
    traces,
    training,
)
from hud_tui.service.service import Service

log = logging.getLogger(__name__)

AREAS = (
    catalog,
    training,
    keyed,
    rollouts,
    runs,
    tasksets,
    environments,
    projects,
    jobs,
    traces,
    telemetry,
    events,
    chat,  # last: names of models may have slashes, so that theirs could be any path
)


def create_app(service: Service, host: str = "127.0.0.1") -> Starlette:
    """The app over a service that has been started.

    Args:
        service: Whose routes these are.
        host: The address it is bound to; requests to other names are refused.
    """
    app = Starlette(
        routes=[route for area in AREAS for route in area.ROUTES],
        middleware=[Middleware(Gate, api_key=service.api_key, host=host)],
        exception_handlers={
            Refused: _refused,
            HTTPException: _http,
            ClientDisconnect: _hung_up,
            sqlite3.Error: _disk,
            OSError: _disk,
            DiskFull: _disk,
            EngineLost: _lost,
            StateGone: _gone,
            NotFinite: _not_finite,
            EngineError: _engine,
            Exception: _unexpected,
        },
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.large = asyncio.Semaphore(AT_ONCE)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return reply({"detail": error.detail}, error.status)


async def _http(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405."""
    assert isinstance(error, HTTPException)
    detail = f"{error.detail}: {request.method} {request.url.path[:200]}"
    answer = reply({"detail": detail}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _hung_up(request: Request, error: Exception) -> Response:
    """In the middle of a body: nobody reads this."""
    return Response(status_code=chat.HUNG_UP)


async def _lost(request: Request, error: Exception) -> Response:
    detail = (
        f"{error}. Gradients that were accumulated are lost, and no step was taken:"
        " the next call opens the head again, so repeat the whole step"
    )
    return reply({"detail": detail}, 503)


async def _gone(request: Request, error: Exception) -> Response:
    return reply({"detail": str(error)}, 410)


async def _disk(request: Request, error: Exception) -> Response:
    refused = refusal(error)
    if refused is None:
        raise error
    log.error("%s %s: %s", request.method, request.url.path, error)
    return reply({"detail": refused.detail}, refused.status)


async def _not_finite(request: Request, error: Exception) -> Response:
    return reply({"detail": str(error)}, 422)


async def _engine(request: Request, error: Exception) -> Response:
    log.error("%s %s: engine: %s", request.method, request.url.path, error)
    return reply({"detail": f"the engine refused: {error}"}, 500)


async def _unexpected(request: Request, error: Exception) -> Response:
    """Starlette raises it again after the answer, and the server logs it."""
    return reply({"detail": f"unexpected {type(error).__name__} in the service: see its log"}, 500)
