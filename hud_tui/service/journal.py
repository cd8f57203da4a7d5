"""Journal: the log of a service, in which each request that changes something has a line.

A line is JSON (`wire_access.LogLine`). It is written by the service once the answer is decided, so
no client can leave it out, not even by hanging up; a request that the service did not survive has
none. The file is in the data directory, for its owner only, and is rotated by size. What is sent
too often has lines that say how many requests they stand for, so that no flood rotates away within
days what others did.
"""

import asyncio
import errno
import heapq
import logging
import os
import re
from collections.abc import Iterable, Iterator
from math import nan
from pathlib import Path
from threading import Lock
from time import monotonic
from urllib.parse import parse_qs

from pydantic import ValidationError
from starlette.types import Scope

from hud_tui.rl.text import one_line
from hud_tui.service.caller import CALLER
from hud_tui.service.http import dumps, now
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
"""Most bytes of each text of a line, as JSON has it."""
ABOUT_MOST = 5
"""Most texts that say what a request was about."""
PROGRAM_MOST = 60
"""Most characters of a program's or a machine's name."""
REFUSED_S = 10.0
"""Seconds in which refused requests have a few lines only, and one that says how many the others
were: a flood of them must not rotate everything else away."""
OF_ADDRESS, OF_ALL, OF_KEY = 1, 9, 9
"""Those few, where no key is accepted, of one address and of all; and of one key."""
CHANGES_S = 600.0
"""Seconds in which changes of one key have so many lines: one a second, in bursts as scripts make
them."""
OF_CHANGES = 600
"""Those lines."""
CURSOR = re.compile(r"[0-9]{1,20}-[0-9.e+naif-]{1,30}-[0-9]{1,12}")
"""The cursor of a page: the number and the first time of a file, and a place there."""
MOST_KNOWN = 1000
"""Addresses, or keys, whose lines are counted; more are counted together."""


