"""Recorder: writes a session's events to a file as they come, until that is too large."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time

from hud_tui import __version__
from hud_tui.errors import HudUsage
from hud_tui.events import Event
from hud_tui.rl.recording import first_line, to_line
from hud_tui.rl.text import one_line
from hud_tui.wire import Model

MOST = 512 * 1024 * 1024
"""Bytes after which nothing more is recorded."""


class Recorder:
    """One file. What cannot be written is told once, and ends the recording."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        """`tell` says in a line why the recording has ended."""
        self._tell = tell
        self._path, self._written, self._began = path, 0, time()
        try:
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError:
            hint = "give another name, or remove it"
            raise HudUsage(f"--record {one_line(path)}: the file exists", hint) from None
        except OSError as error:
            what = f"--record {one_line(path)}: {error.strerror or error}"
            raise HudUsage(what, "give the name of a file that can be written") from error
        self._write(first_line(__version__, self._began))

    def model(self, model: Model) -> None:
        """This model is followed from now on."""
        self._write(to_line("model", time() - self._began, model))

    def event(self, event: Event) -> None:
        """An event of the followed model has come."""
        self._write(to_line("event", time() - self._began, event))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self._end(f"{error.strerror or error}")
            return
        self._written += len(line)
        if self._written > MOST:
            self._end(f"it has {MOST // 2**20} MB")

    def _end(self, why: str) -> None:
        self._tell(f"The recording {one_line(self._path, 120)} ends here: {why}.")
        with suppress(OSError):  # what is still to be written cannot be
            self._file.close()
