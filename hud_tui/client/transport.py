"""HTTP transport: requests, retries, errors, outcome of lost writes, probes, webhook.

A write is sent once. If its answer is lost, a service that stores Idempotency-Keys reports the
outcome and refuses the call should it arrive later. Otherwise the client reads, a few times,
what the write would have changed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import import_module
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx
from pydantic import ValidationError

from hud_tui import __version__
from hud_tui.change import Change
from hud_tui.client.guard import Guard, Writing
from hud_tui.client.trust import trust_of, why_no_answer
from hud_tui.errors import (
    BY_ITSELF,
    START_AGAIN,
    UNCLEAR,
    HudError,
    HudMalformed,
    HudRefused,
    HudUnclear,
    HudUnreachable,
    refused,
)
from hud_tui.patience import backoff, outcome_looks, retried
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings, is_loopback
from hud_tui.wire import Page, Request, adapter, first_misfit

if TYPE_CHECKING:
    from hud_tui.audit_log import AuditEntry
    from hud_tui.wire_changes import Settled

# Bodies on the wire, to and from values. An invalid one is a `HudMalformed`.


T = TypeVar("T")
DETAIL = 400
"""Maximum length of a server's explanation."""


def parse(kind: type[T], body: bytes, what: str) -> T:
    """Validate a JSON body.

    Args:
        kind: A wire model, or a generic alias of one such as ``list[Checkpoint]``.
        what: The request, for the message, e.g. ``GET /v2/models``.

    Raises:
        HudMalformed: Not JSON, or not of this kind; the message names the place.
    """
    try:
        value: T = adapter(cast(Hashable, kind)).validate_json(body or b"{}")
    except ValidationError as error:
        raise malformed(what, error) from error
    return value


def malformed(what: str, error: ValidationError) -> HudMalformed:
    """A validation error in one clean line, without the input that caused it."""
    return HudMalformed(
        f"{what}: unexpected response: {one_line(first_misfit(error), DETAIL)}",
        "check that the URL belongs to a HUD service, and update hud-tui",
    )


def error_detail(body: bytes, reason: str) -> str:
    """Message of an error body in one clean line: ``detail`` of HUD, ``error`` of OpenAI."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = body.decode("utf-8", errors="replace").strip()
    if isinstance(document, dict):
        document = document.get("detail") or document.get("error") or document
    if isinstance(document, dict) and "message" in document:
        document = document["message"]
    if isinstance(document, list):
        document = "; ".join(_problem(entry) for entry in document[:5])
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    return one_line(text or reason or "no explanation", DETAIL)


def _problem(entry: object) -> str:
    """One row of a FastAPI-shaped validation list."""
    if not isinstance(entry, dict):
        return str(entry)
    location = entry.get("loc")
    path = ".".join(str(part) for part in location) if isinstance(location, list) else ""
    return f"{path}: {entry.get('msg', entry)}" if path else str(entry.get("msg", entry))


AGENT = f"hud-tui/{__version__}"
"""The User-Agent of every request."""


NOT_THERE = (400, 404, 405, 501)
"""HTTP statuses of a service without a call."""


async def if_there(answer: Awaitable[T]) -> T | None:
    """The answer; None if the service has no such call."""
    try:
        return await answer
    except HudRefused as error:
        if error.status not in NOT_THERE:
            raise
        return None


async def _nothing() -> None:
    """Default lookup: nothing to read."""


class Lookup(NamedTuple, Generic[T]):
    """How to find the outcome of a write."""

    settle: str = ""
    """URL of the query by Idempotency-Key, with ``{}`` for the key."""
    find: Callable[[], Awaitable[T | None]] = _nothing
    """Reads what the write would have made, as its answer; None if it does not exist."""
    hint: str = ""
    """Hint if the outcome stays unknown."""


async def find_out(wire: Connection, error: HudUnclear, kind: type[T], lookup: Lookup[T]) -> T:
    """The answer of a write whose answer was lost, reconstructed if the write was done. Raises
    HudUnclear: the outcome is unknown; HudUnreachable: it was not done, and will not be."""
    settled = await _settled(wire, lookup.settle, error.key) if lookup.settle else None
    if settled is not None and settled.state == "done":
        return parse(kind, json.dumps(settled.reply).encode(), "its answer")
    if settled is not None:
        never = HudUnreachable(f"{error.message}; it was not done", "try again")
        never.outcome = "not_done"
        raise never from error
    if lookup.find is not _nothing:
        async for _ in outcome_looks():
            try:
                answer = await lookup.find()
            except HudError:
                break  # report the original failure
            if answer is not None:
                return answer
    error.hint = lookup.hint or error.hint
    raise error


async def _settled(wire: Connection, url: str, key: str) -> Settled | None:
    """The service's record of the call; None if it stores no keys, or does not answer."""
    from hud_tui.wire_changes import Settled

    async for _ in outcome_looks():  # queries are safe to repeat
        try:
            return await wire.write("POST", url.format(key), Settled, None)
        except HudError as error:
            if isinstance(error, HudRefused) and (error.status or 0) < 500:
                return None
    return None


