"""Table: lines with a cursor, of which only visible ones are drawn; and RowList, one of cells.

The cursor stays on its row, by the row's key, when rows come, go or change. A RowList leaves out
its least important columns until the rest fits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual

from hud_tui.tui.keys import bindings
from hud_tui.tui.widgets.lines import LinesView, revealed

GAP = 2
"""Cells between two columns."""
KEPT = 500
"""Drawn lines that are kept."""


class Table(LinesView, can_focus=True):
    """Lines under a heading, with a cursor that passes those without a key. Its screen handles
    enter.

    A subclass gives the key of each line and draws them. It changes them within `changing`.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    @dataclass
    class OfTable(Message):
        """A message that a screen tells by its table, as in ``@on(Table.Moved, "#jobs")``."""

        table: Table

        @property
        def control(self) -> Table:
            return self.table

    @dataclass
    class Moved(OfTable):
        """The cursor is on another row."""

        key: str | None

    @dataclass
    class Opened(OfTable):
        """A row was clicked twice."""

        key: str

    @dataclass
    class Titled(OfTable):
        """The heading was clicked."""

        cell: int

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor = -1
        """The line under the cursor; −1 for none."""

    @abstractmethod
    def row_key(self, line: int) -> str | None:
        """The key of the row that begins in a line; None for a line that the cursor passes."""

    def row_at(self, line: int) -> int:
        """The line in which the row begins that a click on a line means."""
        return line

    def lines_of(self, line: int) -> range:
        """The lines of the row that begins in a line."""
        return range(line, line + 1)

    def opens(self, click: events.Click) -> bool:
        return click.chain == 2

    @property
    def key(self) -> str | None:
        return self.row_key(self.cursor) if 0 <= self.cursor < self.count else None

    @property
    def cursor_y(self) -> int | None:
        return None if self.key is None else self.headed + self.cursor - self.scroll_offset.y

    @property
    def in_sight(self) -> bool:
        """Whether the cursor is visible, or nowhere."""
        return self.key is None or 0 <= self.cursor - self.scroll_offset.y < self.body_rows

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the lines; the cursor stays on its key, else close, and in sight if it was."""
        key, in_sight, count = self.key, self.in_sight, self.count
        yield
        line = None if key is None else self.line_of(key)
        self.cursor = self._near(max(0, self.cursor)) if line is None else line
        self.resize_virtually()
        height = self.styles.height
        if count != self.count and height is not None and height.is_auto:
            self.refresh(layout=True)
        if in_sight:
            self._reveal()
        self.redraw()
        if self.key != key:
            self.post_message(self.Moved(self, self.key))

    def line_of(self, key: str) -> int | None:
        return next((line for line in range(self.count) if self.row_key(line) == key), None)

    def select(self, key: str) -> None:
        line = self.line_of(key)
        if line is not None:
            self._go(line)

    def _near(self, line: int) -> int:
        """The first row from a line on, else before it; −1 for none."""
        start = min(max(line, 0), self.count)
        nearest = chain(range(start, self.count), range(start - 1, -1, -1))
        return next((line for line in nearest if self.row_key(line) is not None), -1)

    def _go(self, line: int) -> None:
        before, self.cursor = self.cursor, line
        self._reveal()
        if line == before:
            return
        self.redraw_lines((*self.lines_of(before), *self.lines_of(line)))
        self.post_message(self.Moved(self, self.key))

    def _reveal(self) -> None:
        for line in (self.lines_of(self.cursor)[-1], self.cursor):
            top = revealed(line, self.scroll_offset.y, self.body_rows)
            self.scroll_to(y=top, animate=False)

    def action_move(self, rows: int) -> None:
        line = self.cursor + rows
        while 0 <= line < self.count:
            if self.row_key(line) is not None:
                self._go(line)
                return
            line += 1 if rows > 0 else -1

    def action_page(self, pages: int) -> None:
        line = self.cursor + pages * self.page
        self._go(self._near(min(max(line, 0), self.count - 1)))

    def action_first(self) -> None:
        self._go(self._near(0))

    def action_last(self) -> None:
        self._go(self._near(self.count - 1))

    def on_click(self, event: events.Click) -> None:
        if event.y < self.headed:
            self.post_message(self.Titled(self, event.x))
            return
        line = event.y - self.headed + self.scroll_offset.y
        if line >= self.count:
            return
        line = self.row_at(line)
        key = self.row_key(line)
        if key is None:
            return
        self._go(line)
        if self.opens(event):
            self.post_message(self.Opened(self, key))

    def on_resize(self) -> None:
        self._reveal()


DIM = "$text-muted"
MATTERS = 3
"""Rank up to which a column is worth more than the rest of a long text."""
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a list of T."""

    title: str
    width: int
    """Cells; the column with width 0 takes the remaining ones."""
    cell: Callable[[T], Content | str]
    """Its text in the row of an item."""
    style: str = ""
    right: bool = False
    """Whether its text is aligned to the right, as numbers are."""
    rank: int = 0
    """Columns with the highest rank are left out first if they do not fit; 0 always stays."""
    most: int = 0
    """Most cells that `grown` gives it for its content."""


@dataclass(frozen=True)
class Row:
    """One line. A heading spans all columns, and the cursor skips it."""

    key: str
    cells: tuple[Content, ...]
    heading: bool = False
    continues: bool = False
    """Whether it is another line of the row above it, whose key it has."""


def item_row(columns: Iterable[Column[T]], key: str, item: T) -> Row:
    texts = ((column.cell(item), column.style) for column in columns)
    cells = (t if isinstance(t, Content) else Content.styled(t, style) for t, style in texts)
    return Row(key, tuple(cells))


