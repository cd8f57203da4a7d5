"""The process that watches budgets: ``python -m hud_tui.remote.budget STATE``.

It runs from before the first pod is requested until none is left, and terminates each pod whose
hours or dollars are spent. While a pod's own watcher does not speak, it also terminates one that
nobody works on: one whose renting was interrupted, or whose watcher died and does not start again.
A machine that its watcher has shut down is terminated too, since some providers still bill it. Its
findings are written to ``budget.json``.
"""

import asyncio
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from pathlib import Path

from hud_tui.client.transport import LONGEST_S
from hud_tui.errors import HudError, HudUsage
from hud_tui.remote.clock import keep, prime_now
from hud_tui.remote.machines import Machines, machines_in
from hud_tui.remote.pods import LATER_S, WORK, Pods, too_dear
from hud_tui.remote.prime import Prime, open_prime
from hud_tui.rl.text import one_line
from hud_tui.service_file import (
    BUDGET,
    BUDGET_LOCKS,
    BUDGET_S,
    Rental,
    budget_found,
    budget_kept,
    read_rentals,
)
from hud_tui.storage import held, write_atomic

POLL_S = 10.0
"""Seconds between two checks of the clock."""
ASK_S = 60.0
"""Seconds between two requests to Prime."""
HEARD_S = 120.0
"""Seconds between two questions to the pods' watchers."""
UNHEARD = 3
"""Questions in a row that a watcher did not answer when it counts as silent."""
CHECK_S = 0.75 * BUDGET_S
"""Maximum seconds of one check, since it is to speak in time."""
SURE_S = LATER_S + 2 * ASK_S
"""Seconds for which one that was ended is looked for in Prime's list: its end may be no fact."""
SHUT = frozenset({"STOPPED"})
"""States of a pod that was shut down, but may still be billed."""


def over_budget(rental: Rental, now: float) -> str:
    """Why a pod is to be terminated, used or not; empty if it is not."""
    if now < rental.deadline:
        return too_dear(rental)
    is_early = rental.deadline < rental.at + rental.hours * 3600 - 1
    return "its dollars are spent" if is_early else "its hours are spent"


def why_spent(rental: Rental, used_at: float, now: float) -> str:
    """Why a pod is to be terminated now; empty if it is not. While its watcher speaks, that decides
    whether it is used. `used_at`: when somebody here last worked on it, as all times Unix seconds
    by Prime's clock."""
    if why := over_budget(rental, now):
        return why
    if rental.watched and not rental.address:
        return ""  # it was rented by a version that did not ask watchers: that one decides
    last = max(rental.at, used_at, rental.heard_at)
    if not 0 < rental.idle_min * 60 <= now - last:
        return ""
    if rental.watched:
        return f"its watcher was silent and nobody used it for {rental.idle_min} min"
    return f"nobody went on with it for {rental.idle_min} min"


