"""TreeReader: a checkpoint tree read again and again, decoding only what is new.

A tree grows at its end, and where the head moves two rows in the middle change. Rows that
are the same, byte for byte, as the ones in their places are taken from the last reading; the
rest is validated a few hundred at a time, so that a screen stays alive under ten thousand
checkpoints.
"""

import asyncio
import re
from json import JSONDecodeError, JSONDecoder

from pydantic import ValidationError

from hud_tui.client.bodies import malformed
from hud_tui.errors import HudMalformed
from hud_tui.wire import Checkpoint

CHUNK = 200
"""Rows decoded between two turns of the event loop: about 3 ms."""
WHAT = "GET checkpoints"
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()


class TreeReader:
    """Reads one model's tree. Equal bodies give the very same tuple."""

    def __init__(self) -> None:
        self._text = ""
        self._ends: list[int] = []
        """Where each row ends in `_text`, shape (N,)."""
        self._rows: tuple[Checkpoint, ...] = ()

    async def read(self, body: bytes) -> tuple[Checkpoint, ...]:
        """The checkpoints of a JSON array, oldest first, shape (N,).

        Raises:
            HudMalformed: Not a JSON array of checkpoints; the last reading stays.
        """
        try:
            text = body.decode("utf-8")
            if text == self._text and text:
                return self._rows
            shared = self._shared(text)
            rows, ends = list(self._rows[:shared]), self._ends[:shared]
            await self._decode(text, rows, ends)
        except ValidationError as error:
            raise malformed(WHAT, error) from error
        except (UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
            raise HudMalformed(f"{WHAT}: the answer is not JSON: {error}") from error
        self._text, self._ends, self._rows = text, ends, tuple(rows)
        return self._rows

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
        was, was_ends, known = self._text, self._ends, self._rows
        while (at := _skip(text, at)) < len(text) and text[at] != "]":
            if rows:
                at = _skip(text, _after(text, at, ","))
            place = len(rows)
            before = _row(was, was_ends, place) if place < len(known) else ""
            if before and text.startswith(before, at):
                rows.append(known[place])
                at += len(before)
            else:
                value, at = _DECODER.raw_decode(text, at)
                rows.append(Checkpoint.model_validate(value))
            ends.append(at)
            if len(rows) % CHUNK == 0:
                await asyncio.sleep(0)
        if _skip(text, _after(text, at, "]")) != len(text):
            raise JSONDecodeError("Extra data", text, at)


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
