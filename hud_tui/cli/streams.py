"""Stdout and stderr of a command.

A result that cannot be printed must not look like a command that was not carried out: `Results`
knows which changes have been made since a result was printed last.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, TextIO

NOT_PRINTED = 8
"""Exit code where stdout could not be written."""
INTERRUPTED = 130
"""Exit code of a program ended by SIGINT: 128 + signal number."""
TERMINATED = 143
"""Exit code of a program ended by SIGTERM: 128 + signal number."""
READER_LEFT = 141
"""Exit code of a program ended by SIGPIPE: 128 + signal number."""


class StdoutFailed(Exception):
    """Stdout cannot be written."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.reader_left = isinstance(error, BrokenPipeError)
        reason = error.strerror if isinstance(error, OSError) else None
        self.reason = reason or str(error)


@contextmanager
def _interruptible(stream: TextIO) -> Iterator[None]:
    """Let one SIGINT end a write for which the reader has no room.

    asyncio's handler cancels a task, which a write that blocks never returns to. Where there is
    room, that handler is called: the write goes on, and the task ends as it does anywhere else.

    Raises:
        KeyboardInterrupt: SIGINT during the write; or before it, and the write would block.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or current_thread() is not main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _has_room(stream):
            before(number, frame)
        else:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        if _is_cancelled() and not _has_room(stream):
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_cancelled() -> bool:
    """Whether the running task has been cancelled."""
    asyncio = sys.modules.get("asyncio")  # not every command loads it
    if asyncio is None:
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return bool(task and task.cancelling())


def _has_room(stream: TextIO) -> bool:
    """Whether a short write would not block."""
    try:
        return bool(select([], [stream], [], 0)[1])
    except (OSError, ValueError):  # it has no descriptor, or none that can block
        return True


class Results:
    """Stdout. Errors of writing are `StdoutFailed`, which no other file's errors are."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream`: None if the descriptor is closed."""
        self._stream = stream
        self.interrupted = False
        """Whether SIGINT ended a write, and the reader has no room: nothing more is written."""
        self.unprinted: list[str] = []
        """Changes that no printed result tells of yet, in a few words each."""
        self._has_written = False
        """Whether something was written since the last change, or the last flush."""
        self.terminated = False
        """Whether SIGTERM came."""

    def changed(self, what: str, record: str = "") -> None:
        """A change was made that is to be told; `record` says what lists it."""
        self.unprinted.append(f"{what} ({record})" if record else what)
        self._has_written = False

    def write(self, text: str) -> int:
        """Raises StdoutFailed."""
        if self._stream is None:
            raise StdoutFailed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            with self._noticing_interrupts(self._stream):
                count = self._stream.write(text)
        except UnicodeEncodeError as error:  # not every locale has →
            encoding = self._stream.encoding
            plain = text.encode(encoding, "replace").decode(encoding)
            if plain == text:
                raise StdoutFailed(error) from error
            return self.write(plain)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise StdoutFailed(error) from error
        self._has_written = True
        return count

    def flush(self) -> None:
        """Raises StdoutFailed."""
        if self._stream is None:
            return
        try:
            with self._noticing_interrupts(self._stream):
                self._stream.flush()
        except (OSError, ValueError) as error:
            self._has_written = False  # what was lost is not flushed again
            raise StdoutFailed(error) from error
        if self._has_written:
            self.unprinted.clear()
            self._has_written = False

    @contextmanager
    def _noticing_interrupts(self, stream: TextIO) -> Iterator[None]:
        if self.interrupted:
            raise InterruptedError(errno.EINTR, "interrupted; its reader does not read")
        try:
            with _interruptible(stream):
                yield
        except KeyboardInterrupt:
            if not _has_room(stream):  # else what is left is written at the end
                self.interrupted, self._has_written = True, False
            raise

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Notices:
    """Stderr. What cannot be written there is left out: nobody could be told."""

    def __init__(self, stream: TextIO | None, results: Results) -> None:
        """
        Args:
            stream: None if the descriptor is closed.
            results: Once a write there was interrupted, only what has room is written here.
        """
        self._stream, self._results = stream, results
        self.failed = False
        """Whether a write failed, so that its text may still be in the buffer."""

    def write(self, text: str) -> int:
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def _try(self, action: Callable[[TextIO], object]) -> None:
        stream = self._stream
        try:
            if stream is not None and (not self._results.interrupted or _has_room(stream)):
                with _interruptible(stream):
                    action(stream)
        except (OSError, ValueError):
            self.failed = True

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def streams() -> Iterator[Results]:
    """Replace stdout and stderr by `Results` and `Notices`; meanwhile SIGTERM, which job schedulers
    send, ends a command as SIGINT does."""
    before = sys.stdout, sys.stderr
    results = Results(sys.stdout)
    notices = Notices(sys.stderr, results)
    sys.stdout, sys.stderr = results, notices
    try:
        with _terminable(results):
            yield results
    finally:
        notices.flush()
        if notices.failed:
            write_nowhere()
        sys.stdout, sys.stderr = before


@contextmanager
def _terminable(results: Results) -> Iterator[None]:
    """Have SIGTERM do what SIGINT does at that moment, unless it is handled already."""

    def end(number: int, frame: FrameType | None) -> None:
        results.terminated = True
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell lets its background jobs ignore it
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def changed(what: str, record: str = "") -> None:
    """A change was made that is to be told on stdout; `record` says what lists it."""
    if isinstance(sys.stdout, Results):
        sys.stdout.changed(what, record)


def tell(what: str) -> None:
    """Say it on stderr, unless the app has the terminal."""
    if isinstance(sys.stdout, Results):
        print(f"hud-tui: {what}", file=sys.stderr, flush=True)


IN_LOG = "hud-tui log lists it"


def failure_of(error: BaseException) -> StdoutFailed | None:
    """The failure of stdout in an exception, or in a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return next((failure for each in error.exceptions if (failure := failure_of(each))), None)
    return error if isinstance(error, StdoutFailed) else None


def report(failure: StdoutFailed, unprinted: list[str]) -> int:
    """Say on stderr what could not be printed; returns the exit code. Nothing is said if only a
    reader left (``| head``)."""
    if failure.reader_left and not unprinted:
        return READER_LEFT
    done = f"done: {'; '.join(unprinted)}. But " if unprinted else ""
    print(f"hud-tui: {done}stdout cannot be written: {failure.reason}", file=sys.stderr, flush=True)
    return NOT_PRINTED


def write_nowhere() -> None:
    """Redirect stdout and stderr to /dev/null at the end of a process of which one failed: what is
    left in their buffers would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it has no descriptor, as in tests
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
