"""Journal: the log of a service, in which each request that changes something has a line.

A line is JSON (`wire_access.LogLine`). It is written by the service once the answer is decided, so
no client can leave it out, not even by hanging up; a request that the service did not survive has
none. The file is in the data directory, for its owner only, and is rotated by size. What is sent
too often has lines that say how many requests they stand for, so that no flood rotates away within
days what others did.
"""

import errno
import heapq
import logging
import os
from collections.abc import Iterator
from math import inf, nan
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
KEPT = 31
"""Files kept beside the newest; the oldest is deleted."""
TEXT_MOST = 300
PROGRAM_MOST = 60
"""Most characters of a program's or a machine's name."""
REFUSED_S = 10.0
"""Seconds in which refused requests have a few lines only, which say how many they were: a flood of
them must not rotate everything else away."""
OF_ADDRESS, OF_ALL, OF_KEY = 1, 10, 10
"""Those lines, where no key is accepted, of one address and of all; and of one key."""
CHANGES_S = 600.0
"""Seconds in which changes of one key have so many lines: one a second, in bursts as scripts make
them."""
OF_CHANGES = 600
"""Those lines."""
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


class Changes:
    """Which changes have a line of their own. Those of a key beyond `OF_CHANGES` in `CHANGES_S` are
    held, and get one line for each kind, which says how many they were."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        """When the first line of a key was written, and how many were since."""
        self._held: dict[tuple[str, str, int, bool], LogLine] = {}
        """By key, what was done and how it went: the newest line, which stands for all of them."""

    def take(self, line: LogLine, at: float) -> list[LogLine]:
        """The lines that are due, `at` seconds of a monotonic clock: this one, unless it is held,
        after what was held for long enough."""
        due = self.release(at)
        since, written = self._windows.get(line.key, (at, 0))
        has_line = written < OF_CHANGES
        self._windows[line.key] = since, written + has_line
        if has_line:
            return [*due, line]
        kind = (line.key, line.what, line.status, line.repeated)
        before = self._held.get(kind)
        count = line.count + (0 if before is None else before.count)
        self._held[kind] = line.model_copy(update={"count": count})
        return due

    def release(self, at: float = inf) -> list[LogLine]:
        """What was held for long enough; by default everything."""
        over = {key for key, (since, _) in self._windows.items() if at - since >= CHANGES_S}
        for key in over:
            del self._windows[key]
        return [self._held.pop(held) for held in [*self._held] if held[0] in over]

    @property
    def held(self) -> list[LogLine]:
        """Newest first."""
        return sorted([*self._held.values()], key=lambda line: -line.at)


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / FILE
        self._lock = Lock()
        self._of_address, self._of_all = FewLines(OF_ADDRESS), FewLines(OF_ALL)
        self._of_key, self._changes = FewLines(OF_KEY), Changes()

    def write(
        self, scope: Scope, what: str, status: int, about: dict[str, str], repeated: bool = False
    ) -> None:
        """Add a line about a request with a key; of very many not each has one. `repeated`: whether
        it was answered as before, and changed nothing."""
        caller = CALLER.get()
        line = self._line(scope, what, status, caller.name, caller.role, about)
        if 400 <= status < GONE:
            count = self._of_key.stands_for(caller.name)
            lines = [line.model_copy(update={"count": count})] if count else []
        else:
            line = line.model_copy(update={"repeated": repeated})
            lines = self._changes.take(line, monotonic())
        for due in lines:
            self._add(due)

    def close(self) -> None:
        """Add what is held."""
        for line in self._changes.release():
            self._add(line)

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
        """Write a line, with the time at which it is written: so the file is in the order of its
        times, by which pages are read."""
        data = b""
        try:
            with self._lock:
                data = line.model_copy(update={"at": now()}).model_dump_json().encode() + b"\n"
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
        torn: list[bytes] = []
        held = [line for line in self._changes.held if before is None or line.at < before]
        for line in heapq.merge(held, self._read(before, torn), key=lambda line: -line.at):
            if len(lines) == limit:
                return LogPage(lines=lines, incomplete=bool(torn))
            lines.append(line)
        return LogPage(lines=lines, incomplete=bool(torn) or self._older(KEPT).exists())

    def _read(self, before: float | None, torn: list[bytes]) -> Iterator[LogLine]:
        """As `newest`; `torn` gets what cannot be read."""
        for raw in self._lines(before):
            if before is not None and not _at(raw) < before:
                continue
            try:
                yield LogLine.model_validate_json(raw)
            except ValidationError:
                torn.append(raw)

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
