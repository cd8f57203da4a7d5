"""Projects: there is one, and everything is in it.

The SDK's CLI looks a project up where one is named (``hud sync tasks --project``,
HUD_DEFAULT_PROJECT), and ``hud project`` lists them.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import page, reply, window
from hud_tui.service.ids import canonical, named_id
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.routes import path

NAME = "local"
ONLY: dict[str, Any] = {
    "id": named_id("project", NAME),
    "name": NAME,
    "description": "Everything of this service",
    "is_default": True,
    "capabilities": {"create": True},
}
"""The project. Its capability is to have tasksets made in it."""


async def projects(request: Request) -> Response:
    (limit, offset), search = window(request), request.query_params.get("search", "")
    found = [ONLY] if search.strip().casefold() in NAME else []
    return page(found[offset : offset + limit], len(found), limit, offset)


async def project(request: Request) -> Response:
    ref = path(request, "project_id")
    if (canonical(ref) or ref) not in (ONLY["id"], NAME):
        raise not_found("project", ref[:100])
    return reply(ONLY)


async def create(request: Request) -> Response:
    raise Refused(409, f"this service has one project, {NAME}: leave --project out, or name it")


ROUTES = [
    Route("/v2/projects", projects),
    Route("/v2/projects", create, methods=["POST"]),
    Route("/v2/projects/{project_id}", project),
]
