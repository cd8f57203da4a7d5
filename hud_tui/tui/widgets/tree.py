"""CheckpointTree: the tree in lanes, newest first, of any size; only what is seen is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

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
from hud_tui.rl.filter import Matches, Predicate
from hud_tui.rl.lanes import Lanes
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.rl.tree import Tree
from hud_tui.tui.keys import bindings
from hud_tui.tui.widgets.text_pane import resize_virtually
from hud_tui.tui.widgets.tree_lines import PLAIN, Look, header_line, row_line

HEADER = 1
"""Lines above the rows that do not scroll."""
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
        self.lanes = Lanes()
        self.matches: Matches | None = None
        """The rows that a filter left, or None while every row is there."""
        self._look: Look | None = None
        self._anchor: str | None = None
        """Id of the checkpoint that the cursor is on; None for the base weights."""
        self._on_fold = False
        self._drawn: dict[int, str] = {}
        """The age that a row was last drawn with."""

    @property
    def checkpoints(self) -> Tree:
        return self.lanes.tree

    @property
    def rows(self) -> Lanes | Matches:
        """What is listed: the whole tree, or what the filter left of it."""
        return self.lanes if self.matches is None else self.matches

    @property
    def position(self) -> int:
        """The checkpoint under the cursor, or ROOT."""
        found = self.checkpoints.find(self._anchor)
        return ROOT if found is None else found

    @property
    def cursor(self) -> int:
        """The cursor's row."""
        return self.rows.row_of(self.position)

    def on_mount(self) -> None:
        self.set_interval(AGE_S, self._grow_older)

    def watch_run(self, before: Run, run: Run) -> None:
        """Draw what came, and leave the cursor where it was on the screen."""
        if run.tree is self.checkpoints and run.model is before.model:
            return
        place = self.cursor - self._scroll
        new = (run.model and run.model.id) != (before.model and before.model.id)
        if new or not run.tree.extends(self.checkpoints):
            self._start_again(new)
        self.lanes.show(run.tree)
        if self.matches is not None:
            self.matches.show(run.tree)
        if self.follow:
            self._land(ROOT if run.tree.head is None else run.tree.head)
        else:
            self._land(self.position, fold=self._on_fold)
        self._resize()
        if self.follow:
            self._reveal()
        elif self._scroll or self.cursor >= self._page:
            self._scroll_rows(self.cursor - place)
        self.refresh()

    def _start_again(self, model: bool) -> None:
        """Another tree: of another model, or one that does not only add to the old."""
        self.lanes = Lanes()
        if model:
            self.matches, self.follow = None, True
        elif self.matches is not None:
            self.matches = Matches(self.matches.keep)

    def filter(self, keep: Predicate | None) -> int:
        """List only what `keep` lets through, or all again; return how many that is."""
        self.matches = None if keep is None else Matches(keep)
        if self.matches is not None:
            self.matches.show(self.checkpoints)
            self.follow = False
        if len(self.rows):
            row = self.rows.row(self.cursor)
            self._land(row.newest, fold=row.kind is Kind.FOLD)
        self._resize()
        self._reveal()
        self.refresh()
        return len(self.rows)

    def go(self, position: int) -> None:
        """Put the cursor on a checkpoint, or on ROOT; unfold nothing but this one."""
        self.follow = False
        self._shown_change(lambda: self._land(position))

    def go_to_head(self) -> None:
        """Put the cursor on what is served."""
        head = self.checkpoints.head
        self.go(ROOT if head is None else head)

    @property
    def all_open(self) -> bool:
        """Whether no straight run is folded."""
        return self.lanes.all_open

    def toggle(self) -> bool:
        """Fold or unfold the run under the cursor; False where there is nothing to."""
        return self.unfold() or self.fold()

    def unfold(self) -> bool:
        """Show every step of the folded run under the cursor."""
        row = self.cursor
        if not len(self.rows) or not self.rows.unfold(row):
            return False
        self._shown_change(lambda: self._land(self.position))
        return True

    def fold(self) -> bool:
        """Fold the run under the cursor again; the cursor is then on the fold."""
        position = self.position
        if not self.rows.fold(position):
            return False
        self._shown_change(lambda: self._land(position, fold=True))
        return True

    def fold_all(self, folded: bool) -> None:
        """Fold, or unfold, every straight run."""
        self._shown_change(self.rows.fold_all if folded else self.rows.unfold_all)

    def action_move(self, rows: int) -> None:
        """Move over joints, which stand for no checkpoint."""
        self._step_to(self.cursor + rows, 1 if rows > 0 else -1)

    def action_page(self, pages: int) -> None:
        self._step_to(self.cursor + pages * max(1, self._page - 1), 1 if pages > 0 else -1)

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
            again = row == self.cursor
            self._step_to(row, 1)
            if again and event.chain > 1:
                self.toggle()

    def render_line(self, y: int) -> Strip:
        look = self._look_now()
        if y < HEADER:
            return self._strip(header_line(look), PLAIN)
        number = y - HEADER + self._scroll
        if number >= len(self.rows):
            return Strip.blank(self.size.width, self.rich_style)
        row, now = self.rows.row(number), self.clock()
        self._drawn[number] = self._age(row, now)
        over = self._cursor_style if number == self.cursor else PLAIN
        return self._strip(row_line(look, self.run, self.lanes, row, now), over)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._look = None

    def on_resize(self, event: Resize) -> None:
        self._resize()
        self._reveal()

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
        lanes = 1 if self.matches is not None else self.lanes.lanes
        best = (
            None
            if self.checkpoints.best is None
            else self.checkpoints.reward(self.checkpoints.best)
        )
        measures = self.size.width, lanes, max(1.0, best or 0.0)
        if self._look is None or measures != (self._look.width, self._look.lanes, self._look.top):
            served = self.get_component_rich_style("tree--served", partial=True)
            dim = self.get_component_rich_style("tree--dim", partial=True)
            self._look = Look.of(*measures, served, dim)
        return self._look

    def _strip(self, line: list[Segment], over: Style) -> Strip:
        """A line on the widget's background, or on the cursor's."""
        strip = Strip(line).adjust_cell_length(self.size.width)
        return strip.apply_style(self.rich_style + over)

    def _age(self, row: Row, now: float) -> str:
        return age(self.checkpoints[row.newest].created_at, now) if row.kind is Kind.NODE else ""

    def _step_to(self, row: int, way: int) -> None:
        """Put the cursor on a row, or on the next one that is no joint."""
        if not len(self.rows):
            return
        row = min(max(row, 0), len(self.rows) - 1)
        while self.rows.row(row).kind is Kind.JOINT:
            row += way
        target = self.rows.row(row)
        self.follow = False
        self._shown_change(lambda: self._land(target.newest, fold=target.kind is Kind.FOLD))

    def _land(self, position: int, fold: bool = False) -> None:
        """Anchor the cursor; a checkpoint that is not a fold stays visible under it."""
        if position >= len(self.checkpoints):
            position = ROOT
        self._anchor = None if position == ROOT else self.checkpoints[position].id
        self._on_fold = fold
        self.rows.select(None if fold or position == ROOT else position)
        self._on_fold = fold and self._folded
        self._tell()

    def _shown_change(self, change: Callable[[], object]) -> None:
        """Change what is folded or where the cursor is; repaint what that moves."""
        old, size = self.cursor, len(self.rows)
        change()
        same = len(self.rows) == size
        scroll = self._scroll
        self._resize()
        self._reveal()
        if same and scroll == self._scroll:
            self._repaint_row(old)
            self._repaint_row(self.cursor)
        else:
            self.refresh()

    @property
    def _folded(self) -> bool:
        return bool(len(self.rows)) and self.rows.row(self.cursor).kind is Kind.FOLD

    @property
    def at(self) -> Moved:
        """What is under the cursor."""
        if not len(self.rows):
            return self.Moved(ROOT, ROOT, False)
        row = self.rows.row(self.cursor)
        return self.Moved(row.newest, row.oldest, row.kind is Kind.FOLD)

    def _tell(self) -> None:
        self.post_message(self.at)

    def _resize(self) -> None:
        resize_virtually(self, Size(self.size.width, len(self.rows) + HEADER))

    def _reveal(self) -> None:
        """Scroll as little as shows the cursor."""
        row, top = self.cursor, self._scroll
        if row < top:
            self._scroll_rows(row)
        elif row >= top + self._page:
            self._scroll_rows(row - self._page + 1)

    def _scroll_rows(self, row: int) -> None:
        self.scroll_to(y=max(0, row), animate=False, force=True)

    def _repaint_row(self, row: int) -> None:
        y = row - self._scroll + HEADER
        if HEADER <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def _grow_older(self) -> None:
        """Repaint the rows whose age reads otherwise than when they were drawn."""
        if not self.is_on_screen:
            return
        now, top = self.clock(), self._scroll
        for number in range(top, min(top + self._page, len(self.rows))):
            if self._drawn.get(number) != self._age(self.rows.row(number), now):
                self._repaint_row(number)
