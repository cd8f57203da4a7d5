"""CheckpointsScreen: the checkpoint tree in hand: see the lineage, set the head, undo it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.filter import parse
from hud_tui.rl.head import Outcome, name, named
from hud_tui.rl.names import find_checkpoint
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.tui.journal import Move
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.steering import Act, read_tree, steer
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
        if tree.matches is not None:
            held = [f"{len(tree.matches):,} of {held[0]}".replace(",", " ")]
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
            pane.show(self._details(at, pane.size.width))

    def _details(self, at: CheckpointTree.Moved, width: int) -> list[Content]:
        lanes = self.tree_list.lanes
        if at.folded:
            return fold_details(self.run, lanes, at.position, at.oldest, width)
        return details(self.run, lanes, at.position, self.hud.clock(), width)

    def action_set_head(self) -> None:
        """Preview serving the checkpoint under the cursor."""
        if self._at.folded:
            self._warn("Several steps are folded here: Enter unfolds them, then choose one.")
        elif self._at.position == ROOT:
            self._warn("Only a step's weights can be made the head, not the base weights.")
        else:
            self.move_head(self.run.tree[self._at.position].id)

    def action_roll_back(self) -> None:
        """Preview serving the head's parent."""
        tree = self.run.tree
        parent = ROOT if tree.head is None else tree.parent(tree.head)
        if tree.head is None:
            self._warn("The base weights are served: there is nothing to roll back to.")
        elif parent == ROOT:
            self._warn(f"{name(tree.served)} is a first step: it has no parent to roll back to.")
        else:
            self.move_head(tree[parent].id)

    def action_undo(self) -> None:
        """Preview serving what was served before the last move."""
        done = self.hud.journal.done
        if not done:
            self._warn("The head was not set in this session: there is nothing to undo.")
            return
        move = done[-1]
        if move.before is None:
            self._warn("Base weights were served before that, and only a step can be the head.")
            return
        self.move_head(move.before, Act.UNDO, undo_note(self.run, move))

    def action_redo(self) -> None:
        """Preview the last move that was undone, again."""
        undone = self.hud.journal.undone
        if undone:
            self.move_head(undone[-1].after, Act.REDO)
        else:
            self._warn("Nothing was undone: there is nothing to do again.")

    def move_head(self, target: str, act: Act = Act.SET, note: str = "") -> None:
        """Start the one act that changes what is served, unless it is under way."""
        if self._steering:
            self._warn("The head is being set: wait for the service's word.")
        else:
            self._steering = True
            self._steer(target, act, note)

    @work(group="steer")
    async def _steer(self, target: str, act: Act, note: str) -> None:
        try:
            became = await steer(self, target, act, note)
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
        """Unfold every run; fold them all again where none is folded."""
        self.tree_list.fold_all(self.tree_list.all_open)

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
        try:
            self.move_head(find_checkpoint(wanted, list(run.tree)).id)
        except HudUsage as error:
            self.tell(error)


def undo_note(run: Run, move: Move) -> str:
    """What the user should know before undoing: who moved the head, and what came since."""
    set_to, now = named(run, move.after), name(run.head)
    by = "" if move.ours else f"Somebody else set the head to {set_to}. "
    if run.head is not None and run.head.id == move.after:
        return by.strip()
    position = run.tree.find(move.after)
    if position is not None and run.tree.is_ancestor(position, run.tree.head):
        return f"{by}Training went on since: {now} grew from {set_to}."
    return f"{by}The head was moved elsewhere since it was set to {set_to}: it is {now} now."