# Reading a response piece by piece, with limits.


MAX_BODY = 256 * 1024 * 1024
"""Maximum size of a response, bytes."""
MOST_ETAG = 1000
"""Maximum length of an ETag that is sent back."""
SLOWEST = 1000
"""Minimum bytes per second of a response that takes longer than the read timeout."""
Arrived = Callable[[int, int | None], None]
"""(bytes received, total or None)."""


class Answer(NamedTuple):
    body: bytes
    request_id: str
    """As given by the service; empty if it gives none."""
    etag: str
    """ETag of the body; empty if the service gives none."""
    unchanged: bool
    """Whether the known body is still valid, so that none was sent (304)."""


async def read_body(answer: httpx.Response, arrived: Arrived | None) -> bytes:
    """Read the whole body; `arrived` is called with the progress. Raises httpx.ReadTimeout: it is
    too slow as a whole, although each piece arrives in time."""
    patience_s, begun = _patience(answer.request), monotonic()
    body, length = bytearray(), answer.headers.get("content-length", "")
    total = int(length) if length.isdecimal() and len(length) < 20 else None
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > MAX_BODY:
            raise httpx.DecodingError(f"the answer is larger than {MAX_BODY >> 20} MB")
        took_s = monotonic() - begun
        if took_s > patience_s and answer.num_bytes_downloaded < SLOWEST * took_s:
            raise httpx.ReadTimeout(f"after {took_s:.0f} s it is not whole, and hardly grows")
        if arrived is not None:
            arrived(answer.num_bytes_downloaded, total)
    return bytes(body)


def _patience(request: httpx.Request) -> float:
    """Read timeout, seconds."""
    timeout: dict[str, float | None] = request.extensions.get("timeout", {})
    return timeout.get("read") or inf


def request_id(answer: httpx.Response) -> str:
    """The service's id of the request; empty if it gives none."""
    ids = (answer.headers.get(name) for name in ("x-request-id", "request-id"))
    return one_line(next(filter(None, ids), ""), 100)


def etag_of(answer: httpx.Response) -> str:
    """ETag; empty if the service sends none."""
    etag: str = answer.headers.get("etag", "")
    return etag if len(etag) <= MOST_ETAG and etag.isprintable() and etag.isascii() else ""


# When to send a request again.
#
# Only reads are repeated. A repeated training call would count a batch twice, and a repeated
# set_head could undo a step in between; after a lost answer the outcome is looked up instead.


ATTEMPTS = 4
LONGEST_S = 30.0
"""Longest Retry-After that is honoured, seconds."""


def retry_delay(attempt: int, status: int | None, retry_after: float | None = None) -> float | None:
    """Seconds to wait before the next attempt of a read; None to give up.

    Args:
        attempt: Number of attempts so far, at least 1.
        status: The answer's HTTP status; None without an answer.
        retry_after: Seconds that the server asked for.
    """
    if attempt >= ATTEMPTS or not is_passing(status):
        return None
    if retry_after is not None:
        return min(LONGEST_S, retry_after)
    return backoff(attempt)


def read_retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; None for a date, a negative or an invalid value."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def is_passing(status: int | None) -> bool:
    """Whether a retry may succeed: no answer, too busy, or server error."""
    return status is None or status in (408, 429) or (500 <= status < 600 and status != 501)


# Errors of requests, with hints; never with the key.


