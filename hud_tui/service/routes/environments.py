"""The registry: which environments and scenarios there are, as preflight asks."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import page, reply, window
from hud_tui.service.environments import ENVIRONMENTS, Environment
from hud_tui.service.ids import canonical, named_id
from hud_tui.service.refusals import not_found
from hud_tui.service.routes import path


async def registry(request: Request) -> Response:
    limit, offset = window(request)
    wanted = _normal(request.query_params.get("search", ""))
    found = [_item(env) for env in ENVIRONMENTS.values() if wanted in _normal(env.name)]
    return page(found[offset : offset + limit], len(found), limit, offset)


async def registry_item(request: Request) -> Response:
    return reply(_item(_environment(path(request, "registry_id"))))


async def scenarios(request: Request) -> Response:
    environment = _environment(path(request, "registry_id"))
    return reply(
        [
            {
                "id": named_id("scenario", f"{environment.name}:{scenario.name}"),
                "registry_id": _id(environment),
                "build_id": _build(environment),
                "name": scenario.name,
                "slug": f"{environment.name}:{scenario.name}",
                "description": scenario.description,
                "args_schema": scenario.args_schema,
            }
            for scenario in environment.scenarios.values()
        ]
    )


async def mcp_config(request: Request) -> Response:
    name = path(request, "name")
    environment = ENVIRONMENTS.get(name)
    if environment is None:
        raise not_found("environment", name[:200])
    names = list(environment.scenarios)
    return reply({"mcp_config": {}, "registry_id": _id(environment), "scenarios": names})


async def build_status(request: Request) -> Response:
    wanted = path(request, "build_id")
    for environment in ENVIRONMENTS.values():
        if _build(environment) == canonical(wanted):
            tasks = [
                {"id": s.name, "description": s.description, "args": s.args_schema}
                for s in environment.scenarios.values()
            ]
            manifest = {"tasks": tasks, "capabilities": []}
            return reply({"status": "SUCCEEDED", "version": "1", "manifest": manifest})
    raise not_found("build", wanted[:100])


def _environment(ref: str) -> Environment:
    """By its id in the registry. Raises Refused, 404."""
    for environment in ENVIRONMENTS.values():
        if _id(environment) == canonical(ref):
            return environment
    raise not_found("environment", ref[:100])


def _item(environment: Environment) -> dict[str, Any]:
    return {
        "id": _id(environment),
        "name": environment.name,
        "description": environment.description,
        "registry_type": "environment",
        "public": True,
        "latest_build_id": _build(environment),
    }


def _id(environment: Environment) -> str:
    return named_id("environment", environment.name)


def _build(environment: Environment) -> str:
    return named_id("build", environment.name)


def _normal(name: str) -> str:
    """Names are compared case-blind, with one spelling of the separators."""
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


ROUTES = [
    Route("/v2/registry", registry),
    Route("/v2/registry/{registry_id}", registry_item),
    Route("/v2/registry/{registry_id}/scenarios", scenarios),
    Route("/v2/builds/{build_id}/status", build_status),
    Route("/environments/{name:path}/mcp-config", mcp_config),
]
