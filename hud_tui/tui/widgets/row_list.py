"""RowList and RunTable: tables with a cursor, of which only visible lines are drawn.

The cursor stays on its row, by the row's key, when rows come, go or change. A RowList leaves out
its least important columns until the rest fits; a RunTable scrolls in both directions, and makes
its lines when they become visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from hud_tui.errors import HudUsage
from hud_tui.rl.run_columns import COLUMNS, columns, sort_rows
from hud_tui.rl.run_columns import Column as RunColumn
from hud_tui.rl.runs import RunRow
from hud_tui.rl.sweep import RunGroup, group_rows
from hud_tui.tui.keys import bindings
from hud_tui.tui.widgets.lines import LinesView, cut_in_middle, fit_text, line

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True)
class Column:
    """One column; the one with width 0 takes the remaining width."""

    title: str
    width: int = 0
    right: bool = False
    """Whether its text is aligned to the right, as numbers are."""
    rank: int = 0
    """Columns with the highest rank are left out first if they do not fit; 0 always stays."""


@dataclass(frozen=True)
class Row:
    """One line. A heading spans all columns, and the cursor skips it."""

    key: str
    cells: tuple[Content, ...]
    heading: bool = False


class RowList(ScrollView, can_focus=True):
    """Rows under a line of titles. Its screen handles enter."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--title", "rows--heading", "rows--cursor"}

    @dataclass
    class OfList(Message):
        """A message that a screen tells by its list, as in ``@on(RowList.Moved, "#jobs")``."""

        row_list: RowList

        @property
        def control(self) -> RowList:
            return self.row_list

    @dataclass
    class Moved(OfList):
        """The cursor is on another row."""

        key: str | None

    @dataclass
    class Opened(OfList):
        """A row was clicked twice."""

        key: str

    class Titled(OfList):
        """The line of titles was clicked."""

    def __init__(
        self, columns: Sequence[Column], id: str | None = None, least: int = 12, most: int = 1000
    ) -> None:
        """
        Args:
            columns: From left to right.
            id: The widget's.
            least: Least width of the flexible column, cells; others are left out for it.
            most: Its largest width, cells.
        """
        super().__init__(id=id)
        self.columns, self.least, self.most = columns, least, most
        self.rows: Sequence[Row] = ()
        self.cursor = -1

    @property
    def key(self) -> str | None:
        return self.rows[self.cursor].key if 0 <= self.cursor < len(self.rows) else None

    @property
    def cursor_y(self) -> int | None:
        """Line of the cursor in the widget, from 0; None without rows."""
        return None if self.key is None else 1 + self.cursor - self.scroll_offset.y

    def lay(self, columns: Sequence[Column]) -> None:
        """Replace the columns; the matching rows come with the next `show`."""
        if columns != self.columns:
            self.columns = columns
            self.refresh()

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows; the cursor stays on its key, else close to its place."""
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
        """Move the cursor to a row, if it exists."""
        for at, row in enumerate(self.rows):
            if row.key == key and not row.heading:
                self._go(at)

    def _near(self, at: int) -> int:
        """The first row from `at` on, else before it, that is no heading; −1 for none."""
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
    """The columns that fit, with their widths and their indices in `columns`.

    Args:
        columns: All of them.
        width: Available cells, including a margin of one on both sides.
        least: Least width of the flexible column.
        most: Its largest width.
    """
    kept = list(enumerate(columns))
    while _width_of(kept, least) > width - 2:
        worst = max(kept, key=lambda one: one[1].rank)
        if worst[1].rank == 0:
            break
        kept.remove(worst)
    left = max(1, min(most, width - 2 - _width_of(kept, 0)))
    return [(column, column.width or left, place) for place, column in kept]


def _width_of(kept: list[tuple[int, Column]], least: int) -> int:
    return sum(column.width or least for _, column in kept) + GAP * (len(kept) - 1)


def _line(cells: Sequence[tuple[Column, Content, int]]) -> Content:
    return Content(" " * GAP).join(_fit(text, width, column.right) for column, text, width in cells)


def _fit(text: Content, width: int, right: bool) -> Content:
    text = text.truncate(width, ellipsis=True)
    room = width - text.cell_length
    return text.pad_left(room) if right else text.pad_right(room)


# The table of runs. Its arrangement is stored in the form of the command line's values.


@dataclass(frozen=True)
class Arrangement:
    """Which columns, in which order, and how the rows are sorted and grouped."""

    columns: tuple[RunColumn, ...]
    sort: str = ""
    """As in `sort_rows`; empty for the newest first."""
    group: str = ""
    """As in `group_rows`; empty for none."""

    @classmethod
    def of(cls, shown: str, sort: str, group: str) -> Arrangement:
        """The stored arrangement, with defaults for invalid parts."""
        try:
            sort_rows((), sort, 0)
            group_rows((), group, 0)
            return cls(tuple(columns(shown)), sort, group)
        except HudUsage:
            return cls(tuple(columns("")))

    @property
    def sorted_by(self) -> tuple[str, bool]:
        """The first column of the sort order, and whether it is descending."""
        first = self.sort.partition(",")[0].strip()
        return first.removeprefix("-"), first.startswith("-")

    def sorting(self, one: RunColumn) -> str:
        """The sort order after a click on a column: descending for numbers; reversed by a second
        click."""
        key, down = self.sorted_by
        return f"-{one.key}" if (not down if key == one.key else one.number) else one.key

    def lines(self, rows: Sequence[RunRow], now: float) -> list[RunRow | RunGroup]:
        """The table's lines: rows in their order at `now` (Unix seconds), under a heading for each
        group."""
        found = sort_rows(rows, self.sort, now)
        if not self.group:
            return list(found)
        lines: list[RunRow | RunGroup] = []
        for group in group_rows(found, self.group, now):
            lines += [group, *group.rows]
        return lines


# The table: lines are made when they become visible.


NAME = "name"
MARKED, FOLLOWED = "✔", "●"
KEPT = 500
"""Rows whose texts are cached."""
FRESH_S = 5.0
"""Seconds until an age is updated."""


MORE = 2
"""Cells of the mark at the right of the titles, which says that there are more columns."""


class RunTable(LinesView, can_focus=True):
    """Lines of runs and headings. The cursor stays on its run, by id."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    @dataclass
    class Moved(Message):
        """The cursor is on another run."""

        run_id: str | None

    @dataclass
    class Opened(Message):
        """A run was clicked twice."""

        run_id: str

    @dataclass
    class Titled(Message):
        """A column's title was clicked."""

        column: RunColumn

    def __init__(self, clock: Callable[[], float], id: str | None = None) -> None:
        """`clock` gives Unix seconds, for ages."""
        super().__init__(id=id)
        self.lines: Sequence[RunRow | RunGroup] = ()
        self.cursor = -1
        self.marked: dict[str, None] = {}
        """Ids of the runs marked for comparison, in the order they were marked."""
        self.followed = ""
        """Id of the selected model."""
        self.arrangement = Arrangement(tuple(columns("")))
        self.left = 0
        """Columns after the name that are scrolled out at the left."""
        self._titles: Counter[str] = Counter()
        self._texts: dict[str, tuple[RunRow, float, dict[str, str]]] = {}
        """Cached texts of runs, with their row and the time they were made."""
        self._places: dict[str, int] = {}
        self._widths: dict[str, int] = {}
        self._spelled_out = False
        """Whether titles are in full words."""
        self._clock = clock

    @property
    def cursor_y(self) -> int | None:
        """Line of the cursor in the widget, from 0; None without runs."""
        return None if self.row is None else 1 + self.cursor - self.scroll_offset.y

    @property
    def row(self) -> RunRow | None:
        found = self.lines[self.cursor] if 0 <= self.cursor < len(self.lines) else None
        return found if isinstance(found, RunRow) else None

    @property
    def count(self) -> int:
        return len(self.lines)

    def show(self, lines: Sequence[RunRow | RunGroup], titles: Counter[str]) -> None:
        """Replace the lines; the cursor stays on its run, else close to its place.

        Args:
            lines: From the top.
            titles: How many runs have each name: equal names are shown with their ids.
        """
        before = self.row
        self.lines, self._titles = lines, titles
        self._places = {one.id: at for at, one in enumerate(lines) if isinstance(one, RunRow)}
        kept = None if before is None else self._places.get(before.id)
        self.cursor = self._near(max(0, self.cursor)) if kept is None else kept
        self._reveal()
        self.redraw()
        after = self.row
        if _id(before) != _id(after):
            self.post_message(self.Moved(_id(after)))

    def lay(self, arrangement: Arrangement) -> None:
        """Change the columns or their order; the matching lines come with the next `show`."""
        self.arrangement, self._widths = arrangement, {}
        self._texts.clear()
        self.left = min(self.left, max(0, len(arrangement.columns) - 2))

    def on_resize(self) -> None:
        self._widths = {}

    def select(self, run_id: str) -> None:
        """Move the cursor to a run, if it exists."""
        if run_id in self._places:
            self._go(self._places[run_id])

    def shift(self, by: int) -> None:
        """Scroll by this many columns to the right, or to the left."""
        left = self.left + by
        if by < 0 or len(self._in_sight(self.width)) < len(self._behind):
            self.left = max(0, min(left, len(self._rest) - 1))
            self.redraw()

    def _near(self, at: int) -> int:
        """The first line from `at` on, else before it, that is a run; −1 for none."""
        last = len(self.lines)
        ways = (*range(min(at, last), last), *range(min(at, last) - 1, -1, -1))
        return next((one for one in ways if isinstance(self.lines[one], RunRow)), -1)

    def _go(self, at: int) -> None:
        if at != self.cursor and 0 <= at < len(self.lines):
            before, self.cursor = self.cursor, at
            self._reveal()
            self._redraw_lines(before, at)
            self.post_message(self.Moved(_id(self.row)))

    def _redraw_lines(self, *lines: int) -> None:
        """Redraw only these lines, if they are visible."""
        spans, inks = self._spans(self.width), self._inks
        base, shown = self.rich_style, [*self.shown]
        for at in lines:
            row = at - self.scroll_offset.y + 1
            if 1 <= row < len(shown) and 0 <= at < len(self.lines):
                strip = self._line(at, spans, self.width, inks)
                shown[row] = strip.adjust_cell_length(self.width).apply_style(base).simplify()
        self.shown = tuple(shown)

    @property
    def _inks(self) -> dict[str, Style]:
        names = ("plain", "strong", "dim", "faint", "accent", "warm")
        return {name: self.tone(name) for name in names}

    def _reveal(self) -> None:
        top, height = self.scroll_offset.y, self.body_rows
        # a heading above the first run scrolls into view with it
        first = self.cursor - (self.cursor == 1)
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif height and self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False)

    def action_move(self, rows: int) -> None:
        at = self.cursor + rows
        while 0 <= at < len(self.lines) and not isinstance(self.lines[at], RunRow):
            at += rows
        self._go(at)

    def action_page(self, pages: int) -> None:
        at = self.cursor + pages * max(1, self.body_rows - 1)
        self._go(self._near(min(max(at, 0), max(0, len(self.lines) - 1))))

    def action_first(self) -> None:
        self._go(self._near(0))

    def action_last(self) -> None:
        self._go(self._near(len(self.lines) - 1))

    def on_click(self, event: events.Click) -> None:
        if not event.y:
            spans = self._spans(self.width)
            found = next((one for one, start, stop in spans if start <= event.x < stop), None)
            if found is not None:
                self.post_message(self.Titled(found))
            return
        at = event.y - 1 + self.scroll_offset.y
        row = self.lines[at] if at < len(self.lines) else None
        if isinstance(row, RunRow):
            self._go(at)
            if event.chain == 2:
                self.post_message(self.Opened(row.id))

    # Drawing.

    @property
    def _rest(self) -> list[RunColumn]:
        """The columns after the name, which does not scroll."""
        return [one for one in self.arrangement.columns if one.key != NAME]

    @property
    def _behind(self) -> list[RunColumn]:
        return self._rest[self.left :]

    def _width(self, one: RunColumn) -> int:
        title = cell_len(self._title(one))
        return max(self._widths.get(one.key, 0), one.least, title)

    def _title(self, one: RunColumn) -> str:
        """A column's title, with an arrow if the table is sorted by it."""
        by, down = self.arrangement.sorted_by
        title = one.long_title if self._spelled_out else one.title
        return title if one.key != by else f"{title} {'↓' if down else '↑'}"

    def _spell_out(self, width: int) -> None:
        """Use full words in titles, if every column has room for them."""
        self._spelled_out = True
        shown = self._all
        used = sum(map(self._width, shown)) + GAP * (len(shown) - 1)
        self._spelled_out = used + 3 <= width

    def _in_sight(self, width: int) -> list[RunColumn]:
        """The columns after the name that fit, beside the mark of further ones if not all do."""
        room = width - 3 - self._name_width(width)
        whole = sum(GAP + self._width(one) for one in self._behind) <= room
        room -= 0 if whole else MORE
        found = []
        for one in self._behind:
            room -= GAP + self._width(one)
            if room < 0:
                break
            found.append(one)
        return found

    def _spans(self, width: int) -> list[tuple[RunColumn, int, int]]:
        """Each visible column with its first and last cell; the name takes the remaining width."""
        behind = self._in_sight(width)
        wide, name = sum(GAP + self._width(one) for one in behind), COLUMNS[NAME]
        width -= MORE if len(behind) < len(self._behind) else 0
        stop = 3 + min(self._width(name), max(self._name_width(width), width - 3 - wide))
        found = [(name, 3, stop)]
        for one in behind:
            found.append((one, stop + GAP, stop + GAP + self._width(one)))
            stop = found[-1][2]
        return found

    def _name_width(self, width: int) -> int:
        """Least width of the names, cells."""
        return min(self._width(COLUMNS[NAME]), max(COLUMNS[NAME].least, 3 * width // 10))

    def _measure(self, rows: Iterable[RunRow], width: int) -> None:
        """Let the columns grow with their visible content, and choose the form of their titles."""
        widths, most = self._widths, {one.key: one.most for one in self._all}
        for row in rows:
            for key, text in self._texts_of(row).items():
                if len(text) > widths.get(key, 0) < most[key]:
                    widths[key] = max(widths.get(key, 0), min(most[key], cell_len(text)))
        self._spell_out(width)

    @property
    def _all(self) -> Sequence[RunColumn]:
        return (COLUMNS[NAME], *self._rest)

    def name_of(self, row: RunRow) -> str:
        """A run's name; with the beginning of its id if several runs have it."""
        title = row.title
        return f"{title} {row.id[:8]}" if self._titles[title] > 1 else title

    def _texts_of(self, row: RunRow) -> dict[str, str]:
        """A row's texts by column, cached until an age may have changed."""
        now, cached = self._clock(), self._texts.get(row.id)
        if cached is not None and cached[0] is row and now - cached[1] < FRESH_S:
            return cached[2]
        if len(self._texts) > KEPT:
            self._texts.clear()
        texts = {one.key: one.text(row, now) for one in self._all}
        texts[NAME] = self.name_of(row)
        self._texts[row.id] = row, now, texts
        return texts

    def heading(self, width: int) -> Strip:
        """The columns' titles, with an arrow at the one that is sorted by."""
        top = self.scroll_offset.y
        rows = self.lines[top : top + self.body_rows]
        self._measure((row for row in rows if isinstance(row, RunRow)), width)
        dim, strong = self.tone("dim"), self.tone("strong")
        parts = [(" ‹ " if self.left else "   ", dim)]
        for one, start, stop in self._spans(width):
            tone = strong if one.key == self.arrangement.sorted_by[0] else dim
            parts.append((_padded(self._title(one), stop - start, one) + " " * GAP, tone))
        more = len(self._in_sight(width)) < len(self._behind)
        found = line(*parts)
        if more:
            gap = " " * max(0, width - 1 - found.cell_length)
            found = Strip.join([found.crop(0, width - 1), line((f"{gap}›", dim))])
        return found.crop(0, width)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        spans, inks = self._spans(width), self._inks
        return [self._line(at, spans, width, inks) for at in rows]

    def _line(
        self,
        at: int,
        spans: Sequence[tuple[RunColumn, int, int]],
        width: int,
        inks: Mapping[str, Style],
    ) -> Strip:
        row = self.lines[at]
        if isinstance(row, RunGroup):
            return line((fit_text(f" {row.title}", width), inks["strong"]))
        texts = self._texts_of(row)
        mark = MARKED if row.id in self.marked else " "
        follows = FOLLOWED if row.model_id == self.followed else " "
        parts, tone, text = [(f"{mark}{follows} ", inks["accent"])], "", ""
        for one, start, stop in spans:  # neighbours of one tone are one segment
            now = one.tone(row) if row.whole else "faint"
            if now != tone and text:
                parts.append((text, inks[tone]))
                text = ""
            tone = now
            text += _padded(texts[one.key], stop - start, one) + " " * GAP
        parts.append((text[:-GAP], inks[tone]))
        if at != self.cursor:
            return line(*parts)
        cursor = self.tone("cursor" if self.has_focus else "cursor-blurred")
        ground = Style(bgcolor=cursor.bgcolor, bold=cursor.bold)
        used = sum(cell_len(text) for text, _ in parts)
        return line(*((t, tone + ground) for t, tone in parts), (" " * (width - used), ground))


def _padded(text: str, width: int, one: RunColumn) -> str:
    if one.key == NAME and width >= 12:
        text = cut_in_middle(text, width)
    right = one.number and not one.left
    if len(text) <= width and text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    missing = width - cell_len(text)
    return " " * missing + text if right and missing > 0 else fit_text(text, width)


def _id(row: RunRow | None) -> str | None:
    return None if row is None else row.id
