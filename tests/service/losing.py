"""A line to the service that loses what it is told to lose, and counts what it carries."""

from collections import Counter
from typing import Literal

import httpx

from hud_tui.service.app import create_app
from hud_tui.service.service import Service

Where = Literal["request", "answer", "late"]


class Losing(httpx.AsyncBaseTransport):
    """Carries requests to a service in process."""

    def __init__(self, service: Service) -> None:
        self._line = httpx.ASGITransport(create_app(service))
        self._next: tuple[str, Where, httpx.Response | Exception] | None = None
        self.keyless = False
        """Whether the service is one that keeps no keys, as HUD."""
        self.sent: Counter[str] = Counter()
        """Writes that were sent, by the last part of their path."""
        self.keys: list[str | None] = []
        """The Idempotency-Key of every request."""

    def lose(
        self, path: str, where: Where, instead: httpx.Response | Exception | None = None
    ) -> None:
        """Once: the next write to a path that ends so does not arrive, or its answer does not.

        Args:
            path: The last part of the path, e.g. ``optim-step``.
            where: What is lost; late: the request, until `deliver`.
            instead: What the client gets; None for a line that breaks.
        """
        self._next = path, where, instead or httpx.ReadError("the line broke")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        self.keys.append(request.headers.get("idempotency-key"))
        if self.keyless and name == "settle":
            return httpx.Response(404, json={"detail": "Not Found"}, request=request)
        if request.method != "GET":
            self.sent[name] += 1
        if self._next is None or self._next[0] != name or request.method == "GET":
            return await self._line.handle_async_request(request)
        (_, where, instead), self._next = self._next, None
        if where == "late":
            self._held = httpx.Request(
                request.method, request.url, headers=request.headers, content=await request.aread()
            )
        if where == "answer":
            await (await self._line.handle_async_request(request)).aread()
        if isinstance(instead, Exception):
            raise instead
        return instead

    async def deliver(self) -> httpx.Response:
        """Let the request arrive that was lost for being late; its answer."""
        answer = await self._line.handle_async_request(self._held)
        await answer.aread()
        return answer
