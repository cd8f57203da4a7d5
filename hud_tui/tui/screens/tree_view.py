"""TreeView: the tree, its details and the line under them; what the view's keys act on.

The keys are in the classes that build on it, one for each kind of act.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.keys import keyed
from hud_tui.rl.ages import coarse
from hud_tui.rl.catalog import origin
from hud_tui.rl.counts import counted, spaced
from hud_tui.rl.own import HELDOUT
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.widgets.checkpoint_details import CheckpointDetails, details, fold_details
from hud_tui.tui.widgets.filter_field import FilterField
from hud_tui.tui.widgets.tree import CheckpointTree
from hud_tui.tui.widgets.tree_lines import Marks
from hud_tui.wire import Checkpoint

EMPTY = (
    "No checkpoints yet: they appear with the first step. Press {app.view.launch} to launch a run."
)
NO_MODEL = "No model is followed yet. Press {app.view.models} to choose or fork one."
READING = "reading the tree …"
NARROW = 60
"""Columns of a screen that has no room for how many branches there are."""
OLDER_S = 1.0
"""Seconds between two looks at the ages in the details."""


class TreeView(HudScreen):
    """It holds its widgets itself, so that late news finds them whatever becomes of the view."""

    def __init__(self) -> None:
        super().__init__()
        self.tree_list = CheckpointTree(lambda: self.hud.clock(), id="tree")
        self.details_pane = CheckpointDetails(id="details")
        self.filter_field = FilterField("name, or reward>.6 loss:ppo step:100..200", "tree-filter")
        self.at = CheckpointTree.Moved(ROOT, ROOT, False)
        """What is under the cursor."""
        self._note_line = Static("", id="tree-note", markup=False)
        self._empty = Static(READING, id="tree-empty", markup=False)
        self._said = Content()
        """What was said last; until the cursor is moved."""

        self.marked: tuple[str, ...] = ()
        """Ids of the checkpoints that are marked to be compared, A first; two at most."""

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor; None on a folded run and on the base weights."""
        if self.at.folded or self.at.position == ROOT:
            return None
        return self.run.tree[self.at.position]

    def body(self) -> Iterable[Widget]:
        with Container(id="tree-panes"):
            with Vertical(id="tree-pane"):
                yield self.filter_field
                yield self.tree_list.data_bind(HudScreen.run)
                yield self._empty
            yield self.details_pane
        yield self._note_line

    def on_mount(self) -> None:
        self.tree_list.focus()
        self.set_interval(OLDER_S, self._grow_older)

    def watch_run(self, before: Run, run: Run) -> None:
        if not self.is_mounted:
            return
        if run.alarms.onsets != before.alarms.onsets:
            self.show_marks()
        if run.tree is before.tree and run.model is before.model:
            return
        if (run.model and run.model.id) != (before.model and before.model.id):
            self.marked = ()
            self.show_marks()
        self._show_state()

    def show_marks(self) -> None:
        """Draw notes and marks as they are now; what has one does not fold."""
        onsets = self.run.alarms.onsets
        self.tree_list.mark(Marks(self.hud.notebook.notes, self.marked, onsets))
        self.show_details(self.at)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._show_state()
        self.call_after_refresh(self._go_to_crosshair)

    def _go_to_crosshair(self) -> None:
        """The step that another view looks at is the one under the cursor."""
        position = self.run.tree.find(self.hud.at)
        if position is not None and position != self.at.position:
            self.tree_list.go(position)

    def _show_state(self) -> None:
        """The tree, or why there is none; what the tree holds, on the line under it."""
        run = self.run
        empty = keyed(NO_MODEL if run.model is None else EMPTY if run.loaded else READING)
        came = one_line(origin(run.model), 100) if run.model is not None and run.loaded else ""
        self.set_class(not len(run.tree), "-empty")
        if len(run.tree) and self.focused is None:  # out of sight, it could not have the focus
            self.call_after_refresh(self.tree_list.focus)
        self._empty.update(Content(f"{empty}\nThe model is {came}." if came else empty))
        self.say()

    def say(self, said: Content | None = None) -> None:
        """Say something on the line under the tree, or what was said last; and what it holds."""
        self._said = self._said if said is None else said
        right = Content.styled(" · ".join(self._held()), "$text-muted")
        room = self.size.width - 2 - self._said.cell_length - right.cell_length
        if room < 2 and self._said:
            right, room = Content(), 0
        self._note_line.update(self._said + Content(" " * room) + right, layout=False)

    def warn(self, text: str) -> None:
        self.say(Content.styled(f"⚠ {text}", "$warning"))

    def _held(self) -> list[str]:
        tree = self.tree_list
        steps, branches = len(self.run.tree), tree.lanes.branches
        if not steps:
            return []
        held = [counted(steps, "checkpoint")]
        if tree.cursor.matches is not None:
            held = [f"{spaced(len(tree.rows))} of {held[0]}"]
        if self.size.width > NARROW:
            held += [f"{branches} branches"] * (branches > 1)
            held.append("★ held-out" if self.run.tree.best_by == HELDOUT else "★ reward")
        return [*held, "following ▶" if tree.follow else keyed("{checkpoints.follow} follows ▶")]

    @on(CheckpointTree.Moved)
    def _cursor_moved(self, at: CheckpointTree.Moved) -> None:
        grown = at.folded and self.at.folded and at.oldest == self.at.oldest
        moved = at.position != self.at.position and not (grown or self.tree_list.follow)
        self.at = at
        if moved:
            self.hud.at = None if at.position == ROOT else self.run.tree[at.position].id
        self.say(Content() if moved and self.focused is not self.filter_field else None)
        self.show_details(at)

    @on(CheckpointDetails.Resized)
    def _laid_out(self) -> None:
        self.show_details(self.at)

    def _grow_older(self) -> None:
        if self.is_current:
            self.show_details(self.at)

    def show_details(self, at: CheckpointTree.Moved) -> None:
        """Say all that is known of what is under the cursor, where there is a pane for it."""
        pane = self.details_pane
        if pane.display and len(self.run.tree):
            pane.show(self.details_of(at, pane.width))

    def details_of(self, at: CheckpointTree.Moved, width: int) -> list[Content]:
        """The details, laid out for a pane of that many cells."""
        lanes = self.tree_list.lanes
        if at.folded:
            return fold_details(self.run, lanes, at.position, at.oldest, width)
        note = "" if at.position == ROOT else self._note_of(self.run.tree[at.position])
        return details(self.run, lanes, at.position, coarse(self.hud.clock()), width, note)

    def _note_of(self, node: Checkpoint) -> str:
        return self.hud.notebook.notes.get(node.id, "")
