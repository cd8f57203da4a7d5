"""HudClient: one coroutine per endpoint of HUD's wire."""

from typing import TYPE_CHECKING

import httpx

from hud_tui.client.catalog import CatalogCalls
from hud_tui.client.http import Connection
from hud_tui.client.jobs import JobCalls
from hud_tui.client.tasksets import TasksetCalls
from hud_tui.settings import Settings

if TYPE_CHECKING:
    from hud_tui.client.feed import Feed


class HudClient(CatalogCalls, JobCalls, TasksetCalls):
    """A HUD service. Every failure is a `HudError`; reads retry, writes are sent once."""

    def __init__(
        self, settings: Settings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """
        Args:
            settings: The hosts and the key.
            transport: What carries the requests instead of the network, for tests.
        """
        super().__init__()
        self.settings = settings
        self.wire = Connection(settings, transport)

    def feed(self, model_id: str) -> "Feed":
        """What happens to a model from now on, beginning with its tree."""
        from hud_tui.client.feed import Feed  # a command that asks once need not load it

        return Feed(self, model_id)

    async def aclose(self) -> None:
        """Close the connections. Requests under way fail."""
        await self.wire.http.aclose()
