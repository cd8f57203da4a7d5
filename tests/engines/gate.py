"""A gate before a real server: it answers in its place where it is told to, as the cloud might."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.engines.skyrl import SkyRL

POLL_S = 0.1
"""How long an answer of the gate's own takes: the SDK asks again at once."""
METHODS = ["GET", "POST", "DELETE"]
KEPT = ("content-type", "accept", "x-api-key")


class Gate:
    """Carries requests to a server."""

    def __init__(self, server: SkyRL, http: httpx.AsyncClient) -> None:
        self._server = server
        self._http = http
        self._path = ""
        self._kind: str | None = None
        self._times = 0
        self._answer: tuple[int, Any] = (200, None)
        self.url = ""

    def shut(
        self, path: str, status: int, body: Any, kind: str | None = None, times: int = 10**6
    ) -> None:
        """Answer this from now on, to POSTs whose path ends so.

        Args:
            path: Its end; any path where it is empty.
            status, body: The answer.
            kind: Only what the SDK says is a request of this type.
            times: How often.
        """
        self._path, self._kind, self._times = path, kind, times
        self._answer = status, body

    def open(self) -> None:
        self._times = 0

    async def handle(self, request: Request) -> Response:
        if self._stops(request):
            self._times -= 1
            await asyncio.sleep(POLL_S)
            status, body = self._answer
            return JSONResponse(body, status)
        headers = {name: value for name, value in request.headers.items() if name in KEPT}
        path = f"{self._server.url}{request.url.path}"
        body = await request.body()
        answer = await self._http.request(
            request.method, path, params=request.query_params, headers=headers, content=body
        )
        kind = answer.headers.get("content-type")
        return Response(answer.content, answer.status_code, media_type=kind)

    def _stops(self, request: Request) -> bool:
        fits = request.method == "POST" and request.url.path.endswith(self._path)
        kind = request.headers.get("x-tinker-request-type")
        return self._times > 0 and fits and self._kind in (None, kind)


@asynccontextmanager
async def gate_before(server: SkyRL) -> AsyncIterator[Gate]:
    """A gate before a server, while the block lasts."""
    async with httpx.AsyncClient(timeout=120.0) as http:
        gate = Gate(server, http)
        app = Starlette(routes=[Route("/{path:path}", gate.handle, methods=METHODS)])
        serving = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        with socket.create_server(("127.0.0.1", 0)) as place:
            gate.url = f"http://127.0.0.1:{place.getsockname()[1]}"
            task = asyncio.create_task(serving.serve(sockets=[place]))
            try:
                yield gate
            finally:
                serving.should_exit = serving.force_exit = True
                await task
