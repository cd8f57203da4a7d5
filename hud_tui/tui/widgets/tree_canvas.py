"""TreeCanvas: how the tree is drawn: only the lines in sight, and of those what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hud_tui.keys import keyed
from hud_tui.rl.ages import age, coarse
from hud_tui.rl.cursor import TreeCursor
from hud_tui.rl.lanes import Lanes
from hud_tui.rl.matches import Matches
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.run import Run
from hud_tui.rl.tree import Tree
from hud_tui.tui.widgets.text_pane import resize_virtually
from hud_tui.tui.widgets.tree_columns import AGE
from hud_tui.tui.widgets.tree_lines import PLAIN, Look, Marks, header_line, row_line

HEADER = 1
"""Lines above the rows that do not scroll."""
UNMATCHED = "  No checkpoint matches. {^checkpoints.leave} shows all."
AGE_S = 1.0
"""Seconds between two looks at whether an age on the screen has changed."""


class TreeCanvas(ScrollView, inherit_bindings=False):
    """A tree and a cursor in it, on lines under a header. Who moves the cursor builds on it."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tree--served",
        "tree--dim",
        "tree--alarm",
        "tree--cursor",
        "tree--cursor-blurred",
    }

    run: reactive[Run] = reactive(Run, repaint=False)
    """The run to draw; bound to the screen's."""

    def __init__(self, clock: Callable[[], float], id: str | None = None) -> None:
        """`clock` gives Unix seconds, for ages."""
        super().__init__(id=id)
        self.clock = clock
        self.cursor = TreeCursor()
        self.marks = Marks()
        self._look: Look | None = None
        self._drawn: dict[int, str] = {}
        """The age that a row was last drawn with."""

    def on_mount(self) -> None:
        self.set_interval(AGE_S, self._grow_older)

    @property
    def checkpoints(self) -> Tree:
        return self.cursor.tree

    @property
    def lanes(self) -> Lanes:
        return self.cursor.lanes

    @property
    def rows(self) -> Lanes | Matches:
        """What is listed: the whole tree, or what the filter left of it."""
        return self.cursor.rows

    @property
    def position(self) -> int:
        """The checkpoint under the cursor, or ROOT."""
        return self.cursor.position

    def render_line(self, y: int) -> Strip:
        look = self._look_now()
        if y < HEADER:
            return self._strip(header_line(look), PLAIN)
        number = y - HEADER + self._scroll
        if number >= len(self.rows):
            unmatched = not len(self.rows) and y == HEADER
            return self._strip([Segment(keyed(UNMATCHED), look.dim)] if unmatched else [], PLAIN)
        row, now = self.rows.row(number), coarse(self.clock())
        self._drawn[number] = self._age(row, now)
        over = self._cursor_style if number == self.cursor.number else PLAIN
        return self._strip(row_line(look, self.run, self.lanes, row, now), over)

    def mark(self, marks: Marks) -> None:
        """Draw these notes and marks; what has one does not fold."""
        self.marks, self._look = marks, None
        self.cursor.keep(marks.ids)
        self._resize()
        self._reveal()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._look = None

    def on_resize(self, event: Resize) -> None:
        self._resize()
        self._reveal()

    @property
    def width(self) -> int:
        """Cells across, without the scrollbar's."""
        return self.scrollable_content_region.width

    @property
    def _scroll(self) -> int:
        """The row at the top."""
        return self.scroll_offset.y

    @property
    def _page(self) -> int:
        """Rows that are seen at once."""
        return max(1, self.size.height - HEADER)

    @property
    def _cursor_style(self) -> Style:
        name = "tree--cursor" if self.has_focus else "tree--cursor-blurred"
        return self.get_component_rich_style(name)

    def _look_now(self) -> Look:
        """What the lines share, made anew where a measure or the theme has changed."""
        lanes = self.lanes.lanes if self.cursor.matches is None else 1
        measures = self.width, lanes, max(1.0, self.checkpoints.peak)
        if self._look is None or measures != (self._look.width, self._look.lanes, self._look.top):
            served = self.get_component_rich_style("tree--served", partial=True)
            dim = self.get_component_rich_style("tree--dim", partial=True)
            alarm = self.get_component_rich_style("tree--alarm", partial=True)
            self._look = Look.of(measures, (served, dim, alarm), self.marks)
        return self._look

    def _strip(self, line: list[Segment], over: Style) -> Strip:
        """A line on the widget's background, or on the cursor's."""
        strip = Strip(line).adjust_cell_length(self.width)
        return strip.apply_style(self.rich_style + over)

    def _age(self, row: Row, now: float) -> str:
        return age(self.checkpoints[row.newest].created_at, now) if row.kind is Kind.NODE else ""

    def _resize(self) -> None:
        resize_virtually(self, Size(self.width, len(self.rows) + HEADER))

    def _reveal(self) -> None:
        """Scroll as little as shows the cursor."""
        row, top = self.cursor.number, self._scroll
        if row < top:
            self._scroll_rows(row)
        elif row >= top + self._page:
            self._scroll_rows(row - self._page + 1)

    def _scroll_rows(self, row: int) -> None:
        self.scroll_to(y=max(0, row), animate=False, force=True)

    def _repaint_row(self, row: int) -> None:
        y = row - self._scroll + HEADER
        if HEADER <= y < self.size.height:
            self.refresh(Region(0, y, self.width, 1))

    def _grow_older(self) -> None:
        """Repaint the ages that read otherwise than when they were drawn."""
        cells = self._look_now().cells_of(AGE)
        if not self.is_on_screen or not cells:
            return
        now, top = coarse(self.clock()), self._scroll
        for number in range(top, min(top + self._page, len(self.rows))):
            if self._drawn.get(number) != self._age(self.rows.row(number), now):
                y = number - top + HEADER
                self.refresh(Region(cells.start, y, len(cells), 1))
