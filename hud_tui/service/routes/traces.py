"""Traces: a client reports its rollouts here, and anybody reads them."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.events import RolloutDone
from hud_tui.service.bodies import read, reply
from hud_tui.service.clock import now
from hud_tui.service.engines.base import EngineError, Tokenizer
from hud_tui.service.ids import canonical, wanted_id
from hud_tui.service.parts import Parts
from hud_tui.service.records import span_events, turn_events, whole_trace, with_pieces
from hud_tui.service.refusals import Refused
from hud_tui.service.routes import parts_of, path
from hud_tui.service.store import Db, events, models, spans, traces, turns
from hud_tui.wire import TraceEnter, TraceExit


async def enter(request: Request) -> Response:
    body = await read(request, TraceEnter)
    job_id = canonical(body.job_id or "")
    await parts_of(request).store.write(traces.enter, _id(request), job_id, body)
    return reply({"trace_id": _id(request)})


async def leave(request: Request) -> Response:
    """Said twice, it counts once."""
    body = await read(request, TraceExit)
    await parts_of(request).store.write(_leave, _id(request), body)
    return reply({"trace_id": _id(request)})


async def get(request: Request) -> Response:
    return reply(whole_trace(await parts_of(request).store.read(traces.get, _id(request))))


async def trace_events(request: Request) -> Response:
    """``?since_seq=`` leaves out what the reader has; the default is all."""
    parts, trace_id = parts_of(request), _id(request)
    since = request.query_params.get("since_seq", "-1")
    trace = await parts.store.read(traces.get, trace_id)
    found = await _events(parts, trace_id)
    try:
        shown = [event for event in found if event["seq"] > int(since[:18])]
    except ValueError as error:
        raise Refused(422, "since_seq must be a whole number") from error
    return reply(
        {
            "events": shown,
            "latest_seq": len(found) - 1,
            "status": trace["status"],
            "reward": trace["reward"],
        }
    )


async def _events(parts: Parts, trace_id: str) -> list[dict[str, Any]]:
    """What the client uploaded, else what the service itself sampled."""
    uploaded = await parts.store.read(spans.of_trace, trace_id)
    sampled = await parts.store.read(turns.of_trace, trace_id)
    answered = turn_events(
        sampled, await _tokenizer(parts, sampled[0]["base"]) if sampled else None
    )
    if any(str(span.get("name")).startswith("step.") for span in uploaded):
        return with_pieces(span_events(uploaded), answered)
    return answered


async def _tokenizer(parts: Parts, base: str) -> Tokenizer | None:
    """None where another engine sampled, or its tokenizer cannot be read: the texts are kept."""
    if base not in parts.bases():
        return None
    try:
        return await parts.engine.tokenizer(base)
    except EngineError:
        return None


def _leave(db: Db, trace_id: str, body: TraceExit) -> None:
    """Write the end of a rollout, and tell who follows the model that it was sampled from."""
    first = traces.leave(db, trace_id, body)
    trace = traces.get(db, trace_id)
    if not first or not trace["model"]:
        return
    try:
        model = models.find(db, trace["model"])
    except Refused:
        return  # another service's model
    done = RolloutDone(
        at=now(),
        job_id=trace["job_id"],
        trace_id=trace_id,
        step=model.checkpoint_count + 1,
        task_slug=trace["task_slug"],
        rollout=traces.place(db, trace),
        reward=trace["reward"],
        status=trace["status"],
        num_tokens=trace["num_tokens"],
    )
    events.append(db, model.id, [done])


def _id(request: Request) -> str:
    return wanted_id("trace", path(request, "trace_id"))


ROUTES = [
    Route("/v2/trace/{trace_id}/enter", enter, methods=["POST"]),
    Route("/v2/trace/{trace_id}/exit", leave, methods=["POST"]),
    Route("/v2/trace/{trace_id}", get),
    Route("/v2/trace/{trace_id}/events", trace_events),
]
