"""A curve as braille: two dots a cell across, four down, an average over its extremes.

Each chart column is one integer whose bits are its dots, lowest dot first.

Source: Unicode 15, Braille Patterns (U+2800); bits 0–2 and 6 are the left column from
above, bits 3–5 and 7 the right one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hud_tui.rl.curves import Bucket
from hud_tui.rl.scale import Scale
from hud_tui.tui.widgets.palette import BRAILLE

_FROM_BELOW = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def _cell_bits(side: int) -> tuple[int, ...]:
    """Braille bits of one half cell for each of its 16 sets of dots."""
    return tuple(
        sum(_FROM_BELOW[side][dot] for dot in range(4) if dots >> dot & 1) for dots in range(16)
    )


LEFT, RIGHT = _cell_bits(0), _cell_bits(1)


class Drawing(NamedTuple):
    """Dots of a chart, each layer one integer per dot column; the first lies on top."""

    line: list[int]
    other: list[int]
    envelope: list[int]


class Run(NamedTuple):
    """Neighbouring cells of one row that are drawn alike."""

    text: str
    kind: str
    """A layer's name, ``blank`` or ``cross``."""


def draw(
    buckets: Sequence[Bucket],
    scale: Scale,
    columns: int,
    dots: int,
    smoothed: bool,
    ranged: bool = True,
    others: Sequence[Bucket] = (),
) -> Drawing:
    """Draw the average as a line over the range of the raw values, and another curve's between.

    Args:
        buckets: One a dot column at most, left to right.
        scale: The y axis over all the dots.
        columns: Dot columns.
        dots: Dot rows, at least 1.
        smoothed: Whether there is an average; without one the raw values are the line.
        ranged: Whether the raw values are drawn beside an average.
        others: What is compared.
    """
    layer = _average if smoothed else _range
    line = layer(buckets, scale, columns, dots - 1)
    other = layer(others, scale, columns, dots - 1)
    behind = smoothed and ranged
    return Drawing(
        line, other, _range(buckets, scale, columns, dots - 1) if behind else [0] * columns
    )


def _range(buckets: Sequence[Bucket], scale: Scale, columns: int, top: int) -> list[int]:
    spans = [(round(scale.share(b.low) * top), round(scale.share(b.high) * top)) for b in buckets]
    raw = [0] * columns
    for bucket, (low, high) in zip(buckets, spans, strict=True):
        raw[bucket.column] |= _between(low, high)
    for (one, here), (other, there) in pairwise(zip(buckets, spans, strict=True)):
        if other.joined:
            _connect(raw, one.column, _end(here, there), other.column, _end(there, here))
    return raw


def _average(buckets: Sequence[Bucket], scale: Scale, columns: int, top: int) -> list[int]:
    line = [0] * columns
    heights = [round(scale.share(bucket.smooth) * top) for bucket in buckets]
    for bucket, height in zip(buckets, heights, strict=True):
        line[bucket.column] |= 1 << height
    for (one, start), (other, stop) in pairwise(zip(buckets, heights, strict=True)):
        if other.joined:
            _connect(line, one.column, start, other.column, stop)
    return line


def rows(drawing: Drawing, height: int) -> list[list[Run]]:
    """The drawing as text rows, top first, each of len(line) // 2 cells.

    A cell that the line crosses shows the line alone, so that it can be followed.
    """
    return [_row(drawing, 4 * (height - 1 - row)) for row in range(height)]


def _row(drawing: Drawing, shift: int) -> list[Run]:
    runs: list[Run] = []
    text, before = "", ""
    for column in range(0, len(drawing.line), 2):
        kind, bits = _cell(drawing, column, shift)
        if kind != before and text:
            runs.append(Run(text, before))
            text = ""
        text, before = text + (chr(BRAILLE + bits) if bits else " "), kind
    return [*runs, Run(text, before)] if text else runs


def _cell(drawing: Drawing, column: int, shift: int) -> tuple[str, int]:
    for kind, dots in zip(Drawing._fields, drawing, strict=True):
        bits = LEFT[dots[column] >> shift & 15] | RIGHT[dots[column + 1] >> shift & 15]
        if bits:
            return kind, bits
    return "blank", 0


def crossed(runs: Sequence[Run], cell: int | None) -> list[Run]:
    """A row with the crosshair in one cell, where no curve is in its way."""
    found: list[Run] = []
    before = 0
    for run in runs:
        at = -1 if cell is None else cell - before
        before += len(run.text)
        if run.kind == "blank" and 0 <= at < len(run.text):
            parts = (
                Run(run.text[:at], "blank"),
                Run("┊", "cross"),
                Run(run.text[at + 1 :], "blank"),
            )
            found += [part for part in parts if part.text]
        else:
            found.append(run)
    return found


def _connect(masks: list[int], column: int, height: int, last: int, end: int) -> None:
    """Set the dots on the way from one point to another, without holes."""
    before = height
    for step in range(1, last - column + 1):
        now = height + round((end - height) * step / (last - column))
        masks[column + step] |= _between(now, before + (now > before) - (now < before))
        before = now


def _end(here: tuple[int, int], there: tuple[int, int]) -> int:
    """The dot of `here` that is nearest to `there`."""
    return min(here[1], max(here[0], (there[0] + there[1]) // 2))


def _between(one: int, other: int) -> int:
    """The dots from one height to another, both included."""
    low, high = min(one, other), max(one, other)
    return (1 << high + 1) - (1 << low)
