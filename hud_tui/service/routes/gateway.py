"""The gateway as OpenAI's clients know it: completions and models, with and without ``/v1``.

Errors have HUD's ``detail`` and OpenAI's ``error`` object.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from hud_tui.rl.work import EVALUATION, TRAINING
from hud_tui.service import gateway
from hud_tui.service.completions import Asked, Stream, whole
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import Base, EngineError
from hud_tui.service.http import (
    LONG,
    Refused,
    beside,
    canonical_id,
    dumps,
    read,
    read_bytes,
    reply,
    status_of,
)
from hud_tui.service.journal import GONE
from hud_tui.service.routes import (
    Handler,
    Route,
    absent,
    log_about,
    parts_of,
    path,
    refuse_role,
    service_of,
)
from hud_tui.service.routes.idempotency import Keep, once
from hud_tui.service.routes.jobs import REPORTS
from hud_tui.service.service import Service
from hud_tui.service.store import access, jobs, models, traces
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Json
from hud_tui.wire_access import Role
from hud_tui.wire_changes import CancelJob
from hud_tui.wire_rollouts import CancelRollout, Spans, SubmitRollout
from hud_tui.wire_training import Chat, Completion

T = TypeVar("T")
MOST_MODELS = 10_000
ABORT = "abort"
"""Key of what closes a request's connection at once, in the state of its scope."""
UNREAD_S = 30.0
"""Seconds after which a client that reads nothing of its stream is cut off."""


OPENAI: dict[int, tuple[str, str | None]] = {
    410: ("invalid_request_error", "expired"),
    422: ("invalid_request_error", "not_finite"),
    500: ("server_error", None),
    503: ("server_error", "engine_lost"),
}
"""OpenAI's type and code of an engine's failure, by its status."""


class HungUp(Exception):
    """The client has closed the connection."""


