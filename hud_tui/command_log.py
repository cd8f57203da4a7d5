"""CommandLog: what was changed from this machine, a line of JSON each, in the state directory.

Lines are only added, by one program at a time, so that several can share the file. A
line that cannot be read is passed over. When the file is full it is put aside, once.
"""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hud_tui.regular_file import open_or_make, open_regular
from hud_tui.rl.written import Written, read_lines, to_line
from hud_tui.storage import PRIVATE, locked

NAME = "commands.jsonl"
MOST = 1_000_000
"""Bytes after which the file is put aside; the one put aside before is gone then."""

REPORTS = frozenset({"enter trace", "exit trace"})
"""Said of every rollout of a training loop: they change no model, and would soon fill the file."""


class CommandLog:
    """The file, for adding to it and for reading it."""

    def __init__(self, directory: Path, by: str = "") -> None:
        """`by` is what adds to it, e.g. ``app``."""
        self.file, self._by = directory / NAME, by

    @property
    def before(self) -> Path:
        """The file that was put aside."""
        return self.file.with_suffix(".jsonl.1")

    def add(self, written: Written) -> None:
        """Write a line down. That it cannot be is no reason to stop: what it says was done."""
        if written.verb in REPORTS:
            return
        line = to_line(replace(written, by=self._by)).encode("ascii")
        with suppress(OSError):
            try:
                with locked(self.file.parent):
                    self._append(line)
                    if self.file.stat().st_size > MOST:
                        self.file.replace(self.before)
            except TimeoutError:  # a line is whole without the lock too
                self._append(line)

    def read(self) -> tuple[list[Written], int]:
        """All that is kept, oldest first, and how many lines cannot be read."""
        lines: list[str] = []
        for file in (self.before, self.file):
            with suppress(OSError), open_regular(file) as opened:
                body = opened.read(2 * MOST)
                lines += body.decode("utf-8", "replace").split("\n")
        return read_lines(lines)

    def _append(self, line: bytes) -> None:
        descriptor = open_or_make(self.file, os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, PRIVATE)
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
