"""`hud-tui serve`: the service on a socket, until it is told to stop.

One line of JSON on stdout says that it can be called, and how; everything else goes to
stderr. A data directory is locked while it is served, so two services never write one.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import uvicorn

from hud_tui.errors import HudUsage
from hud_tui.service.app import create_app
from hud_tui.service.claims import CannotServe, bound_to, is_loopback, locked
from hud_tui.service.connections import KEEP_ALIVE_S, bounded, raise_open_files, room
from hud_tui.service.data_dir import Unusable
from hud_tui.service.disk import refusal
from hud_tui.service.engines.base import Engine, EngineError
from hud_tui.service.routes.telemetry import PREFIX
from hud_tui.service.service import Service
from hud_tui.service.store import TooNew
from hud_tui.service_file import forget, read_ready, register
from hud_tui.wire import ServiceReady

ENGINES = ("tiny", "tinker")
PAUSE_S = 1.0
"""Least seconds between two lines of the log from one place."""
GRACE_S = 5
"""Seconds that open requests have to end when the service stops."""


def serve(
    host: str,
    port: int,
    data_dir: Path,
    engine: str,
    max_disk: int,
    on_ready: Callable[[ServiceReady], None] = lambda ready: None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code, 1 where it cannot start.

    Args:
        host: The address to bind; other than loopback only when the user names it.
        port: 0 takes a free one.
        data_dir: Where everything is kept; made when missing.
        engine: One of `ENGINES`.
        max_disk: Bytes that all checkpoints' files may have together.
        on_ready: Told how to call the service, before the line on stdout says so.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(Seldom())
    try:
        with locked(data_dir), bound_to(host, port) as bound:
            if not is_loopback(host):
                _say(f"warning: {host} can be reached from other machines; the API key is all")
            service = Service(data_dir, make_engine(engine, data_dir), max_disk)
            with _named(data_dir) as name:
                asyncio.run(_serve(bound, host, service, [name, on_ready]))
    except CannotServe as error:
        _say(str(error))
        return 1
    return 0


@contextlib.contextmanager
def _named(data_dir: Path) -> Iterator[Callable[[ServiceReady], None]]:
    """What writes the data directory's service.json, which is gone when the service is.

    Raises:
        CannotServe: What lies there is not ours, or it cannot be written.
    """
    file = data_dir / "service.json"

    def name(ready: ServiceReady) -> None:
        try:
            register(file, ready)
        except OSError as error:
            raise CannotServe(f"cannot write {file}: {error.strerror or error}") from error

    try:
        read_ready(file)
    except HudUsage as error:
        raise CannotServe(f"{error.message} ({error.hint})") from error
    try:
        yield name
    finally:
        forget(file, os.getpid())


def make_engine(name: str, data_dir: Path) -> Engine:
    """The engine of a name. Raises CannotServe: there is none, or it is not set up."""
    if name not in ENGINES:
        raise CannotServe(f"no engine {name!r}: choose from {', '.join(ENGINES)}")
    if name == "tiny":
        from hud_tui.service.engines.tiny.engine import TinyEngine

        return TinyEngine()
    from hud_tui.service.engines.tinker.engine import TinkerEngine
    from hud_tui.tinker_settings import BadOption, read_options

    try:
        return TinkerEngine(read_options(), data_dir.resolve() / "tinker")
    except BadOption as error:
        raise CannotServe(str(error)) from error


class Seldom(logging.Filter):
    """Lets through one record a second from each line of code, with a count of those it did not."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}
        """By file and line: when a record of it was let through, and how many not since."""

    def filter(self, record: logging.LogRecord) -> bool:
        place, at = (record.pathname, record.lineno), monotonic()
        before, held = self._seen.get(place, (-PAUSE_S, 0))
        if at - before < PAUSE_S:
            self._seen[place] = before, held + 1
            return False
        self._seen[place] = at, 0
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more like it)", ()
        return True


class _Server(uvicorn.Server):
    """Says when it is up, and lets the streams go before it waits for them."""

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
        """Signals end the service with code 0; uvicorn would raise them again."""
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
    tell: Sequence[Callable[[ServiceReady], None]],
) -> None:
    def say_ready() -> None:
        ready = _ready(bound, host, service)
        for one in tell:
            one(ready)
        print(ready.model_dump_json(), flush=True)

    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(service)
        except Unusable as error:
            raise CannotServe(str(error)) from error
        except EngineError as error:
            raise CannotServe(f"the engine does not start: {error}") from error
        except (OSError, sqlite3.Error, TooNew) as error:
            why = refusal(error) or error
            raise CannotServe(f"cannot open {service.data_dir}: {why}") from error
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


def _ready(bound: socket.socket, host: str, service: Service) -> ServiceReady:
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{bound.getsockname()[1]}"
    return ServiceReady(
        url=url,
        api_key=service.api_key,
        telemetry_url=url + PREFIX,
        pid=os.getpid(),
        data_dir=str(service.data_dir.absolute()),
    )


def _say(text: str) -> None:
    print(f"hud-tui serve: {text}", file=sys.stderr, flush=True)
