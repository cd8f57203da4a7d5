"""CheckpointTree: the tree in lanes, newest first, of any size; only what is seen is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual.binding import BindingType
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive

from hud_tui.rl.cursor import TreeCursor
from hud_tui.rl.filter import Predicate
from hud_tui.rl.rows import Kind
from hud_tui.rl.run import Run
from hud_tui.tui.bindings import bindings
from hud_tui.tui.widgets.tree_canvas import HEADER, TreeCanvas

T = TypeVar("T")


class CheckpointTree(TreeCanvas, can_focus=True, inherit_bindings=False):
    """Every checkpoint of a model. The cursor stays on its checkpoint when data arrives."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
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

    @dataclass
    class Opened(Message):
        """The row under the cursor was clicked twice."""

    @property
    def at(self) -> Moved:
        """What is under the cursor."""
        row = self.cursor.row
        return self.Moved(row.newest, row.oldest, row.kind is Kind.FOLD)

    def watch_run(self, before: Run, run: Run) -> None:
        """Draw what came, and leave the cursor where it was on the screen."""
        if run.tree is self.checkpoints and run.model is before.model:
            return
        place, size = self.cursor.number - self._scroll, len(self.rows)
        seen = 0 <= place < self._page
        if other := (run.model and run.model.id) != (before.model and before.model.id):
            self.cursor, self.follow = TreeCursor(), True
            self.cursor.keep(self.marks.ids)
        self.cursor.show(run.tree, self.follow)
        self._resize()
        if self.follow and (seen or other):
            self._reveal()
        elif self.follow:  # the wheel has left the head: what is read stays where it is
            self._scroll_rows(self._scroll + len(self.rows) - size)
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

    def unfold_only(self, runs: Iterable[tuple[str, str]]) -> None:
        """Show the steps of these runs, by their checkpoints' ids, and fold all others."""
        self._change(lambda: self.cursor.unfold_only(runs))

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
        """Select a row; a second click does what enter does."""
        offset = event.get_content_offset(self)
        if offset is None or offset.y < HEADER:
            return
        row = offset.y - HEADER + self._scroll
        if row < len(self.rows):
            again = row == self.cursor.number
            self._step_to(row, 1)
            if again and event.chain == 2:
                self.post_message(self.Opened())

    def _step_to(self, number: int, way: int) -> None:
        self.follow = False
        self._change(lambda: self.cursor.step_to(number, way))

    def _change(self, change: Callable[[], T]) -> T:
        """Change what is folded or where the cursor is; repaint what that moves."""
        old, size, scroll = self.cursor.number, len(self.rows), self._scroll
        drawing = self.lanes.drawing
        done = change()
        self._resize()
        self._reveal()
        if (len(self.rows), self._scroll, self.lanes.drawing) == (size, scroll, drawing):
            self._repaint_row(old)
            self._repaint_row(self.cursor.number)
        else:
            self.refresh()
        self.post_message(self.at)
        return done
