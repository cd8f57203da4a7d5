"""TreeKeeping: what is kept of a checkpoint whatever the service's disk limit."""

from __future__ import annotations

from textual import work
from textual.content import Content

from hud_tui.events import CheckpointAdded
from hud_tui.rl.head import EXPIRED, name
from hud_tui.rl.segments import ROOT
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.tree_view import TreeView
from hud_tui.wire import Checkpoint


class TreeKeeping(TreeView):
    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor; None on a folded run and on the base weights."""
        if self.at.folded or self.at.position == ROOT:
            return None
        return self.run.tree[self.at.position]

    def action_pin(self) -> None:
        """Keep the state of the checkpoint under the cursor, or no longer."""
        node = self.selected
        if node is None:
            self.warn("Only a checkpoint can be pinned: put the cursor on one.")
        elif not self.client.settings.local:
            self.warn("HUD keeps every checkpoint: pins are the embedded service's.")
        elif node.state == EXPIRED and not node.pinned:
            self.warn(f"{name(node)} has expired: there is nothing left of it to keep.")
        else:
            self._pin(node)

    @work(exclusive=True, group="keep")
    async def _pin(self, node: Checkpoint) -> None:
        model = self.run.model
        if model is None or not await self.app.push_screen_wait(_ask(node)):
            return
        row = await self.attempt(self.client.pin(model.id, node.id, not node.pinned))
        if row is None:
            return
        now = self.hud.run_now.model
        if now is not None and now.id == model.id:
            self.hud.fold(CheckpointAdded(checkpoint=row))
        kept = "is kept whatever the disk limit" if row.pinned else "may be thinned again"
        self.say(Content.styled(f"✔ {name(row)} {kept}", "$accent"))


def _ask(node: Checkpoint) -> ConfirmDialog:
    if node.pinned:
        lines = [f"{name(node)} may then be thinned as any other, once the disk limit is reached."]
        return ConfirmDialog("Unpin a checkpoint", lines, "Unpin")
    lines = [f"{name(node)} is then kept as it is whatever the disk limit, until it is unpinned."]
    return ConfirmDialog("Pin a checkpoint", lines, "Pin")
