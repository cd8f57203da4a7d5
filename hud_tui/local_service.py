"""Finding, starting and stopping the embedded service of this machine.

A lock in the state directory makes two programs that start at the same time share one service.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.client.transport import is_not_listening
from hud_tui.errors import HudError, HudMalformed, HudNotFound, HudUnauthorized, HudUnreachable
from hud_tui.patience import Looks, in_time
from hud_tui.processes import holder, process
from hud_tui.rl.text import last_lines, one_line
from hud_tui.service_file import (
    LOCK,
    ServiceReady,
    Used,
    daemon,
    forget,
    guard_line,
    is_daemon,
    is_serving,
    keep_line,
    line_of,
    machine_of,
    named,
    offer,
    same_directory,
    usable_directories,
)
from hud_tui.settings import TELEMETRY, Paths, Settings, local_settings
from hud_tui.storage import held, tail

if TYPE_CHECKING:  # what a running service is read with does without
    from hud_tui.audit_log import AuditEntry

# Starting a service and waiting until it is ready.


Progress = Callable[[str], None]
START_S = 60
"""Maximum seconds for a service to start, beside the time to rewrite its database; the first start
on a slow machine takes some seconds."""
REWRITTEN = 10_000_000
"""Bytes of its database that a service of a newer version rewrites in a second, on a slow disk."""
LOG_LINES = 5
LEAST_FREE = 1_000_000
"""Bytes below which a disk is full: a service does not start in less."""


async def spawn(paths: Paths, progress: Progress) -> ServiceReady:
    """Start a service in the background, and wait until it is ready. Raises HudUnreachable: it does
    not start; the message ends with the last lines of its log."""
    logged = _size(paths.service_log)
    start_s = START_S + _size(paths.data / "service.db") // REWRITTEN
    spawned = _begin(paths)
    try:
        ready = ServiceReady.model_validate_json(await _first_line(spawned, progress, start_s))
    except ValidationError as error:
        raise _no_start(paths, "it exited before it was ready", logged) from error
    except TimeoutError as error:
        _end_group(spawned)
        raise _no_start(paths, f"it was not ready after {start_s} s", logged) from error
    except BaseException:  # e.g. cancelled: nothing would refer to the service any more
        _end_group(spawned)
        raise
    return ready


def _begin(paths: Paths) -> subprocess.Popen[bytes]:
    """Start a service as a daemon in its own session.

    An intermediate shell exits at once, so the service outlives this program and leaves no zombie.
    If a machine is in use (``remote use``), the service trains on it through the tunnel.
    """
    for directory in (paths.state, paths.data):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    service = ["hud_tui.service", "--data-dir", str(paths.data), "--port", "0"]
    machine = machine_of(paths)
    if machine is None:
        return daemon(paths.service_log, service, stdout=subprocess.PIPE)
    environment = {
        "HUD_TUI_STATE_DIR": str(paths.state),  # where it finds the tunnel's process
        "TINKER_BASE_URL": machine.url,
        "TINKER_API_KEY": machine.key,
        "HUD_TUI_TINKER_PLACE": machine.label,
        "HUD_TUI_TINKER_FILES": machine.files,
    }
    tinker = [*service, "--engine", "tinker"]
    return daemon(paths.service_log, tinker, environment, subprocess.PIPE)


def _end_group(spawned: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(spawned.pid, signal.SIGTERM)


async def _first_line(spawned: subprocess.Popen[bytes], progress: Progress, start_s: int) -> bytes:
    """The line that a service prints when it is ready; empty if it exits before."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), spawned.stdout
    )

    def waited(seconds: int) -> None:
        progress(f"starting the embedded service … {seconds} s")

    waited(0)
    try:
        return await in_time(reader.readline(), start_s, waited)
    finally:
        transport.close()
        await asyncio.to_thread(spawned.wait)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _no_start(paths: Paths, why: str, logged: int) -> HudUnreachable:
    """The error for a service that did not start. `logged`: size of the log before; only later
    lines belong to this service."""
    new = max(0, _size(paths.service_log) - logged)
    lines = last_lines(tail(paths.service_log, min(new, 4096)), LOG_LINES)
    logged_lines = one_line(" · ".join(lines), 600)
    message = f"the embedded service did not start: {why}" + (
        f": {logged_lines}" if logged_lines else ""
    )
    if full := [folder for folder in (paths.data, paths.state) if _free(folder) < LEAST_FREE]:
        folder = one_line(full[0])  # its log could not be written either
        hint = "free some, or choose another directory: --data-dir, --state-dir"
        return HudUnreachable(f"{message}: the disk of {folder} is full", hint)
    return HudUnreachable(message, f"see its log: {one_line(paths.service_log)}")


