"""What a worker's rollouts share, and what they do not."""

import asyncio
import logging
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import httpx
import pytest

from hud_tui.rollouts.rehearsal import rehearse
from hud_tui.rollouts.tls import TRUST, share_contexts
from hud_tui.rollouts.worker import direct, over_one_client

TRANSPORTS = (httpx.HTTPTransport, httpx.AsyncHTTPTransport)
CERTIFICATES = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
ONE = CERTIFICATES[0] + CERTIFICATES[1] + "\n"
"""A file with one trusted certificate."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """The contexts that are made, in this order; while contexts are shared."""
    contexts = list[ssl.SSLContext]()
    make = httpx.create_ssl_context

    def noted(**options: Any) -> ssl.SSLContext:
        contexts.append(make(**options))
        return contexts[-1]

    for transport in TRANSPORTS:
        monkeypatch.setattr(transport, "__init__", transport.__init__)
    monkeypatch.setattr(httpx, "create_ssl_context", noted)
    for name in TRUST:
        monkeypatch.delenv(name, raising=False)
    share_contexts()
    return contexts


def context_of(client: httpx.Client | httpx.AsyncClient) -> ssl.SSLContext:
    context: ssl.SSLContext = client._transport._pool._ssl_context  # type: ignore[union-attr]
    return context


def test_clients_share_one_context_that_verifies(made: list[ssl.SSLContext]) -> None:
    clients = [httpx.Client(), httpx.AsyncClient(), httpx.AsyncClient(verify=True, timeout=3)]
    assert {id(context_of(client)) for client in clients} == {id(made[0])}
    assert len(made) == 1
    assert (made[0].verify_mode, made[0].check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(made[0].get_ca_certs()) > 100


def test_who_asks_for_other_verification_has_a_context_of_its_own(
    made: list[ssl.SSLContext],
) -> None:
    own = ssl.create_default_context()
    unverified = context_of(httpx.AsyncClient(verify=False))
    assert unverified.verify_mode == ssl.CERT_NONE
    assert context_of(httpx.AsyncClient(verify=own)) is own
    assert made == []
    assert context_of(httpx.AsyncClient()).verify_mode == ssl.CERT_REQUIRED
    assert context_of(httpx.AsyncClient(trust_env=False)) is not context_of(httpx.AsyncClient())


def test_other_certificates_are_trusted_as_soon_as_they_are_named_or_written(
    made: list[ssl.SSLContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = context_of(httpx.AsyncClient())
    file = tmp_path / "trusted.pem"
    file.write_text(ONE)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    named = context_of(httpx.AsyncClient())
    assert len(named.get_ca_certs()) == 1
    assert context_of(httpx.AsyncClient()) is named
    file.write_text("".join(CERTIFICATES))
    assert len(context_of(httpx.AsyncClient()).get_ca_certs()) > 100
    monkeypatch.delenv("SSL_CERT_FILE")
    assert context_of(httpx.AsyncClient()) is usual


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://127.0.0.1:7/mcp", "http://127.0.0.1:7/mcp"),
        ("ssh://localhost:7", "ssh://localhost:7"),
        ("http://tools.internal:7/mcp", "tunnel"),
    ],
)
def test_what_a_process_of_this_machine_serves_is_reached_directly(url: str, reached: str) -> None:
    published = [
        SimpleNamespace(name="other", url="http://127.0.0.1:1"),
        SimpleNamespace(name="a", url=url),
    ]
    assert direct(SimpleNamespace(name="a", url="tunnel"), published).url == reached


async def test_requests_share_a_client_unless_they_are_given_one() -> None:
    async def request(method: str, client: object, json: object = None) -> tuple[object, object]:
        return client, json

    requested = over_one_client(request, object)
    first, again, own = await requested("GET"), await requested("POST", json=1), object()
    assert first[0] is again[0]
    assert again[1] == 1
    assert (await requested("GET", client=own))[0] is own


def test_a_rehearsal_leaves_the_process_as_it_was() -> None:
    """Also one that fails, here for want of the SDK."""
    policy = asyncio.get_event_loop_policy()
    rehearse(has_tools=True)
    assert asyncio.get_event_loop_policy() is policy
    assert logging.root.manager.disable == logging.NOTSET
