"""Repaints of a part of the screen: only what changed is rendered, and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate
from textual.geometry import Region
from textual.strip import Strip


class ThinCompositor(Compositor):
    """Renders of each widget only the lines that an update writes.

    Textual 8.2 renders all lines of all widgets in the rectangle around the update, also of those
    that lie behind others: half of the time of a repaint.
    """

    def render_partial_update(self) -> ThinUpdate | None:  # type: ignore[override]
        """The cells to write; None if there are none."""
        regions = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not regions:
            return None
        wanted, pieces = _wanted(self.cuts, self._regions_to_spans(regions)), list[Piece]()
        for widget, (region, clip) in self.visible_widgets.items():  # the topmost first
            if not wanted:
                break
            shown = region.intersection(clip)
            own = _taken(wanted, shown)
            if not own:
                continue
            first = min(own)
            top, left = first - region.y, shown.x - region.x
            strips = widget.render_lines(Region(left, top, shown.width, max(own) - first + 1))
            for y, parts in own.items():
                for x, end in parts:
                    pieces.append((y, x, strips[y - first].crop(x - shown.x, end - shown.x)))
        return ThinUpdate(sorted(pieces, key=itemgetter(0, 1)))


Parts = list[tuple[int, int]]
"""Of a line, each of one widget: first cell, last cell + 1."""
Piece = tuple[int, int, Strip]
"""Line, first cell, and what is there."""


def _wanted(
    cuts: Sequence[Sequence[int]], spans: Iterable[tuple[int, int, int]]
) -> dict[int, Parts]:
    """The parts of the spans, by line."""
    wanted: dict[int, Parts] = {}
    for y, start, stop in spans:
        parts = wanted.setdefault(y, [])
        for left, right in pairwise(cuts[y]):
            if left < stop and start < right:
                parts.append((max(left, start), min(right, stop)))
    return wanted


def _taken(wanted: dict[int, Parts], shown: Region) -> dict[int, Parts]:
    """The wanted parts that lie in a region, by line; they are wanted no more."""
    taken: dict[int, Parts] = {}
    for y in [y for y in wanted if shown.y <= y < shown.bottom]:
        own = [part for part in wanted[y] if shown.x <= part[0] < shown.right]
        if own:
            taken[y] = own
            wanted[y] = [part for part in wanted[y] if part not in own]
        if not wanted[y]:
            del wanted[y]
    return taken


class ThinUpdate(CompositorUpdate):
    """An update that writes only the requested cells.

    Textual 8.2 begins each part at the left edge of its widget, however little of it changed; over
    a slow connection that is most of what is sent.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    @classmethod
    def of(cls, update: ChopsUpdate) -> ThinUpdate:
        return cls(
            [
                (y, max(start, x), strip.crop(max(start, x) - x, min(stop, end) - x))
                for y, start, stop in update.spans
                for end, (x, strip) in zip(
                    update.chop_ends[y], update.chops[y].items(), strict=True
                )
                if strip is not None and max(start, x) < min(stop, end)
            ]
        )

    def render_segments(self, console: Console) -> str:
        """Cursor moves and styled text, as written to the terminal."""
        pieces = ((f"\x1b[{y + 1};{x + 1}H", strip) for y, x, strip in self._pieces)
        return "".join(move + strip.render(console) for move, strip in pieces)