UNSENT = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError),
    *(httpx.InvalidURL, httpx.UnsupportedProtocol),
)
"""Exceptions raised before anything was sent."""


class Failures:
    """Builds errors of requests with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def refusal(self, answer: httpx.Response, body: bytes) -> HudRefused:
        """The error for an unsuccessful response."""
        body = body.replace(self.settings.api_key.encode(), b"***")  # before text is cut within it
        detail = self.without_key(error_detail(body, answer.reason_phrase))
        wait = read_retry_after(answer.headers.get("retry-after"))
        hint = self._hint(answer.status_code, answer.request.method)
        error = refused(answer.status_code, detail, hint, wait)
        error.request_id = request_id(answer)
        return error

    def unreachable(self, method: str, url: str, error: Exception) -> HudUnreachable:
        """The error for a request without response."""
        reason = self.without_key(one_line(str(error) or type(error).__name__))
        why, advice = why_no_answer(self.settings, error)
        message = f"no answer from {origin_of(url)}: {why or reason}"
        if method != "GET" and not isinstance(error, UNSENT):
            return HudUnreachable(message, UNCLEAR)
        if self.settings.local:
            start = START_AGAIN + self.settings.program
            return HudUnreachable(message, BY_ITSELF if self.settings.name else start)
        if self.settings.host:
            return HudUnreachable(message, advice or "check the network and --host")
        return HudUnreachable(message, "check the network and HUD_API_URL, or use --local")

    def without_key(self, text: str) -> str:
        """The text without the API key, which a service may repeat in an error."""
        return masked(self.settings.api_key, text)

    def _hint(self, status: int, method: str) -> str:
        if status == 403 and self.settings.embedded:
            return ""  # the embedded service says who may
        if self.settings.host and status in (401, 421):
            ways = {401: f"hud-tui login {self.settings.host}", 421: "serve it with --allowed-host"}
            return ways[status]
        if status in (401, 403):
            return "check HUD_API_KEY" if not self.settings.local else "restart with --local"
        hints = {
            402: f"see the billing page of {self.settings.web_url}",
            413: "send fewer or shorter tasks",
            429: "wait, then try again",
        }
        if 300 <= status < 400:
            name = "--host" if self.settings.host else "HUD_API_URL"
            return f"the URL redirects: set {name} to the final URL"
        if status >= 500:
            return "try again later" if method == "GET" else UNCLEAR
        return hints.get(status, "")


def is_unclear(error: HudError) -> bool:
    """Whether a failed write may have been done: no answer, an incomplete one, a server error, or a
    redirect; proxies cause these too."""
    if isinstance(error, HudRefused):
        status = error.status or 0
        return not 400 <= status < 500 or status == 408
    return isinstance(error, HudMalformed) or error.hint == UNCLEAR


def _fill(path: str, names: tuple[str, ...]) -> str:
    return path.format(*(quote(name, safe="") for name in names))


def origin_of(url: str) -> str:
    """Scheme and host, without credentials, e.g. ``https://api.hud.ai``."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def path_of(url: str) -> str:
    """The path as displayed."""
    return one_line(urlsplit(url).path)


# Requests on the wire: send, and retry where that is safe.


READ_S, TRAIN_S, SUBMIT_S, CONNECT_S = 60.0, 600.0, 300.0, 10.0
IDLE_S = 4.0
"""Maximum idle time of a connection. Servers close theirs after 5 s or more, and a write on a
closing connection has an unknown outcome."""


JSON_BODY = {"Content-Type": "application/json"}
HTTP_2 = ("httpcore._async.http2", "httpcore._sync.http2")


@cache
def load_httpcore() -> None:
    """Load what httpx sends with, without HTTP/2.

    Where h2 is installed, httpcore loads it for the names of two classes, which takes as long as
    all the rest of httpcore; nothing here speaks it. Whoever does in this process still can: it is
    then imported anew.
    """
    left_out = [name for name in HTTP_2 if name not in sys.modules]
    for name in left_out:
        sys.modules[name] = None  # type: ignore[assignment]  # as if it could not be imported
    try:
        import_module("httpcore")
    finally:
        for name in left_out:
            del sys.modules[name]


