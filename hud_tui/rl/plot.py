"""Plot: layers over one scale, drawn as braille in the cells of a terminal, or as SVG."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from hud_tui.rl.axes import Scale
from hud_tui.rl.curves import Bucket
from hud_tui.rl.text import BRAILLE, one_line


class Shape(Enum):
    """How a layer's buckets are drawn."""

    LINE = "a line through the averages"
    RANGE = "from the lowest to the highest value, connected"
    BARS = "from the lowest to the highest value, each column for itself"
    MARKS = "a character at each average"


@dataclass(frozen=True)
class Layer:
    """One curve, range or row of marks."""

    name: str
    """Of its style."""
    buckets: Sequence[Bucket]
    """At most one per column of the plot, left to right."""
    shape: Shape
    mark: str = "●"
    apart: int = 1
    """Columns of the plot from one of the buckets' columns to the next."""


class Flag(NamedTuple):
    """Something that happened at one place of the x axis."""

    column: int
    glyph: str
    name: str
    """Of its style."""
    text: str
    """What happened."""


Tick = tuple[float, str]
"""Position as a share of the axis, in [0, 1], and label."""


@dataclass(frozen=True)
class Plot:
    """What a chart shows."""

    scale: Scale
    """The y axis."""
    columns: int
    """Places along the x axis; in cells two each."""
    layers: Sequence[Layer] = ()
    """The first one lies on top."""
    x_ticks: Sequence[Tick] = ()
    flags: Sequence[Flag] = ()

    @property
    def y_ticks(self) -> list[Tick]:
        return list(zip(map(self.scale.share, self.scale.ticks), self.scale.labels, strict=True))


def level(name: str, value: float | None, scale: Scale, columns: int) -> Layer:
    """A dashed horizontal line; empty if the value is None or off the scale."""
    if value is None or not scale.low <= value <= scale.high:
        return Layer(name, (), Shape.BARS)
    dashes = (column for column in range(columns) if not column & 2)
    return Layer(name, [Bucket(c, value, value, value, False) for c in dashes], Shape.BARS)


# Dots: each chart column is one integer whose bits are its dots, lowest dot first.


class Drawn(NamedTuple):
    """The dots of a layer, and what they were drawn from."""

    layer: Layer
    scale: Scale
    top: int
    masks: list[int]

    def shared(self, layer: Layer, scale: Scale, columns: int, top: int) -> int:
        """How many of a layer's first buckets are drawn here as they would be there."""
        old, new = self.layer, layer
        drawn = self.scale, self.top, len(self.masks), old.shape, old.apart
        if drawn != (scale, top, columns, new.shape, new.apart):
            return 0
        count = min(len(old.buckets), len(new.buckets)) - 1  # the last one has often changed
        while count > 0 and old.buckets[:count] != new.buckets[:count]:
            count //= 2
        return max(0, count)


def dots(
    layer: Layer, scale: Scale, columns: int, top: int, before: Drawn | None = None
) -> list[int]:
    """The dots of a layer's columns.

    Args:
        scale: The y axis over all dots.
        top: The highest dot, at least 0.
        before: What was drawn of the layer last, to go on from.
    """
    shared = 0 if before is None else before.shared(layer, scale, columns, top)
    buckets = layer.buckets[max(0, shared - 1) :]
    masks, apart = [0] * columns, layer.apart
    if before is not None and shared:  # what lies before its last bucket depends on nothing later
        end = apart * buckets[0].column + 1
        masks[:end] = before.masks[:end]
    if layer.shape in (Shape.LINE, Shape.MARKS):
        lows = highs = scale.heights([bucket.smooth for bucket in buckets], top)
    else:
        lows = scale.heights([bucket.low for bucket in buckets], top)
        highs = scale.heights([bucket.high for bucket in buckets], top)
    spans = [(apart * b.column, span) for b, *span in zip(buckets, lows, highs, strict=True)]
    for column, (low, high) in spans:
        masks[column] |= _between(low, high)
    if layer.shape in (Shape.LINE, Shape.RANGE):
        for bucket, ((left, here), (right, there)) in zip(
            buckets[1:], pairwise(spans), strict=True
        ):
            if bucket.joined:
                _connect(masks, left, _end(here, there), right, _end(there, here))
    return masks


