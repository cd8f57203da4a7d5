"""ThinUpdate: what is written to the terminal when parts of some lines have changed.

Textual 8.2 begins each part at the left edge of its widget, however little of it changed.
Over a slow link that is most of what is sent, so each part is cut at both ends here.
"""

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate


class ThinUpdate(ChopsUpdate):
    """The same parts, cut to the cells that were asked for."""

    @classmethod
    def of(cls, update: ChopsUpdate) -> "ThinUpdate":
        return cls(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        """Cursor moves and styled text, ready to be written."""
        written: list[str] = []
        for y, start, stop in self.spans:
            pieces = zip(self.chop_ends[y], self.chops[y].items(), strict=True)
            for end, (x, strip) in pieces:
                left, right = max(start, x), min(stop, end)
                if strip is not None and left < right:
                    written.append(Control.move_to(left, y).segment.text)
                    written.append(strip.crop(left - x, right - x).render(console))
        return "".join(written)
