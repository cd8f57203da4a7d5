"""Gate: authentication, in front of every route.

The Host header must be this machine's, or a name that the service is given, so that a web page
cannot reach the service by DNS rebinding, and an Origin, which browsers send, must be the service's
own. The bearer key must be accepted, except for the command line analytics that HUD's client posts
without one. Bodies are not read here: a refused request costs no more than its headers.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hud_tui.service.access import Access, Unknown
from hud_tui.service.caller import SERVICE, called_by
from hud_tui.service.entrance import address_of
from hud_tui.service.http import Refused, reply
from hud_tui.service.journal import Journal

OPEN_PATH = "/telemetry/v3/api/sdk-events/cli"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
WAIT_S = 0.5
"""Seconds that a key waits for the answer that it sends too many requests at once."""
WAITERS = 128
"""Such requests of one key from which on they wait longer: of all there are as many a second."""


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        journal: Journal,
        host: str = "127.0.0.1",
        names: Collection[str] = (),
    ) -> None:
        """`host`: the address that the service is bound to; `names`: others that it answers to."""
        self._app = app
        self._access = access
        self._journal = journal
        self._host = host
        self._waiting: Counter[str] = Counter()
        """Requests that were refused since there are too many, by the name of their key."""
        self._names = LOOPBACK | {name.casefold().rstrip(".") for name in (host, *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope.get("scheme", "http"), headers)
        if refusal is None and (scope["method"], scope["path"]) == ("POST", OPEN_PATH):
            await self._app(scope, receive, send)
            return
        try:
            caller = self._access.caller(headers.get(b"authorization", b""))
        except Unknown as error:
            caller = SERVICE
            refusal = refusal or self._unknown(scope, headers, str(error))
        if refusal is not None:
            await _closing(refusal, headers)(scope, receive, send)
            return
        try:
            with called_by(caller), self._access.calling(caller):
                await self._app(scope, receive, send)
        except Refused as refused:
            await self._wait(caller.name)
            answer = reply({"detail": refused.detail}, refused.status)
            answer.headers["Retry-After"] = "1"
            await _closing(answer, headers)(scope, receive, send)

    async def _wait(self, name: str) -> None:
        """Wait, so that a flood on connections that stay open becomes a slow one."""
        self._waiting[name] += 1
        try:
            await asyncio.sleep(WAIT_S * max(1.0, self._waiting[name] / WAITERS))
        finally:
            self._waiting[name] -= 1

    def _refusal(self, scheme: str, headers: Mapping[bytes, bytes]) -> Response | None:
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin")
        if not self._knows(host):
            detail = "this service answers to the address it is bound to, and to no other name"
            detail += " but those of serve --allowed-host"
            return reply({"detail": detail}, 421)
        if origin is not None and not _is_own(origin, scheme, host):
            return reply({"detail": "pages of other origins may not call this service"}, 403)
        return None

    def _unknown(self, scope: Scope, headers: Mapping[bytes, bytes], why: str) -> Response:
        """The answer to a key that is not accepted."""
        self._journal.refuse(scope)
        if b"x-api-key" in headers:
            why += "; x-api-key is not read"
        answer = reply({"detail": why}, 401)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.rstrip(".") in self._names:
            return True
        bound = address_of(self._host)  # DNS rebinding needs a host name
        return bound is not None and bound.is_unspecified and address_of(name) is not None


def _closing(answer: Response, headers: Mapping[bytes, bytes]) -> Response:
    """The answer to a request whose body is not read."""
    if b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0":
        # else the answer might be lost with the rest of the body
        answer.headers["Connection"] = "close"
    return answer


def _is_own(origin: bytes, scheme: str, host: str) -> bool:
    """Whether a page of this origin came from here."""
    return origin.decode("latin-1").casefold() == f"{scheme}://{host}".casefold()
