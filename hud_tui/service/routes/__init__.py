"""Routes: parse, call, serialize. One file per area, each with its list ROUTES."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from hud_tui.service.context import ServiceContext
from hud_tui.service.http import Refused
from hud_tui.service.service import Service
from hud_tui.service.store.models import ModelRow, find


def service_of(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def parts_of(request: Request) -> ServiceContext:
    """The service's collaborators."""
    return service_of(request).parts


def path(request: Request, name: str) -> str:
    """A parameter of the path."""
    return str(request.path_params[name])


ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""The methods of an `absent` path that HUD has for writing too."""


def absent(instead: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a path that HUD has and this service does not; the answer says what to use
    instead."""

    async def refuse(request: Request) -> Response:
        raise Refused(404, f"this service has no {request.url.path[:200]}: {instead}")

    return refuse


async def find_model(request: Request) -> ModelRow:
    """The model in the path, by id, slug or name. Raises Refused, 404."""
    return await parts_of(request).store.read(find, path(request, "model_id"))
