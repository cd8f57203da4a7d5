"""OfflineApp: what was known last stays in sight while the service does not answer.

It is dated and dimmed, and nothing is changed meanwhile. Of a service on the network it is
kept on this machine too, so that there is something to see where it does not answer at all;
the embedded service's own data are on this machine already.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from textual import work

from hud_tui.keys import keyed
from hud_tui.tui.keeping import KeepingApp

if TYPE_CHECKING:
    from pathlib import Path

    from hud_tui.last_known import LastKnown
    from hud_tui.rl.run import Run
    from hud_tui.tui.follow import Follower
    from hud_tui.wire import Model

KEEP_S = 5.0
"""Seconds between two looks at whether there is something new to keep."""
REST = 20
"""It keeps at most one part in so many of the time."""


class OfflineApp(KeepingApp):
    def __init__(self) -> None:
        super().__init__()
        self.catalog: tuple[Model, ...] = ()
        """The models as they were read last."""
        self._offline = False
        """Whether the service did not answer in the last frame."""
        self._kept: tuple[Run, tuple[Model, ...]] | None = None
        """What is on the disk."""

    @property
    def kept_in(self) -> Path | None:
        """The file in which the service's state is kept; None where it is not."""
        if self.client is None or self.client.settings.local or self.mode != "hud":
            return None
        directory, scope = self.shelf.directory, self.scope
        if directory is None or scope is None:
            return None
        from hud_tui.last_known import file_of

        return file_of(directory, scope)

    def framed(self, follower: Follower) -> None:
        super().framed(follower)
        offline = follower.freshness.offline
        if self.client is None or offline == self._offline:
            return
        from hud_tui.rl.safety import NO_ANSWER

        self._offline = offline
        why = replace(NO_ANSWER, cure=keyed(NO_ANSWER.cure))
        self.client.wire.guard.offline = why if offline else None
        if not offline and self.shown_view is not None:
            self.shown_view.on_screen_resume()  # what it could not read it reads now

    @work(exclusive=True, group="keep")
    async def keep_last_known(self) -> None:
        """Keep what is known, now and then, for as long as the app runs."""
        while True:
            began = monotonic()
            await self.keep_now()
            await sleep(max(KEEP_S, REST * (monotonic() - began)))

    async def keep_now(self) -> None:
        """Keep what is known, where it is new."""
        file, run, client = self.kept_in, self.run_now, self.client
        if file is None or client is None or run.model is None or not run.loaded:
            return
        if self.freshness.offline or self._kept == (run, self.catalog):
            return
        from hud_tui.last_known import LastKnown, write_last_known

        self._kept = (run, self.catalog)
        tree = tuple(run.tree[position] for position in range(len(run.tree)))
        at = self.clock() - (self.freshness.age_s or 0)
        known = LastKnown(at, self.catalog, run.model, tree, run.job)
        settings = client.settings
        await to_thread(write_last_known, file, settings.api_url, known, settings.api_key)

    def read_kept(self) -> LastKnown | None:
        """What was kept of the service; None where nothing was."""
        file, client = self.kept_in, self.client
        if file is None or client is None:
            return None
        from hud_tui.last_known import read_last_known

        return read_last_known(file, client.settings.api_url)