def openai(handler: Handler) -> Handler:
    """Decorator: errors of a handler also get OpenAI's format."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except HungUp:
            return Response(status_code=GONE)
        except (Refused, EngineError) as error:
            status, body = _explained(error)
            return reply(body, status)

    return answer


def _explained(error: Refused | EngineError) -> tuple[int, Json]:
    """Status and body of the answer to what failed."""
    if isinstance(error, Refused):
        kind, code = "invalid_request_error", error.code
        if error.status == 404 and code is None:
            code = "not_found"
        status, detail, message, param = error.status, error.detail, str(error), error.param
    else:
        status, message = status_of(error)
        message += ". Nothing was stored: ask again" * (status == 503)
        (kind, code), detail, param = OPENAI[status], message, None
    shown = {"message": message, "type": kind, "param": param, "code": code}
    return status, {"detail": detail, "error": shown}


@openai
async def chat(request: Request) -> Response:
    return await _complete(request, await read(request, Chat))


@openai
async def completion(request: Request) -> Response:
    return await _complete(request, await read(request, Completion))


@openai
async def list_models(request: Request) -> Response:
    """Every model that can be called, bases first."""
    parts = parts_of(request)
    rows, _ = await parts.store.read(models.catalog, MOST_MODELS, 0)
    bases = parts.bases()
    shown = [_model(row, bases[row.base]) for row in rows if row.base in bases]
    return reply({"object": "list", "data": shown})


@openai
async def get_model(request: Request) -> Response:
    parts = parts_of(request)
    model = await parts.store.read(models.find, path(request, "model_id"))
    return reply(_model(model, parts.base(model)))


async def _complete(request: Request, body: Chat | Completion) -> Response:
    parts, trace_id = parts_of(request), request.headers.get("trace-id")
    if trace_id is not None:  # its turn is stored, and may be trained on
        refuse_role(Role.TRAIN, "sample rollouts")
    asked = await gateway.read(parts, body, trace_id, partial(beside, request, LONG))
    if not body.stream:
        sampled = await _while_there(request, gateway.complete(parts, asked))
        return reply(whole(asked, sampled))
    stream = TokenStream(parts, asked)
    try:
        await _while_there(request, stream.begun())
    except BaseException:
        await stream.stop()
        raise
    return stream


class TokenStream(StreamingResponse):
    """Sends chunks while their tokens are sampled, for as long as somebody reads them.

    The sampling never waits for the reader: what was not sent is kept, at most the tokens that were
    asked for. One who takes nothing for `UNREAD_S` is cut off. Once nobody reads, nothing more is
    sampled, and no turn is stored; the whole answer was, if it had been sampled by then.
    """

    def __init__(self, parts: ServiceContext, asked: Asked) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._events(), headers=headers, media_type="text/event-stream")
        self._changed = asyncio.Event()
        self._stream = Stream(asked, self._changed.set)
        sampling = gateway.complete(parts, asked, self._stream)
        self._sampling = asyncio.create_task(sampling, name="token stream")
        self._sampling.add_done_callback(lambda _: self._changed.set())

    async def begun(self) -> None:
        """Wait for the first token, or the end. Raises as `gateway.complete`."""
        await self._changed.wait()
        if self._sampling.done():
            self._sampling.result()

    async def stop(self) -> None:
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort, loop = scope.get("state", {}).get(ABORT), asyncio.get_running_loop()

        async def send_in_time(message: Message) -> None:
            limit = loop.call_later(UNREAD_S, abort) if abort else None
            try:
                await send(message)
            finally:
                if limit is not None:
                    limit.cancel()

        try:
            await super().__call__(scope, receive, send_in_time)
        finally:
            await self.stop()

    async def _events(self) -> AsyncIterator[bytes]:
        while not self._sampling.done():
            self._changed.clear()
            for chunks in self._stream.news():
                yield _lines(chunks)
            await self._changed.wait()
        try:
            for chunks in self._stream.end(self._sampling.result()):
                yield _lines(chunks)
            yield b"data: [DONE]\n\n"
        except (Refused, EngineError) as error:
            yield _lines([_explained(error)[1]])


def _lines(events: Sequence[Json]) -> bytes:
    return b"".join(b"data: " + dumps(event) + b"\n\n" for event in events)


async def _while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await work until the client disconnects. Raises HungUp."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HungUp
        return task.result()
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    """Return when the client disconnects; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _model(model: ModelRow, base: Base) -> dict[str, Any]:
    return {
        "id": model.slug,
        "object": "model",
        "created": int(model.created_at),
        "owned_by": model.base.partition("/")[0],
        "root": base.name,
        "parent": model.forked_from,
        "max_model_len": base.context,
    }


OTHER_WIRE = "POST /v1/chat/completions takes the conversation, in OpenAI's format"
CHAT_ROUTES = [
    route
    for prefix in ("", "/v1")
    for route in (
        Route(f"{prefix}/chat/completions", chat, ["POST"]),
        Route(f"{prefix}/completions", completion, ["POST"]),
        Route(f"{prefix}/models", list_models),
        Route(f"{prefix}/models/{{model_id:path}}", get_model),
        Route(f"{prefix}/messages", absent(OTHER_WIRE), ["POST"]),
        Route(f"{prefix}/responses", absent(OTHER_WIRE), ["POST"]),
    )
]


# Rollouts: the service runs them, or stops running ones.


EVERY_JOB = "every job"


async def submit(request: Request) -> Response:
    body = await read(request, SubmitRollout)
    status = await service_of(request).hosted.submit(body)
    ids = {
        "job_id": canonical_id("job", body.job_id),
        "trace_id": canonical_id("trace", body.trace_id),
    }
    return reply({**ids, "status": status}, 201)


async def cancel_job(request: Request) -> Response:
    body = await read(request, CancelJob)
    log_about(request, job=body.job_id)
    service, job_id = service_of(request), canonical_id("job", body.job_id)

    async def act() -> dict[str, Any]:
        count = await _cancel(service, job_id)
        return {"cancelled": count, "status": _status(count)}

    return await _once(request, job_id, act)


