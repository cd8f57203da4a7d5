"""CheckpointTree: the tree in lanes, newest first, of any size; only what is seen is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hud_tui.rl.ages import age
from hud_tui.rl.cursor import TreeCursor
from hud_tui.rl.filter import Predicate
from hud_tui.rl.lanes import Lanes
from hud_tui.rl.matches import Matches
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.run import Run
from hud_tui.rl.tree import Tree
from hud_tui.tui.keys import bindings
from hud_tui.tui.widgets.text_pane import resize_virtually
from hud_tui.tui.widgets.tree_lines import PLAIN, Look, header_line, row_line

T = TypeVar("T")
HEADER = 1
"""Lines above the rows that do not scroll."""
UNMATCHED = "  No checkpoint matches. Esc shows all."
AGE_S = 1.0
"""Seconds between two looks at whether an age on the screen has changed."""


class CheckpointTree(ScrollView, can_focus=True, inherit_bindings=False):
    """Every checkpoint of a model. The cursor stays on its checkpoint when data arrives."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tree--served",
        "tree--dim",
        "tree--cursor",
        "tree--cursor-blurred",
    }

    run: reactive[Run] = reactive(Run, repaint=False)
    """The run to draw; bound to the screen's."""
    follow: reactive[bool] = reactive(True)
    """Whether the cursor goes with the head."""

    @dataclass
    class Moved(Message):
        """The cursor is on another row, or its row says something else."""

        position: int
        """Of the checkpoint; of a folded run its newest; ROOT for the base weights."""
        oldest: int
        """The same, except on a folded run."""
        folded: bool

    def __init__(self, clock: Callable[[], float], id: str | None = None) -> None:
        """`clock` gives Unix seconds, for ages."""
        super().__init__(id=id)
        self.clock = clock
        self.cursor = TreeCursor()
        self._look: Look | None = None
        self._drawn: dict[int, str] = {}
        """The age that a row was last drawn with."""

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

    @property
    def at(self) -> Moved:
        """What is under the cursor."""
        row = self.cursor.row
        return self.Moved(row.newest, row.oldest, row.kind is Kind.FOLD)

    def on_mount(self) -> None:
        self.set_interval(AGE_S, self._grow_older)

    def watch_run(self, before: Run, run: Run) -> None:
        """Draw what came, and leave the cursor where it was on the screen."""
        if run.tree is self.checkpoints and run.model is before.model:
            return
        place = self.cursor.number - self._scroll
        if (run.model and run.model.id) != (before.model and before.model.id):
            self.cursor, self.follow = TreeCursor(), True
        self.cursor.show(run.tree, self.follow)
        self._resize()
        if self.follow:
            self._reveal()
        elif self._scroll or self.cursor.number >= self._page:
            self._scroll_rows(self.cursor.number - place)
        self.refresh()
        self.post_message(self.at)

    def watch_follow(self, follow: bool) -> None:
        """What the cursor walks among does not fold away under it while steps arrive."""
        if follow:
            self.lanes.release()
        else:
            self.lanes.hold()

    def filter(self, keep: Predicate | None) -> None:
        """List only what `keep` lets through; None lists all again."""
        self.follow = self.follow and keep is None
        self._change(lambda: self.cursor.filter(keep))
        self.refresh()

    def go(self, position: int) -> None:
        """Put the cursor on a checkpoint, or on ROOT."""
        self.follow = False
        self._change(lambda: self.cursor.go(position))

    def go_to_head(self) -> None:
        """Put the cursor on what is served."""
        self.follow = False
        self._change(self.cursor.go_to_head)

    def toggle(self) -> bool:
        """Fold or unfold the run under the cursor; False where there is nothing to."""
        return self.unfold() or self.fold()

    def unfold(self) -> bool:
        """Show every step of the folded run under the cursor; False where there is none."""
        return self._change(self.cursor.unfold)

    def fold(self) -> bool:
        """Fold the run under the cursor again; the cursor is then on the fold."""
        return self._change(self.cursor.fold)

    def fold_all(self) -> None:
        """Unfold every straight run; fold them all again where none is folded."""
        rows = self.rows
        self._change(rows.fold_all if self.lanes.all_open else rows.unfold_all)

    def action_move(self, rows: int) -> None:
        """Move over joints, which stand for no checkpoint."""
        self._step_to(self.cursor.number + rows, 1 if rows > 0 else -1)

    def action_page(self, pages: int) -> None:
        number = self.cursor.number + pages * max(1, self._page - 1)
        self._step_to(number, 1 if pages > 0 else -1)

    def action_first(self) -> None:
        self._step_to(0, 1)

    def action_last(self) -> None:
        self._step_to(len(self.rows) - 1, -1)

    def on_click(self, event: Click) -> None:
        """Select a row; a second click on a folded run unfolds it."""
        offset = event.get_content_offset(self)
        if offset is None or offset.y < HEADER:
            return
        row = offset.y - HEADER + self._scroll
        if row < len(self.rows):
            again = row == self.cursor.number
            self._step_to(row, 1)
            if again and event.chain > 1:
                self.toggle()

    def render_line(self, y: int) -> Strip:
        look = self._look_now()
        if y < HEADER:
            return self._strip(header_line(look), PLAIN)
        number = y - HEADER + self._scroll
        if number >= len(self.rows):
            unmatched = not len(self.rows) and y == HEADER
            return self._strip([Segment(UNMATCHED, look.dim)] if unmatched else [], PLAIN)
        row, now = self.rows.row(number), self.clock()
        self._drawn[number] = self._age(row, now)
        over = self._cursor_style if number == self.cursor.number else PLAIN
        return self._strip(row_line(look, self.run, self.lanes, row, now), over)

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
            self._look = Look.of(*measures, served, dim)
        return self._look

    def _strip(self, line: list[Segment], over: Style) -> Strip:
        """A line on the widget's background, or on the cursor's."""
        strip = Strip(line).adjust_cell_length(self.width)
        return strip.apply_style(self.rich_style + over)

    def _age(self, row: Row, now: float) -> str:
        return age(self.checkpoints[row.newest].created_at, now) if row.kind is Kind.NODE else ""

    def _step_to(self, number: int, way: int) -> None:
        self.follow = False
        self._change(lambda: self.cursor.step_to(number, way))

    def _change(self, change: Callable[[], T]) -> T:
        """Change what is folded or where the cursor is; repaint what that moves."""
        old, size, scroll = self.cursor.number, len(self.rows), self._scroll
        done = change()
        self._resize()
        self._reveal()
        if len(self.rows) == size and scroll == self._scroll:
            self._repaint_row(old)
            self._repaint_row(self.cursor.number)
        else:
            self.refresh()
        self.post_message(self.at)
        return done

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
        """Repaint the rows whose age reads otherwise than when they were drawn."""
        if not self.is_on_screen:
            return
        now, top = self.clock(), self._scroll
        for number in range(top, min(top + self._page, len(self.rows))):
            if self._drawn.get(number) != self._age(self.rows.row(number), now):
                self._repaint_row(number)
