"""The service of a game, which may be away for a while, or be found at another address."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudReadOnly, HudUnreachable
from hud_tui.patience import retried

T = TypeVar("T")
RETRY_S = 1.0
"""Seconds between two attempts to reach a service that is away."""


class PlayLink:
    """Calls the service by whichever client is the newest one."""

    def __init__(self, newest: Callable[[], HudClient], waits: bool = False) -> None:
        """`waits`: whether calls are repeated until they are answered, because the player sees that
        the service is away, connects again, or leaves."""
        self._newest, self._waits = newest, waits
        self._waiting = 0

    @property
    def client(self) -> HudClient:
        return self._newest()

    @property
    def is_away(self) -> bool:
        """Whether a call waits for the service."""
        return self._waiting > 0

    async def call(self, ask: Callable[[HudClient], Awaitable[T]]) -> T:
        """A repeatable call. Raises HudError: it was refused, or was not answered by a service that
        is not waited for."""
        waits = 0

        def pause(error: HudError, failures: int) -> float | None:
            nonlocal waits
            # where no service answers, the app holds back writes, too
            is_held = isinstance(error, HudReadOnly) and self.client.wire.guard.read_only is None
            if not self._waits or not (is_held or isinstance(error, HudUnreachable)):
                return None
            self._waiting, waits = self._waiting + (not waits), 1
            return RETRY_S

        try:
            return await retried(lambda: ask(self.client), HudError, pause)
        finally:
            self._waiting -= waits
