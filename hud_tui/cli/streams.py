"""Stdout and stderr of a command.

A result that cannot be printed must not look like a command that was not carried out: `Results`
knows which changes have been made since a result was printed last.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

NOT_PRINTED = 8
"""Exit code where stdout could not be written."""
READER_LEFT = 141
"""Exit code of a program ended by SIGPIPE: 128 + signal number."""


class StdoutFailed(Exception):
    """Stdout cannot be written."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.reader_left = isinstance(error, BrokenPipeError)
        reason = error.strerror if isinstance(error, OSError) else None
        self.reason = reason or str(error)


class Results:
    """Stdout. Errors of writing are `StdoutFailed`, which no other file's errors are."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream`: None if the descriptor is closed."""
        self._stream = stream
        self.unprinted: list[str] = []
        """Changes that no printed result tells of yet, in a few words each."""
        self._has_written = False
        """Whether something was written since the last change, or the last flush."""

    def changed(self, what: str) -> None:
        """A change was made that is to be told."""
        self.unprinted.append(what)
        self._has_written = False

    def write(self, text: str) -> int:
        """Raises StdoutFailed."""
        if self._stream is None:
            raise StdoutFailed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            count = self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise StdoutFailed(error) from error
        self._has_written = True
        return count

    def flush(self) -> None:
        """Raises StdoutFailed."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._has_written = False  # what was lost is not flushed again
            raise StdoutFailed(error) from error
        if self._has_written:
            self.unprinted.clear()
            self._has_written = False

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Notices:
    """Stderr. What cannot be written there is left out: nobody could be told."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream`: None if the descriptor is closed."""
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def streams() -> Iterator[Results]:
    """Replace stdout and stderr by `Results` and `Notices`."""
    before = sys.stdout, sys.stderr
    results = Results(sys.stdout)
    sys.stdout, sys.stderr = results, Notices(sys.stderr)
    try:
        yield results
    finally:
        sys.stdout, sys.stderr = before


def changed(what: str) -> None:
    """A change was made that is to be told on stdout."""
    if isinstance(sys.stdout, Results):
        sys.stdout.changed(what)


def failure_of(error: BaseException) -> StdoutFailed | None:
    """The failure of stdout in an exception, or in a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return next((one for each in error.exceptions if (one := failure_of(each))), None)
    return error if isinstance(error, StdoutFailed) else None


def report(failure: StdoutFailed, unprinted: list[str]) -> int:
    """Say on stderr what could not be printed; returns the exit code. Nothing is said if only a
    reader left (``| head``)."""
    if failure.reader_left and not unprinted:
        return READER_LEFT
    done = f"done: {'; '.join(unprinted)} (hud-tui log lists it). But " if unprinted else ""
    print(f"hud-tui: {done}stdout cannot be written: {failure.reason}", file=sys.stderr, flush=True)
    return NOT_PRINTED


def write_nowhere() -> None:
    """Redirect stdout and stderr to /dev/null at the end of a process whose stdout failed: what is
    left in their buffers would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it has no descriptor, as in tests
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
