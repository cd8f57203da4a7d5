"""`hud-tui serve`: the service on a socket, until it is stopped.

One line of JSON on stdout says that it is ready, and how to call it; everything else goes to
stderr. The data directory is locked meanwhile, so two services never write to one.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic, time
from typing import Any

import uvicorn

from hud_tui import __version__, build
from hud_tui.errors import HudInsecure, HudUsage
from hud_tui.processes import holder, holding
from hud_tui.rl.text import one_line
from hud_tui.service import engines
from hud_tui.service.app import create_app
from hud_tui.service.connections import (
    KEEP_ALIVE_S,
    Connection,
    bounded,
    raise_open_files,
    room,
    secured,
)
from hud_tui.service.data_dir import Unusable
from hud_tui.service.engines.base import Engine, EngineError
from hud_tui.service.entrance import Entrance, address_of
from hud_tui.service.http import Refused, refusal
from hud_tui.service.proxies import TrustedProxies
from hud_tui.service.routes.gateway import PREFIX
from hud_tui.service.service import Service
from hud_tui.service.store.db import TooNew
from hud_tui.service.tls import LOOK_S, RenewedTls, TlsFiles
from hud_tui.service_file import (
    LOCK,
    ServiceReady,
    forget,
    guard_line,
    machine_in,
    read_ready,
    register,
)
from hud_tui.settings import allows_clear_text, read_paths

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


def is_here(host: str) -> bool:
    """Whether only this machine reaches what is bound to an address or name."""
    try:
        found = address_of(_resolved(host, 0)[-1][0])
    except (OSError, UnicodeError):
        return False  # nobody knows
    return found is not None and found.is_loopback


def _resolved(host: str, port: int) -> tuple[int, int, int, str, tuple[Any, ...]]:
    """What is bound for an address or name."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


@contextmanager
def bound_to(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address. Raises CannotServe: the address is taken, or not this
    machine's."""
    if not 0 <= port < 2**16:  # getaddrinfo would take it modulo 65536
        raise CannotServe(f"cannot listen on {host}:{port}: a port is 0 to 65535")
    try:
        family, kind, proto, _, address = _resolved(host, port)
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


ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""What a service listens on that takes calls at every address, and where it can be called here."""


INSTEAD = (
    "serve with TLS (--cert, --key), or on loopback behind a proxy (--allowed-host,"
    " --trusted-proxy) or for ssh -L"
)
"""How other machines may call it."""
PAUSE_S = 1.0
"""Shortest pause between two log records from one line of code, seconds."""
GRACE_S = 5
"""Seconds that open requests may take to end when the service stops."""


def serve(
    entrance: Entrance,
    data_dir: Path,
    engine: str,
    max_disk: int,
    cores: int,
    on_ready: Callable[[ServiceReady], None] = lambda ready: None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 1 if the service cannot start.

    Args:
        entrance: How it is called.
        data_dir: Created if missing.
        engine: One of `engines.modules()`.
        max_disk: Most bytes of all checkpoints' files together.
        cores: Most processes that the engine computes in.
        on_ready: Called with how to reach the service, before the line on stdout is printed.

    Raises:
        HudInsecure: Its clients would send their key in clear text from other machines.
        HudBadCertificate: The certificate or its key cannot be served.
    """
    host, is_far = entrance.host, not is_here(entrance.host)
    if is_far and entrance.certificate is None and not allows_clear_text(os.environ):
        what = f"clients of {one_line(host, 100)} would send the key in clear text: serve is http"
        raise HudInsecure(what, INSTEAD)
    tls = _tls_of(entrance)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimit())
    form = "%(asctime)s %(name)s: %(message)s"
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format=form)
    try:
        with locked(data_dir), _listening(entrance, tls) as listening:
            if is_far and tls is None:
                _print_note(
                    f"warning: {host} can be reached from other machines, by http: whoever reads"
                    " on the way has the API key"
                )
            service = Service(data_dir, make_engine(engine, data_dir, cores), max_disk)
            with _named(data_dir) as name:
                asyncio.run(_serve(listening, entrance, service, [name, on_ready]))
    except CannotServe as error:
        _print_note(str(error))
        return 1
    return 0