class Budgets:
    """Watches the budget of everything that was rented from this machine."""

    def __init__(
        self,
        machines: Machines,
        clock: Callable[[], float] | None = None,
        poll_s: float = POLL_S,
        prime: Callable[[], Prime] | None = None,
    ) -> None:
        """`clock`: Unix seconds by Prime's clock; None: as `prime_now`. `prime` opens Prime's API;
        None: with the settings of this machine."""
        self._machines = machines
        self._clock = clock or partial(prime_now, machines.state)
        self._poll_s, self._asked_at, self._heard_at = poll_s, -inf, -inf
        self._prime = prime or partial(open_prime, machines.state)
        self._again_at: dict[str, float] = {}
        """When a pod's end is asked for again, as Prime wished."""
        self._unheard: Counter[str] = Counter()
        """How often in a row each pod's watcher did not answer this process."""
        self._token, self._lock = secrets.token_hex(8), ""

    async def run(self) -> None:
        """Run until nothing is rented, and what was has surely ended; returns at once if another
        process does this.

        One that holds its lock and does not speak is halted: this one takes its place, and the
        other ends as it goes on.
        """
        state = self._machines.state
        if budget_kept(state, self._clock()):
            return
        with ExitStack() as held_locks:
            self._lock = self._first_free(held_locks)
            why, wait_s = "", 0.0
            before = {self._token, budget_found(state).get("token"), None}
            self._write(why)
            while self.is_needed() and budget_found(state).get("token") in before:
                self._write(why)
                await asyncio.sleep(wait_s)
                why, wait_s = "", self._poll_s
                keep(state)
                try:
                    async with asyncio.timeout(CHECK_S):
                        await self.check()
                except HudError as error:
                    why = error.message
                except TimeoutError:
                    why = f"Prime does not answer within {CHECK_S:.0f} s"
                except OSError as error:  # a full disk is no reason to guard nothing
                    why = f"{error.filename or 'a file'}: {error.strerror}"

    def _first_free(self, held_locks: ExitStack) -> str:
        """The lock that this process holds from now on; empty if all are held by others."""
        for name in BUDGET_LOCKS:
            if held_locks.enter_context(held(self._machines.folder / name)) is not None:
                return name
        return ""

    def is_needed(self) -> bool:
        """Whether something runs, or was said to have ended and may run all the same."""
        since = self._clock() - SURE_S
        return any(
            rental.runs or (rental.billed is None and (rental.ended_at or 0.0) > since)
            for rental in read_rentals(self._machines.state)
        )

    def _running(self) -> list[Rental]:
        return [rental for rental in read_rentals(self._machines.state) if rental.runs]

    async def check(self) -> None:
        """Terminate what is to be terminated now. What is spent is ended first, by its id, which
        needs no other answer of Prime. Raises HudError: Prime does not answer; nothing is given
        up."""
        now, failures = self._clock(), list[HudError]()
        async with self._prime() as prime:
            pods = Pods(prime, self._machines.state, now=self._clock)
            await self._end(
                pods,
                {rental.name: over_budget(rental, now) for rental in self._running()},
                failures,
            )
            if now - self._asked_at >= ASK_S or now < self._asked_at:
                self._asked_at = now
                try:
                    await self._end(pods, await self._shut(pods), failures)
                except HudError as error:
                    failures.append(error)
            await self._hear(pods, now)
            spent = {rental.name: self._why(rental, now) for rental in self._running()}
            await self._end(pods, spent, failures)
        if failures:
            raise failures[0]

    async def _hear(self, pods: Pods, now: float) -> None:
        """Ask watchers whether they live, each in time."""
        if 0 <= now - self._heard_at < HEARD_S:
            return
        self._heard_at = now
        asked = [rental for rental in self._running() if rental.watched and rental.address]
        hears = (pods.hear(rental, self._machines.ssh_to) for rental in asked)
        for rental in await asyncio.gather(*hears):
            self._unheard[rental.name] = self._unheard[rental.name] + 1 if rental.heard else 0

    async def _end(self, pods: Pods, spent: Mapping[str, str], failures: list[HudError]) -> None:
        """Terminate pods by name, each for its reason; one that fails holds up no other."""
        for rental in self._running():
            if not rental.id or not spent.get(rental.name):
                continue
            if self._clock() < self._again_at.get(rental.id, 0.0):
                continue
            try:
                await pods.terminate(rental, spent[rental.name], rental.name)
            except HudError as error:
                wait_s = min(error.retry_after or 0.0, LONGEST_S)
                self._again_at[rental.id] = self._clock() + wait_s
                failures.append(error)

    def _why(self, rental: Rental, now: float) -> str:
        """As `why_spent`; a pod that somebody is working on, or trains on, counts as used now, and
        no watcher as silent that was not asked: this machine may have slept."""
        folder = self._machines.folder_of(rental.name)
        file = folder / f"{WORK}.lock"
        line = self._machines.line(rental.name)
        trains = self._machines.used() == rental.name and line.get("state") == "up"
        if trains or self._machines.busy(rental.name, WORK):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(0o600)
            os.utime(file, (now, now))
        if rental.watched and self._unheard[rental.name] < UNHEARD:
            return over_budget(rental, now)
        used_at = file.stat().st_mtime if file.exists() else 0.0
        return why_spent(rental, used_at if used_at <= now + ASK_S else 0.0, now)

    async def _shut(self, pods: Pods) -> Mapping[str, str]:
        """Update the stored rentals; returns those that were shut down, and why they are
        terminated."""
        await pods.reconcile()
        shut = [rental for rental in self._running() if rental.watched and rental.status in SHUT]
        return {rental.name: "its watcher shut it down" for rental in shut}

    def _write(self, why: str) -> None:
        said = {"pid": os.getpid(), "token": self._token, "lock": self._lock}
        said |= {"at": self._clock(), "why": one_line(why, 400)}
        with suppress(OSError):
            write_atomic(self._machines.folder / BUDGET, json.dumps(said))


def main() -> None:
    with suppress(HudUsage):  # the rentals cannot be read: every command says so
        asyncio.run(Budgets(machines_in(Path(sys.argv[1]))).run())


if __name__ == "__main__":
    main()
