"""Tasksets: look up, list, export, upload."""

import asyncio
import sqlite3
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.errors import HudUsage
from hud_tui.rl.formats import read_rows
from hud_tui.service.bodies import page, read, reply, window
from hud_tui.service.clock import iso
from hud_tui.service.ids import wanted_id
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.routes import parts_of, path
from hud_tui.service.store import Db, tasksets
from hud_tui.wire import UploadTasks

SCENARIO = ("scenario", "task_id", "id")
"""Where the forms of a row have the scenario's name."""


async def list_tasksets(request: Request) -> Response:
    (limit, offset), store = window(request), parts_of(request).store
    rows, total = await store.read(tasksets.page, limit, offset)
    return page([_record(row) for row in rows], total, limit, offset)


async def by_name(request: Request) -> Response:
    name = path(request, "name")
    row = await parts_of(request).store.read(tasksets.by_name, name)
    if row is None:
        raise not_found("taskset", name[:200])
    return reply({"taskset_id": row["id"], **_record(row)})


async def get(request: Request) -> Response:
    id_ = wanted_id("taskset", path(request, "taskset_id"))
    return reply(_record(await parts_of(request).store.read(tasksets.get, id_)))


async def export(request: Request) -> Response:
    store, id_ = parts_of(request).store, wanted_id("taskset", path(request, "taskset_id"))
    row = await store.read(tasksets.get, id_)
    tasks = await store.read(tasksets.rows, id_)
    body = {"taskset_id": id_, "name": row["name"], "tasks": [export_row(*one) for one in tasks]}
    return reply(body)


async def upload(request: Request) -> Response:
    body = await read(request, UploadTasks)
    rows = await asyncio.to_thread(_slugged, body.tasks)
    result = await parts_of(request).store.write(_upload, body, rows)
    return reply(result, 201)


def export_row(slug: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as the export has it: named by its slug, with env by name, and its scenario.

    That is what the SDK reads, whatever form was uploaded; every other field comes back as it
    came. A row without an environment has no such form, and comes back whole.
    """
    env, key = row.get("env"), next((key for key in SCENARIO if row.get(key)), None)
    if not env or key is None:
        return row
    rest = {name: value for name, value in row.items() if name not in (key, "slug")}
    plain = env["name"] if isinstance(env, dict) and set(env) == {"name"} else env
    return {**rest, "name": slug, "env": plain, "scenario": row[key]}


def _slugged(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Rows by their slugs. Raises Refused, 400, naming a row that is none or comes twice."""
    try:
        tasks = read_rows(rows)
    except HudUsage as error:
        raise Refused(400, f"{error.message} ({error.hint})") from error
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        first = seen.setdefault(task.slug, number)
        if first != number:
            raise Refused(400, f"row {number}: slug {task.slug} is row {first}'s already")
    return [(task.slug, row) for task, row in zip(tasks, rows, strict=True)]


def _upload(db: Db, body: UploadTasks, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    if body.taskset_id:
        taskset = tasksets.get(db, wanted_id("taskset", body.taskset_id))
    elif body.taskset_name:
        taskset = tasksets.by_name(db, body.taskset_name) or tasksets.create(db, body.taskset_name)
    else:
        raise Refused(422, "taskset_name or taskset_id is wanted")
    created, updated = tasksets.put(db, taskset["id"], rows)
    return {
        "taskset_id": taskset["id"],
        "taskset_name": taskset["name"],
        "tasks_created": created,
        "tasks_updated": updated,
        "task_count": taskset["task_count"] + created,
    }


def _record(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "task_count": row["task_count"],
        "can_edit": True,
        "created_at": iso(row["created_at"]),
    }


ROUTES = [
    Route("/v2/tasksets", list_tasksets),
    Route("/v2/tasksets/by-name/{name:path}", by_name),
    Route("/v2/tasksets/{taskset_id}", get),
    Route("/v2/tasksets/{taskset_id}/export", export),
    Route("/v2/tasks/upload", upload, methods=["POST"]),
]