def _tls_of(entrance: Entrance) -> RenewedTls | None:
    """None without a certificate. Raises HudBadCertificate: it cannot be served."""
    if entrance.certificate is None or entrance.key is None:
        return None
    tls = RenewedTls(TlsFiles(entrance.certificate, entrance.key))
    for warning in tls.warnings():
        _print_note(f"warning: {warning}")
    return tls


@dataclass(frozen=True)
class Listening:
    """The sockets of a service."""

    plain: socket.socket
    """http. With TLS it is on loopback, for this machine's own programs: they need not trust a
    certificate that is not for loopback."""
    secure: socket.socket | None = None
    """The address that the service was asked to bind, if that speaks TLS."""
    tls: RenewedTls | None = None


@contextmanager
def _listening(entrance: Entrance, tls: RenewedTls | None) -> Iterator[Listening]:
    """The sockets, bound. Raises CannotServe: as `bound_to`."""
    with bound_to(entrance.host, entrance.port) as bound:
        if tls is None:
            yield Listening(bound)
        else:
            with bound_to("127.0.0.1", 0) as plain:
                yield Listening(plain, bound, tls)


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
        self,
        config: uvicorn.Config,
        service: Service,
        listening: Listening,
        say_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._listening = listening
        self._say_ready = say_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        secure, tls = self._listening.secure, self._listening.tls
        if secure is not None and tls is not None:
            plain: type[Connection] = self.config.http_protocol_class  # type: ignore[assignment]
            make = partial(secured(plain, tls.context), self.config, self.server_state, {})
            loop, backlog = asyncio.get_running_loop(), self.config.backlog
            self.servers.append(await loop.create_server(make, sock=secure, backlog=backlog))
        self._say_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.parts.hub.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the service with exit code 0; uvicorn would raise them again.
        SIGHUP takes a renewed certificate at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if self._listening.tls is not None:
            loop.add_signal_handler(signal.SIGHUP, self._listening.tls.look)
        yield

    def _stop(self) -> None:
        self.should_exit = True


async def _serve(
    listening: Listening,
    entrance: Entrance,
    service: Service,
    on_ready: Sequence[Callable[[ServiceReady], None]],
) -> None:
    def say_ready() -> None:
        ready = _ready(listening, entrance, service)
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
        beside = {"tunnel": _guard_tunnel(service.data_dir), "certificate": _renew(listening.tls)}
        for name, work in beside.items():
            stack.callback(asyncio.create_task(work, name=name).cancel)
        files = raise_open_files()
        names = (*entrance.names, *(listening.tls.pair.names if listening.tls else ()))
        config = uvicorn.Config(
            TrustedProxies(create_app(service, entrance.host, names), entrance.proxies),
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
        await _Server(config, service, listening, say_ready).serve([listening.plain])


async def _renew(tls: RenewedTls | None) -> None:
    """Take a renewed certificate within a minute."""
    while tls is not None:
        await asyncio.sleep(LOOK_S)
        tls.look()


async def _guard_tunnel(data_dir: Path) -> None:
    """Keep the tunnel's process going, if the data directory is that of another machine."""
    if name := machine_in(data_dir):
        await guard_line(replace(read_paths(), data=data_dir), name, for_good=True)


def _ready(listening: Listening, entrance: Entrance, service: Service) -> ServiceReady:
    url, tls_url = f"http://{_shown(listening.plain, entrance.host)}", ""
    if listening.secure is not None and listening.tls is not None:
        url = f"http://{_shown(listening.plain)}"
        tls_url = f"https://{_shown(listening.secure, entrance.host, listening.tls.pair.names)}"
    return ServiceReady(
        url=url,
        api_key=service.api_key,
        telemetry_url=url + PREFIX,
        tls_url=tls_url,
        pid=os.getpid(),
        data_dir=str(service.data_dir.absolute()),
        version=__version__,
        build=build.digest(),
        package=build.PACKAGE,
        began=time(),
        data_id=service.id,
    )


def _shown(bound: socket.socket, host: str = "127.0.0.1", names: Sequence[str] = ()) -> str:
    """Host and port to call: the first of the names, else the host as it was given."""
    address, port = bound.getsockname()[:2]
    if names:
        host = names[0]
    elif address in ANY_ADDRESS:  # no address to call: this machine's loopback is one
        host = ANY_ADDRESS[address]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _print_note(text: str) -> None:
    print(f"hud-tui serve: {text}", file=sys.stderr, flush=True)
