"""Prime's API bent one answer at a time, in every phase of a renting, with kills.

Each round rents a pod with the program's own code, against the copy of Prime's API, in process and
by a clock that the campaign turns: one answer is bent, the program is killed at some call, another
program does the same beside it, the machine's clocks jump. Afterwards the pods that were made,
those that were ended and what is said of them must add up.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from hud_tui.client import transport
from hud_tui.errors import HudError, HudUnclear
from hud_tui.remote import clock, pods
from hud_tui.remote.budget import Budgets
from hud_tui.remote.machines import Machines
from hud_tui.remote.pods import Pods, RentalRequest
from hud_tui.remote.prime import Prime, PrimeSettings
from hud_tui.rl.text import seconds
from hud_tui.service_file import read_rentals
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.prime_server import KEY, PrimeServer, offer

URL = "http://127.0.0.1/api/v1"
PRICE, HOURS = 2.0, 2.0
STEP_S = 100.0
ROUND_S = 3 * 3600.0
LATE_S = 600.0
"""Seconds that a pod may outlive its budget, as long as an answer was bent."""
STATUSES = (200, 204, 302, 400, 401, 402, 403, 404, 408, 409, 422, 429, 500, 502, 503)
ODD: tuple[Any, ...] = (None, "", "x", -1, 0, 1e308, True, [], {}, [None], "2099-01-01T00:00:00Z")
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where its files are, which are replaced some hundred times a round."""
CLOCKS = (0.0, -86_400.0, 86_400.0, 365 * 86_400.0, 8 * 3600.0)
"""Seconds by which this machine's clock jumps in a round."""


class Killed(BaseException):
    """The program ends here, as by SIGKILL."""


@dataclass
class Time:
    """What the program's clocks say; Prime's is the true one."""

    true: float = 1_800_000_000.0
    up: float = 5000.0
    ahead: float = 0.0
    boot: str = "boot-1"

    def pass_by(self, seconds: float) -> None:
        self.true += seconds
        self.up += seconds

    def reboot(self, off_s: float) -> None:
        self.true += off_s
        self.up, self.boot = 20.0, f"{self.boot}+"

    @contextmanager
    def told(self) -> Iterator[None]:
        """The program sees these clocks."""
        with (
            patch.object(clock, "wall", lambda: self.true + self.ahead),
            patch.object(clock, "up_s", lambda: self.up),
            patch.object(clock, "boot_id", lambda: self.boot),
        ):
            yield


@dataclass(frozen=True)
class Bend:
    """How one answer is bent."""

    call: int
    """Which of the round's requests, from 0."""
    kind: str
    chance: random.Random = field(compare=False)

    def apply(self, answer: httpx.Response) -> httpx.Response:
        """The answer as it arrives."""
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if self.kind == "status":
            status = self.chance.choice(STATUSES)
            words: Any = self.chance.choice([{"detail": "no"}, {}, [], "page"])
            return httpx.Response(status, json=words, headers={"retry-after": "1"})
        if self.kind == "text":
            return httpx.Response(200, text=self.chance.choice(["", "<html>", "[]", "{", "null"]))
        if self.kind == "list":
            return httpx.Response(200, json=self._listed(body))
        return httpx.Response(answer.status_code, json=self._field(body))

    def _listed(self, body: Any) -> Any:
        """A list that is empty, partial, or has an entry twice."""
        for name in ("data", "items"):
            if isinstance(body, dict) and isinstance(body.get(name), list):
                items = body[name]
                kept = self.chance.choice([[], items[:-1], [*items, *items], [None, *items]])
                counted = self.chance.choice([True, False])
                count = {"total_count": len(kept), "totalCount": len(kept)} if counted else {}
                return {**body, **count, name: kept}
        return body

    def _field(self, body: Any) -> Any:
        """One field null, missing, or of another type."""
        spots = list(_fields(body))
        if not spots:
            return self.chance.choice(ODD)
        owner, name = self.chance.choice(spots)
        if self.chance.random() < 0.2:
            del owner[name]
        else:
            owner[name] = self.chance.choice(ODD)
        return body


def _fields(body: Any) -> Iterator[tuple[dict[str, Any], str]]:
    entries = [*body.values()] if isinstance(body, dict) else body
    for entry in entries if isinstance(entries, list) else ():
        yield from _fields(entry)
    if isinstance(body, dict):
        yield from ((body, name) for name in body)


class Line(httpx.AsyncBaseTransport):
    """The way to Prime: bends one answer, loses another, kills the program at a call."""

    def __init__(self, server: PrimeServer, time: Time, bend: Bend, lost: str, kill: int) -> None:
        self._inner = httpx.ASGITransport(server.app())
        self._time, self._bend, self._lost, self._kill = time, bend, lost, kill
        self.calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number, self.calls = self.calls, self.calls + 1
        if number == self._kill:
            raise Killed
        ours = number == self._bend.call
        if ours and self._lost == "before":
            raise httpx.ReadTimeout("lost before it arrived")
        answer = await self._inner.handle_async_request(request)
        await answer.aread()
        if ours and self._lost == "after":
            raise httpx.ReadTimeout("lost after it was done")
        if ours:
            answer = self._bend.apply(answer)
        answer.headers.setdefault("date", formatdate(self._time.true, usegmt=True))
        answer.request = request
        return answer


