"""Requests on the wire: send, and retry where that is safe."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import httpx

from hud_tui.client.answer import Answer, Arrived, etag_of, read_body, request_id
from hud_tui.client.bodies import parse
from hud_tui.client.failures import Failures, is_unclear, origin_of, path_of
from hud_tui.client.guard import Guard
from hud_tui.client.lookup import Lookup, find_out
from hud_tui.client.retry import retry_delay
from hud_tui.client.writing import Writing
from hud_tui.errors import UNCLEAR, HudError, HudUnclear, HudUnreachable
from hud_tui.rl.written import Change
from hud_tui.settings import Settings
from hud_tui.wire import Request

T = TypeVar("T")
READ_S, TRAIN_S, SUBMIT_S, CONNECT_S = 60.0, 600.0, 300.0, 5.0
IDLE_S = 4.0
"""An idle connection is used no later than this. Servers close theirs after 5 s and more, and
a write that meets a closing one is lost without anybody knowing whether it happened."""


class Connection:
    """One connection pool for the whole program, and the key that goes with each host."""

    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None) -> None:
        self.settings, self.guard = settings, Guard()
        self.failures = Failures(settings)
        self.writing = Writing(settings.label, settings.local, self.failures.without_key)
        hosts = (settings.api_url, settings.rl_url, settings.gateway_url, settings.telemetry_url)
        self._origins = {origin_of(url) for url in hosts}
        self.http = httpx.AsyncClient(
            transport=transport,
            verify=_tls(hosts),
            trust_env=not settings.local,  # a proxy has no business between two local processes
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_S
            ),
            headers={"User-Agent": "hud-tui"},
        )

    async def get(
        self, url: str, kind: type[T], params: Mapping[str, str | int] | None = None
    ) -> T:
        """Read a JSON body, again where the failure may pass.

        Raises:
            HudRefused: The server answered with an error.
            HudMalformed: It answered something that is not of this kind.
            HudUnreachable: No answer came.
        """
        return parse(kind, await self.read(url, params), f"GET {path_of(url)}")

    async def read(self, url: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """`get`, without looking into the body."""
        return (await self.fetch(url, params)).body

    async def fetch(
        self,
        url: str,
        params: Mapping[str, str | int] | None = None,
        etag: str = "",
        arrived: Arrived | None = None,
    ) -> Answer:
        """`read`, with all that came of it.

        Args:
            url: What to read.
            params: Of its query.
            etag: Of the answer that is known; then a service may say that nothing is new.
            arrived: Is told of every piece of the body.
        """
        headers = {"If-None-Match": etag} if etag else {}
        attempt = 1
        while True:
            try:
                return await self._send_once("GET", url, headers, arrived, params=params)
            except HudError as error:
                if isinstance(error.__cause__, httpx.ReadTimeout) or self.http.is_closed:
                    raise  # it had its minute; three more would only hide that it hangs
                delay = retry_delay("GET", attempt, error.status, error.retry_after)
                if delay is None:
                    raise
            await asyncio.sleep(delay)
            attempt += 1

    async def write(
        self,
        method: str,
        url: str,
        kind: type[T],
        change: Change | None,
        body: Request | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        lookup: Lookup[T] | None = None,
    ) -> T:
        """Send once, whatever happens.

        Args:
            method, url, body, headers: The request.
            kind: Of the answer.
            change: What it changes; None for what only has the service compute.
            timeout_s: Longest wait for the answer; None for `READ_S`.
            lookup: How to find out what became of a change where no answer says it.

        Raises:
            HudUnclear: It may have happened.
            HudError: It did not.
            HudReadOnly: It may not be sent, and was not.
            HudProtected: It changes a protected model, and was not sent.
        """
        self.guard.check(f"{method} {path_of(url)}", change)
        content = body.model_dump_json(exclude_none=True).encode() if body is not None else b"{}"
        # Two deliveries of one request are one write, where a service keeps such keys.
        sent = {"Idempotency-Key": uuid4().hex, **(headers or {})}
        if change is None:
            return (await self._deliver(method, url, kind, content, sent, timeout_s))[0]
        key, request_id = sent["Idempotency-Key"], ""
        written = self.writing.begin(change, method, url, content, key)
        try:
            try:
                answer, request_id = await self._deliver(
                    method, url, kind, content, sent, timeout_s
                )
            except HudError as error:
                if not is_unclear(error):
                    error.outcome = "not_done"
                    raise
                lost = HudUnclear(error, key)
                answer = await find_out(self, lost, kind, lookup or Lookup())
        except BaseException as error:
            self.writing.failed(written, error)
            raise
        self.writing.done(written, answer, change.made, request_id)
        return answer

    async def _deliver(
        self,
        method: str,
        url: str,
        kind: type[T],
        content: bytes,
        headers: Mapping[str, str],
        patience_s: float | None,
    ) -> tuple[T, str]:
        """The answer to a write, and the service's id of the request."""
        sent = {"Content-Type": "application/json", **headers}
        timeout = httpx.Timeout(patience_s or READ_S, connect=CONNECT_S)
        answer = await self._send_once(method, url, sent, content=content, timeout=timeout)
        return parse(kind, answer.body, f"{method} {path_of(url)}"), answer.request_id

    @asynccontextmanager
    async def stream(
        self, url: str, headers: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[httpx.Response]:
        """Open a stream that may stay silent for `silence_s`; the caller looks at its status."""
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        sent = {**headers, **self._authorization(url)}
        try:
            async with self.http.stream("GET", url, headers=sent, timeout=timeout) as answer:
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self.failures.unreachable("GET", url, error) from error
        except RuntimeError as error:
            raise self._unless_closed("GET", url, error) from error

    async def _send_once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        arrived: Arrived | None = None,
        **more: Any,
    ) -> Answer:
        sent = {**headers, **self._authorization(url)}
        try:
            async with self.http.stream(method, url, headers=sent, **more) as answer:
                body = await read_body(answer, arrived)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self.failures.unreachable(method, url, error) from error
        except RuntimeError as error:
            raise self._unless_closed(method, url, error) from error
        unchanged = answer.status_code == 304 and "If-None-Match" in headers
        if not answer.is_success and not unchanged:
            raise self.failures.refusal(answer, body)
        return Answer(body, request_id(answer), etag_of(answer), unchanged)

    def _authorization(self, url: str) -> dict[str, str]:
        if origin_of(url) not in self._origins:
            return {}
        return {"Authorization": f"Bearer {self.settings.api_key}"}

    def _unless_closed(self, method: str, url: str, error: RuntimeError) -> Exception:
        """httpx has no class of its own for a request on a client that was closed, or is."""
        if not self.http.is_closed:
            return error
        unsent = method == "GET" or "Cannot send" in str(error)
        said = f"{method} {path_of(url)}: the connection was closed"
        return HudUnreachable(said, "do it again" if unsent else UNCLEAR)


def _tls(urls: tuple[str, ...]) -> ssl.SSLContext | bool:
    """The default where some host speaks https. Loading certificates takes 20 ms, so else
    a context that trusts nobody: should it ever be used, the connection fails."""
    if any(url.startswith("https:") for url in urls):
        return True
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
