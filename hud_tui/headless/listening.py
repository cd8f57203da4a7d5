"""Listener: a feed's events one by one, its troubles told on stderr, and given up in the end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from time import monotonic

from hud_tui.client.feed import Feed
from hud_tui.errors import HudUnreachable
from hud_tui.events import Event
from hud_tui.headless.output import tell

WATCH_S = 1.0
"""Seconds between two looks at how the feed is doing while no event comes."""
PATIENCE_S = 300.0
"""A service that has not been heard for so long is given up."""


class Listener:
    """Waits for the events of one feed."""

    def __init__(self, feed: Feed, idle: Callable[[], object]) -> None:
        """`idle` is called while nothing comes, about once in WATCH_S."""
        self._feed, self._idle = feed, idle
        self._told = ""

    async def next(self, events: AsyncGenerator[Event, None]) -> Event:
        """The next event.

        Raises:
            HudUnreachable: The service is gone; the run may go on.
        """
        waiting = asyncio.ensure_future(anext(events))
        try:
            while not waiting.done():
                done, _ = await asyncio.wait([waiting], timeout=WATCH_S)
                self._watch()
                if not done:
                    self._idle()
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    def _watch(self) -> None:
        """Say on stderr that the feed is cut, and that it is back."""
        feed = self._feed
        if feed.trouble != self._told:
            self._told = feed.trouble
            tell(f"reconnecting: {feed.trouble}" if feed.trouble else "connected again")
        if feed.heard_at is not None and monotonic() - feed.heard_at > PATIENCE_S:
            raise HudUnreachable(
                f"nothing heard from the service for {PATIENCE_S:.0f} s: {feed.trouble}",
                "the run may go on: hud-tui --headless jobs",
            )
