"""KeepingApp: how the app is left is kept, for the next one on the same account.

What the user chose is written soon after, and once more when the app ends. A recording that
is played is nobody's account: there nothing of it is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import work

from hud_tui.errors import HudUsage
from hud_tui.tui.guarding import GuardingApp

if TYPE_CHECKING:
    from hud_tui.rl.run import Run
    from hud_tui.tui.layout import Layout
    from hud_tui.wire import Model

SOON_S = 1.0
"""Seconds in which changes are gathered before they are written."""
LOCAL = "local"
"""The embedded service's name in a scope: its port is another with every start."""


class KeepingApp(GuardingApp):
    def __init__(self) -> None:
        super().__init__()
        self.mode: str | None = None
        """``local``, ``hud``, ``replay``, or None while nobody has chosen."""
        self._layout: Layout | None = None
        self.layout_edition = 0
        """Grows when the layout is reset."""
        self._layout_scope: str | None = None
        """Where it is kept; None where it is not."""

    def on_mount(self) -> None:
        self.shelf.later = lambda: self.set_timer(SOON_S, self.shelf.flush)
        self.shelf.noticed = lambda: self.call_later(self._tell_left)
        self.call_after_refresh(self._tell_left)

    async def on_unmount(self) -> None:
        self.shelf.later = self.shelf.noticed = None
        self.shelf.flush()

    def _tell_left(self) -> None:
        """Say what is wrong with files that are left as they are."""
        for line in self.shelf.problems():
            self.notify(line, severity="warning", markup=False, timeout=10)

    @property
    def replays(self) -> bool:
        """Whether a recording or a demo is played, which keeps less than a service does."""
        return self.mode == "replay"

    @property
    def scope(self) -> str | None:
        """Names what is kept of this account of this service; None where nothing is."""
        if self.client is None or self.shelf.directory is None or self.replays:
            return None
        from hud_tui.scope import scope_of

        settings = self.client.settings
        service = LOCAL if settings.local else settings.api_url
        try:
            return scope_of(self.shelf.directory, service, settings.api_key)
        except HudUsage as error:
            self.shelf.say(f"{error.message}. Nothing is kept of this account: {error.hint}.")
            return None

    @property
    def layout(self) -> Layout:
        """How the views are laid out, and what they show."""
        if self._layout is None:
            from hud_tui.tui.layout import Layout  # after the first frame

            self._layout = Layout()
        return self._layout

    def open_layout(self) -> Layout:
        """The layout as this account's last app was left."""
        from hud_tui.tui.layout import read_layout

        self._layout_scope = self.scope
        if self._layout_scope is not None:
            self._layout = read_layout(self.shelf, self._layout_scope)
        return self.layout

    def arrange(self, **changes: Any) -> None:
        """Change the layout, and keep it.

        Args:
            changes: Fields of `Layout`.
        """
        self._change(replace(self.layout, **changes))

    def _change(self, layout: Layout) -> None:
        before, self._layout = self.layout, layout
        if self._layout_scope is not None and self._layout != before:
            from hud_tui.tui.layout import write_layout

            write_layout(self.shelf, self._layout_scope, self._layout, before)

    @work(exclusive=True, group="reset")
    async def action_reset_layout(self) -> None:
        """Ask; then show every view as at first."""
        from hud_tui.tui.screens.dialogs import ConfirmDialog

        lines = [
            "Panes, folds, filters and charts are shown as at first.",
            "The theme, notes and what was said to alarms stay.",
        ]
        if await self.push_screen_wait(ConfirmDialog("Reset the layout", lines, "Reset")):
            self.reset_layout()

    def reset_layout(self) -> None:
        """Forget how the views were laid out, but for which model is followed and where."""
        from hud_tui.tui.chart_choices import Choices, write_choices
        from hud_tui.tui.layout import Layout

        was = self.layout
        self._change(Layout(model=was.model, model_name=was.model_name, view=was.view))
        write_choices(self.shelf, Choices())
        self.layout_edition += 1
        if self.shown_view is not None:
            self.shown_view.follow_layout()

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        super().choose(model, known, known_at)
        self.arrange(model=model.id, model_name=model.model_name[:1000])
