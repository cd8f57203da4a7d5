"""The service of a run, for the process that drives it: found again after a restart."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hud_tui.audit_log import CommandLog
from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.errors import HudUnreachable
from hud_tui.hosts import host_settings
from hud_tui.patience import Patience, retried
from hud_tui.rl.text import one_line
from hud_tui.rl.timeline import TUNNEL
from hud_tui.rollouts.driver_time import DriverWatch
from hud_tui.service_file import ServicePlace, ServiceReady, is_serving, named, same_directory
from hud_tui.settings import Paths, local_settings, read_settings

log = logging.getLogger("hud_tui.driver")

T = TypeVar("T")
PATIENCE_S = 600.0
"""Seconds that a service may be away, as of `Patience`; then the run stops, and can be resumed."""
RETRY_S = 1.0
MOST_FORGOTTEN = 8
"""Clients that are closed later: by then their calls have ended."""


class ServiceLink:
    """Calls a service that may restart with another port and key."""

    def __init__(
        self,
        connect: Callable[[], HudClient | None],
        is_stopping: Callable[[], bool],
        watch: DriverWatch | None = None,
    ) -> None:
        """`connect` returns a client; None if no service runs now. `is_stopping`: whether to wait
        no more for a service that is away; `watch` measures the time of waiting for it."""
        self._watch = watch or DriverWatch()
        self._connect, self._is_stopping = connect, is_stopping
        self._client: HudClient | None = None
        self._forgotten = deque[HudClient]()

    @property
    def client(self) -> HudClient:
        """The newest client. Raises HudUnreachable: no service runs."""
        if self._client is None:
            self._client = self._connect()
        if self._client is None:
            raise HudUnreachable("the embedded service does not run", "hud-tui serve")
        return self._client

    async def call(self, ask: Callable[[HudClient], Awaitable[T]]) -> T:
        """A repeatable call, retried until it is answered. Raises HudError: it was refused; or the
        service was away for `PATIENCE_S`, or when to stop."""
        patience = Patience(PATIENCE_S)

        async def once() -> T:
            try:
                return await ask(self.client)
            except HudUnreachable:
                await self.forget()
                raise

        def pause(error: HudUnreachable, failures: int) -> float | None:
            if patience.is_over() or self._is_stopping():
                return None
            log.warning("the service does not answer: %s", one_line(error.message))
            return RETRY_S

        with self._watch.measure(TUNNEL):
            return await retried(once, HudUnreachable, pause)

    async def forget(self) -> None:
        """Look the service up again for the next call. Calls that are under way keep their client:
        a closed one would never close a connection that one of them is opening."""
        client, self._client = self._client, None
        if client is not None:
            self._forgotten.append(client)
        while len(self._forgotten) > MOST_FORGOTTEN:
            await self._forgotten.popleft().aclose()

    async def close(self) -> None:
        """Close every client; no call is under way."""
        await self.forget()
        while self._forgotten:
            await self._forgotten.popleft().aclose()


def connect_to(place: ServicePlace, paths: Paths, guard: Guard | None = None) -> HudClient | None:
    """A client of the service that is there; None if the embedded one does not run. Raises
    HudNoKey: no key for HUD, or for the service elsewhere."""
    observe = CommandLog(paths.state, "driver").add
    if place.mode == "hud":
        return HudClient(replace(read_settings(), by="driver"), None, guard, observe)
    if place.mode == "host":
        settings = host_settings(place.host, paths.state)
        return HudClient(replace(settings, by="driver"), None, guard, observe)
    for _, ready in named(paths):
        if _serves(ready, place) and is_serving(ready):
            settings = local_settings(ready.url, ready.api_key, ready.telemetry_url)
            return HudClient(replace(settings, by="driver"), None, guard, observe)
    return None


def _serves(ready: ServiceReady, place: ServicePlace) -> bool:
    """Whether a service has this data directory, which may have been moved."""
    if ready.data_id and place.service and "://" not in place.service:
        return ready.data_id == place.service
    return same_directory(ready, Path(place.data_dir))
