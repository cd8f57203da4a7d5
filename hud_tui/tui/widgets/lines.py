"""LinesView: lines drawn by hand, of which only those that changed are repainted."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip


class LinesView(ScrollView, inherit_bindings=False):
    """A pane with a title, that scrolls up and down by its screen's keys.

    A subclass makes its lines in `draw`, and calls `redraw` when what they show changes.
    """

    BINDINGS: ClassVar[list[BindingType]] = []
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--plain",
        "lines--strong",
        "lines--dim",
        "lines--faint",
        "lines--accent",
        "lines--warm",
        "lines--hot",
        "lines--cursor",
        "lines--cursor-blurred",
    }

    _strips: Sequence[Strip] = ()
    _title = ""
    _width = 0
    """Cells across, without the scrollbar's."""

    def draw(self, width: int) -> list[Strip]:
        """All lines of the pane, each at most `width` cells."""
        raise NotImplementedError

    def title(self, width: int) -> str:
        """The pane's title, at most `width` cells."""
        return ""

    def redraw(self) -> None:
        """Draw anew and repaint the lines that differ. A pane out of sight waits."""
        width = self.scrollable_content_region.width
        if not width or not self.is_attached:
            return
        self._retitle(self.title(self.outer_size.width - 6))
        self._width, base = width, self.rich_style
        before, self._strips = self._strips, [s.apply_style(base) for s in self.draw(width)]
        if len(before) != len(self._strips) or self.virtual_size.width != width:
            self.virtual_size = Size(width, len(self._strips))
            self.refresh()
            return
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        for row in range(top, min(bottom, len(before))):
            if before[row] != self._strips[row]:
                self.refresh_line(row)

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        if row < len(self._strips):
            return self._strips[row].adjust_cell_length(self._width, self.rich_style)
        return Strip.blank(self._width, self.rich_style)

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.redraw()

    def tone(self, name: str) -> Style:
        """One of the pane's styles, e.g. ``dim``, on whatever background it lies."""
        return self.get_component_rich_style(f"lines--{name}", partial=True)

    def scroll_rows(self, rows: int) -> None:
        """Scroll down, or up where `rows` is below 0."""
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False)

    def _retitle(self, title: str) -> None:
        if title != self._title:
            self._title = title
            self.border_title = Content(f" {title} ")


def line(*parts: tuple[str, Style]) -> Strip:
    """A strip of styled texts; empty ones are left out."""
    return Strip([Segment(text, style) for text, style in parts if text])


def fit_text(text: str, width: int) -> str:
    """Text in exactly `width` cells: padded, or cut with an ellipsis."""
    if cell_len(text) > width:
        return set_cell_size(text, max(0, width - 1)) + "…" * (width > 0)
    return set_cell_size(text, width)
