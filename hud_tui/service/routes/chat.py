"""Chat completions, under both paths that people use."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.service import gateway
from hud_tui.service.bodies import read, reply
from hud_tui.service.refusals import Refused
from hud_tui.service.routes import parts_of
from hud_tui.wire import Chat


async def chat(request: Request) -> Response:
    """Errors come in HUD's form and in OpenAI's: a ``detail`` and an ``error`` object."""
    try:
        body = await read(request, Chat)
        trace_id = request.headers.get("trace-id")
        return reply(await gateway.complete(parts_of(request), body, trace_id))
    except Refused as refused:
        error = {
            "message": str(refused),
            "type": "invalid_request_error",
            "param": None,
            "code": refused.code,
        }
        return reply({"detail": refused.detail, "error": error}, refused.status)


ROUTES = [Route(prefix + "/chat/completions", chat, methods=["POST"]) for prefix in ("", "/v1")]
