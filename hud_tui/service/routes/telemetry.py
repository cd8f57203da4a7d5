"""Telemetry: spans of a client's rollouts, kept; command line analytics, dropped."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service.bodies import read, reply
from hud_tui.service.ids import wanted_id
from hud_tui.service.records import span_events
from hud_tui.service.routes import parts_of, path
from hud_tui.service.store import Db, spans, traces
from hud_tui.wire import Json, Many
from hud_tui.wire import Request as Body

PREFIX = "/telemetry/v3/api"


class Upload(Body):
    """POST /trace/{id}/telemetry-upload."""

    telemetry: Many[Json]


async def upload(request: Request) -> Response:
    trace_id = wanted_id("trace", path(request, "trace_id"))
    body = await read(request, Upload)
    await parts_of(request).store.write(_keep, trace_id, body.telemetry)
    return reply({"accepted": len(body.telemetry)})


def _keep(db: Db, trace_id: str, told: Sequence[Json]) -> None:
    """Keep the spans, and what they say was answered last, for the lists of rollouts."""
    spans.add(db, trace_id, told)
    events = span_events(spans.of_trace(db, trace_id))
    said = [event["text"] for event in events if event["kind"] == "agent_message"]
    tokens = sum(len(sample.output_token_ids) for sample in spans.samples(db, trace_id))
    traces.answered(db, trace_id, next(filter(None, reversed(said)), None), tokens or None)


async def analytics(request: Request) -> Response:
    """Taken, so that the client is content, and not even read: who sends it needs no key."""
    return reply({}, 202)


ROUTES = [
    Route(f"{PREFIX}/trace/{{trace_id}}/telemetry-upload", upload, methods=["POST"]),
    Route(f"{PREFIX}/sdk-events/cli", analytics, methods=["POST"]),
]