def _connect(masks: list[int], column: int, height: int, last: int, end: int) -> None:
    """Set the dots between one point and the next, both of which are set, without gaps."""
    if last - column == 1 and -1 <= end - height <= 1:
        return
    before = height
    for step in range(1, last - column + 1):
        now = height + round((end - height) * step / (last - column))
        masks[column + step] |= _between(now, before + (now > before) - (now < before))
        before = now


def _end(here: Sequence[int], there: Sequence[int]) -> int:
    """The dot of `here` that is closest to `there`."""
    low, high = here
    if low == high:
        return low
    return min(high, max(low, (there[0] + there[1]) // 2))


def _between(cell: int, other: int) -> int:
    """The dots from one height to another, inclusive."""
    return (2 << other) - (1 << cell) if cell <= other else (2 << cell) - (1 << other)


# Cells: two columns wide and four dots high.
#
# Source: Unicode 15, Braille Patterns (U+2800); bits 0–2 and 6 are the left column from the top,
# bits 3–5 and 7 the right one.


BLANK, CROSSHAIR = "blank", "cross"
"""Names of the styles of an empty cell and of the crosshair."""
_FROM_BELOW = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def _cell_bits(side: int) -> tuple[int, ...]:
    """Braille bits of one half cell for each of its 16 sets of dots."""
    return tuple(
        sum(_FROM_BELOW[side][dot] for dot in range(4) if dots >> dot & 1) for dots in range(16)
    )


LEFT, RIGHT = _cell_bits(0), _cell_bits(1)
_CELLS = [[chr(BRAILLE + (left | right)) for right in RIGHT] for left in LEFT]
"""The character of a cell, by the dots of its left half and of its right one."""


class Span(NamedTuple):
    """Neighbouring cells of one row with the same style."""

    text: str
    name: str
    """Of the style: a layer's, a flag's, `BLANK` or `CROSSHAIR`."""


class Sketch:
    """A plot in cells, which is drawn again and again as it grows: only what is new."""

    def __init__(self) -> None:
        self._drawn: list[Drawn] = []
        """Of each layer, as last drawn."""

    def cells(self, plot: Plot, height: int) -> list[list[Span]]:
        """The layers as `height` rows of `plot.columns` // 2 cells, top first.

        A cell shows the topmost layer that has a dot there, so that a line can be followed.
        """
        layers, top = [layer for layer in plot.layers if layer.buckets], 4 * height - 1
        drawn = []
        for layer, before in zip_longest(layers, self._drawn[: len(layers)]):
            masks = dots(layer, plot.scale, plot.columns, top, before)
            drawn.append(Drawn(layer, plot.scale, top, masks))
        self._drawn = drawn
        if not layers:
            return [[Span(" " * (plot.columns // 2), BLANK)] for _ in range(height)]
        marks = (layer.mark if layer.shape is Shape.MARKS else "" for layer in layers)
        kinds = tuple((layer.name, mark) for layer, mark in zip(layers, marks, strict=True))
        halves = (zip(each.masks[::2], each.masks[1::2], strict=False) for each in drawn)
        columns = [_column(kinds, each, height) for each in zip(*halves, strict=True)]
        return [_spans(*zip(*row, strict=True)) for row in zip(*columns, strict=True)]


@lru_cache(2048)
def _column(
    kinds: tuple[tuple[str, str], ...], halves: tuple[tuple[int, int], ...], height: int
) -> tuple[tuple[str, str], ...]:
    """One cell of each row, top first: its character, and the name of its layer.

    Args:
        kinds: Name of each layer, the topmost first, and its mark if it has marks instead of dots.
        halves: The dots of each layer in the column's two halves.
        height: Number of rows.
    """
    column = [(" ", BLANK)] * height
    for (name, mark), (left, right) in zip(reversed(kinds), reversed(halves), strict=True):
        row = height - 1
        while left or right:
            if left & 15 or right & 15:
                column[row] = mark or _CELLS[left & 15][right & 15], name
            left, right, row = left >> 4, right >> 4, row - 1
    return tuple(column)


def _spans(texts: Sequence[str], names: Sequence[str]) -> list[Span]:
    spans, start = [], 0
    for name, group in groupby(names):
        stop = start + len(list(group))
        spans.append(Span("".join(texts[start:stop]), name))
        start = stop
    return spans


def put(row: Sequence[Span], cell: int, mark: Span) -> list[Span]:
    """A row with one cell replaced."""
    spans: list[Span] = []
    for span in row:
        if 0 <= cell < len(span.text):
            parts = Span(span.text[:cell], span.name), mark, Span(span.text[cell + 1 :], span.name)
            spans += [part for part in parts if part.text]
        else:
            spans.append(span)
        cell -= len(span.text)
    return spans


def crossed(row: Sequence[Span], cell: int | None) -> list[Span]:
    """A row with the crosshair in one cell, unless something is drawn there; None for nowhere."""
    free = cell is not None and is_blank(row, cell)
    return put(row, cell, Span("┊", CROSSHAIR)) if free and cell is not None else list(row)


def is_blank(row: Sequence[Span], cell: int) -> bool:
    for span in row:
        if cell < len(span.text):
            return span.name == BLANK
        cell -= len(span.text)
    return False


def flagged(rows: Sequence[list[Span]], flags: Sequence[Flag]) -> list[list[Span]]:
    """Rows with the flags in them, each in the lowest row that is blank there."""
    drawn = list(rows)
    for flag in flags:
        cell = flag.column // 2
        free = (index for index in range(len(rows) - 1, -1, -1) if is_blank(rows[index], cell))
        row_index = next(free, len(rows) - 1)
        drawn[row_index] = put(drawn[row_index], cell, Span(flag.glyph, flag.name))
    return drawn


# SVG: small, deterministic, legible on light and dark pages.
#
# The image has its own background, light or dark by the reader's preference.


WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 34, 26
"""Room around the curves, in pixels."""
LETTER = 7.3
"""Approximate width of a letter, pixels."""
STYLE = """\
.p{fill:#fff}.i{fill:#1f2328;font-weight:bold}.f{fill:#59636e}.g{stroke:#d1d9e0}.a{stroke:#0969da}.b{stroke:#bc4c00}
.ea{fill:#0969da}.eb{fill:#bc4c00}.m{stroke:#cf222e}.t{fill:#cf222e}
@media(prefers-color-scheme:dark){.p{fill:#0d1117}.i{fill:#f0f6fc}.f{fill:#9198a1}.g{stroke:#3d444d}
.a{stroke:#58a6ff}.b{stroke:#f0883e}.ea{fill:#58a6ff}.eb{fill:#f0883e}.m{stroke:#ff7b72}.t{fill:#ff7b72}}
text{font:12px ui-monospace,Menlo,Consolas,monospace}.l{fill:none;stroke-width:1.6}"""
_INVALID = re.compile(r"[\ufffe\uffff]")


def svg(
    plot: Plot, title: str, about: str, names: Sequence[tuple[str, str]] = (), margin: int = 0
) -> str:
    """The plot as a picture of WIDTH × HEIGHT pixels; its layers' names are ``a`` and ``b``.

    Args:
        plot: Without marks: an isolated point of a line is drawn as a dot.
        names: Layers in the legend: name and text.
        margin: More room at the left, for long labels, pixels.
    """
    wide, left = WIDTH + margin, f'x="{-margin}" ' if margin else ""
    body = [
        f'<rect class="p" {left}width="{wide}" height="{HEIGHT}" rx="6"/>',
        *_grid(plot),
        *(part for flag in plot.flags for part in _flag(flag, plot)),
        *(part for layer in reversed(plot.layers) for part in _curve(layer, plot)),
        *_legend(title, names),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-margin} 0 {wide} {HEIGHT}" '
        f'width="{wide}" height="{HEIGHT}" role="img">\n'
        f"<title>{xml(title)}</title>\n<desc>{xml(about)}</desc>\n<style>{STYLE}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _x(share: float) -> str:
    return _px(_LEFT + share * (WIDTH - _LEFT - _RIGHT))


def _y(share: float) -> str:
    return _px(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM))


def _along(column: int, plot: Plot) -> str:
    return _x(column / (plot.columns - 1) if plot.columns > 1 else 0.5)


def _grid(plot: Plot) -> Iterator[str]:
    for share, label in plot.y_ticks:
        y = _y(share)
        yield f'<path class="g" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>'
        yield _text("f", _LEFT - 8, float(y) + 4, "end", label)
    for share, label in plot.x_ticks:
        yield _text("f", float(_x(share)), HEIGHT - 8, "middle", label)


def _flag(flag: Flag, plot: Plot) -> Iterator[str]:
    x, foot = _along(flag.column, plot), HEIGHT - _BOTTOM
    yield f'<path class="m" stroke-dasharray="3 3" d="M{x} {_TOP}V{foot}">'
    yield f"<title>{xml(flag.text)}</title></path>"
    yield f'<path class="t" d="M{x} {_TOP}l7 4-7 4z"/>'


def _curve(layer: Layer, plot: Plot) -> Iterator[str]:
    """A range as an area, bars as strokes, a line with its isolated points as dots."""
    share = plot.scale.share
    for part in _unbroken(layer):
        xs = [_along(layer.apart * bucket.column, plot) for bucket in part]
        if layer.shape is Shape.LINE:
            points = [f"{x} {_y(share(b.smooth))}" for x, b in zip(xs, part, strict=True)]
            yield f'<path class="l {layer.name}" d="M{"L".join(points)}"/>'
            if len(part) == 1:
                x, y = points[0].split()
                yield f'<circle class="e{layer.name}" cx="{x}" cy="{y}" r="2.5"/>'
            continue
        top = [f"{x} {_y(share(b.high))}" for x, b in zip(xs, part, strict=True)]
        foot = [f"{x} {_y(share(b.low))}" for x, b in zip(xs, part, strict=True)]
        if layer.shape is Shape.BARS:
            bars = "M".join(f"{high}L{low}" for high, low in zip(top, foot, strict=True))
            yield f'<path class="l {layer.name}" d="M{bars}"/>'
        elif any(bucket.low < bucket.high for bucket in part):
            edge = "L".join(top + foot[::-1])
            yield f'<path class="e{layer.name}" fill-opacity=".18" d="M{edge}Z"/>'


def _unbroken(layer: Layer) -> list[list[Bucket]]:
    """The parts of a layer between its gaps."""
    parts: list[list[Bucket]] = []
    for bucket in layer.buckets:
        if bucket.joined and parts:
            parts[-1].append(bucket)
        else:
            parts.append([bucket])
    return parts


def _legend(title: str, names: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield _text("i", _LEFT, 22, "start", title)
    x = float(WIDTH - _RIGHT)
    for name, text in reversed(names):
        yield _text(f"e{name}", x, 22, "end", text)
        x -= LETTER * (len(text) + 2)


def _text(kind: str, x: float, y: float, anchor: str, content: str) -> str:
    anchor_attributes = f'x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {anchor_attributes}>{xml(content)}</text>'


def xml(text: object) -> str:
    """A text escaped for the content of an element."""
    safe = allowed(one_line(text, 200))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def allowed(text: str) -> str:
    """A text without characters that XML forbids; control characters are removed."""
    return _INVALID.sub("?", text)


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
