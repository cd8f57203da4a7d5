"""Tasksets: look up, list, export, upload."""

import asyncio
import re
import sqlite3
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hud_tui.errors import HudUsage
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.service.environments import ENVIRONMENTS, Environment, find_scenario
from hud_tui.service.http import (
    Refused,
    bad_field,
    canonical,
    canonical_id,
    iso,
    named_id,
    not_found,
    page,
    read,
    reply,
    window,
)
from hud_tui.service.routes import ANY, Route, absent, log_about, parts_of, path
from hud_tui.service.run_plan import twin_of
from hud_tui.service.store import access, models
from hud_tui.service.store.db import Db
from hud_tui.wire_access import Role
from hud_tui.wire_tasks import PlayTask, UploadTasks

# The registry: environments and scenarios, as preflight reads them.


async def registry(request: Request) -> Response:
    limit, offset = window(request)
    query = _normal(request.query_params.get("search", ""))
    matches = [_item(env) for env in ENVIRONMENTS.values() if query in _normal(env.name)]
    return page(matches[offset : offset + limit], len(matches), limit, offset)


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
    build_id = path(request, "build_id")
    for environment in ENVIRONMENTS.values():
        if _build(environment) == canonical(build_id):
            tasks = [
                {"id": s.name, "description": s.description, "args": s.args_schema}
                for s in environment.scenarios.values()
            ]
            manifest = {"tasks": tasks, "capabilities": []}
            return reply({"status": "SUCCEEDED", "version": "1", "manifest": manifest})
    raise not_found("build", build_id[:100])


async def play(request: Request) -> Response:
    """The prompt of a task for whoever plays it; with an answer also its grade. Nothing is
    stored."""
    body = await read(request, PlayTask)
    try:
        scenario = find_scenario(path(request, "name"), body.scenario)
    except LookupError as error:
        raise Refused(404, str(error)) from error
    try:
        prompt = scenario.prompt(body.args)
    except ValueError as error:
        raise bad_field("args", str(error)) from error
    if body.answer is None:
        return reply({"prompt": prompt})
    reward, expected = scenario.grade(body.args, body.answer), scenario.answer(body.args)
    return reply({"prompt": prompt, "reward": reward, "expected": expected})


def _environment(ref: str) -> Environment:
    """An environment by its id in the registry. Raises Refused, 404."""
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
    """Names are compared case-insensitively, with one spelling of the separators."""
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


NO_BUILDS = (
    "nothing is deployed to it. hud-tui train ENV.py trains on an environment where its files are,"
    " and --runtime docker:IMAGE on an image"
)
NO_CHECKS = (
    "it runs no agents that check traces. hud-tui preflight checks tasks, hud-tui train ENV.py"
    " --check an environment, and hud-tui --headless status MODEL lists a run's alarms"
)
NO_TUNNELS = (
    "it runs no boxes. LocalRuntime and SubprocessRuntime need none, nor does hud-tui train ENV.py"
)
ENVIRONMENT_ROUTES = [
    Route("/v2/registry", registry),
    Route("/v2/registry/{registry_id}", registry_item),
    Route("/v2/registry/{registry_id}/scenarios", scenarios),
    Route("/v2/builds/{build_id}/status", build_status),
    Route("/v2/builds/{rest:path}", absent(NO_BUILDS), ANY),
    Route("/v2/qa/{rest:path}", absent(NO_CHECKS), ANY),
    Route("/runtime/{rest:path}", absent(NO_TUNNELS), ANY),
    Route("/environments/{name:path}/mcp-config", mcp_config),
    Route("/v1/environments/{name}/play", play, ["POST"]),
]


# Projects: there is only one, which contains everything.
#
# The SDK's CLI looks a project up if one is given (``hud sync tasks --project``,
# HUD_DEFAULT_PROJECT), and ``hud project`` lists them.


NAME = "local"
ONLY: dict[str, Any] = {
    "id": named_id("project", NAME),
    "name": NAME,
    "description": "Everything of this service",
    "is_default": True,
    "capabilities": {"create": True},
}
"""The project. Tasksets can be created in it."""


async def projects(request: Request) -> Response:
    (limit, offset), search = window(request), request.query_params.get("search", "")
    matches = [ONLY] if search.strip().casefold() in NAME else []
    return page(matches[offset : offset + limit], len(matches), limit, offset)


