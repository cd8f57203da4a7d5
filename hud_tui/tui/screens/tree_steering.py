"""TreeSteering: the keys that change what is served. Each opens the preview first."""

from __future__ import annotations

from collections.abc import Callable

from textual import work
from textual.content import Content

from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.head import Outcome, name
from hud_tui.tui.moves import Wanted, to_known, to_parent, to_redo, to_selected, to_undo
from hud_tui.tui.screens.history_panel import HistoryPanel
from hud_tui.tui.screens.tree_view import TreeView
from hud_tui.tui.steering import steer


class TreeSteering(TreeView):
    def __init__(self) -> None:
        super().__init__()
        self._steering = False

    def action_set_head(self) -> None:
        """Preview serving the checkpoint under the cursor."""
        self.move_head(lambda: to_selected(self.run, self.at.position, self.at.folded))

    def action_roll_back(self) -> None:
        """Preview serving the head's parent."""
        self.move_head(lambda: to_parent(self.run))

    def action_undo(self) -> None:
        """Preview serving what was served before the last move."""
        self.move_head(lambda: to_undo(self.run, self.hud.journal))

    def action_redo(self) -> None:
        """Preview the last move that was undone, again."""
        self.move_head(lambda: to_redo(self.hud.journal))

    @work(exclusive=True, group="history")
    async def action_history(self) -> None:
        """Where the head was set; one of them can be served again."""
        panel = HistoryPanel(self.run, self.hud.notebook.moves, self.hud.clock())
        chosen = await self.app.push_screen_wait(panel)
        if chosen is not None:
            self.move_head(lambda: to_known(self.run, chosen))

    def move_head(self, wish: Callable[[], Wanted]) -> None:
        """Start the one act that changes what is served, unless it is under way."""
        if not self.hud.may_change():
            return
        if self.run.model is None:
            self.warn(keyed("No model is followed yet: press {app.view.models} to choose one."))
            return
        if self._steering:
            self.warn("The head is being set: wait for the service's word.")
            return
        try:
            wanted = wish()
        except HudUsage as error:
            self.warn(error.message)
            return
        self._steering = True
        self._steer(wanted)

    @work(group="steer")
    async def _steer(self, wanted: Wanted) -> None:
        try:
            became = await steer(self, wanted, self.say)
        except HudError as error:
            self.tell(error)
            self._became(Outcome(False, f"refused: the head is {name(self.run.head)}"))
        else:
            if became is not None:
                self._became(became)
        finally:
            self._steering = False

    def _became(self, became: Outcome) -> None:
        """What became of it, on the line under the tree until something else is said."""
        mark, style = ("✔", "$accent") if became.done else ("⚠", "bold $warning")
        self.say(Content.styled(f"{mark} {became.text}", style))
