"""Routes: parse, call, dump; one file an area, each with its list of ROUTES."""

from starlette.requests import Request

from hud_tui.service.parts import Parts
from hud_tui.service.service import Service


def service_of(request: Request) -> Service:
    """The service that this app serves."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def parts_of(request: Request) -> Parts:
    """Its parts."""
    return service_of(request).parts


def path(request: Request, name: str) -> str:
    """A part of the path."""
    return str(request.path_params[name])
