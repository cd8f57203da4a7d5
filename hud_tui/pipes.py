"""Requests to a process of our own, and its answers: one JSON document a line, on its stdin and
stdout.

Both sides are here. The standard library alone: one side may run in an environment's interpreter.
"""

import asyncio
import json
import logging
import os
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from select import select
from signal import SIGKILL
from typing import IO, Any, NamedTuple

log = logging.getLogger(__name__)

LONGEST = 1 << 32
"""Longest line, bytes: a batch's tokens are one."""
LARGE = 1 << 20
"""Length of a line from which it is parsed in a thread, bytes."""

Document = dict[str, Any]


class Codec(NamedTuple):
    """How a document becomes a line, without its end, and is read from one."""

    dumps: Callable[[Document], bytes]
    loads: Callable[[bytes], Any]


JSON = Codec(lambda document: json.dumps(document, default=str).encode(), json.loads)


class ProcessEnded(EOFError):
    """The process exited before it answered."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"ended with code {code}")


def send_signal(process: Process, number: int) -> None:
    """Send a signal to a child, if it runs. What asyncio has for it looks whether the child has
    ended, and takes its exit code: asyncio's own watcher then finds none, and says so on stderr."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def kill_group(process: Process) -> None:
    """Kill a process that began a group of its own, and what is left of that group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, SIGKILL)


class Pipe:
    """A process that answers requests, in any order, and may say more."""

    def __init__(
        self,
        process: Process,
        said: Callable[[Document], object] = lambda document: None,
        codec: Codec = JSON,
        has_group: bool = False,
        stoppable: Collection[str] = (),
    ) -> None:
        """Arguments as of `start`."""
        self.process = process
        self._said, self._codec, self._has_group = said, codec, has_group
        self._stoppable = stoppable
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Document]] = {}
        self._reading = asyncio.create_task(self._read(), name=f"pipe of {process.pid}")

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        said: Callable[[Document], object] = lambda document: None,
        codec: Codec = JSON,
        has_group: bool = False,
        stoppable: Collection[str] = (),
        **options: Any,
    ) -> "Pipe":
        """Start a process.

        Args:
            said: Called with each document that is no answer.
            codec: Of both sides.
            has_group: Whether it begins a session and a process group, which is killed with it.
            stoppable: Verbs of requests that are stopped there once nobody waits for the answer.
            options: Of `create_subprocess_exec`; ``limit``: longest line, bytes.

        Raises:
            OSError: It cannot be started.
        """
        options = {"limit": LONGEST, **options, "stdin": PIPE, "stdout": PIPE}
        process = await create_subprocess_exec(*words, start_new_session=has_group, **options)
        return cls(process, said, codec, has_group, stoppable)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Whether it may still answer."""
        return not self._reading.done()

    @property
    def waits(self) -> bool:
        """Whether any answer is missing."""
        return bool(self._waiting)

    def tell(self, **document: Any) -> None:
        """Say what has no answer, without waiting. Raises TypeError, ValueError: it cannot be
        encoded."""
        assert self.process.stdin is not None
        self.process.stdin.write(self._codec.dumps(document) + b"\n")

    def send(self, verb: str, **fields: Any) -> asyncio.Future[Document]:
        """Send a request without waiting; its answer, or `ProcessEnded`, comes later.

        Raises:
            TypeError, ValueError: It cannot be encoded.
        """
        id_ = next(self._ids)
        self.tell(id=id_, verb=verb, **fields)
        answer: asyncio.Future[Document] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = answer
        answer.add_done_callback(lambda answer: self._waiting.pop(id_, None))
        if not self.runs:
            self._end(answer)
        return answer

    async def ask(self, verb: str, **fields: Any) -> Document:
        """Send a request and await its answer.

        Raises:
            TypeError, ValueError: It cannot be encoded.
            ProcessEnded: The process exited before it answered.
        """
        answer = self.send(verb, **fields)
        id_ = next(reversed(self._waiting))
        try:
            await self.drain()
            return await answer
        except asyncio.CancelledError:
            if verb in self._stoppable:
                self.tell(verb="cancel", of=id_)
            raise

    async def drain(self) -> None:
        """Wait until more can be sent. Raises ProcessEnded: the process exited, or closed its input
        and was killed."""
        assert self.process.stdin is not None
        try:
            await self.process.stdin.drain()
        except OSError as error:
            self.kill()
            await self.wait()
            raise ProcessEnded(self.process.returncode) from error

    async def wait(self) -> None:
        """Wait until it has exited, and all that it said was taken."""
        await asyncio.wait([self._reading])

    def kill(self) -> None:
        if self._has_group:
            kill_group(self.process)
        else:
            send_signal(self.process, SIGKILL)

    async def close(self, patience_s: float) -> None:
        """Close its stdin, and kill it if it does not exit within this time. What it says until
        then is still taken."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(patience_s):
                await self.process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self.wait()

    async def _read(self) -> None:
        """Take what it says until it exits."""
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while (line := await stdout.readline()).endswith(b"\n"):
                await self._take(line)
        except Exception:
            log.info("process %d does not speak our protocol", self.pid, exc_info=True)
            self.kill()
        await self.process.wait()
        for answer in self._waiting.values():
            self._end(answer)

    async def _take(self, line: bytes) -> None:
        loads = self._codec.loads
        document = await asyncio.to_thread(loads, line) if len(line) > LARGE else loads(line)
        if "event" in document or "id" not in document:
            self._said(document)
            return
        answer = self._waiting.get(document["id"])
        if answer is not None and not answer.done():
            answer.set_result(document)

    def _end(self, answer: asyncio.Future[Document]) -> None:
        if not answer.done():
            answer.set_exception(ProcessEnded(self.process.returncode))
            answer.exception()  # which nobody may ask for


# The other side.


def write_document(end: int, document: Document, codec: Codec = JSON) -> None:
    """Write a document as a line to a blocking file descriptor."""
    write_all(end, codec.dumps(document) + b"\n")


def write_all(end: int, data: bytes) -> None:
    """Write bytes to a blocking file descriptor."""
    while data:
        data = data[os.write(end, data) :]


def reply(end: int, document: Document, codec: Codec = JSON) -> None:
    """Write a document as a line; exit if nobody reads it any more."""
    try:
        write_document(end, document, codec)
    except BrokenPipeError:
        os._exit(0)


READ = 1 << 20
"""Most bytes that are read at a time."""


class Inbox:
    """Documents as they arrive at a blocking file descriptor, for who answers one at a time."""

    def __init__(
        self, end: int, codec: Codec = JSON, taken: Callable[[Document], bool] = lambda _: False
    ) -> None:
        """`taken`: called with each document when it is read; returns whether that was all, so that
        it does not wait for its turn."""
        self._end, self._codec, self._taken = end, codec, taken
        self._waiting: deque[Document] = deque()
        self._line = bytearray()
        """The beginning of one that has not arrived."""

    @property
    def waits(self) -> bool:
        """Whether one that was read has not been given out."""
        return bool(self._waiting)

    def next(self) -> Document | None:
        """Wait for the next one; None at the end, also where that is in the middle of a line."""
        while not self._waiting:
            if not self._read():
                return None
        return self._waiting.popleft()

    def look(self) -> None:
        """Read what has arrived, without waiting."""
        while select([self._end], [], [], 0)[0] and self._read():
            pass

    def _read(self) -> bool:
        """Read some; returns whether there may be more."""
        data = os.read(self._end, READ)
        self._line += data
        if b"\n" in data:
            *lines, self._line = self._line.split(b"\n")
            documents = [self._codec.loads(bytes(line)) for line in lines]
            self._waiting.extend(document for document in documents if not self._taken(document))
        return bool(data)


async def answer_requests(
    stdin: IO[bytes],
    answer: Callable[[Document], Coroutine[Any, Any, None]],
    tasks: dict[int, asyncio.Task[None]],
    codec: Codec = JSON,
) -> None:
    """Answer requests, many at the same time, until stdin is closed.

    Args:
        answer: Called with each request; writes its answer.
        tasks: By request; those that go on are in it at the end.
        codec: Of both sides.
    """
    reader, loop = asyncio.StreamReader(limit=LONGEST), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    while (line := await reader.readline()).endswith(b"\n"):
        request = codec.loads(line)
        if request["verb"] == "cancel":
            if request["of"] in tasks:
                tasks[request["of"]].cancel()
            continue
        tasks[request["id"]] = task = loop.create_task(answer(request))
        task.add_done_callback(partial(_forget, tasks, request["id"]))


def _forget(tasks: dict[int, asyncio.Task[None]], id_: int, task: asyncio.Task[None]) -> None:
    tasks.pop(id_, None)
