"""A service of this machine is spawned, and waited for until it can be called."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from pydantic import ValidationError

from hud_tui.errors import HudUnreachable
from hud_tui.regular_file import open_regular
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths
from hud_tui.wire import ServiceReady

Progress = Callable[[str], None]
START_S = 60.0
"""Longest wait for a service to start; the first start on a slow machine takes some seconds."""
LOG_LINES = 5


async def spawn(paths: Paths, progress: Progress) -> ServiceReady:
    """Start a service in the background, and wait until it can be called.

    Raises:
        HudUnreachable: It does not start; the message ends with what it logged last.
    """
    logged = _size(paths.service_log)
    spawned = _begin(paths)
    try:
        ready = ServiceReady.model_validate_json(await _first_line(spawned, progress))
    except ValidationError as error:
        raise _no_start(paths, "it ended before it was ready", logged) from error
    except TimeoutError as error:
        _end_group(spawned)
        raise _no_start(paths, f"it was not ready after {START_S:.0f} s", logged) from error
    except BaseException:  # cancelled: nobody would know of it
        _end_group(spawned)
        raise
    return ready


def _begin(paths: Paths) -> subprocess.Popen[bytes]:
    """Start a service that is nobody's child, in a session of its own.

    The shell starts it and ends, so it outlives this program and leaves no zombie to it.
    """
    for directory in (paths.state, paths.data):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    service = [sys.executable, "-P", "-m", "hud_tui.service"]
    with paths.service_log.open("ab") as log:
        return subprocess.Popen(
            ["sh", "-c", '"$@" &', "sh", *service, "--data-dir", str(paths.data), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=paths.data,
            start_new_session=True,
        )


def _end_group(spawned: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(spawned.pid, signal.SIGTERM)


async def _first_line(spawned: subprocess.Popen[bytes], progress: Progress) -> bytes:
    """The line that a service prints when it can be called; empty where it ended before."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), spawned.stdout
    )
    waiting = asyncio.ensure_future(reader.readline())
    began = monotonic()
    try:
        while not waiting.done():
            passed = monotonic() - began
            if passed > START_S:
                raise TimeoutError
            progress(f"starting the embedded service … {passed:.0f} s")
            await asyncio.wait([waiting], timeout=1.0)
        return waiting.result()
    finally:
        waiting.cancel()
        transport.close()
        await asyncio.to_thread(spawned.wait)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _no_start(paths: Paths, why: str, logged: int) -> HudUnreachable:
    """`logged` is how large the log was before: what stands there was said by others."""
    try:
        with open_regular(paths.service_log) as opened:
            opened.seek(max(logged, os.fstat(opened.fileno()).st_size - 4096))
            lines = opened.read(4096).decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    said = one_line(" · ".join(line for line in lines[-LOG_LINES:] if line.strip()), 600)
    message = f"the embedded service did not start: {why}" + (f": {said}" if said else "")
    return HudUnreachable(message, f"its whole log is {one_line(paths.service_log)}")
