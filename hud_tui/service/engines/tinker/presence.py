"""Presence: whether the server answers at all, asked beside the calls that wait for it."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from time import monotonic

from hud_tui.service.engines.base import EngineError

PROBE_S = 2.0
"""Between two looks."""
ANSWER_S = 5.0
"""Longest wait for an answer, whatever it says."""
FRESH_S = 10.0
"""An answer to anything counts for so long."""
RETURN_S = 300.0
"""How long a server may be away before a call is given up that has not been sent."""


class Presence:
    def __init__(self, url: str, tell: Callable[[str | None], None]) -> None:
        """`tell`: told in plain words what is waited for, None when that is over."""
        self._url = url
        self._tell = tell
        self._heard = float("-inf")
        self._away = False
        """Whether it did not answer when last asked."""

    def heard(self) -> None:
        """The server answered something."""
        self._heard = monotonic()
        if self._away:
            self._away = False
            self._tell(None)

    async def look(self) -> bool:
        """Whether it answers now; told where it does not, until it does."""
        if await asyncio.to_thread(_answers, self._url):
            self.heard()
            return True
        self._heard = float("-inf")
        self._say_away()
        return False

    async def wait(self, patience_s: float = RETURN_S) -> None:
        """Wait until it answers.

        Raises:
            EngineError: It has not for so long.
        """
        if monotonic() - self._heard < FRESH_S:
            return
        if self._away:  # a call is repeated: what the last one found holds until the next look
            self._say_away()
        if await self.look():
            return
        start = monotonic()
        while monotonic() - start < patience_s:
            await asyncio.sleep(PROBE_S)
            if await self.look():
                return
        raise EngineError(
            f"{self._url} has not answered for {patience_s:.0f} s:"
            " start the server again, then repeat this (or resume the run)"
        )

    def _say_away(self) -> None:
        self._away = True
        self._tell(f"{self._url} does not answer")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/healthz", timeout=ANSWER_S):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
