"""HelpingApp: what can be done on the screen, listed; what is chosen there is done."""

from __future__ import annotations

from hud_tui.tui.commands import Doable
from hud_tui.tui.copying import CopyingApp


class HelpingApp(CopyingApp):
    def action_help(self) -> None:
        """All keys of the view on the screen; the one that is chosen there is done."""
        from hud_tui.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.screen), self._do)

    def action_views(self) -> None:
        """The views, for who clicks where there is no room for all of their names."""
        from hud_tui.tui.screens.help import ViewList

        self.push_screen(ViewList(self.screen), self._do)

    async def _do(self, chosen: Doable | None) -> None:
        if chosen is not None:
            await self.run_action(chosen.action.name, chosen.where)
