"""Rollouts: the service makes them, or stops what is under way."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import read, reply
from hud_tui.service.ids import wanted_id
from hud_tui.service.routes import parts_of, service_of
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, traces
from hud_tui.wire import CancelJob, CancelRollout, SubmitRollout


async def submit(request: Request) -> Response:
    body = await read(request, SubmitRollout)
    status = await service_of(request).hosted.submit(body)
    ids = {"job_id": wanted_id("job", body.job_id), "trace_id": wanted_id("trace", body.trace_id)}
    return reply({**ids, "status": status}, 201)


async def cancel_job(request: Request) -> Response:
    body = await read(request, CancelJob)
    count = await _cancel(service_of(request), wanted_id("job", body.job_id))
    return reply({"cancelled": count, "status": "cancelled" if count else "not_running"})


async def cancel(request: Request) -> Response:
    """One rollout that a client reports or asked for; or a job, where no trace is named."""
    body = await read(request, CancelRollout)
    if body.trace_id is None:
        count = await _cancel(service_of(request), wanted_id("job", body.job_id or ""))
        return reply({"status": "cancelled" if count else "not_running"})
    trace_id = wanted_id("trace", body.trace_id)
    status = await parts_of(request).store.write(traces.cancel, trace_id)
    service_of(request).hosted.cancel(trace_id)
    return reply({"status": status})


async def cancel_all(request: Request) -> Response:
    service = service_of(request)
    active = await service.parts.store.read(jobs.unfinished)
    details: list[dict[str, Any]] = [
        {"job_id": job["id"], "cancelled": await _cancel(service, job["id"])} for job in active
    ]
    total = sum(int(detail["cancelled"]) for detail in details)
    return reply(
        {
            "jobs_cancelled": sum(detail["cancelled"] > 0 for detail in details),
            "total_tasks_cancelled": total,
            "job_details": details,
            "status": "cancelled" if total else "not_running",
        }
    )


async def _cancel(service: Service, job_id: str) -> int:
    """How many things were stopped: a managed run is one, any other job its rollouts."""
    job = await service.parts.store.read(jobs.get, job_id)
    if job["kind"] == "training":
        return int(await service.runner.cancel(job["id"]))
    return await service.hosted.cancel_job(job["id"])


ROUTES = [
    Route("/v2/rollouts/submit", submit, methods=["POST"]),
    Route("/v2/rollouts/cancel_job", cancel_job, methods=["POST"]),
    Route("/v2/rollouts/cancel", cancel, methods=["POST"]),
    Route("/v2/rollouts/cancel_user_jobs", cancel_all, methods=["POST"]),
]
