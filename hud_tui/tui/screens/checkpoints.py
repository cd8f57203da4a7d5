"""CheckpointsScreen: the checkpoint tree in hand: see the lineage, set the head, undo it."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.content import Content

from hud_tui.rl.export.sheet import Sheet
from hud_tui.rl.export.sheets import tree_sheet
from hud_tui.rl.names import find_checkpoint
from hud_tui.rl.run import Run
from hud_tui.rl.segments import ROOT
from hud_tui.tui.bindings import bindings
from hud_tui.tui.moves import Wanted
from hud_tui.tui.screens.tree_arranging import TreeArranging
from hud_tui.tui.screens.tree_branching import TreeBranching
from hud_tui.tui.screens.tree_comparing import TreeComparing
from hud_tui.tui.screens.tree_keeping import TreeKeeping
from hud_tui.tui.screens.tree_steering import TreeSteering
from hud_tui.tui.steering import read_tree
from hud_tui.tui.widgets.tree import CheckpointTree


class CheckpointsScreen(TreeSteering, TreeArranging, TreeKeeping, TreeComparing, TreeBranching):
    VIEW = "checkpoints"
    BINDINGS: ClassVar[list[BindingType]] = bindings("checkpoints")
    AUTO_FOCUS: ClassVar[str | None] = "CheckpointTree"
    """Never the filter's field, out of sight as it is: the first key would be typed there."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = False

    def on_mount(self) -> None:
        if self.hud.start.command == "head":
            self.watch(self, "run", self._open_start)

    def sheet(self) -> Sheet:
        return tree_sheet(self.run, self.hud.notebook.notes)

    @on(CheckpointTree.Opened)
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
            self.hud.at = None
        self.say()

    def action_jump(self) -> None:
        """To the head; from there to the best checkpoint, then to the newest alarm's onset."""
        tree = self.run.tree
        onsets = [tree.find(onset) for onset in self.run.alarms.onsets]
        places = [ROOT if tree.head is None else tree.head, tree.best]
        places.append(max((p for p in onsets if p is not None), default=None))
        stops = list(dict.fromkeys(place for place in places if place is not None))
        here = (
            -1 if self.at.folded or self.at.position not in stops else stops.index(self.at.position)
        )
        self.tree_list.go(stops[(here + 1) % len(stops)])

    def action_copy(self) -> None:
        """Copy the checkpoint's id."""
        if self.at.position == ROOT:
            self.warn("The base weights have no checkpoint id.")
        else:
            self.copy(self.run.tree[self.at.position].id)

    @work(exclusive=True, group="read")
    async def action_refresh(self) -> None:
        """Read the tree again."""
        if self.run.model is not None and await self.attempt(read_tree(self)) is not None:
            self.say(Content("read the tree again"))

    def _open_start(self, run: Run) -> None:
        """The command line's ``head --set``: its dialog, once the tree was read."""
        wanted = self.hud.start.checkpoint
        if wanted is None or not run.loaded or self._opened:
            return
        self._opened = True
        self.move_head(lambda: Wanted(find_checkpoint(wanted, list(run.tree)).id))
