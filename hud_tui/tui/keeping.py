"""KeepingApp: how the app is left is kept, for the next one on the same account.

What the user chose is written soon after, and once more when the app ends. A recording that
is played is nobody's account: there nothing of it is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    def scope(self) -> str | None:
        """Names what is kept of this account of this service; None where nothing is."""
        if self.client is None or self.shelf.directory is None or self.mode == "replay":
            return None
        from hud_tui.scope import scope_of

        settings = self.client.settings
        service = LOCAL if settings.local else settings.api_url
        return scope_of(self.shelf.directory, service, settings.api_key)

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
        before, self._layout = self.layout, replace(self.layout, **changes)
        if self._layout_scope is not None and self._layout != before:
            from hud_tui.tui.layout import write_layout

            write_layout(self.shelf, self._layout_scope, self._layout, before)

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        super().choose(model, known, known_at)
        self.arrange(model=model.id, model_name=model.model_name[:1000])
