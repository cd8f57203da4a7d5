"""Managed runs: submit, look at, resume."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import read, reply
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.routes import parts_of, path, service_of
from hud_tui.service.store import models, runs
from hud_tui.wire import SubmitJob


async def submit(request: Request) -> Response:
    body = await read(request, SubmitJob)
    job_id, model = await service_of(request).runner.submit(body)
    return reply({"job_id": job_id, "model": {"id": model.id}}, 201)


async def raw_status(request: Request) -> Response:
    """By the job's id, or the latest run of a model by any of its names."""
    store, ref = parts_of(request).store, path(request, "ref")
    id_ = canonical(ref)
    try:
        job = await store.read(runs.training, id_ or (await store.read(models.find, ref)).id)
    except Refused as refused:
        raise not_found("training job", ref[:200]) from refused
    return reply(runs.status(job))


async def resume(request: Request) -> Response:
    job_id = path(request, "job_id")
    return reply(await service_of(request).runner.resume(job_id))


ROUTES = [
    Route("/v1/training/jobs", submit, methods=["POST"]),
    Route("/v1/training/jobs/{ref:path}/raw-status", raw_status),
    Route("/v1/training/jobs/{job_id}/resume", resume, methods=["POST"]),
]
