"""The embedded service as an ASGI app, and its server. Paths and bodies are HUD's."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import resource
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hud_tui import __version__, build
from hud_tui.errors import HudInsecure, HudUsage
from hud_tui.processes import holder, holding
from hud_tui.rl.text import one_line
from hud_tui.service import engines
from hud_tui.service.data_dir import Unusable
from hud_tui.service.engines.base import DiskFull, Engine, EngineError, EngineLost
from hud_tui.service.http import AT_ONCE, Refused, refusal, reply, status_of
from hud_tui.service.routes import gateway, idempotency, jobs, models, tasksets, training
from hud_tui.service.routes.gateway import ABORT, PREFIX
from hud_tui.service.service import Service
from hud_tui.service.store.db import TooNew
from hud_tui.service_file import (
    LOCK,
    ServiceReady,
    forget,
    guard_line,
    machine_in,
    read_ready,
    register,
)
from hud_tui.settings import allows_clear_text, is_loopback_host, read_paths

# Connections: how many there may be, and how long one may stay silent.
#
# Anybody who reaches the port may open connections, with or without a key. A connection that sends
# no request, or sends its headers too slowly, is closed; when there are too many, the one that has
# been silent the longest is closed for the newest.


MOST = 1000
"""Most open connections, if the limit on open files allows; twice as many for a moment."""
YOUNG_S = 1.0
"""Age in seconds below which a connection is not closed to make room."""
FILES = 2**16
"""Requested limit on open files: 2000 connections and everything else."""
SPARE = 256
"""Open files reserved for the database, the checkpoints and the engine's process."""
HEADERS_S = 10.0
"""Seconds that a connection or request may take to send its headers."""
HEADER_BYTES = 2**16
"""Maximum size of a request's headers, bytes."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open. Longer than clients keep theirs (httpx: 5): a request
is lost if the server closes while the client sends."""


