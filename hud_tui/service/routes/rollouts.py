"""Rollouts: the service makes them, or stops what is under way."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import read, read_bytes, reply
from hud_tui.service.ids import wanted_id
from hud_tui.service.routes import parts_of, service_of
from hud_tui.service.routes.keyed import Keep, once
from hud_tui.service.service import Service
from hud_tui.service.store import jobs, traces
from hud_tui.wire import CancelJob, CancelRollout, SubmitRollout

EVERY_JOB = "every job"


async def submit(request: Request) -> Response:
    body = await read(request, SubmitRollout)
    status = await service_of(request).hosted.submit(body)
    ids = {"job_id": wanted_id("job", body.job_id), "trace_id": wanted_id("trace", body.trace_id)}
    return reply({**ids, "status": status}, 201)


async def cancel_job(request: Request) -> Response:
    body = await read(request, CancelJob)
    service, job_id = service_of(request), wanted_id("job", body.job_id)

    async def act() -> dict[str, Any]:
        count = await _cancel(service, job_id)
        return {"cancelled": count, "status": _status(count)}

    return await _once(request, job_id, act)


async def cancel(request: Request) -> Response:
    """One rollout that a client reports or asked for; or a job, where no trace is named."""
    body = await read(request, CancelRollout)
    service = service_of(request)
    if body.trace_id is None:
        job_id = wanted_id("job", body.job_id or "")

        async def act() -> dict[str, Any]:
            return {"status": _status(await _cancel(service, job_id))}

        return await _once(request, job_id, act)
    trace_id = wanted_id("trace", body.trace_id)

    async def act_on_one() -> dict[str, Any]:
        status = await service.parts.store.write(traces.cancel, trace_id)
        service.hosted.cancel(trace_id)
        return {"status": status}

    return await _once(request, trace_id, act_on_one)


async def cancel_all(request: Request) -> Response:
    service = service_of(request)
    request.state.body = await read_bytes(request)
    return await _once(request, EVERY_JOB, partial(_cancel_all, service))


async def _cancel_all(service: Service) -> dict[str, Any]:
    active = await service.parts.store.read(jobs.unfinished)
    details: list[dict[str, Any]] = [
        {"job_id": job["id"], "cancelled": await _cancel(service, job["id"])} for job in active
    ]
    total = sum(int(detail["cancelled"]) for detail in details)
    return {
        "jobs_cancelled": sum(detail["cancelled"] > 0 for detail in details),
        "total_tasks_cancelled": total,
        "job_details": details,
        "status": _status(total),
    }


async def _once(
    request: Request, scope: str, act: Callable[[], Awaitable[dict[str, Any]]]
) -> Response:
    """As `once`, for what is no single transaction: it changes nothing when it is done again."""
    store = parts_of(request).store

    async def act_and_keep(keep: Keep) -> dict[str, Any]:
        body = await act()
        await store.write(keep, body)
        return body

    return await once(request, scope, act_and_keep)


def _status(count: int) -> str:
    return "cancelled" if count else "not_running"


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
