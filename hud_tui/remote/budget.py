"""The process that watches budgets: ``python -m hud_tui.remote.budget STATE``.

It runs from before the first pod is requested until none is left, and terminates each pod whose
hours are spent. Until a pod's own watcher runs, it also terminates one whose rental was interrupted
and that nobody is working on. A machine that its watcher has shut down is terminated too, since
some providers still bill it. Its findings are written to ``budget.json``.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import time

from hud_tui.errors import HudError, HudUsage
from hud_tui.remote.machines import Machines, machines_in
from hud_tui.remote.pods import WORK, Pods
from hud_tui.remote.prime import Prime, read_prime
from hud_tui.rl.text import one_line
from hud_tui.service_file import BUDGET, Rental, read_rentals
from hud_tui.settings import every_variable
from hud_tui.storage import held, write_atomic

POLL_S = 10.0
"""Seconds between two checks of the clock."""
ASK_S = 60.0
"""Seconds between two requests to Prime."""
SHUT = frozenset({"STOPPED"})
"""States of a pod that was shut down, but may still be billed."""


def why_spent(rental: Rental, used_at: float, now: float) -> str:
    """Why a pod is to be terminated now; empty if it is not. `used_at`: when somebody here last
    worked on it, in Unix seconds as `now` is."""
    if now >= rental.deadline:
        return "its hours are spent"
    idle = not rental.watched and 0 < rental.idle_min * 60 <= now - max(rental.at, used_at)
    return f"nobody went on with it for {rental.idle_min} min" if idle else ""


class Budgets:
    """Watches the budget of everything that was rented from this machine."""

    def __init__(
        self,
        machines: Machines,
        clock: Callable[[], float] = time,
        poll_s: float = POLL_S,
    ) -> None:
        """`poll_s`: seconds between two checks of the clock, which is in Unix seconds."""
        self._machines, self._clock = machines, clock
        self._poll_s, self._asked_at = poll_s, 0.0

    async def run(self) -> None:
        """Run until nothing is rented; returns at once if another process does this."""
        with held(self._machines.folder / "budget.lock") as ours:
            why, wait_s = "", 0.0
            while ours is not None and self._running():
                self._write(why)
                await asyncio.sleep(wait_s)
                why, wait_s = "", self._poll_s
                try:
                    await self.check()
                except HudError as error:
                    why = error.message

    def _running(self) -> list[Rental]:
        return [one for one in read_rentals(self._machines.state) if one.runs]

    async def check(self) -> None:
        """Terminate what is to be terminated now.

        Raises:
            HudError: Prime does not answer; nothing is given up.
        """
        now = self._clock()
        spent = {one.name: why for one in self._running() if (why := self._why(one, now))}
        asks = now - self._asked_at >= ASK_S
        if not spent and not asks:
            return
        async with Prime(read_prime(every_variable())) as prime:
            pods = Pods(prime, self._machines.state)
            if asks or any(not one.id for one in self._running() if one.name in spent):
                spent |= await self._shut(pods, prime)
                self._asked_at = now
            for rental in self._running():
                if rental.id and rental.name in spent:
                    await pods.terminate(rental, spent[rental.name], rental.name)

    def _why(self, rental: Rental, now: float) -> str:
        """As `why_spent`; a pod that somebody is working on counts as used now."""
        file = self._machines.place(rental.name) / f"{WORK}.lock"
        if self._machines.busy(rental.name, WORK):
            os.utime(file, (now, now))
        used_at = file.stat().st_mtime if file.exists() else 0.0
        return why_spent(rental, used_at, now)

    async def _shut(self, pods: Pods, prime: Prime) -> Mapping[str, str]:
        """Update the stored rentals; returns those that were shut down, and why they are
        terminated."""
        await pods.reconcile()
        watched = {one.id: one.name for one in self._running() if one.watched}
        shut = [one.id for one in await prime.pods() if one.status in SHUT]
        return {watched[id_]: "its watcher shut it down" for id_ in shut if id_ in watched}

    def _write(self, why: str) -> None:
        found = {"pid": os.getpid(), "at": self._clock(), "why": one_line(why, 400)}
        with suppress(OSError):
            write_atomic(self._machines.folder / BUDGET, json.dumps(found))


def main() -> None:
    with suppress(HudUsage):  # the rentals cannot be read: every command says so
        asyncio.run(Budgets(machines_in(Path(sys.argv[1]))).run())


if __name__ == "__main__":
    main()
