"""WorkerProcess: starts the worker, exchanges frames with it, and ends it."""

import asyncio
import sys
from typing import Any

import orjson

from hud_tui.service.engines.pipe import Silent, frame, in_time

PATIENCE_S = 5.0
"""How long a worker may take to end once its input has ended."""
ANSWER_S = 30
"""How long a worker may take to answer: what it is asked takes it about a second at most."""


class WorkerProcess:
    """A running worker. One exchange at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.silent_s = 0
        """For how long an answer has been waited for, in whole seconds."""

    @classmethod
    async def start(cls) -> "WorkerProcess":
        """Start a worker; it reads its first frame once it is up."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hud_tui.service.engines.tiny.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and await its reply.

        Raises:
            OSError, EOFError: The worker ended; Silent, it did not answer, and is ended.
        """
        try:
            return await in_time(self._exchange(request), ANSWER_S, self._silent)
        except Silent:
            self.process.kill()
            raise

    def _silent(self, seconds: int) -> None:
        self.silent_s = seconds

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise EOFError("the worker has no pipes")
        stdin.write(frame(request))
        await stdin.drain()
        size = int.from_bytes(await stdout.readexactly(4), "big")
        reply: dict[str, Any] = orjson.loads(await stdout.readexactly(size))
        return reply

    async def close(self) -> None:
        """End the worker's input, and the worker where that does not suffice."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
