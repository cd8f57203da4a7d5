"""Repaints of a part of the screen: only what changed is rendered, and written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class ThinCompositor(Compositor):
    """Renders of each widget only the lines that an update writes.

    Textual 8.2 renders all lines of all widgets in the rectangle around the update, also of those
    that lie behind others: half of the time of a repaint.
    """

    def render_partial_update(self) -> ChopsUpdate | None:
        """The cells to write; None if there are none."""
        regions = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not regions:
            return None
        spans = list(self._regions_to_spans(regions))
        wanted = _wanted(self.cuts, spans)
        chops: list[dict[int, Strip | None]] = [dict.fromkeys(cuts[:-1]) for cuts in self.cuts]
        for widget, (region, clip) in self.visible_widgets.items():  # the topmost first
            shown = region.intersection(clip)
            lines = [y for y in shown.line_range if _reaches(wanted.get(y, ()), shown)]
            if not lines:
                continue
            top, left = lines[0] - region.y, shown.x - region.x
            strips = widget.render_lines(Region(left, top, shown.width, lines[-1] - lines[0] + 1))
            for y in lines:
                own = [cut for cut in self.cuts[y] if shown.x <= cut <= shown.right]
                parts = strips[y - lines[0]].divide([cut - shown.x for cut in own[1:]])
                for x, part in zip(own, parts, strict=False):
                    if x in wanted[y]:
                        wanted[y].remove(x)
                        chops[y][x] = part
        return ChopsUpdate(chops, spans, [cuts[1:] for cuts in self.cuts])


def _wanted(
    cuts: Sequence[Sequence[int]], spans: Sequence[tuple[int, int, int]]
) -> dict[int, set[int]]:
    """By line: where the parts between two cuts begin that a span touches."""
    wanted: dict[int, set[int]] = {}
    for y, start, stop in spans:
        parts = zip(cuts[y], cuts[y][1:], strict=False)
        wanted.setdefault(y, set()).update(x for x, end in parts if x < stop and start < end)
    return wanted


def _reaches(wanted: Collection[int], shown: Region) -> bool:
    """Whether a widget has one of the parts that are still wanted of a line."""
    return any(shown.x <= x < shown.right for x in wanted)


class ThinUpdate(ChopsUpdate):
    """An update that writes only the requested cells.

    Textual 8.2 begins each part at the left edge of its widget, however little of it changed; over
    a slow connection that is most of what is sent.
    """

    @classmethod
    def of(cls, update: ChopsUpdate) -> ThinUpdate:
        return cls(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        """Cursor moves and styled text, as written to the terminal."""
        written: list[str] = []
        for y, start, stop in self.spans:
            pieces = zip(self.chop_ends[y], self.chops[y].items(), strict=True)
            for end, (x, strip) in pieces:
                left, right = max(start, x), min(stop, end)
                if strip is not None and left < right:
                    written.append(Control.move_to(left, y).segment.text)
                    written.append(strip.crop(left - x, right - x).render(console))
        return "".join(written)