class Connection:
    """One connection pool for the whole program; adds the API key for the hosts it belongs to."""

    def __init__(
        self,
        settings: Settings,
        transport: httpx.AsyncBaseTransport | None,
        guard: Guard,
        observe: Callable[[AuditEntry], object],
    ) -> None:
        if transport is None:
            settings.check_clear_text()
        self.settings, self.guard = settings, guard
        self.failures = Failures(settings)
        clean = self.failures.without_key
        self.writing = Writing(settings.label, settings.local, settings.host, clean, observe)
        hosts = (settings.api_url, settings.rl_url, settings.gateway_url, settings.telemetry_url)
        self._origins = {origin_of(url) for url in hosts}
        load_httpcore()
        self.http = httpx.AsyncClient(
            transport=transport,
            verify=trust_of(settings),
            trust_env=not settings.local,  # no proxy between local processes
            mounts={origin: None for origin in self._origins if is_loopback(origin)},
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_S
            ),
            headers={"User-Agent": AGENT},
        )

    def observed(self, observe: Callable[[AuditEntry], object]) -> Self:
        """The same connections with another observer."""
        twin = copy(self)
        twin.writing = replace(self.writing, observe=observe)
        return twin

    def api(self, path: str, *names: str) -> str:
        """A URL of the platform; each ``{}`` in the path is replaced by a quoted name."""
        return self.settings.api_url + _fill(path, names)

    def rl(self, path: str, *names: str) -> str:
        """A URL of the training service; names as for `api`."""
        return self.settings.rl_url + _fill(path, names)

    def settle_url(self, model_id: str) -> str:
        """URL that reports the outcome of a model's call by its key (embedded service)."""
        return self.rl("/v1/models/{}/train/calls/", model_id) + "{}/settle"

    async def get(
        self, url: str, kind: type[T], params: Mapping[str, str | int] | None = None
    ) -> T:
        """Read a JSON body, with retries.

        Raises:
            HudRefused: The server answered with an error.
            HudMalformed: The answer is not of this kind.
            HudUnreachable: There was no answer.
        """
        return parse(kind, await self.read(url, params), f"GET {path_of(url)}")

    async def pages(
        self,
        url: str,
        kind: type[T],
        size: int = 100,
        most: int | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> list[T]:
        """All rows of a paged collection, or the first `most`. Raises HudMalformed: a page was
        empty although the total was not reached."""
        rows: dict[str, T] = {}
        offset = 0
        while True:
            asked = {**(params or {}), "limit": size, "offset": offset}
            page: Page[T] = await self.get(url, Page[kind], asked)  # type: ignore[valid-type]
            rows |= {
                getattr(item, "id", str(offset + i)): item for i, item in enumerate(page.items)
            }
            offset += len(page.items)
            if offset >= (page.total if most is None else min(most, page.total)):
                return list(rows.values())[:most]
            if not page.items:
                raise HudMalformed(
                    f"GET {url}: {offset} of {page.total} rows came, then an empty page",
                    "try again: the list may be changing",
                )

    async def read(self, url: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """`get` without parsing the body."""
        return (await self.fetch(url, params)).body

    async def fetch(
        self,
        url: str,
        params: Mapping[str, str | int] | None = None,
        etag: str = "",
        arrived: Arrived | None = None,
    ) -> Answer:
        """`read`, returning the whole answer.

        Args:
            params: Of its query.
            etag: ETag of the known answer; the service may then answer that it is unchanged.
            arrived: Called with the progress.
        """
        headers = {"If-None-Match": etag} if etag else {}

        def pause(error: HudError, failures: int) -> float | None:
            if isinstance(error.__cause__, httpx.ReadTimeout) or self.http.is_closed:
                return None  # no retries after a full timeout
            return retry_delay(failures, error.status, error.retry_after)

        return await retried(
            lambda: self._send_once("GET", url, headers, arrived, params=params), HudError, pause
        )

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
        """Send a write once; it is never repeated.

        Args:
            change: What it changes, for the command log; None for pure computation.
            timeout_s: Read timeout; None for `READ_S`.
            lookup: How to find the outcome if the answer is lost.

        Raises:
            HudUnclear: The outcome is unknown.
            HudError: It was not done.
            HudReadOnly: Read-only mode; not sent.
            HudProtected: The model is protected; not sent.
        """
        what = f"{method} {path_of(url)}"
        self.guard.check(what, change)
        content = body.model_dump_json(exclude_none=True).encode() if body is not None else b"{}"
        # A service that stores keys treats repeated deliveries as one write.
        sent = {"Idempotency-Key": uuid4().hex, **JSON_BODY, **(headers or {})}
        timeout = httpx.Timeout(timeout_s or READ_S, connect=CONNECT_S)

        async def deliver() -> tuple[T, str]:
            """The answer, and the service's id of the request."""
            answer = await self._send_once(method, url, sent, content=content, timeout=timeout)
            return parse(kind, answer.body, what), answer.request_id

        if change is None:
            return (await deliver())[0]
        key = sent["Idempotency-Key"]
        written = self.writing.begin(change, method, url, content, key)
        try:
            try:
                answer, request_id = await deliver()
            except HudError as error:
                answer, request_id = await self._outcome(error, key, kind, lookup or Lookup()), ""
        except BaseException as error:
            self.writing.failed(written, error)
            raise
        self.writing.done(written, answer, change.made, request_id, change.replaced)
        return answer

    async def _outcome(self, error: HudError, key: str, kind: type[T], lookup: Lookup[T]) -> T:
        """The answer to a write that failed, if it was done; else raises as `write`."""
        if not is_unclear(error):
            error.outcome = "not_done"
            raise error
        return await find_out(self, HudUnclear(error, key), kind, lookup)

    async def pass_on(self, method: str, url: str, content: bytes) -> bytes:
        """Send another program's request, once; returns the body of the answer. Raises HudRefused,
        HudUnreachable; HudReadOnly: it was not sent."""
        if method != "GET":
            self.guard.check(f"{method} {path_of(url)}")
        return (await self._send_once(method, url, JSON_BODY, content=content)).body

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
        """The error for a request on a closed client, for which httpx only raises RuntimeError."""
        if not self.http.is_closed:
            return error
        unsent = method == "GET" or "Cannot send" in str(error)
        message = f"{method} {path_of(url)}: the connection was closed"
        return HudUnreachable(message, "try again" if unsent else UNCLEAR)


def masked(key: str, text: str) -> str:
    """The text without a key."""
    return text.replace(key, "***") if key else text


# Concurrent requests; the first failure is raised unwrapped.


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group for requests; if one fails, the others are cancelled.

    This uses a plain ``except``, because Python 3.11.0 to 3.11.3 wrap what leaves an ``except*`` in
    a group again (https://github.com/python/cpython/issues/103590). Raises HudError: the first
    failure, if only requests failed; BaseExceptionGroup: something else failed too.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        errors = [error for error in _flat(failures) if isinstance(error, HudError)]
        if not errors or failures.split(HudError)[1] is not None:
            raise
        raise errors[0] from None


def _flat(failures: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in failures.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error


# Webhook: one POST of a small JSON document to a configured URL.


MOST_WEBHOOK_BYTES = 8 * 1024
"""Maximum size of a body; longer text is cut."""
WEBHOOK_S = 10.0


async def post_webhook(
    url: str, document: Mapping[str, object], transport: httpx.AsyncBaseTransport | None = None
) -> str:
    """Send a document once, without following redirects and without HUD's key.

    Args:
        url: http or https.
        document: With a ``text`` for people, which is what chat services show.
        transport: Replaces the network, for tests.

    Returns:
        The error in one line; empty on success.
    """
    try:
        async with httpx.AsyncClient(timeout=WEBHOOK_S, transport=transport) as http:
            headers = {"content-type": "application/json", "user-agent": AGENT}
            async with http.stream(
                "POST", url, content=_webhook_body(document), headers=headers
            ) as answer:
                ok, status = answer.is_success, answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return one_line(f"{type(error).__name__}: {error}".strip(": "), 200)
    return "" if ok else f"HTTP {status}"


def _webhook_body(document: Mapping[str, object]) -> bytes:
    body = json.dumps(document).encode()
    if len(body) <= MOST_WEBHOOK_BYTES:
        return body
    return json.dumps({"text": str(document.get("text", ""))[: MOST_WEBHOOK_BYTES // 8]}).encode()


def is_not_listening(error: Exception) -> bool:
    """Whether a request failed because nothing listens where the service did."""
    return isinstance(error.__cause__, httpx.ConnectError)
