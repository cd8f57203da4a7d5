"""KeepingApp: what the user chose is written soon after, and once more when the app ends."""

from __future__ import annotations

from hud_tui.tui.guarding import GuardingApp

SOON_S = 1.0
"""Seconds in which changes are gathered before they are written."""
LOCAL = "local"
"""The embedded service's name in a scope: its port is another with every start."""


class KeepingApp(GuardingApp):
    def __init__(self) -> None:
        super().__init__()
        self.mode: str | None = None
        """``local``, ``hud``, ``replay``, or None while nobody has chosen."""

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