def raise_open_files() -> int:
    """Raise this process's limit on open files as far as possible; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (FILES, 10_240, 4096):  # macOS refuses more than its own maximum
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            except (OSError, ValueError):
                continue
            return most
    return FILES if soft == resource.RLIM_INFINITY else soft


def room(files: int) -> int:
    """Number of connections that a limit on open files allows."""
    return max(16, min(MOST, (files - SPARE) // 2))


def bounded(most: int) -> type["Connection"]:
    """Protocol class of a server with at most this many connections."""
    return type("BoundedConnection", (Connection,), {"most": most, "silent": {}, "idle": {}})


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits on size and time until a request's headers are complete."""

    most: ClassVar[int] = MOST
    silent: ClassVar[dict["Connection", float]] = {}
    """Connections that have not sent a request yet, oldest first, with the time each was opened."""
    idle: ClassVar[dict["Connection", float]] = {}
    """Connections between two requests, longest idle first, with the time of the last one."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        """Bytes since the last request ended, or since its body if it was answered before that
        arrived."""
        self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.silent[self] = self.loop.time()
        self._wait(HEADERS_S)
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_serving:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_serving or self.transport.is_closing():
            return
        if self._patience is None:  # uvicorn stops its own timer at the first byte
            self._wait(HEADERS_S)
        if self._header_bytes > HEADER_BYTES and not self._in_body:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._forget()
        self._header_bytes, self._in_body = 0, True
        self.scope["state"][ABORT] = self.transport.abort
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if not self._is_serving:  # the request was answered before its body arrived
            self._wait(KEEP_ALIVE_S)
        self._header_bytes, self._in_body = 0, False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_serving:
            self.idle[self] = self.loop.time()

    @property
    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the connection that has been silent the longest, else the longest idle one."""
        waiting = self.silent if len(self.silent) > 1 else self.idle or self.silent
        gone, since = next(iter(waiting.items()))
        if self.loop.time() - since > YOUNG_S or len(self.connections) > 2 * self.most:
            gone._forget()
            gone.transport.abort()

    def _wait(self, seconds: float) -> None:
        """Close the connection unless a request arrives within this time."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _forget(self) -> None:
        """Remove it from `silent` and `idle`."""
        self.silent.pop(self, None)
        self.idle.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


# Gate: authentication, in front of every route.
#
# The Host header must be this machine's, so that a web page cannot reach the service by DNS
# rebinding, and an Origin, which browsers send, must be the service's own. The bearer key must be
# right, except for the command line analytics that HUD's client posts without one. Bodies are not
# read here: a refused request costs no more than its headers.


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


log = logging.getLogger(__name__)

AREAS = (models, training, idempotency, tasksets, jobs, gateway)


def create_app(service: Service, host: str = "127.0.0.1") -> Starlette:
    """The ASGI app of a started service that is bound to `host`; requests with another Host header
    are refused."""
    app = Starlette(
        routes=[route for area in AREAS for route in area.ROUTES],
        middleware=[Middleware(Gate, api_key=service.api_key, host=host)],
        exception_handlers={
            Refused: _refused,
            HTTPException: _http,
            ClientDisconnect: _hung_up,
            sqlite3.Error: _disk,
            OSError: _disk,
            DiskFull: _disk,
            json.JSONDecodeError: _disk,  # of a stored text: `http.read` refuses a request's
            EngineError: _engine,
            Exception: _unexpected,
        },
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.large = asyncio.Semaphore(AT_ONCE)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return reply({"detail": error.detail}, error.status)


async def _http(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405."""
    assert isinstance(error, HTTPException)
    detail = f"{error.detail}: {request.method} {request.url.path[:200]}"
    answer = reply({"detail": detail}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _hung_up(request: Request, error: Exception) -> Response:
    """The client disconnected while it sent a body: nobody reads this answer."""
    return Response(status_code=gateway.HUNG_UP)


async def _disk(request: Request, error: Exception) -> Response:
    refused = refusal(error)
    if refused is None:
        raise error
    log.error("%s %s: %s", request.method, request.url.path, one_line(error, 300))
    return reply({"detail": refused.detail}, refused.status)


async def _engine(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    status, detail = status_of(error)
    if isinstance(error, EngineLost):
        detail += (
            ". Gradients that were accumulated are lost, and no step was taken:"
            " the next call opens the head again, so repeat the whole step"
        )
    elif status == 500:
        log.error("%s %s: engine: %s", request.method, request.url.path, error)
    return reply({"detail": detail}, status)


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answers 500. Starlette raises the error again afterwards, and the server logs it."""
    return reply({"detail": f"unexpected {type(error).__name__} in the service: see its log"}, 500)


# What a service has exclusively: the lock of its data directory, and its address.


class CannotServe(Exception):
    """The service cannot start; the message says what to change."""


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory's lock, a file with this process's id. The kernel releases it when
    the process ends."""
    with contextlib.ExitStack() as stack:
        try:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            is_ours = stack.enter_context(holding(data_dir / LOCK))
        except OSError as error:
            path = error.filename or data_dir
            raise CannotServe(f"cannot use {path}: {error.strerror}") from error
        if not is_ours:
            serving = holder(data_dir / LOCK)
            raise CannotServe(
                f"{data_dir} is served by another process{f', {serving.pid}' if serving else ''}:"
                f" use that one (hud-tui --local --data-dir {data_dir}), or --data-dir another"
            )
        yield


@contextmanager
def bound_to(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address. Raises CannotServe: the address is taken, or not this
    machine's."""
    if not 0 <= port < 2**16:  # getaddrinfo would take it modulo 65536
        raise CannotServe(f"cannot listen on {host}:{port}: a port is 0 to 65535")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = addresses[0]
        bound = socket.socket(family, kind, proto)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotServe(
            f"cannot listen on {host}:{port}: {reason}; --port 0 takes a free one"
        ) from error
    with bound:
        yield bound


ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""What a service listens on that takes calls at every address, and where it can be called here."""


# `hud-tui serve`: the service on a socket, until it is stopped.
#
# One line of JSON on stdout says that it is ready, and how to call it; everything else goes to
# stderr. The data directory is locked meanwhile, so two services never write to one.


PAUSE_S = 1.0
"""Shortest pause between two log records from one line of code, seconds."""
GRACE_S = 5
"""Seconds that open requests may take to end when the service stops."""


def serve(
    host: str,
    port: int,
    data_dir: Path,
    engine: str,
    max_disk: int,
    cores: int,
    on_ready: Callable[[ServiceReady], None] = lambda ready: None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 1 if the service cannot start.

    Args:
        host: The address to bind.
        port: 0 picks a free one.
        data_dir: Created if missing.
        engine: One of `engines.modules()`.
        max_disk: Most bytes of all checkpoints' files together.
        cores: Most processes that the engine computes in.
        on_ready: Called with how to reach the service, before the line on stdout is printed.

    Raises:
        HudInsecure: Its clients would send their key in clear text from other machines.
    """
    if not (is_loopback_host(host) or allows_clear_text(os.environ)):
        what = f"clients of {one_line(host, 100)} would send the key in clear text: serve is http"
        raise HudInsecure(what, "serve on loopback, and let others in by ssh -L")
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimit())
    form = "%(asctime)s %(name)s: %(message)s"
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format=form)
    try:
        with locked(data_dir), bound_to(host, port) as bound:
            if not is_loopback_host(host):
                _print_note(
                    f"warning: {host} can be reached from other machines, by http: whoever reads"
                    " on the way has the API key"
                )
            service = Service(data_dir, make_engine(engine, data_dir, cores), max_disk)
            with _named(data_dir) as name:
                asyncio.run(_serve(bound, host, service, [name, on_ready]))
    except CannotServe as error:
        _print_note(str(error))
        return 1
    return 0


@contextlib.contextmanager
def _named(data_dir: Path) -> Iterator[Callable[[ServiceReady], None]]:
    """Write the data directory's service.json, and remove it when the service stops. Raises
    CannotServe: there is something else with this name, or it cannot be written."""
    file = data_dir / "service.json"

    def name(ready: ServiceReady) -> None:
        try:
            register(file, ready)
        except OSError as error:
            raise CannotServe(f"cannot write {file}: {error.strerror or error}") from error

    try:
        read_ready(file)
    except HudUsage as error:
        raise CannotServe(error.in_one) from error
    try:
        yield name
    finally:
        forget(file, os.getpid())


def make_engine(name: str, data_dir: Path, cores: int) -> Engine:
    """The engine with this name. Raises CannotServe: there is none, or it is not set up."""
    modules = engines.modules()
    if name not in modules:
        raise CannotServe(f"no engine {name!r}: choose from {', '.join(modules)}")
    try:
        engine: Engine = import_module(modules[name]).make(data_dir.resolve(), cores)
    except EngineError as error:
        raise CannotServe(str(error)) from error
    return engine


class RateLimit(logging.Filter):
    """Log filter: one record per second from each line of code, with a count of those dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}
        """By file and line: time of the last record that passed, and the number dropped since."""

    def filter(self, record: logging.LogRecord) -> bool:
        source, heard = (record.pathname, record.lineno), monotonic()
        before, held = self._seen.get(source, (-PAUSE_S, 0))
        if heard - before < PAUSE_S:
            self._seen[source] = before, held + 1
            return False
        self._seen[source] = heard, 0
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more like it)", ()
        return True


class _Server(uvicorn.Server):
    """Calls back when it is ready, and ends event streams before it waits for open requests."""

    def __init__(
        self, config: uvicorn.Config, service: Service, say_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._say_ready = say_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._say_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.parts.hub.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the service with exit code 0; uvicorn would raise them again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True


async def _serve(
    bound: socket.socket,
    host: str,
    service: Service,
    on_ready: Sequence[Callable[[ServiceReady], None]],
) -> None:
    def say_ready() -> None:
        ready = _ready(bound, host, service)
        for callback in on_ready:
            callback(ready)
        print(ready.model_dump_json(), flush=True)

    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(service)
        except Unusable as error:
            raise CannotServe(str(error)) from error
        except EngineError as error:
            raise CannotServe(f"the engine does not start: {error}") from error
        except (OSError, sqlite3.Error, TooNew, Refused, json.JSONDecodeError) as error:
            why = refusal(error) or error
            raise CannotServe(f"cannot open {service.data_dir}: {why}") from error
        guarding = _guard_tunnel(service.data_dir)
        stack.callback(guarding.cancel)
        files = raise_open_files()
        config = uvicorn.Config(
            create_app(service, host),
            http=bounded(room(files)),
            backlog=min(2048, files // 8),
            log_config=None,
            ws="none",
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        await _Server(config, service, say_ready).serve([bound])


def _guard_tunnel(data_dir: Path) -> "asyncio.Task[None]":
    """Keep the tunnel's process going, if the data directory is that of another machine."""

    async def guard() -> None:
        paths, name = replace(read_paths(), data=data_dir), machine_in(data_dir)
        if name:
            await guard_line(paths, name, for_good=True)

    return asyncio.create_task(guard(), name="tunnel")


def _ready(bound: socket.socket, host: str, service: Service) -> ServiceReady:
    shown = f"[{host}]" if ":" in host else host
    if bound.getsockname()[0] in ANY_ADDRESS:  # no address to call: this machine's loopback is one
        shown = ANY_ADDRESS[bound.getsockname()[0]]
    url = f"http://{shown}:{bound.getsockname()[1]}"
    return ServiceReady(
        url=url,
        api_key=service.api_key,
        telemetry_url=url + PREFIX,
        pid=os.getpid(),
        data_dir=str(service.data_dir.absolute()),
        version=__version__,
        build=build.digest(),
        package=str(build.PACKAGE),
        began=time(),
        data_id=service.id,
    )


def _print_note(text: str) -> None:
    print(f"hud-tui serve: {text}", file=sys.stderr, flush=True)
