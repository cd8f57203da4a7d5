"""RowList: a table with a cursor, drawn a visible line at a time.

The cursor stays on its row, by the row's key, when rows come, go or change: arriving data
never moves it. Columns fold away from the least important until the rest fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from hud_tui.tui.keys import bindings

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True)
class Column:
    """One column; the one with width 0 takes what is left."""

    title: str
    width: int = 0
    right: bool = False
    """Whether its text ends at the right, as numbers do."""
    rank: int = 0
    """Of columns that do not fit, the highest rank is left out first; 0 always stays."""


@dataclass(frozen=True)
class Row:
    """One line. A heading spans all columns, and the cursor passes over it."""

    key: str
    cells: tuple[Content, ...]
    heading: bool = False


class RowList(ScrollView, can_focus=True):
    """Rows under a line of titles. Enter is its screen's business."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--title", "rows--heading", "rows--cursor"}

    @dataclass
    class Moved(Message):
        """The cursor is on another row."""

        row_list: "RowList"
        key: str | None

        @property
        def control(self) -> "RowList":
            return self.row_list

    @dataclass
    class Opened(Message):
        """A row was clicked twice."""

        row_list: "RowList"
        key: str

        @property
        def control(self) -> "RowList":
            return self.row_list

    @dataclass
    class Titled(Message):
        """The line of titles was clicked."""

        row_list: "RowList"

        @property
        def control(self) -> "RowList":
            return self.row_list

    def __init__(
        self, columns: Sequence[Column], id: str | None = None, least: int = 12, most: int = 1000
    ) -> None:
        """
        Args:
            columns: From left to right.
            id: The widget's.
            least: Cells that the flexible column wants; others fold away for it.
            most: Cells that it takes, however many there are.
        """
        super().__init__(id=id)
        self.columns, self.least, self.most = columns, least, most
        self.rows: Sequence[Row] = ()
        self.cursor = -1

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        return self.rows[self.cursor].key if 0 <= self.cursor < len(self.rows) else None

    def lay(self, columns: Sequence[Column]) -> None:
        """Take other columns; the rows that fit them come with the next `show`."""
        if columns != self.columns:
            self.columns = columns
            self.refresh()

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows; the cursor stays on its key, else near where it was."""
        before, key, offset = self.rows, self.key, self.cursor
        self.rows = rows
        kept = next((at for at, row in enumerate(rows) if row.key == key and not row.heading), None)
        self.cursor = kept if kept is not None else self._near(max(offset, 0))
        self.virtual_size = Size(0, len(rows) + 1)
        if len(before) != len(rows):
            self.refresh()
        else:
            for at in range(len(rows)):
                if before[at] != rows[at] or at in (offset, self.cursor):
                    self._refresh_row(at)
        if self.key != key:
            self._moved()

    def select(self, key: str) -> None:
        """Put the cursor on a row, if it is there."""
        for at, row in enumerate(self.rows):
            if row.key == key and not row.heading:
                self._go(at)

    def _near(self, at: int) -> int:
        """The row at `at` or after it, else before it, that is no heading; −1 for none."""
        free = [i for i, row in enumerate(self.rows) if not row.heading]
        after = [i for i in free if i >= at]
        return after[0] if after else free[-1] if free else -1

    def _go(self, at: int) -> None:
        if at == self.cursor:
            return
        before, self.cursor = self.cursor, at
        self._refresh_row(before)
        self._refresh_row(at)
        self._reveal()
        self._moved()

    def _moved(self) -> None:
        self.post_message(self.Moved(self, self.key))

    def _reveal(self) -> None:
        top, height = self.scroll_offset.y, self.size.height - 1
        if self.cursor <= top:
            self.scroll_to(y=0 if self.cursor <= 1 else self.cursor, animate=False)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False)

    def _refresh_row(self, at: int) -> None:
        self.refresh_line(at + 1)

    def action_move(self, rows: int) -> None:
        at = self.cursor + rows
        while 0 <= at < len(self.rows) and self.rows[at].heading:
            at += rows
        if 0 <= at < len(self.rows):
            self._go(at)

    def action_page(self, pages: int) -> None:
        at = self.cursor + pages * max(1, self.size.height - 2)
        self._go(self._near(min(max(at, 0), max(0, len(self.rows) - 1))))

    def action_first(self) -> None:
        self._go(self._near(0))

    def action_last(self) -> None:
        self._go(self._near(len(self.rows) - 1))

    def on_click(self, event: events.Click) -> None:
        at = event.y - 1 + self.scroll_offset.y
        if event.y == 0:
            self.post_message(self.Titled(self))
        elif at < len(self.rows) and not self.rows[at].heading:
            self._go(at)
            if event.chain == 2:
                self.post_message(self.Opened(self, self.rows[at].key))

    def on_resize(self) -> None:
        self.virtual_size = Size(0, len(self.rows) + 1)
        self._reveal()

    def on_focus(self) -> None:
        self._refresh_row(self.cursor)

    def on_blur(self) -> None:
        self._refresh_row(self.cursor)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        shown = fold(self.columns, width, self.least, self.most)
        if y == 0:
            cells = [(column, Content(column.title), size) for column, size, _ in shown]
            return self._strip(_line(cells), width, "rows--title")
        at = y - 1 + self.scroll_offset.y
        if at >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[at]
        if row.heading:
            return self._strip(Content(" ").join(row.cells), width, "rows--heading")
        text = _line([(column, row.cells[i], size) for column, size, i in shown])
        return self._strip(text, width, "rows--cursor" if at == self.cursor else None)

    def _strip(self, text: Content, width: int, component: str | None) -> Strip:
        style = self.visual_style
        if component is not None:
            style = self.get_visual_style(component)
        line = Content(" ") + text.truncate(max(0, width - 2), ellipsis=True)
        [strip] = Visual.to_strips(self, line, width, 1, style, pad=True)
        return strip.adjust_cell_length(width, style.rich_style)


def fold(
    columns: Sequence[Column], width: int, least: int, most: int = 1000
) -> list[tuple[Column, int, int]]:
    """The columns that fit, with their widths and their places in `columns`.

    Args:
        columns: All of them.
        width: Cells there are, one of margin at either side included.
        least: What the flexible column wants.
        most: What it takes.
    """
    kept = list(enumerate(columns))
    while _wanted(kept, least) > width - 2:
        worst = max(kept, key=lambda one: one[1].rank)
        if worst[1].rank == 0:
            break
        kept.remove(worst)
    left = max(1, min(most, width - 2 - _wanted(kept, 0)))
    return [(column, column.width or left, place) for place, column in kept]


def _wanted(kept: list[tuple[int, Column]], least: int) -> int:
    return sum(column.width or least for _, column in kept) + GAP * (len(kept) - 1)


def _line(cells: Sequence[tuple[Column, Content, int]]) -> Content:
    return Content(" " * GAP).join(_fit(text, width, column.right) for column, text, width in cells)


def _fit(text: Content, width: int, right: bool) -> Content:
    text = text.truncate(width, ellipsis=True)
    room = width - text.cell_length
    return text.pad_left(room) if right else text.pad_right(room)
