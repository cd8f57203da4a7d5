"""Journal: the log of a service, in which each request that changes something has a line.

A line is JSON (`wire_access.LogLine`). It is written by the service once the answer is decided, so
no client can leave it out, not even by hanging up; a request that the service did not survive has
none. The file is in the data directory, for its owner only, and is rotated by size.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from time import monotonic
from urllib.parse import parse_qs

from pydantic import ValidationError
from starlette.types import Scope

from hud_tui.rl.text import one_line
from hud_tui.service.caller import CALLER
from hud_tui.service.http import now
from hud_tui.wire_access import LogLine, LogPage

log = logging.getLogger(__name__)

FILE = "log.jsonl"
MOST_BYTES = 8_000_000
"""Size from which a new file is begun."""
KEPT = 4
"""Files kept beside the newest; the oldest is deleted."""
TEXT_MOST = 300
PROGRAM_MOST = 60
"""Most characters of a program's or a machine's name."""
REFUSED_S = 10.0
"""Seconds whose refused requests of one address are one line: a flood of them must not rotate
everything else away."""
MOST_ADDRESSES = 1000


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / FILE
        self._lock = Lock()
        self._refused: dict[str, tuple[float, int]] = {}
        """By address: when its refused requests were last written, and how many came since."""

    def write(self, scope: Scope, what: str, status: int, about: dict[str, str]) -> None:
        """Add a line about a request with a key."""
        caller = CALLER.get()
        self._add(self._line(scope, what, status, caller.name, caller.role, about=about))

    def refuse(self, scope: Scope) -> None:
        """Add a line about requests whose key is not accepted."""
        address, heard = _address(scope), monotonic()
        since, count = self._refused.get(address, (-REFUSED_S, 0))
        if heard - since < REFUSED_S:
            self._refused[address] = since, count + 1
            return
        while len(self._refused) >= MOST_ADDRESSES:
            del self._refused[next(iter(self._refused))]
        self._refused[address] = heard, 0
        self._add(self._line(scope, "no key that is accepted", 401, "", "", count=count + 1))

    @staticmethod
    def _line(
        scope: Scope,
        what: str,
        status: int,
        name: str,
        role: str,
        about: dict[str, str] | None = None,
        count: int = 1,
    ) -> LogLine:
        program, host = program_of(scope)
        return LogLine(
            at=now(),
            key=name,
            role=role,
            address=_address(scope),
            program=" on ".join(filter(None, (program, host))),
            what=what,
            method=scope["method"],
            path=one_line(scope["path"], TEXT_MOST),
            status=status,
            about={key: one_line(text, TEXT_MOST) for key, text in (about or {}).items()},
            count=count,
        )

    def _add(self, line: LogLine) -> None:
        data = line.model_dump_json().encode() + b"\n"
        try:
            with self._lock:
                self._rotate(len(data))
                opened = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(opened, data)
                finally:
                    os.close(opened)
        except OSError as error:
            log.error("%s: %s: not logged: %s", self._file, error.strerror, data.decode().strip())

    def _rotate(self, more: int) -> None:
        try:
            if self._file.stat().st_size + more <= MOST_BYTES:
                return
        except FileNotFoundError:
            return
        for number in range(KEPT, 0, -1):
            older = self._older(number - 1)
            if older.exists():
                older.replace(self._older(number))

    def _older(self, number: int) -> Path:
        return self._file.with_name(f"{FILE}.{number}") if number else self._file

    def newest(self, limit: int, before: float | None = None) -> LogPage:
        """The newest lines, newest first; `before`: Unix seconds that they are older than."""
        lines: list[LogLine] = []
        for line in self._lines():
            if line is None:
                return LogPage(lines=lines, incomplete=True)
            if before is not None and line.at >= before:
                continue
            if len(lines) == limit:
                return LogPage(lines=lines)
            lines.append(line)
        return LogPage(lines=lines, incomplete=self._older(KEPT).exists())

    def _lines(self) -> Iterator[LogLine | None]:
        """All lines, newest first; None in place of one that cannot be read."""
        for number in range(KEPT + 1):
            try:
                with self._lock:
                    raw = self._older(number).read_bytes()
            except FileNotFoundError:
                continue
            for line in reversed(raw.splitlines()):
                try:
                    yield LogLine.model_validate_json(line)
                except ValidationError:
                    yield None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])


def program_of(scope: Scope) -> tuple[str, str]:
    """What a client says that it is, and on which machine: in its header ``HUD-TUI-Move``
    (``program=app&host=laptop``), else its User-Agent."""
    headers = dict(scope["headers"])
    fields = parse_qs(headers.get(b"hud-tui-move", b"").decode("latin-1"))
    sent = {name: values[0] for name, values in fields.items()}
    agent = headers.get(b"user-agent", b"").decode("latin-1")
    program = sent.get("program") or agent.partition(" ")[0]
    return one_line(program, PROGRAM_MOST), one_line(sent.get("host", ""), PROGRAM_MOST)