class RowList(Table):
    """Rows of cells under a line of titles."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--title", "rows--heading", "rows--cursor"}

    def __init__(
        self,
        columns: Sequence[Column[Any]],
        id: str | None = None,
        least: int = 12,
        most: int = 1000,
        headed: bool = True,
    ) -> None:
        """`least` and `most`: width of the flexible column; others give way for the least."""
        super().__init__(id=id)
        self.headed = headed
        self.columns, self.least, self.most = columns, least, most
        self.wanted = 0
        """Width of the flexible column for which columns of a rank above MATTERS give way."""
        self.rows: Sequence[Row] = ()
        self._layout: object = None
        self._strips: dict[tuple[int, bool], tuple[Row, Strip]] = {}
        """Drawn lines of this layout, by number and whether the cursor is there, with their row."""

    @property
    def count(self) -> int:
        return len(self.rows)

    def row_key(self, line: int) -> str | None:
        row = self.rows[line]
        return None if row.heading or row.continues else row.key

    def row_at(self, line: int) -> int:
        while self.rows[line].continues:
            line -= 1
        return line

    def lines_of(self, line: int) -> range:
        stop = line + 1
        while stop < self.count and self.rows[stop].continues:
            stop += 1
        return range(line, stop)

    def lay(self, columns: Sequence[Column[Any]], wanted: int = 0) -> None:
        self.columns, self.wanted = columns, wanted

    def show(self, rows: Sequence[Row]) -> None:
        with self.changing():
            self.rows = rows

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows at the end; those that are there are not drawn again."""
        if added := [*rows]:
            with self.changing():
                self.rows = [*self.rows, *added]

    def heading(self, width: int) -> Strip:
        shown = self._folded(width)
        cells = [(column, Content(column.title), size) for column, size, _ in shown]
        return self._strip(_line(cells), width, "rows--title")

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        layout = width, self.columns, self.wanted
        if layout != self._layout or len(self._strips) > KEPT:
            self._layout = layout
            self._strips.clear()
        shown = self._folded(width)
        chosen = self.lines_of(self.cursor)
        return [self._line(line, line in chosen, shown, width) for line in rows]

    def _folded(self, width: int) -> list[tuple[Column[Any], int, int]]:
        return fold(self.columns, width, self.least, self.most, self.wanted)

    def _line(
        self, line: int, chosen: bool, shown: Sequence[tuple[Column[Any], int, int]], width: int
    ) -> Strip:
        row, drawn = self.rows[line], self._strips.get((line, chosen))
        if drawn is None or not _is_same(drawn[0], row):
            drawn = row, self._row(row, chosen, shown, width)
            self._strips[line, chosen] = drawn
        return drawn[1]

    def _row(
        self, row: Row, chosen: bool, shown: Sequence[tuple[Column[Any], int, int]], width: int
    ) -> Strip:
        if row.heading:
            return self._strip(Content(" ").join(row.cells), width, "rows--heading")
        text = _line([(column, row.cells[i], size) for column, size, i in shown])
        return self._strip(text, width, "rows--cursor" if chosen else None)

    def _strip(self, text: Content, width: int, component: str | None) -> Strip:
        style = self.visual_style
        if component is not None:
            style = self.get_visual_style(component)
        line = Content(" ") + text.truncate(max(0, width - 2), ellipsis=True)
        [strip] = Visual.to_strips(self, line, width, 1, style, pad=True)
        return strip.adjust_cell_length(width, style.rich_style)


def grown(
    columns: Sequence[Column[Any]], rows: Sequence[Row]
) -> tuple[list[Column[Any]], list[Row]]:
    """The columns with any content, each as wide as that, at least its `width` and at most its
    `most`, and their rows."""
    kept = []
    for number, column in enumerate(columns):
        cells = max((row.cells[number].cell_length for row in rows), default=0)
        width = min(max(cells, len(column.title), column.width), column.most)
        if cells or not column.most:
            kept.append((number, replace(column, width=width)))
    cut = [replace(row, cells=tuple(row.cells[number] for number, _ in kept)) for row in rows]
    return [column for _, column in kept], cut


def _is_same(row: Row, other: Row) -> bool:
    """Whether two rows look the same: contents are equal if their texts are, whatever the style."""
    if row.heading != other.heading or len(row.cells) != len(other.cells):
        return False
    return all(map(Content.is_same, row.cells, other.cells))


def fold(
    columns: Sequence[Column[Any]], width: int, least: int, most: int = 1000, wanted: int = 0
) -> list[tuple[Column[Any], int, int]]:
    """The columns that fit into `width` cells, which include a margin of one on both sides: with
    their widths and their indices in `columns`. `least`, `most`, `wanted`: width of the flexible
    column, as in `RowList`."""
    kept = list(enumerate(columns))
    while kept:
        worst = max(kept, key=lambda numbered: numbered[1].rank)
        rank = worst[1].rank
        flexible = max(least, wanted) if rank > MATTERS else least
        if rank == 0 or _width_of(kept, flexible) <= width - 2:
            break
        kept.remove(worst)
    left = max(1, min(most, width - 2 - _width_of(kept, 0)))
    return [(column, column.width or left, number) for number, column in kept]


def _width_of(kept: list[tuple[int, Column[Any]]], least: int) -> int:
    return sum(column.width or least for _, column in kept) + GAP * (len(kept) - 1)


def _line(cells: Sequence[tuple[Column[Any], Content, int]]) -> Content:
    parts = []
    for column, text, width in cells:
        text = text.truncate(width, ellipsis=True)
        room = width - text.cell_length
        parts.append(text.pad_left(room) if column.right else text.pad_right(room))
    return Content(" " * GAP).join(parts)