async def cancel(request: Request) -> Response:
    """Cancel one rollout that a client reported or submitted; or a job, if no trace is given."""
    body = await read(request, CancelRollout)
    log_about(request, job=body.job_id, rollout=body.trace_id)
    service = service_of(request)
    kind, ref = ("job", body.job_id or "") if body.trace_id is None else ("trace", body.trace_id)
    id_ = canonical_id(kind, ref)

    async def act() -> dict[str, Any]:
        if kind == "job":
            return {"status": _status(await _cancel(service, id_))}
        status = await service.parts.store.write(traces.cancel, id_)
        service.hosted.cancel(id_)
        return {"status": status}

    return await _once(request, id_, act)


async def cancel_all(request: Request) -> Response:
    service = service_of(request)
    request.state.body = await read_bytes(request)
    return await _once(request, EVERY_JOB, partial(_cancel_all, service))


async def _cancel_all(service: Service) -> dict[str, Any]:
    active = await service.parts.store.read(jobs.own_unfinished)
    details: list[dict[str, Any]] = [
        {"job_id": id_, "cancelled": await _cancel(service, id_)} for id_ in active
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
    """As `once`, for changes that take several transactions: repeating them changes nothing."""
    store = parts_of(request).store

    async def act_and_keep(keep: Keep) -> dict[str, Any]:
        body = await act()
        await store.write(keep, body)
        return body

    return await once(request, scope, act_and_keep)


def _status(count: int) -> str:
    return "cancelled" if count else "not_running"


async def _cancel(service: Service, job_id: str) -> int:
    """Number of cancelled items: a run or an evaluation counts as one, any other job as its
    rollouts."""
    job = await service.parts.store.read(jobs.get, job_id)
    await service.parts.store.read(access.refuse_others, job["id"], "cancel")
    if job["driver"] is not None:
        return int(await service.parts.store.write(jobs.ask_to_cancel, job["id"]))
    if job["kind"] in (TRAINING, EVALUATION):
        return int(await service.works.cancel(job["id"]))
    return await service.hosted.cancel_job(job["id"])


ROLLOUT_ROUTES = [
    Route("/v2/rollouts/submit", submit, ["POST"], Role.TRAIN, "submit a rollout", False),
    Route("/v2/rollouts/cancel_job", cancel_job, ["POST"], Role.TRAIN, "cancel a job"),
    Route("/v2/rollouts/cancel", cancel, ["POST"], Role.TRAIN, "cancel a job"),
    Route("/v2/rollouts/cancel_user_jobs", cancel_all, ["POST"], Role.TRAIN, "cancel a job"),
]


# Telemetry: spans of a client's rollouts are stored; command line analytics are ignored.


PREFIX = "/telemetry/v3/api"


async def upload(request: Request) -> Response:
    trace_id = canonical_id("trace", path(request, "trace_id"))
    body = await read(request, Spans)
    await parts_of(request).store.write(_keep, trace_id, body.telemetry)
    return reply({"accepted": len(body.telemetry)})


def _keep(db: Db, trace_id: str, spans: Sequence[Json]) -> None:
    traces.refuse_of_others(db, trace_id)
    access.refuse_more_disk(db)
    traces.add_spans(db, trace_id, spans)


async def analytics(request: Request) -> Response:
    """Accepted without being read, since HUD's client sends it without a key."""
    return reply({}, 202)


_UPLOADS = PREFIX + "/trace/{trace_id}/telemetry-upload"
TELEMETRY_ROUTES = [
    Route(_UPLOADS, upload, ["POST"], Role.TRAIN, REPORTS, False),
    Route(f"{PREFIX}/sdk-events/cli", analytics, ["POST"]),
]

ROUTES = [*ROLLOUT_ROUTES, *TELEMETRY_ROUTES, *CHAT_ROUTES]
