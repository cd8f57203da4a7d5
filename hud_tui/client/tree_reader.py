"""Reading a checkpoint tree repeatedly, decoding only the rows that changed.

A tree grows at its end, and a head move changes two rows in the middle. Rows that are equal,
byte for byte, are reused from the last read; the others are validated a few at a time, so that
the screen stays responsive with ten thousand checkpoints.

The end of a row is guessed to be before the next text that looks like the start of a row. If
the guess parses it was right, since no JSON object is a prefix of another; if not, the full
decoder finds the end. Guessing is five times as fast.
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
"""Characters decoded per turn of the event loop: about 1 ms."""
MANY = 1000
"""Number of new rows from which garbage collection is suspended."""
LONGER, LONG = 4, 65_536
"""Where to search for the end of a row: within LONGER times the previous row's length plus LONG."""
WHAT = "GET checkpoints"
_BLANK = re.compile(r"[ \t\r\n]*")
_BEGINNING = re.compile(r'\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_DECODER = JSONDecoder()


class TreeReader:
    """Reads one model's tree. If the body is unchanged, the same tuple object is returned."""

    def __init__(self) -> None:
        self._text = ""
        self._ends: list[int] = []
        """End of each row in `_text`, shape (N,)."""
        self.rows: tuple[Checkpoint, ...] = ()
        """Rows of the last read, oldest first."""
        self.etag = ""
        """ETag of the last read; empty if there is none."""
        self.lock = asyncio.Lock()
        """Held from a request until its body is decoded."""

    async def read(self, body: bytes, etag: str = "") -> tuple[Checkpoint, ...]:
        """The checkpoints of a JSON array with this ETag, oldest first, shape (N,). Raises
        HudMalformed: not a JSON array of checkpoints; the last read is kept."""
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
        """Number of leading rows that both bodies share."""
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
        """Append the rows after the last of `ends`, and their ends."""
        position = ends[-1] if ends else _after(text, 0, "[")
        was, was_ends, rows_before = self._text, self._ends, self.rows
        between, turn = "", position + CHUNK
        with _uncollected() as fresh:
            while (position := _skip(text, position)) < len(text) and text[position] != "]":
                if rows:
                    position = _skip(text, _after(text, position, ","))
                    between = between or _between(text, ends[-1], position)
                number = len(rows)
                before = _row(was, was_ends, number) if number < len(rows_before) else ""
                if before and text.startswith(before, position):
                    rows.append(rows_before[number])
                    position += len(before)
                else:
                    checkpoint, position = _read(
                        text, position, between, ends[-1] - ends[-2] if number > 1 else 0
                    )
                    rows.append(checkpoint)
                    fresh.append(number)
                ends.append(position)
                if position >= turn:
                    turn = position + CHUNK
                    await asyncio.sleep(0)
        if _skip(text, _after(text, position, "]")) != len(text):
            raise JSONDecodeError("Extra data", text, position)


@contextmanager
def _uncollected() -> Iterator[list[int]]:
    """Suspend garbage collection while new rows are decoded.

    Collecting ten thousand rows with their groups would block the screen for nearly a second
    each time, and they contain no cycles.
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


def _between(text: str, end: int, start: int) -> str:
    """The text from the last character of a row to the start of the next row's first value."""
    first = _BEGINNING.match(text, start)
    return "" if first is None else text[end - 1 : first.end()]


def _read(text: str, start: int, between: str, size: int) -> tuple[Checkpoint, int]:
    """The row at `start`, and its end.

    Args:
        between: Text between two rows; empty if unknown.
        size: Length of the previous row.
    """
    most = start + LONGER * size + LONG
    end = text.find(between, start, most) if between else -1
    if end < 0 and most >= len(text):
        end = text.rfind("}", start)
    if end >= start:
        with suppress(ValidationError):
            return Checkpoint.model_validate_json(text[start : end + 1]), end + 1
    value, end = _DECODER.raw_decode(text, start)
    return Checkpoint.model_validate(value), end


def _row(text: str, ends: list[int], number: int) -> str:
    """The text of a row in a body that was read before."""
    before = _after(text, 0, "[") if number == 0 else _after(text, ends[number - 1], ",")
    return text[_skip(text, before) : ends[number]]


def _after(text: str, position: int, expected: str) -> int:
    position = _skip(text, position)
    if text[position : position + 1] != expected:
        raise JSONDecodeError(f"Expecting '{expected}'", text, position)
    return position + 1


def _skip(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return position if blank is None else blank.end()
