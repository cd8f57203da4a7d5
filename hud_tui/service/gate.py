"""Gate: authentication, in front of every route.

The Host header must be this machine's, so that a web page cannot reach the service by DNS
rebinding, and an Origin, which browsers send, must be the service's own. The bearer key must be
right, except for the command line analytics that HUD's client posts without one. Bodies are not
read here: a refused request costs no more than its headers.
"""

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hud_tui.service.http import reply

OPEN_PATH = "/telemetry/v3/api/sdk-events/cli"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Gate:
    def __init__(self, app: ASGIApp, api_key: str, host: str = "127.0.0.1") -> None:
        """`host`: the address that the service is bound to."""
        self._app = app
        self._api_key = api_key.encode()
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope, dict(scope["headers"]))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin")
        if not self._knows(host):
            detail = "this service answers to the address it is bound to, and to no other name"
            answer = reply({"detail": detail}, 421)
        elif origin is not None and origin.decode("latin-1").casefold() != f"http://{host}".lower():
            answer = reply({"detail": "pages of other origins may not call this service"}, 403)
        elif not self._may_pass(scope, headers.get(b"authorization", b"")):
            detail = "missing or wrong API key: send Authorization: Bearer KEY"
            if b"x-api-key" in headers:
                detail += "; x-api-key is not read"
            answer = reply({"detail": detail}, 401)
            answer.headers["WWW-Authenticate"] = "Bearer"
        else:
            return None
        if b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0":
            # else the answer might be lost with the rest of the body
            answer.headers["Connection"] = "close"
        return answer

    def _knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or name == self._host.casefold():
            return True
        return _is_wildcard(self._host) and _is_address(name)

    def _may_pass(self, scope: Scope, header: bytes) -> bool:
        if scope["method"] == "POST" and scope["path"] == OPEN_PATH:
            return True
        scheme, _, key = header.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._api_key)


def _is_wildcard(host: str) -> bool:
    return _is_address(host) and ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    """Whether it is an IP address. DNS rebinding needs a host name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
