"""The embedded service as an ASGI app. Paths and bodies are HUD's."""

import json
import logging
import sqlite3
from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hud_tui.rl.text import one_line
from hud_tui.service.engines.base import DiskFull, EngineError, EngineLost
from hud_tui.service.gate import Gate
from hud_tui.service.http import LargeBodies, Refused, refusal, reply, status_of
from hud_tui.service.journal import GONE
from hud_tui.service.routes import access, gateway, idempotency, jobs, models, tasksets, training
from hud_tui.service.service import Service
from hud_tui.wire_access import Role

log = logging.getLogger(__name__)

AREAS = (access, models, training, idempotency, tasksets, jobs, gateway)


def create_app(service: Service, host: str = "127.0.0.1", names: Collection[str] = ()) -> Starlette:
    """The ASGI app of a started service that is bound to `host`; requests with another Host header
    are refused, except for `names`."""
    gate = Middleware(Gate, access=service.access, journal=service.journal, host=host, names=names)
    app = Starlette(
        routes=[route for area in AREAS for route in area.ROUTES],
        middleware=[gate],
        exception_handlers={
            Refused: _refused,
            HTTPException: _http,
            ClientDisconnect: _hung_up,
            sqlite3.Error: _disk,
            OSError: _disk,
            DiskFull: _disk,
            json.JSONDecodeError: _disk,  # of a stored text: `http.read` refuses a request's
            EngineError: _engine,
            Exception: _unexpected,
        },
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.large = LargeBodies()
    return app


def role_table() -> list[str]:
    """What each role may do, as lines of a Markdown table: a row for each thing that a route
    does."""
    needed = {r.does: r.needs for area in AREAS for r in area.ROUTES if r.does}
    needed |= {"see everything": Role.READ, "ask the served model": Role.READ}
    needed |= {"sample rollouts": Role.TRAIN}
    in_order = sorted(needed.items(), key=lambda item: (list(Role).index(item[1]), item[0]))
    rows = [[does, *("✓" if role.may(need) else "" for role in Role)] for does, need in in_order]
    head = [["", *Role], ["---"] * (1 + len(Role))]
    return ["| " + " | ".join(cells) + " |" for cells in [*head, *rows]]


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
    """The client disconnected while it sent a body: nobody reads this answer."""
    return Response(status_code=GONE)


async def _disk(request: Request, error: Exception) -> Response:
    refused = refusal(error)
    if refused is None:
        raise error
    log.error("%s %s: %s", request.method, request.url.path, one_line(error, 300))
    return reply({"detail": refused.detail}, refused.status)


async def _engine(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    status, detail = status_of(error)
    if isinstance(error, EngineLost):
        detail += (
            ". Gradients that were accumulated are lost, and no step was taken:"
            " the next call opens the head again, so repeat the whole step"
        )
    elif status == 500:
        log.error("%s %s: engine: %s", request.method, request.url.path, error)
    return reply({"detail": detail}, status)


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answers 500. Starlette raises the error again afterwards, and the server logs it."""
    return reply({"detail": f"unexpected {type(error).__name__} in the service: see its log"}, 500)
