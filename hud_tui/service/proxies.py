"""TrustedProxies: the client's own address and scheme, where a proxy that is believed tells them.

uvicorn's ProxyHeadersMiddleware takes the first address of a header in which every one is believed,
and any text as an address; it knows no IPv4 address that IPv6 has mapped.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from hud_tui.service.entrance import Network, address_of, is_in

SAID = (b"x-forwarded-for", b"x-forwarded-proto")
MOST = 20
"""Most addresses of X-Forwarded-For that are looked at, from its end."""


class TrustedProxies:
    """In front of everything: rewrites `client` and `scheme` of requests by believed proxies."""

    def __init__(self, app: ASGIApp, proxies: Sequence[Network]) -> None:
        self._app, self._proxies = app, proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._believes(scope):
            values = {name: b",".join(v for n, v in scope["headers"] if n == name) for name in SAID}
            scope = {
                **scope,
                **self._told(scope, *(values[name].decode("latin-1") for name in SAID)),
            }
        await self._app(scope, receive, send)

    def _believes(self, scope: Scope) -> bool:
        peer = address_of(scope["client"][0]) if scope.get("client") else None
        return peer is not None and is_in(peer, self._proxies)

    def _told(self, scope: Scope, addresses: str, schemes: str) -> Scope:
        """What the proxy says. The last values are its own; those before came with the request."""
        told: Scope = {}
        scheme = schemes.rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            told["scheme"] = scheme
        for text in addresses.split(",")[: -MOST - 1 : -1]:
            address = address_of(text.strip())
            if address is None:
                break  # whoever wrote it is the last that is known
            told["client"] = (str(address), 0)
            if not is_in(address, self._proxies):
                break
        return told
