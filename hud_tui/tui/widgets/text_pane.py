"""TextPane: lines of text that scroll; a line that stays the same is not drawn again."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

from hud_tui.tui.bindings import bindings


def resize_virtually(view: ScrollView, size: Size) -> None:
    """Grow or shrink what can be scrolled; the screen's layout is not concerned.

    Setting `virtual_size` lays the whole screen out again, which costs more than a repaint.
    """
    if size != view.virtual_size:
        view.set_reactive(Widget.virtual_size, size)
        view._scroll_update(size)


class TextPane(ScrollView, can_focus=True, inherit_bindings=False):
    """A pane of lines, none of them wrapped; Tab goes to it, and a list's keys scroll it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    class Resized(Message):
        """There is another width to lay the lines out for."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Content] = ()

    @property
    def width(self) -> int:
        """Cells across, without the scrollbar's."""
        return self.scrollable_content_region.width

    @property
    def plain(self) -> str:
        """The text, without its styles."""
        return "\n".join(line.plain for line in self.lines)

    def show(self, lines: Sequence[Content]) -> None:
        """Replace the lines."""
        before, self.lines = self.lines, lines
        resize_virtually(self, Size(self.width, len(lines)))
        top = self.scroll_offset.y
        for y in range(self.size.height):
            if not _line(before, top + y).is_same(_line(lines, top + y)):
                self.refresh(Region(0, y, self.width, 1))

    def render_line(self, y: int) -> Strip:
        width, number = self.width, self.scroll_offset.y + y
        line = self._shaded(number)
        if not line:
            return Strip.blank(width, self.rich_style).apply_offsets(0, number)
        text = line.truncate(width, ellipsis=True)
        strips = Visual.to_strips(
            self, text, width, 1, self.visual_style, apply_selection=False, pad=True
        )
        return strips[0].adjust_cell_length(width, self.rich_style).apply_offsets(0, number)

    def _shaded(self, number: int) -> Content:
        """A line, with what is selected of it in the selection's colours."""
        line, selection = _line(self.lines, number), self.text_selection
        span = None if selection is None else selection.get_span(number)
        if not line or span is None:
            return line
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        start, stop = span
        return line.stylize(style, start, len(line) if stop < 0 else stop)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The text that is selected, as it is broken into lines here."""
        return selection.extract(self.plain), "\n"

    def on_resize(self) -> None:
        resize_virtually(self, Size(self.width, len(self.lines)))
        self.post_message(self.Resized())

    def on_show(self) -> None:
        self.post_message(self.Resized())

    def action_move(self, rows: int) -> None:
        self.scroll_relative(y=rows, animate=False)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)


def _line(lines: Sequence[Content], number: int) -> Content:
    return lines[number] if number < len(lines) else Content.empty()
