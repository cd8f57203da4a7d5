"""Whose word is taken for the client's address and scheme."""

from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from hud_tui.service.app import create_app
from hud_tui.service.proxies import TrustedProxies
from hud_tui.service.service import Service
from tests.conftest import bearer

PROXIES = tuple(map(ip_network, ("10.0.0.7/32", "192.168.0.0/24", "fd00::/64")))


async def seen(peer: str | None, *headers: tuple[str, str]) -> tuple[Any, str]:
    """The client and scheme that an app sees of a request by http."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    client = None if peer is None else (peer, 5000)
    scope = {"type": "http", "scheme": "http", "client": client, "headers": sent}
    await TrustedProxies(app, PROXIES)(scope, None, None)  # type: ignore[arg-type]
    return scopes[0]["client"] and scopes[0]["client"][0], scopes[0]["scheme"]


FOR, PROTO = "x-forwarded-for", "x-forwarded-proto"


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.0.200", "::ffff:10.0.0.7", "fd00::1"])
async def test_a_trusted_proxy_tells_the_address_and_the_scheme(peer: str) -> None:
    assert await seen(peer, (FOR, "203.0.113.9"), (PROTO, "https")) == ("203.0.113.9", "https")
    assert await seen(peer, (FOR, "::ffff:203.0.113.9")) == ("203.0.113.9", "http")


@pytest.mark.parametrize("peer", ["10.0.0.8", "127.0.0.1", "::1", "testclient", None])
async def test_nobody_else_does(peer: str | None) -> None:
    assert await seen(peer, (FOR, "203.0.113.9"), (PROTO, "https")) == (peer, "http")


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("6.6.6.6, 203.0.113.9", "203.0.113.9"),  # the first one was sent by the client
        ("6.6.6.6, 203.0.113.9, 192.168.0.3", "203.0.113.9"),
        ("6.6.6.6, nonsense, 192.168.0.3", "192.168.0.3"),
        ("nonsense", "10.0.0.7"),
        ("", "10.0.0.7"),
        ("10.0.0.7, 192.168.0.3", "10.0.0.7"),  # all are proxies: the first asked itself
        ("6.6.6.6" + ", 192.168.0.3" * 50, "192.168.0.3"),
        ("203.0.113.9\x00", "10.0.0.7"),
    ],
)
async def test_the_last_address_that_is_no_proxy_is_the_clients(said: str, client: str) -> None:
    assert (await seen("10.0.0.7", (FOR, said)))[0] == client


async def test_headers_that_are_repeated_are_one_list_in_their_order() -> None:
    client, scheme = await seen(
        "10.0.0.7", (FOR, "6.6.6.6"), (PROTO, "https"), (FOR, "203.0.113.9"), (PROTO, "http")
    )
    assert (client, scheme) == ("203.0.113.9", "http")
    assert await seen("10.0.0.7", (PROTO, "gopher")) == ("10.0.0.7", "http")


async def test_a_page_of_the_service_behind_a_proxy_with_tls_may_call_it(service: Service) -> None:
    loopback = (ip_network("127.0.0.1"),)
    transport = httpx.ASGITransport(
        TrustedProxies(create_app(service, names=("gpu.example.com",)), loopback)
    )
    headers = {**bearer(service.api_key), "Host": "gpu.example.com"}
    async with httpx.AsyncClient(transport=transport, headers=headers) as client:
        for origin, proto, status in (
            ("https://gpu.example.com", "https", 200),
            ("https://gpu.example.com", "http", 403),
            ("http://gpu.example.com", "http", 200),
            ("http://gpu.example.com", "https", 403),
            ("https://gpu.example.com:8443", "https", 403),
        ):
            sent = {"Origin": origin, PROTO: proto}
            answer = await client.get("http://127.0.0.1/v2/auth/me", headers=sent)
            assert answer.status_code == status
        other = await client.get("http://127.0.0.1/v2/auth/me", headers={"Host": "evil.example"})
        assert other.status_code == 421