@dataclass
class Round:
    """One renting, and what went wrong in it."""

    number: int
    chance: random.Random
    state: Path
    time: Time = field(default_factory=Time)
    server: PrimeServer = field(default_factory=PrimeServer)
    story: list[str] = field(default_factory=list)
    said: str = ""
    """What the program said of the renting at last."""
    early: bool = False
    """Whether it may be ended before its hours."""

    async def play(self) -> list[tuple[str, str]]:
        """All of it; returns the faults."""
        chance, server = self.chance, self.server
        server.offers = [offer("H100_80GB", 1, PRICE)]
        server.polls = 0
        server.runs("box")  # a colleague's, of the same name
        bend = Bend(
            chance.randrange(40) if chance.random() < 0.5 else chance.randrange(8),
            chance.choice(["status", "text", "list", "field", "field", "field"]),
            chance,
        )
        lost = chance.choice(["", "", "", "before", "after"])
        kill = chance.randrange(12) if chance.random() < 0.25 else -1
        dearer = chance.random() < 0.15
        server.charged = 9.0 if dearer else None
        jump = chance.choice(CLOCKS) if chance.random() < 0.4 else 0.0
        server.clock = lambda: self.time.true
        self.line = Line(server, self.time, bend, lost, kill)
        self.story.append(f"{bend.kind} at {bend.call}, {lost=} {kill=} {dearer=} {jump=}")
        with self.time.told(), patched():
            await self._rent()
            self.time.ahead += jump
            if chance.random() < 0.1:
                self.time.reboot(chance.choice([60.0, 1800.0]))
                self.story.append("reboot")
            await self._watch()
            return self._judge()

    def prime(self) -> Prime:
        settings = PrimeSettings(URL, KEY)
        return Prime(settings, lambda date: clock.hear(self.state, date), self.line)

    async def _rent(self) -> None:
        self.said = "refused"
        try:
            async with self.prime() as prime:
                rented = Pods(prime, self.state)
                offers = await prime.offers(1)
                wanted = [one for one in offers if one.price() == PRICE]
                if not wanted:
                    return
                idle = self.chance.choice([0, 0, 0, 30])
                limit = self.chance.choice([None, PRICE])
                self.early = idle > 0 or limit is not None
                request = RentalRequest(
                    *(wanted[0], PRICE, HOURS, idle, limit), name="box", image="ubuntu"
                )
                rental = await rented.rent(request)
                self.said = "rented"
                if self.chance.random() < 0.7:
                    await rented.wait(rental, lambda address: There(), "")  # type: ignore
        except Killed:
            self.said = "killed"
        except HudUnclear as error:
            self.said = "unknown"
            self.story.append(error.message)
        except HudError as error:
            self.story.append(f"{type(error).__name__}: {error.message}")
        self.story.append(self.said)

    async def _watch(self) -> None:
        """The process that keeps budgets, at times one more, until long after the budget."""
        machines = Machines(self.state)
        both = [Budgets(machines, prime=self.prime) for _ in range(2)]
        until = self.time.true + ROUND_S
        while self.time.true < until and any(one.runs for one in read_rentals(self.state)):
            self.time.pass_by(STEP_S)
            for budgets in both[: self.chance.choice([1, 1, 1, 2])]:
                try:
                    await budgets.check()
                except Killed:
                    both[0] = Budgets(machines, prime=self.prime)
                except HudError:
                    pass
            if self.chance.random() < 0.01:  # all are halted for three minutes
                self.time.pass_by(180.0)

    def _judge(self) -> list[tuple[str, str]]:
        server, rentals = self.server, read_rentals(self.state)
        story = f"round {self.number}: {'; '.join(self.story)}"
        faults = [] if "pod1" in server.pods else [("foreign", story)]
        if len(server.created) > 1:
            faults.append(("doubles", story))
        if self.said == "rented" and not server.created:
            faults.append(("false", f"said to be rented; {story}"))
        known = {one.id for one in rentals}
        for id_ in {*server.pods} - {"pod1"}:
            kind = "unkept" if id_ in known else "forgotten"
            faults.append((kind, f"{id_} runs on; {[one.why for one in rentals]}; {story}"))
        for past in server.history:
            took = seconds(past["terminatedAt"]) or 0.0
            took -= seconds(past["createdAt"]) or 0.0
            slack = past["priceHr"] * LATE_S / 3600
            if past["priceHr"] * took / 3600 > PRICE * HOURS + slack:
                faults.append(("dollars", f"{past['id']} ran {took:.0f} s; {story}"))
            if took < HOURS * 3600 * PRICE / past["priceHr"] - LATE_S and not self.early:
                faults.append(("early", f"{past['id']} ran {took:.0f} s only; {story}"))
        return faults


class There:
    """A pod whose ssh answers."""

    async def run(self, script: str, timeout_s: float = 0.0) -> None:
        pass


@contextmanager
def patched() -> Iterator[None]:
    """Nothing is waited for."""
    delay = transport.retry_delay

    def at_once(*given: Any) -> float | None:
        return None if delay(*given) is None else 0.0

    with (
        patch.object(pods, "POLL_S", 0.0),
        patch.object(pods, "LOOK_UP_S", 0.0),
        patch("hud_tui.remote.prime.retry_delay", at_once),
        patch("hud_tui.storage.os.fsync", lambda descriptor: None),
    ):
        yield


async def play(plan: Plan, report: Report) -> None:
    chance = plan.random
    for number in plan.rounds(report):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            one = Round(number, random.Random(chance.random()), Path(folder))
            for kind, what in await one.play():
                report.found(kind, what)


CAMPAIGN = Campaign(
    "machines",
    "rentings",
    count=2000,
    small=25,
    play=play,
    kinds=("foreign", "doubles", "false", "unkept", "forgotten", "dollars", "early"),
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
