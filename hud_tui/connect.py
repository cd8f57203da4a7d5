"""The embedded service of this machine: found where it runs, started where it does not.

A lock in the state directory makes two programs that start at once end with one service.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

from hud_tui.client.client import HudClient
from hud_tui.command_log import CommandLog
from hud_tui.errors import (
    HudError,
    HudMalformed,
    HudNotFound,
    HudUnauthorized,
    HudUnreachable,
    HudUsage,
)
from hud_tui.regular_file import open_or_make
from hud_tui.rl.text import one_line
from hud_tui.service_file import alive, forget, read_ready, register, usable_directories
from hud_tui.settings import Paths, local_settings
from hud_tui.spawning import START_S, Progress, spawn
from hud_tui.wire import ServiceReady

STOP_S = 30.0
ANSWER_S = 15.0
"""A service that has not answered for so long does not; one that trains answers in far less."""


async def connect_local(paths: Paths, progress: Progress) -> HudClient:
    """A client of the embedded service, which is started in the background where none runs.

    What it changes is kept in the command log of `paths`.

    Raises:
        HudUnreachable: It does not start, and the message ends with what it logged last; or
            one lives that does not answer.
        HudUsage: One runs, with another data directory than is asked for; or the directories
            cannot be used.
    """
    ready = await _running(paths)
    if ready is None:
        with usable_directories():
            async with _lock(paths, progress):
                ready = await _running(paths) or await _start(paths, progress)
    client = _client(ready)
    client.wire.writing.observe = CommandLog(paths.state, "python").add
    return client


async def stop(paths: Paths) -> int | None:
    """Stop the background service and wait until it has ended.

    Returns:
        The process it was, or None where none ran.

    Raises:
        HudUnreachable: It does not answer, so it may be another program, or it did not end in
            time. It is not killed, for it may be saving.
    """
    if read_ready(paths) is None:
        return None
    with usable_directories():
        async with _lock(paths, lambda text: None):
            return await _stop(paths)


async def _stop(paths: Paths) -> int | None:
    ready = await _answering(paths)
    if ready is not None:
        with suppress(ProcessLookupError):
            os.kill(ready.pid, signal.SIGTERM)
        await _ended(ready.pid)
    forget(paths)
    return None if ready is None else ready.pid


async def _start(paths: Paths, progress: Progress) -> ServiceReady:
    ready = await spawn(paths, progress)
    register(paths, ready)
    return ready


def _client(ready: ServiceReady) -> HudClient:
    return HudClient(local_settings(ready.url, ready.api_key, ready.telemetry_url))


async def _running(paths: Paths) -> ServiceReady | None:
    ready = await _answering(paths)
    if ready is not None and not _same(ready.data_dir, paths.data):
        raise HudUsage(
            f"the embedded service runs with the data directory {one_line(ready.data_dir)}",
            "stop it first: hud-tui stop; or give another --state-dir too",
        )
    return ready


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


async def _answering(paths: Paths) -> ServiceReady | None:
    """The service that service.json names, if it lives and takes that key.

    Raises:
        HudUnreachable: The process lives, and something holds the service's port, but no
            answer comes: it may be stopped or very busy.
    """
    ready = read_ready(paths)
    if ready is None or not alive(ready.pid):
        return None
    client = _client(ready)
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.whoami()
    except (HudError, TimeoutError) as error:
        if _is_another(error) or not alive(ready.pid):
            return None
        raise HudUnreachable(
            f"the embedded service, process {ready.pid}, does not answer",
            "try again later; if it is suspended, continue it: kill -CONT, else end it yourself",
        ) from error
    finally:
        await client.aclose()
    return ready


def _is_another(error: Exception) -> bool:
    """Whether the process is not the service any more: nothing listens where the service did,
    or what answers is not it, or does not take its key."""
    from httpx import ConnectError  # after the client, which keeps httpx's own commands out

    if isinstance(error, HudUnauthorized | HudNotFound | HudMalformed):
        return True
    return isinstance(error.__cause__, ConnectError)


@asynccontextmanager
async def _lock(paths: Paths, progress: Progress) -> AsyncIterator[None]:
    """Hold the state directory's lock; another program that starts a service holds it briefly.

    The service's own is service.lock in the data directory, which may be the same directory.
    """
    import fcntl

    paths.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    until = monotonic() + START_S + STOP_S
    lock = paths.state / "starting.lock"
    held = open_or_make(lock)
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() > until:
                    hint = f"end the program that holds {one_line(lock)}"
                    raise HudUnreachable("another hud-tui is starting the service", hint) from None
                progress("another hud-tui is starting the embedded service …")
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(held)


async def _ended(pid: int) -> None:
    until = monotonic() + STOP_S
    while alive(pid):
        if monotonic() > until:
            raise HudUnreachable(f"the service, process {pid}, does not end", "try again later")
        await asyncio.sleep(0.05)
