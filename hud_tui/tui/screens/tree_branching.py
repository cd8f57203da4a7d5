"""TreeBranching: a model of one's own from any checkpoint."""

from __future__ import annotations

from textual import work
from textual.content import Content

from hud_tui.keys import key, keyed
from hud_tui.rl.head import name, refusal
from hud_tui.rl.text import one_line
from hud_tui.tui.forking import ask_fork
from hud_tui.tui.screens.tree_view import TreeView
from hud_tui.wire import Checkpoint

AT_HEAD = (
    "HUD forks a model at its head: set the head here first ({checkpoints.set_head}), then fork."
)


class TreeBranching(TreeView):
    def action_fork(self) -> None:
        """Ask for a name, and fork the model at the checkpoint under the cursor."""
        node = self.selected
        if node is None:
            self.warn("A fork starts at a checkpoint: put the cursor on one.")
        elif why := refusal(node):
            self.warn(why)
        elif not (self.client.settings.local or self.at.position == self.run.tree.head):
            self.warn(keyed(AT_HEAD))
        else:
            self._fork(node)

    @work(exclusive=True, group="fork")
    async def _fork(self, node: Checkpoint) -> None:
        source = self.run.model
        if source is None:
            return
        start = node if self.client.settings.local else None
        forked = await ask_fork(self.hud, source, self.hud.catalog, start=start)
        if forked is not None:
            said = f"✔ {one_line(forked.model_name, 40)} starts at {name(node)}"
            self.say(Content.styled(f"{said} · {key('app.view.models')} follows it", "$accent"))