class FewLines:
    """Which lines are written of many. Of whomever so many have one each within a window; those
    beyond them are held until it is over, and one line for each kind says how many they were."""

    def __init__(self, most: int, window_s: float) -> None:
        """`most`: lines in `window_s` seconds."""
        self._most, self._window_s = most, window_s
        self._windows: dict[str, tuple[float, int]] = {}
        """When the first line of an address or a key was written, and how many were since; the
        oldest first."""
        self._held: dict[tuple[object, ...], LogLine] = {}
        """By whose they are, and their kind: the newest line, which stands for all of them."""

    def take(
        self, line: LogLine, who: str, at: float, kind: tuple[object, ...] = ()
    ) -> list[LogLine]:
        """The lines that are due, `at` seconds of a monotonic clock: this one, unless it is held,
        after what was held for long enough."""
        due = self.release(at)
        if who not in self._windows and len(self._windows) >= MOST_KNOWN:
            who = ""
        since, written = self._windows.get(who, (at, 0))
        has_line = written < self._most
        self._windows[who] = since, written + has_line
        if has_line:
            return [*due, line]
        held = (who, line.key, *kind)
        before = self._held.get(held)
        count = line.count + (0 if before is None else before.count)
        self._held[held] = line.model_copy(update={"count": count})
        return due

    def release(self, at: float | None = None) -> list[LogLine]:
        """What was held for long enough; by default everything."""
        over = set[str]()
        for who, (since, _) in self._windows.items():
            if at is not None and at - since < self._window_s:
                break
            over.add(who)
        for who in over:
            del self._windows[who]
        return [self._held.pop(held) for held in [*self._held] if held[0] in over] if over else []

    @property
    def held(self) -> list[LogLine]:
        return [*self._held.values()]


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / FILE
        self._lock = Lock()
        self._of_address, self._of_all = (FewLines(n, REFUSED_S) for n in (OF_ADDRESS, OF_ALL))
        self._of_key, self._changes = FewLines(OF_KEY, REFUSED_S), FewLines(OF_CHANGES, CHANGES_S)

    def write(
        self, scope: Scope, what: str, status: int, about: dict[str, str], repeated: bool = False
    ) -> None:
        """Add a line about a request with a key; of very many not each has one. `repeated`: whether
        it was answered as before, and changed nothing."""
        caller = CALLER.get()
        line = self._line(scope, what, status, caller.name, caller.role, about)
        if 400 <= status < GONE:
            lines = self._of_key.take(line, caller.name, monotonic())
        else:
            line = line.model_copy(update={"repeated": repeated})
            kind = (what, status, repeated)
            lines = self._changes.take(line, caller.name, monotonic(), kind)
        self._add_all(lines)

    def refuse(self, scope: Scope) -> None:
        """Add a line about a request whose key is not accepted; of very many not each has one."""
        line, at = self._line(scope, "no key that is accepted", 401, "", ""), monotonic()
        self._refuse_all(self._of_address.take(line, line.address, at), at)

    def _refuse_all(self, lines: Iterable[LogLine], at: float) -> None:
        for line in lines:
            self._add_all(self._of_all.take(line, "", at))

    async def follow(self) -> None:
        """Add in time what is held, until cancelled."""
        while True:
            await asyncio.sleep(REFUSED_S)
            self.release(monotonic())

    def release(self, at: float | None = None) -> None:
        """Add what was held for long enough; by default everything."""
        self._add_all([*self._changes.release(at), *self._of_key.release(at)])
        self._refuse_all(self._of_address.release(at), monotonic())
        self._add_all(self._of_all.release(at))

    def _add_all(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self._add(line)

    @staticmethod
    def _line(
        scope: Scope,
        what: str,
        status: int,
        name: str,
        role: str,
        about: dict[str, str] | None = None,
    ) -> LogLine:
        (program, host), client = program_of(scope), scope.get("client")
        return LogLine(
            at=now(),
            key=name,
            role=role,
            address="" if client is None else str(client[0]),
            program=_short(" on ".join(filter(None, (program, host)))),
            what=what,
            method=scope["method"],
            path=_short(scope["path"]),
            status=status,
            about={key: _short(text) for key, text in [*(about or {}).items()][:ABOUT_MOST]},
        )

    def _add(self, line: LogLine) -> None:
        """Write a line, with the time at which it is written."""
        data = b""
        try:
            with self._lock:
                data = line.model_copy(update={"at": now()}).model_dump_json().encode() + b"\n"
                self._rotate(len(data))
                opened = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    before = os.fstat(opened).st_size
                    if before and os.pread(opened, 1, before - 1) != b"\n":  # torn by a crash
                        data = b"\n" + data
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

    def newest(self, limit: int, before: float | None = None, cursor: str = "") -> LogPage:
        """The newest lines, newest first. One that cannot be read is left out.

        Args:
            before: Unix seconds that they are older than.
            cursor: That of the page before: goes on after it, wherever the clock was then.
        """
        lines: list[LogLine] = []
        torn: list[bytes] = []
        held = [line for few in (self._changes, self._of_key, self._of_all) for line in few.held]
        held = [line for line in held if before is None or line.at < before]
        held.sort(key=lambda line: -line.at)
        stored = self._read(before, cursor, torn)
        both = heapq.merge(((line, "") for line in held), stored, key=lambda pair: -pair[0].at)
        for line, place in both:
            if len(lines) == limit:
                return LogPage(lines=lines, incomplete=bool(torn), cursor=cursor)
            lines.append(line)
            cursor = place or cursor
        is_cut = bool(torn) or self._older(KEPT).exists()
        return LogPage(lines=lines, incomplete=is_cut, cursor=cursor)

    def _read(
        self, before: float | None, cursor: str, torn: list[bytes]
    ) -> Iterator[tuple[LogLine, str]]:
        """As `newest`, each line with its own cursor; `torn` gets what cannot be read."""
        for raw, place in self._lines(before, cursor):
            if not cursor and before is not None and not _at(raw) < before:
                continue
            try:
                yield LogLine.model_validate_json(raw), place
            except ValidationError:
                torn.append(raw)

    def _lines(self, before: float | None, cursor: str) -> Iterator[tuple[bytes, str]]:
        """All lines, newest first, each with its cursor: the name of its file, which stays as that
        is rotated, and its place there. Without a `cursor`, files that begin at this time or after
        it are left out."""
        wanted, _, end = cursor.rpartition("-")
        for number in range(KEPT + 1):
            try:
                with self._lock, self._older(number).open("rb") as file:
                    first = file.readline()
                    began = _at(first)
                    name = f"{os.fstat(file.fileno()).st_ino}-{began!r}"
                    if wanted and name != wanted:
                        continue
                    if not cursor and before is not None and began >= before:
                        continue
                    raw = first + file.read()
            except FileNotFoundError:
                continue
            if wanted:
                raw, wanted = raw[: int(end)], ""
            place = len(raw)
            for line in reversed(raw.splitlines(keepends=True)):
                place -= len(line)
                yield line, f"{name}-{place}"


def _short(text: str) -> str:
    """A text in one line of at most `TEXT_MOST` bytes as JSON."""
    limit = TEXT_MOST
    while len(dumps(line := one_line(text, limit))) > TEXT_MOST + len('""'):
        limit = limit * 3 // 4
    return line


def _at(line: bytes) -> float:
    """The time of a line, without reading all of it; NaN if it has none."""
    try:
        return float(line.removeprefix(b'{"at":').partition(b",")[0])
    except ValueError:
        return nan


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