def _free(folder: Path) -> int:
    from shutil import disk_usage  # only where it does not start

    try:
        return disk_usage(folder).free
    except OSError:
        return LEAST_FREE


STOP_S = 30.0
LOOK_S = 0.1
"""Seconds between checks for a service that another program starts."""
THERE_S = 3.0
"""Timeout of one request through a tunnel, seconds."""
ANSWER_S = 15.0
"""Seconds after which a service counts as not answering; one that is training answers much
faster."""


async def connect_local(
    paths: Paths,
    progress: Progress,
    guard: Guard | None = None,
    observe: Callable[[AuditEntry], object] | None = None,
    flags: str = "",
    by: str = "python",
) -> HudClient:
    """A client of the embedded service, which is started in the background if it does not run.

    Args:
        progress: Called with a line about what is being waited for.
        guard: Checks requests that change something; None allows all.
        observe: Called with them; None adds them to the command log of `paths`.
        flags: As of `Settings`, as is `by`.

    Raises:
        HudUnreachable: It does not start (the message ends with its log), or a running one does
            not answer.
        HudUsage: The directories cannot be used, or a service.json in them is invalid.
    """
    machine, name = machine_of(paths), ""
    if machine is not None:
        with usable_directories():
            keep_line(paths, machine.name)
    if machine is not None and machine.speaks == "hud":
        ready, name = await _there(paths, machine, progress), f"hud @ {machine.label}"
    elif (running := await _running(paths)) is not None:
        ready, name = await _renewed(paths, running, progress)
    else:
        with usable_directories():
            async with _lock(paths, progress):
                ready = await _running(paths) or await _start(paths, progress)
    settings = replace(_settings(ready), name=name, flags=flags, by=by)
    if observe is None:
        from hud_tui.audit_log import CommandLog

        observe = CommandLog(paths.state, by).add
    if machine is None:
        return HudClient(settings, None, guard, observe)
    return _ThroughTunnel(guard_line(paths, machine.name), settings, guard, observe)


class _ThroughTunnel(HudClient):
    """A client that keeps a tunnel's process going until it is closed."""

    def __init__(
        self,
        guarding: Coroutine[None, None, None],
        settings: Settings,
        guard: Guard | None,
        observe: Callable[[AuditEntry], object],
    ) -> None:
        super().__init__(settings, None, guard, observe)
        self._guarding = asyncio.create_task(guarding, name="tunnel")

    async def aclose(self) -> None:
        self._guarding.cancel()
        await super().aclose()


OLDER = "another version of the embedded service runs"
RESTART = "hud-tui stop ends it, and the next hud-tui --local starts this version"


async def _renewed(
    paths: Paths, running: ServiceReady, progress: Progress
) -> tuple[ServiceReady, str]:
    """A running service, which is restarted if it is of another version, nothing trains there, and
    it runs in the background; and a display name, empty for the usual one."""
    if not running.is_other:
        return running, ""
    if not is_daemon(running.pid) or await _works(running):
        progress(f"{OLDER}. When it has nothing to do: {RESTART}")
        return running, "HUD local: another version, restart it"
    progress(f"{OLDER}: it is restarted")
    with usable_directories():
        async with _lock(paths, progress):
            again = await _running(paths)
            if again is not None and again.is_other:
                await _stop(paths, anywhere=False)
                again = None
            return again or await _start(paths, progress), ""


async def _works(ready: ServiceReady) -> bool:
    """Whether a service has jobs that are not over; also if it does not say."""
    from hud_tui.rl.work import is_active

    client = HudClient(_settings(ready))
    try:
        return any(is_active(job.status) for job in await client.jobs(RECENT))
    except HudError:
        return True
    finally:
        await client.aclose()


RECENT = 100
"""Newest jobs that are looked at for active ones."""


async def _there(paths: Paths, machine: Used, progress: Progress) -> ServiceReady:
    """A whole service on another machine, once it answers through the tunnel. Raises
    HudUnreachable: it does not; with the reason reported by the tunnel's process."""
    ready = ServiceReady(
        url=machine.url,
        api_key=machine.key,
        telemetry_url=machine.url + TELEMETRY,
        pid=os.getpid(),
        data_dir=str(paths.data),
    )
    state = ""
    async for _ in Looks(LOOK_S, START_S):
        with suppress(HudUnreachable, TimeoutError):  # nothing arrives through the tunnel
            async with asyncio.timeout(THERE_S):  # the client itself would retry for longer
                if await _accepts(ready):
                    return ready
        state = line_of(paths.state, machine.name).get("why") or "connecting"
        progress(f"{machine.label}: {one_line(state, 200)}")
    hint = f"hud-tui remote status {machine.name}; or train here: hud-tui remote use --off"
    raise HudUnreachable(f"{machine.label}: {one_line(state, 300)}", hint)


