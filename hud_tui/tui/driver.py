"""`TerminalDriver`: Textual's driver, for a terminal that may go away.

Textual reads the end of a terminal's input again and again, and waits forever to write to it.
"""

import signal
import termios
from asyncio import TimerHandle
from contextlib import suppress
from typing import Any, TextIO

from textual.drivers.linux_driver import LinuxDriver

LOOK_S = 1.0
"""Seconds between two looks whether the terminal is there. Not every hang-up sends a signal: the
terminal may not be the controlling one, or `nohup` may have ignored it."""
ENDING = (signal.SIGHUP, signal.SIGTERM)
"""Signals that end the app as a key would, so that all is saved."""


class TerminalDriver(LinuxDriver):
    """Ends the app when its terminal is gone, with the exit code that SIGHUP has in a shell."""

    _next_look: TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._file is not None:
            self._file = _Lossy(self._file)  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._leave, number)
        self._look()

    def close(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        for number in ENDING:
            self._loop.remove_signal_handler(number)
        super().close()

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            if not self._is_gone():  # else the next look ends the app
                raise

    def _look(self) -> None:
        if self._is_gone():
            self._leave(signal.SIGHUP)
        else:
            self._next_look = self._loop.call_later(LOOK_S, self._look)

    def _is_gone(self) -> bool:
        try:
            termios.tcgetattr(self.fileno)
        except (termios.error, OSError, ValueError):
            return self.input_tty
        return False

    def _leave(self, number: int) -> None:
        self._app.exit(return_code=128 + number)


class _Lossy:
    """A stream whose failed writes are left out: nobody would see them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
