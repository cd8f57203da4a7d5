"""Managed runs: submit, look at, resume."""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import read, read_bytes, reply
from hud_tui.service.ids import canonical
from hud_tui.service.parts import trainable
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.routes import parts_of, path, service_of
from hud_tui.service.routes.keyed import Keep, once
from hud_tui.service.store import Db, models, runs
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import SubmitJob


async def submit(request: Request) -> Response:
    body, store = await read(request, SubmitJob), parts_of(request).store
    model = trainable(await store.read(models.find, body.model_id))
    runner = service_of(request).runner

    async def act(keep: Keep) -> dict[str, Any]:
        def also(db: Db, job_id: str) -> None:
            keep(db, _submitted(job_id, model))

        async with runner.submitting:
            return _submitted(await runner.submit(model, body, also), model)

    return await once(request, model.id, act, 201)


def _submitted(job_id: str, model: ModelRow) -> dict[str, Any]:
    return {"job_id": job_id, "model": {"id": model.id}}


async def raw_status(request: Request) -> Response:
    """By the job's id, or the latest run of a model by any of its names."""
    store, ref = parts_of(request).store, path(request, "ref")
    id_ = canonical(ref)
    try:
        job = await store.read(runs.training, id_ or (await store.read(models.find, ref)).id)
    except Refused as refused:
        raise not_found("training job", ref[:200]) from refused
    return reply(service_of(request).runner.status(job))


async def resume(request: Request) -> Response:
    parts, runner = parts_of(request), service_of(request).runner
    request.state.body = await read_bytes(request)
    job_id = (await parts.store.read(runs.training, path(request, "job_id")))["id"]
    return await once(request, job_id, partial(runner.resume, job_id))


ROUTES = [
    Route("/v1/training/jobs", submit, methods=["POST"]),
    Route("/v1/training/jobs/{ref:path}/raw-status", raw_status),
    Route("/v1/training/jobs/{job_id}/resume", resume, methods=["POST"]),
]
