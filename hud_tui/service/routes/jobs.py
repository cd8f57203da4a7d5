"""Jobs: list, look at, rename; and the reports of a client that runs its own."""

import sqlite3
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.rl.run import reason
from hud_tui.service.bodies import number, page, read, reply, window
from hud_tui.service.clock import iso
from hud_tui.service.ids import canonical, wanted_id
from hud_tui.service.records import trace_record
from hud_tui.service.routes import absent, parts_of, path, service_of
from hud_tui.service.runner import Runner
from hud_tui.service.store import jobs, traces
from hud_tui.wire import JobEnter
from hud_tui.wire import Request as Body

IN_THE_LIST = "GET /v2/jobs has every job with its status"


class Renamed(Body):
    """PATCH /v2/jobs/{id}."""

    name: str = Field(min_length=1, max_length=200)


async def list_jobs(request: Request) -> Response:
    (limit, offset), store = window(request), parts_of(request).store
    taskset_id = canonical(request.query_params.get("taskset_id", ""))
    rows, total = await store.read(jobs.page, limit, offset, taskset_id)
    runner = service_of(request).runner
    return page([_record(row, runner) for row in rows], total, limit, offset)


async def get_job(request: Request) -> Response:
    job = await parts_of(request).store.read(jobs.listed, path(request, "job_id"))
    return reply(_record(job, service_of(request).runner))


async def job_traces(request: Request) -> Response:
    """Oldest first; ``?step=`` picks one step of a managed run."""
    job, (limit, offset) = await _find(request), window(request, 50, 10_000)
    step = number(request, "step", 0, 2**31) if "step" in request.query_params else None
    store = parts_of(request).store
    rows, total = await store.read(traces.of_job, job["id"], limit, offset, step)
    return page([trace_record(row) for row in rows], total, limit, offset)


async def summary(request: Request) -> Response:
    job = await _find(request)
    counts = dict(await parts_of(request).store.read(traces.summary, job["id"]))
    return reply({**counts, "initializing": 0, "cancelling": 0})


async def enter(request: Request) -> Response:
    job_id = wanted_id("job", path(request, "job_id"))
    body = await read(request, JobEnter)
    group = body.group if body.group is None else max(-(2**31), min(body.group, 2**31))
    taskset_id = canonical(body.taskset_id or "")
    await parts_of(request).store.write(jobs.enter, job_id, body.name, group, taskset_id)
    return reply({"job_id": job_id})


async def rename(request: Request) -> Response:
    """PATCH takes a name; nothing else of a job can be changed."""
    body = await read(request, Renamed)
    job = await _find(request)
    await parts_of(request).store.write(jobs.rename, job["id"], body.name)
    return await get_job(request)


async def _find(request: Request) -> sqlite3.Row:
    job_id = path(request, "job_id")
    return await parts_of(request).store.read(jobs.get, job_id)


def _record(row: sqlite3.Row, runner: Runner) -> dict[str, Any]:
    metadata = None
    if row["kind"] == "training":
        metadata = {
            "kind": "training",
            "model_id": row["model_id"],
            "model": row["slug"],
            "step": row["step"],
            "steps": row["steps"],
            "attempt": row["attempt"],
            "sampled_step": row["sampled_step"],
            "reason": reason(runner.status(row)) or None,
        }
    elif row["shown_status"] == "error":
        metadata = {"kind": row["kind"], "reason": row["first_error"]}
    return {
        "id": row["id"],
        "name": row["name"],
        "status": runner.shown(row),
        "created_at": iso(row["created_at"]),
        "group_size": row["group_size"],
        "is_remote": False,
        "taskset_id": row["taskset_id"],
        "taskset_name": row["taskset_name"],
        "num_traces": row["num_traces"],
        "metadata": metadata,
    }


ROUTES = [
    Route("/v2/jobs", list_jobs),
    *(Route(f"/v2/jobs/{name}", absent(IN_THE_LIST)) for name in ("active", "enriched")),
    Route("/v2/jobs/{job_id}", get_job),
    Route("/v2/jobs/{job_id}", rename, methods=["PATCH"]),
    Route("/v2/jobs/{job_id}/traces", job_traces),
    Route("/v2/jobs/{job_id}/summary", summary),
    Route("/v2/trace/job/{job_id}/enter", enter, methods=["POST"]),
]
