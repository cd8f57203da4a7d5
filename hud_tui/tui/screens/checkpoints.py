"""CheckpointsScreen: the checkpoint tree in hand: see the lineage, set the head, undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.filter import parse
from hud_tui.rl.head import Outcome, name
from hud_tui.rl.names import find_checkpoint
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.tui.keys import bindings
from hud_tui.tui.moves import Wanted, to_parent, to_redo, to_selected, to_undo
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.steering import read_tree, steer
from hud_tui.tui.widgets.checkpoint_details import CheckpointDetails, details, fold_details
from hud_tui.tui.widgets.tree import CheckpointTree

EMPTY = "No checkpoints yet: they appear with the first step. Press 2 to launch a run."
NO_MODEL = "No model is followed yet. Press 1 to choose or fork one."
READING = "reading the tree …"
LIVE_FILTER = 5000
"""Checkpoints up to which the filter acts with each key; above, on Enter."""
NARROW = 60
"""Columns of a screen that has no room for how many branches there are."""


class CheckpointsScreen(HudScreen):
    VIEW = "checkpoints"
    BINDINGS: ClassVar[list[BindingType]] = bindings("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self._steering = self._opened = False
        self._said = Content()
        """What was said last; until the cursor is moved."""
        self._at = CheckpointTree.Moved(ROOT, ROOT, False)

    def body(self) -> Iterable[Widget]:
        with Container(id="tree-panes"):
            with Vertical(id="tree-pane"):
                yield Input(
                    placeholder="name, or reward>.6 loss=ppo", id="tree-filter", compact=True
                )
                tree = CheckpointTree(self.hud.clock, id="tree")
                yield tree.data_bind(HudScreen.run)
                yield Static(READING, id="tree-empty", markup=False)
            yield CheckpointDetails(id="details")
        yield Static("", id="tree-note", markup=False)

    @property
    def tree_list(self) -> CheckpointTree:
        return self.query_one("#tree", CheckpointTree)

    @property
    def filter_field(self) -> Input:
        return self.query_one("#tree-filter", Input)

    def on_mount(self) -> None:
        self.tree_list.focus()
        if self.hud.start.command == "head":
            self.watch(self, "run", self._open_start)

    def watch_run(self, before: Run, run: Run) -> None:
        if not self.is_mounted or (run.tree is before.tree and run.model is before.model):
            return
        self._show_state()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._show_state()

    def _show_state(self) -> None:
        """The tree, or why there is none; what the tree holds, on the line under it."""
        run = self.run
        empty = NO_MODEL if run.model is None else EMPTY if run.loaded else READING
        self.set_class(not len(run.tree), "-empty")
        self.query_one("#tree-empty", Static).update(empty)
        self._note()

    def _note(self, said: Content | None = None) -> None:
        """What was said last, and what the tree holds."""
        tree = self.tree_list
        steps, branches = len(self.run.tree), tree.lanes.branches
        held = [f"{steps:,} checkpoint{'s' * (steps != 1)}".replace(",", " ")]
        if tree.cursor.matches is not None:
            held = [f"{len(tree.rows):,} of {held[0]}".replace(",", " ")]
        if branches > 1 and self.size.width > NARROW:
            held.append(f"{branches} branches")
        held.append("following ▶" if tree.follow else "f follows ▶")
        self._said = self._said if said is None else said
        right = Content.styled(" · ".join(held) if steps else "", "$text-muted")
        room = self.size.width - 2 - self._said.cell_length - right.cell_length
        if room < 2 and self._said:
            right, room = Content(), 0
        line = self._said + Content(" " * room) + right
        self.query_one("#tree-note", Static).update(line, layout=False)

    @on(CheckpointTree.Moved)
    def _cursor_moved(self, at: CheckpointTree.Moved) -> None:
        moved = at.position != self._at.position and not self.tree_list.follow
        self._at = at
        self._note(Content() if moved else None)
        self.show_details(at)

    def show_details(self, at: CheckpointTree.Moved) -> None:
        """Say all that is known of what is under the cursor, where there is a pane for it."""
        pane = self.query_one(CheckpointDetails)
        if pane.display and len(self.run.tree):
            pane.show(self._details(at, pane.width))

    def _details(self, at: CheckpointTree.Moved, width: int) -> list[Content]:
        lanes = self.tree_list.lanes
        if at.folded:
            return fold_details(self.run, lanes, at.position, at.oldest, width)
        return details(self.run, lanes, at.position, self.hud.clock(), width)

    def action_set_head(self) -> None:
        """Preview serving the checkpoint under the cursor."""
        self.move_head(lambda: to_selected(self.run, self._at.position, self._at.folded))

    def action_roll_back(self) -> None:
        """Preview serving the head's parent."""
        self.move_head(lambda: to_parent(self.run))

    def action_undo(self) -> None:
        """Preview serving what was served before the last move."""
        self.move_head(lambda: to_undo(self.run, self.hud.journal))

    def action_redo(self) -> None:
        """Preview the last move that was undone, again."""
        self.move_head(lambda: to_redo(self.hud.journal))

    def move_head(self, wish: Callable[[], Wanted]) -> None:
        """Start the one act that changes what is served, unless it is under way."""
        if self._steering:
            self._warn("The head is being set: wait for the service's word.")
            return
        try:
            wanted = wish()
        except HudUsage as error:
            self._warn(error.message)
            return
        self._steering = True
        self._steer(wanted)

    @work(group="steer")
    async def _steer(self, wanted: Wanted) -> None:
        try:
            became = await steer(self, wanted)
        except HudError as error:
            self.tell(error)
            self._say(Outcome(False, f"refused: the head is {name(self.run.head)}"))
        else:
            if became is not None:
                self._say(became)
        finally:
            self._steering = False

    def _say(self, became: Outcome) -> None:
        """What became of it, on the line under the tree until something else is said."""
        mark, style = ("✔", "$accent") if became.done else ("⚠", "bold $warning")
        self._note(Content.styled(f"{mark} {became.text}", style))

    def _warn(self, text: str) -> None:
        self._note(Content.styled(f"⚠ {text}", "$warning"))

    def action_toggle_fold(self) -> None:
        if not self.tree_list.toggle():
            self.action_details()

    def action_fold(self) -> None:
        self.tree_list.fold()

    def action_unfold(self) -> None:
        self.tree_list.unfold()

    def action_fold_all(self) -> None:
        self.tree_list.fold_all()

    def action_follow(self) -> None:
        tree = self.tree_list
        if tree.follow:
            tree.follow = False
        else:
            tree.go_to_head()
            tree.follow = True
        self._note()

    def action_jump(self) -> None:
        """To the head; from there to the best checkpoint."""
        tree = self.run.tree
        head = ROOT if tree.head is None else tree.head
        best = head if tree.best is None else tree.best
        self.tree_list.go(best if self._at.position == head and not self._at.folded else head)

    def action_details(self) -> None:
        """Show or hide the details."""
        pane = self.query_one(CheckpointDetails)
        pane.display = not pane.display
        self.tree_list.focus()
        self.call_after_refresh(self._cursor_moved, self._at)

    def action_copy(self) -> None:
        """Copy the checkpoint's id."""
        if self._at.position == ROOT:
            self._warn("The base weights have no checkpoint id.")
        else:
            self.copy(self.run.tree[self._at.position].id)

    @work(exclusive=True, group="read")
    async def action_refresh(self) -> None:
        """Read the tree again."""
        if self.run.model is not None and await self.attempt(read_tree(self)) is not None:
            self._note(Content("read the tree again"))

    def action_filter(self) -> None:
        self.filter_field.display = True
        self.filter_field.focus()

    def action_leave(self) -> None:
        """Esc: out of the filter's field, then the filter, then the details' focus."""
        if self.focused is self.filter_field:
            self.tree_list.focus()
        elif self.filter_field.value:
            self.filter_field.value = ""
            self._filter()
        else:
            self.tree_list.focus()
            self._note(Content())
        self.filter_field.display = bool(self.filter_field.value)

    @on(Input.Changed, "#tree-filter")
    def _typed(self) -> None:
        if len(self.run.tree) <= LIVE_FILTER:
            self._filter()

    @on(Input.Submitted, "#tree-filter")
    def _submitted(self) -> None:
        self._filter()
        self.tree_list.focus()
        self.filter_field.display = bool(self.filter_field.value)

    def _filter(self) -> None:
        """List what the field says; say what is wrong with it."""
        text = self.filter_field.value.strip()
        try:
            keep = parse(text) if text else None
        except HudUsage as error:
            self._warn(f"{error.message}; {error.hint}")
            return
        self.tree_list.filter(keep)
        self._note()

    def _open_start(self, run: Run) -> None:
        """The command line's ``head --set``: its dialog, once the tree was read."""
        wanted = self.hud.start.checkpoint
        if wanted is None or not run.loaded or self._opened:
            return
        self._opened = True
        self.move_head(lambda: Wanted(find_checkpoint(wanted, list(run.tree)).id))