async def stop(paths: Paths, anywhere: bool = True) -> int | None:
    """Stop the service of the data directory, and wait until it has exited.

    Args:
        anywhere: If the data directory has no service, stop that of the state directory.

    Returns:
        Its process id; None if none was running.

    Raises:
        HudUnreachable: It does not answer, so it may be another program, or it did not exit in
            time. It is not killed, because it may be saving.
        HudUsage: A service.json there is invalid.
    """
    if not named(paths):
        return None
    with usable_directories():
        async with _lock(paths, lambda text: None):
            return await _stop(paths, anywhere)


async def _stop(paths: Paths, anywhere: bool) -> int | None:
    """Stop the first service that answers; service.json files of dead ones are removed."""
    for file, ready in named(paths):
        if not (anywhere or same_directory(ready, paths.data)):
            continue
        answers = await _answers(ready)
        if answers:
            serving = process(ready.pid)
            serving.send(signal.SIGTERM)
            async for _ in Looks(0.05, STOP_S):
                if not serving.runs:
                    break
            else:
                what = f"the service, process {serving.pid}, does not exit"
                raise HudUnreachable(what, "try again later")
        for ready_file in (file, paths.service_file, paths.serving_file):
            forget(ready_file, ready.pid)
        if answers:
            return ready.pid
    return None


async def _start(paths: Paths, progress: Progress) -> ServiceReady:
    try:
        ready = await spawn(paths, progress)
    except HudUnreachable:
        other = await _of_another_start(paths, progress)
        if other is None:
            raise
        return other
    offer(paths.service_file, ready)
    return ready


async def _of_another_start(paths: Paths, progress: Progress) -> ServiceReady | None:
    """The service that a program with another state directory is starting on this data."""
    async for _ in Looks(LOOK_S, START_S):
        if holder(paths.data / LOCK) is None:
            break
        if (ready := await _running(paths)) is not None:
            return ready
        progress("another hud-tui is starting the embedded service …")
    return None


def _settings(ready: ServiceReady) -> Settings:
    return local_settings(ready.url, ready.api_key, ready.telemetry_url, ready.data_dir)


async def _running(paths: Paths) -> ServiceReady | None:
    """The service of the data directory, whoever started it; None if none is running."""
    for _, ready in named(paths):
        if same_directory(ready, paths.data) and await _answers(ready):
            return ready
    return None


async def _answers(ready: ServiceReady) -> bool:
    """Whether the service of a service.json is running, and accepts its key. Raises HudUnreachable:
    as `_accepts`."""
    return is_serving(ready) and await _accepts(ready)


async def _accepts(ready: ServiceReady) -> bool:
    """Whether what listens at the URL of a service.json accepts its key. Raises HudUnreachable: the
    service's process exists and something listens on its port, but does not answer: it may be
    suspended or very busy."""
    client = HudClient(_settings(ready))
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.whoami()
    except (HudError, TimeoutError) as error:
        # nothing listens there, or what answers is another program or refuses the key
        is_another = isinstance(error, HudUnauthorized | HudNotFound | HudMalformed)
        if is_another or is_not_listening(error) or not is_serving(ready):
            return False
        raise HudUnreachable(
            f"the embedded service, process {ready.pid}, does not answer",
            "try again later; if it is suspended, continue it with kill -CONT, else kill it",
        ) from error
    finally:
        await client.aclose()
    return True


@asynccontextmanager
async def _lock(paths: Paths, progress: Progress) -> AsyncIterator[None]:
    """Hold the state directory's lock; a program that starts a service holds it briefly.

    The service's own lock is service.lock in the data directory, which may be the same directory.
    """
    paths.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = paths.state / "starting.lock"
    async for _ in Looks(LOOK_S, START_S + STOP_S):
        with held(lock) as descriptor:
            if descriptor is not None:
                yield
                return
        progress("another hud-tui is starting the embedded service …")
    hint = f"end the program that holds the lock {one_line(lock)}"
    raise HudUnreachable("another hud-tui is starting the service", hint)
