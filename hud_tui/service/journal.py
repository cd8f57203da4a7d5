"""Journal: the log of a service, in which each request that changes something has a line.

A line is JSON (`wire_access.LogLine`). It is written by the service once the answer is decided, so
no client can leave it out, not even by hanging up; a request that the service did not survive has
none. The file is in the data directory, for its owner only, and is rotated by size.
"""

import errno
import logging
import os
from collections.abc import Iterator
from math import nan
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

GONE = 499
"""Status of a request whose client disconnected before its answer, as in nginx."""
FILE = "log.jsonl"
MOST_BYTES = 8_000_000
"""Size from which a new file is begun."""
KEPT = 4
"""Files kept beside the newest; the oldest is deleted."""
TEXT_MOST = 300
PROGRAM_MOST = 60
"""Most characters of a program's or a machine's name."""
REFUSED_S = 10.0
"""Seconds in which refused requests have a few lines only, which say how many they were: a flood of
them must not rotate everything else away."""
OF_ADDRESS, OF_ALL, OF_KEY = 1, 100, 10
"""Those lines, where no key is accepted, of one address and of all; and of one key."""
MOST_KNOWN = 1000
"""Addresses, or keys, whose lines are counted."""


class FewLines:
    """Which requests have a line of their own, for each address or key."""

    def __init__(self, most: int) -> None:
        """`most`: lines in `REFUSED_S`."""
        self._most = most
        self._seen: dict[str, tuple[float, int, int]] = {}
        """When the first of them was written, how many were, and how many requests had none."""

    def stands_for(self, who: str, count: int = 1) -> int:
        """How many requests a line about the newest stands for; 0: it has none, a later one counts
        it. `count`: as many came since the one before."""
        heard = monotonic()
        since, written, held = self._seen.get(who, (heard, 0, 0))
        if heard - since >= REFUSED_S:
            since, written = heard, 0
        has_line = written < self._most
        total = held + count
        self._seen[who] = since, written + has_line, 0 if has_line else total
        while len(self._seen) > MOST_KNOWN:
            del self._seen[next(iter(self._seen))]
        return total if has_line else 0


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / FILE
        self._lock = Lock()
        self._of_address, self._of_all = FewLines(OF_ADDRESS), FewLines(OF_ALL)
        self._of_key = FewLines(OF_KEY)

    def write(self, scope: Scope, what: str, status: int, about: dict[str, str]) -> None:
        """Add a line about a request with a key; of many that are refused, a few have one."""
        caller, count = CALLER.get(), 1
        if 400 <= status < GONE:
            count = self._of_key.stands_for(caller.name)
        if count:
            name, role = caller.name, caller.role
            self._add(self._line(scope, what, status, name, role, about=about, count=count))

    def refuse(self, scope: Scope) -> None:
        """Add a line about requests whose key is not accepted."""
        count = self._of_address.stands_for(_address(scope))
        count = count and self._of_all.stands_for("", count)
        if count:
            self._add(self._line(scope, "no key that is accepted", 401, "", "", count=count))

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
                    before = os.fstat(opened).st_size
                    if os.write(opened, data) < len(data):
                        os.ftruncate(opened, before)
                        raise OSError(errno.ENOSPC, "there was no room for all of it")
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
        """The newest lines, newest first; `before`: Unix seconds that they are older than. One that
        cannot be read is left out."""
        lines: list[LogLine] = []
        is_torn = False
        for raw in self._lines(before):
            if before is not None and not _at(raw) < before:
                continue
            if len(lines) == limit:
                return LogPage(lines=lines, incomplete=is_torn)
            try:
                lines.append(LogLine.model_validate_json(raw))
            except ValidationError:
                is_torn = True
        return LogPage(lines=lines, incomplete=is_torn or self._older(KEPT).exists())

    def _lines(self, before: float | None) -> Iterator[bytes]:
        """All lines, newest first, but for files that have none before this time."""
        for number in range(KEPT + 1):
            try:
                with self._lock, self._older(number).open("rb") as file:
                    first = file.readline()
                    if before is not None and _at(first) >= before:
                        continue
                    raw = first + file.read()
            except FileNotFoundError:
                continue
            yield from reversed(raw.splitlines())


def _at(line: bytes) -> float:
    """The time of a line, without reading all of it; NaN if it has none."""
    try:
        return float(line.removeprefix(b'{"at":').partition(b",")[0])
    except ValueError:
        return nan


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])


_PLAIN = str.maketrans(",:", "  ")
"""A history says ``sue: app on laptop, proposed by sam``: no program is called so."""


def program_of(scope: Scope) -> tuple[str, str]:
    """What a client says that it is, and on which machine: in its header ``HUD-TUI-Move``
    (``program=app&host=laptop``), else its User-Agent."""
    headers = dict(scope["headers"])
    fields = parse_qs(headers.get(b"hud-tui-move", b"").decode("latin-1"))
    sent = {name: values[0] for name, values in fields.items()}
    agent = headers.get(b"user-agent", b"").decode("latin-1")
    program = sent.get("program") or agent.partition(" ")[0]
    names = (text.translate(_PLAIN) for text in (program, sent.get("host", "")))
    program, host = (one_line(name, PROGRAM_MOST) for name in names)
    return program, host