async def project(request: Request) -> Response:
    ref = path(request, "project_id")
    if (canonical(ref) or ref) not in (ONLY["id"], NAME):
        raise not_found("project", ref[:100])
    return reply(ONLY)


async def create(request: Request) -> Response:
    raise Refused(409, f"this service has one project, {NAME}: remove --project, or name it")


PROJECT_ROUTES = [
    Route("/v2/projects", projects),
    Route("/v2/projects", create, ["POST"]),
    Route("/v2/projects/{project_id}", project),
]


SCENARIO = ("scenario", "task_id", "id")
"""Fields that have the scenario's name in the formats of a row."""


async def list_tasksets(request: Request) -> Response:
    (limit, offset), store = window(request), parts_of(request).store
    rows, total = await store.read(models.page, limit, offset)
    return page([_record(row) for row in rows], total, limit, offset)


async def by_name(request: Request) -> Response:
    name = path(request, "name")
    row = await parts_of(request).store.read(models.by_name, name)
    if row is None:
        raise not_found("taskset", name[:200])
    return reply({"taskset_id": row["id"], **_record(row)})


async def get(request: Request) -> Response:
    id_ = canonical_id("taskset", path(request, "taskset_id"))
    return reply(_record(await parts_of(request).store.read(models.get, id_)))


async def export(request: Request) -> Response:
    store, id_ = parts_of(request).store, canonical_id("taskset", path(request, "taskset_id"))
    row = await store.read(models.get, id_)
    tasks = await store.read(models.rows, id_)
    body = {"taskset_id": id_, "name": row["name"], "tasks": [export_row(*t) for t in tasks]}
    return reply(body)


async def upload(request: Request) -> Response:
    body = await read(request, UploadTasks)
    log_about(request, taskset=body.taskset_name or body.taskset_id)
    rows = await asyncio.to_thread(_slugged, body.tasks)
    result = await parts_of(request).store.write(_upload, body, rows)
    return reply(result, 201)


def export_row(slug: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row in the export's format: named by its slug, with env by name, and its scenario.

    That is what the SDK reads, whatever format was uploaded; all other fields are unchanged. A row
    without an environment has no such format, and is unchanged.
    """
    env, key = row.get("env"), next((key for key in SCENARIO if row.get(key)), None)
    if not env or key is None:
        return row
    rest = {name: value for name, value in row.items() if name not in (key, "slug")}
    plain = env["name"] if isinstance(env, dict) and set(env) == {"name"} else env
    return {**rest, "name": slug, "env": plain, "scenario": row[key]}


def _slugged(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Rows by their slugs. Raises Refused, 400, naming an invalid or duplicate row."""
    try:
        tasks = read_rows(rows)
    except HudUsage as error:
        raise Refused(400, error.in_one) from error
    if twin := twin_of(tasks):
        raise Refused(400, twin[1])
    return [(task.slug, row) for task, row in zip(tasks, rows, strict=True)]


def _upload(db: Db, body: UploadTasks, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    access.refuse_more_disk(db)
    if body.taskset_id:
        taskset = models.get(db, canonical_id("taskset", body.taskset_id))
    elif body.taskset_name:
        taskset = models.by_name(db, body.taskset_name) or models.create(db, body.taskset_name)
    else:
        raise Refused(422, "taskset_name or taskset_id is wanted")
    created, updated = models.put(db, taskset["id"], rows)
    return {
        "taskset_id": taskset["id"],
        "taskset_name": taskset["name"],
        "tasks_created": created,
        "tasks_updated": updated,
        "task_count": taskset["task_count"] + created,
    }


def _record(row: sqlite3.Row) -> dict[str, Any]:
    columns = {name: row[name] for name in ("id", "name", "description", "task_count")}
    return columns | {"can_edit": True, "created_at": iso(row["created_at"])}


TASKSET_ROUTES = [
    Route("/v2/tasksets", list_tasksets),
    Route("/v2/tasksets/by-name/{name:path}", by_name),
    Route("/v2/tasksets/{taskset_id}", get),
    Route("/v2/tasksets/{taskset_id}/export", export),
    Route("/v2/tasks/upload", upload, ["POST"], Role.TRAIN, "upload tasks"),
]

ROUTES = [*ENVIRONMENT_ROUTES, *PROJECT_ROUTES, *TASKSET_ROUTES]
