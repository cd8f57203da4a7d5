"""TreeReader: a checkpoint tree read again and again, decoding only what is new.

A tree grows at its end, and where the head moves two rows in the middle change. Rows that
are the same, byte for byte, as the ones in their places are taken from the last reading; the
rest is validated a few at a time, so that a screen stays alive under ten thousand checkpoints.

Where a row ends is guessed: before the next text that looks like the beginning of one. A guess
that parses was right, for no JSON object is the beginning of another; after one that does not,
the row is read by a decoder that finds its end. The guess is five times as fast.
"""

import asyncio
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from json import JSONDecodeError, JSONDecoder

from pydantic import ValidationError

from hud_tui.client.transport import malformed
from hud_tui.errors import HudMalformed
from hud_tui.wire import Checkpoint

CHUNK = 65_536
"""Characters decoded between two turns of the event loop: about 1 ms."""
MANY = 1000
"""Fresh rows from which on the collector is told not to look at them again."""
LONGER, LONG = 4, 65_536
"""A row is looked for in so many times the length of the one before it, and so much more."""
WHAT = "GET checkpoints"
_BLANK = re.compile(r"[ \t\r\n]*")
_BEGINNING = re.compile(r'\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_DECODER = JSONDecoder()


class TreeReader:
    """Reads one model's tree. Equal bodies give the very same tuple."""

    def __init__(self) -> None:
        self._text = ""
        self._ends: list[int] = []
        """Where each row ends in `_text`, shape (N,)."""
        self.rows: tuple[Checkpoint, ...] = ()
        """As they were read last, oldest first."""
        self.etag = ""
        """The service's mark of what was read; empty where it has none."""
        self.lock = asyncio.Lock()
        """Held from a request to the end of its reading: a tree is large."""

    async def read(self, body: bytes, etag: str = "") -> tuple[Checkpoint, ...]:
        """The checkpoints of a JSON array, oldest first, shape (N,).

        Args:
            body: The array.
            etag: The service's mark of it, where it has one.

        Raises:
            HudMalformed: Not a JSON array of checkpoints; the last reading stays.
        """
        try:
            text = body.decode("utf-8")
            if text == self._text and text:
                self.etag = etag
                return self.rows
            shared = self._shared(text)
            rows, ends = list(self.rows[:shared]), self._ends[:shared]
            await self._decode(text, rows, ends)
        except ValidationError as error:
            raise malformed(WHAT, error) from error
        except (UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
            raise HudMalformed(f"{WHAT}: the answer is not JSON: {error}") from error
        self._text, self._ends, self.rows, self.etag = text, ends, tuple(rows), etag
        return self.rows

    def _shared(self, text: str) -> int:
        """How many rows both bodies begin with; each character is compared once."""
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high + 1) // 2
            start = self._ends[low - 1] if low else 0
            end = self._ends[middle - 1]
            if self._text[start:end] == text[start:end]:
                low = middle
            else:
                high = middle - 1
        return low

    async def _decode(self, text: str, rows: list[Checkpoint], ends: list[int]) -> None:
        """Append the rows after the last of `ends`, and where they end."""
        at = ends[-1] if ends else _after(text, 0, "[")
        was, was_ends, known = self._text, self._ends, self.rows
        between, turn = "", at + CHUNK
        with _uncollected() as fresh:
            while (at := _skip(text, at)) < len(text) and text[at] != "]":
                if rows:
                    at = _skip(text, _after(text, at, ","))
                    between = between or _between(text, ends[-1], at)
                place = len(rows)
                before = _row(was, was_ends, place) if place < len(known) else ""
                if before and text.startswith(before, at):
                    rows.append(known[place])
                    at += len(before)
                else:
                    row, at = _read(text, at, between, ends[-1] - ends[-2] if place > 1 else 0)
                    rows.append(row)
                    fresh.append(place)
                ends.append(at)
                if at >= turn:
                    turn = at + CHUNK
                    await asyncio.sleep(0)
        if _skip(text, _after(text, at, "]")) != len(text):
            raise JSONDecodeError("Extra data", text, at)


@contextmanager
def _uncollected() -> Iterator[list[int]]:
    """Keep the garbage collector away from fresh rows, which the block puts into the list.

    It would look at all of them again and again: of ten thousand with their groups for nearly
    a second each time, in which no key is answered. There are no cycles in them.
    """
    fresh: list[int] = []
    watched = gc.isenabled()
    gc.disable()
    try:
        yield fresh
        if len(fresh) >= MANY:
            gc.freeze()
    finally:
        if watched:
            gc.enable()


def _between(text: str, end: int, at: int) -> str:
    """From the end of a row to the beginning of the next one's first value."""
    first = _BEGINNING.match(text, at)
    return "" if first is None else text[end - 1 : first.end()]


def _read(text: str, at: int, between: str, size: int) -> tuple[Checkpoint, int]:
    """The row that begins at `at`, and where it ends.

    Args:
        text: The body.
        at: Where the row begins.
        between: What stands between two rows; empty where that is not known.
        size: How long the row before it was.
    """
    most = at + LONGER * size + LONG
    end = text.find(between, at, most) if between else -1
    if end < 0 and most >= len(text):
        end = text.rfind("}", at)
    if end >= at:
        with suppress(ValidationError):
            return Checkpoint.model_validate_json(text[at : end + 1]), end + 1
    value, end = _DECODER.raw_decode(text, at)
    return Checkpoint.model_validate(value), end


def _row(text: str, ends: list[int], place: int) -> str:
    """A row of a body that was read, as it stands there."""
    before = _after(text, 0, "[") if place == 0 else _after(text, ends[place - 1], ",")
    return text[_skip(text, before) : ends[place]]


def _after(text: str, at: int, expected: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != expected:
        raise JSONDecodeError(f"Expecting '{expected}'", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()
