"""TreeKeeping: notes on checkpoints, and what is kept of them whatever the disk limit."""

from __future__ import annotations

from textual import work
from textual.content import Content

from hud_tui.events import CheckpointAdded
from hud_tui.rl.head import EXPIRED, name
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.dialogs import ConfirmDialog, InputDialog
from hud_tui.tui.screens.tree_view import TreeView
from hud_tui.wire import Checkpoint


class TreeKeeping(TreeView):
    def action_note(self) -> None:
        """Write a note on the checkpoint under the cursor."""
        node = self.selected
        if node is None:
            self.warn("A note belongs to a checkpoint: put the cursor on one.")
        else:
            self._note(node)

    @work(exclusive=True, group="keep")
    async def _note(self, node: Checkpoint) -> None:
        notebook = self.hud.notebook
        lines = ["It stays on this machine. An empty one is taken away."]
        dialog = InputDialog(
            f"A note on {name(node)}", lines, "Keep", value=notebook.notes.get(node.id, "")
        )
        text = await self.app.push_screen_wait(dialog)
        if text is None:
            return
        try:
            notebook.write(node.id, text)
        except OSError as error:
            self.warn(f"The note is there for this session only: {one_line(error, 80)}")
        self.show_marks()

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
        if node.pinned and not await self.hud.confirm_name(model.id, "unpin its checkpoint"):
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
