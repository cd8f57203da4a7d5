"""Link: the service's end of the pipe to the SDK's process, which is started when needed."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from hud_tui.patience import Looks, in_time
from hud_tui.pipes import Pipe, ProcessEnded
from hud_tui.service.engines.base import (
    CODEC,
    LOST,
    SILENT,
    EngineError,
    EngineLost,
    EngineRefused,
    StateDamaged,
    not_written,
    raised,
)
from hud_tui.storage import open_or_make, read_regular, write_atomic

PATIENCE_S = 8.0
"""Seconds that the process may take to exit after its stdin was closed."""
PING_S, SILENT_S = 10.0, 60
"""Seconds between pings while anybody waits for the process, and until it counts as silent.
Requests may take far longer: it handles many at the same time."""


class Link:
    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        on_state: Callable[[dict[str, Any]], None],
    ) -> None:
        """
        Args:
            directory: For the process's journal and log.
            environment: Variables in addition to this process's own.
            on_state: Called with the state of the server's queue whenever it changes.
        """
        self._directory = directory
        self._environment = environment
        self._on_state = on_state
        self._pipe: Pipe | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._lost = LOST
        """Message for those who wait when the process exits."""
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process's id; None if none runs."""
        pipe = self._pipe
        return pipe.pid if pipe is not None and pipe.runs else None

    async def start(self) -> bool:
        """Start the process if none runs; returns whether it was started."""
        async with self._starting:
            if self.pid is not None:
                return False
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            logged = open_or_make(self._directory / "worker.log", os.O_TRUNC)
            words = [sys.executable, "-m", "hud_tui.service.engines.tinker.worker"]
            try:
                self._pipe = await Pipe.start(
                    [*words, str(self._directory)],
                    lambda document: self._on_state(document["state"]),
                    CODEC,
                    has_group=True,
                    stoppable={"sample"},
                    stderr=logged,
                    env={**os.environ, **self._environment},
                )
            finally:
                os.close(logged)
            self._lost = LOST
            self._watcher = asyncio.create_task(self._watch(self._pipe), name="tinker watch")
            return True

    async def ask(self, verb: str, **fields: Any) -> Any:
        """Send a request to the running process and await its result.

        A cancelled sampling request is not sent on if it is still queued. Raises EngineError: the
        request failed in the process; EngineLost: the process exited before it answered.
        """
        if self._pipe is None:
            raise EngineLost(LOST)
        try:
            answer = await self._pipe.ask(verb, **fields)
        except ProcessEnded as error:
            raise EngineLost(self._lost) from error
        except TypeError as error:
            raise EngineRefused(f"the request cannot be sent: {error}") from error
        if "error" in answer:
            raise raised(answer)
        return answer["result"]

    async def stop(self) -> None:
        """Stop the process, which releases its runs first; waiting requests raise EngineLost."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self._pipe is not None:
            await self._pipe.close(PATIENCE_S)

    async def _watch(self, pipe: Pipe) -> None:
        """Stop the process if it is waited for and does not answer pings."""
        while pipe.runs:
            await asyncio.sleep(PING_S)
            if not pipe.waits:
                continue
            try:
                await in_time(self.ask("ping"), SILENT_S)
            except TimeoutError as error:
                self._lost = SILENT.format(error)
                pipe.kill()
            except EngineLost:
                return


# Presence: whether the server answers at all, checked while calls wait for it.


PROBE_S = 2.0
"""Seconds between two checks."""
ANSWER_S = 5.0
"""Longest wait for an answer of any kind, seconds."""
FRESH_S = 10.0
"""Seconds for which any answer counts."""
RETURN_S = 300.0
"""Seconds that a server may be away before a call that was not sent is given up."""


class Presence:
    def __init__(self, url: str, report: Callable[[str | None], None]) -> None:
        """`report`: called with what is waited for, in plain words, and with None when that is
        over."""
        self._url = url
        self._report = report
        self._answered_at = float("-inf")
        self._away = False
        """Whether the last check had no answer."""

    def observe(self) -> None:
        """Record that the server answered something."""
        self._answered_at = monotonic()
        if self._away:
            self._away = False
            self._report(None)

    async def check(self) -> bool:
        """Whether it answers; `report` is called when that changes."""
        if await asyncio.to_thread(_answers, self._url):
            self.observe()
            return True
        self._answered_at = float("-inf")
        self._report_away()
        return False

    async def wait(self, patience_s: float = RETURN_S) -> None:
        """Wait until it answers. Raises EngineError: it did not answer within this time."""
        if monotonic() - self._answered_at < FRESH_S:
            return
        if self._away:  # for a repeated call, the last check counts until the next one
            self._report_away()
        async for _ in Looks(PROBE_S, patience_s):
            if await self.check():
                return
        raise EngineError(
            f"{self._url} has not answered for {patience_s:.0f} s:"
            " start the server again, then repeat this (or resume the run)"
        )

    def _report_away(self) -> None:
        self._away = True
        self._report(f"{self._url} does not answer")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/healthz", timeout=ANSWER_S):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


# Pointer: a checkpoint's file here, which says where its weights are on the server.


POINTER_FILE = "tinker.json"
MOST_POINTER_BYTES = 1 << 20
"""Maximum size of the file, bytes."""


@dataclass(frozen=True)
class Pointer:
    """Weights on a server: a saved state, or a base."""

    url: str
    """URL of the server."""
    base: str
    """The engine's name of the base."""
    model: str
    """The server's name of the base."""
    rank: int
    state_path: str | None = None
    """``tinker://RUN/weights/NAME``."""
    sampler_path: str | None = None
    optimizer: bool = True
    """Whether the optimizer's moments are loaded with the weights."""


def write_pointer(directory: Path, pointer: Pointer) -> Path:
    """Write it into a directory, fsynced and renamed into place; returns the file. Raises
    EngineError: it cannot be written."""
    path = directory / POINTER_FILE
    try:
        write_atomic(path, json.dumps(asdict(pointer)))
    except OSError as error:
        raise not_written("the checkpoint", error) from error
    return path


def read_pointer(path: Path) -> Pointer:
    """Read a pointer. Raises StateDamaged: the file is missing or incomplete."""
    try:
        return Pointer(**json.loads(read_regular(path, MOST_POINTER_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StateDamaged(f"no such state, or it is not whole: {path.name}") from error


def pointed_states(checkpoints: Path) -> set[str]:
    """Every state that a checkpoint here points to, including those moved aside at start-up. Raises
    EngineError: A pointer cannot be read; OSError: there is no such directory."""
    checkpoints.stat()
    aside = checkpoints.parent.glob(f"leftovers-*/*/{POINTER_FILE}")
    return {
        str(read_pointer(path).state_path)
        for path in (*checkpoints.glob(f"*/{POINTER_FILE}"), *aside)
    }
