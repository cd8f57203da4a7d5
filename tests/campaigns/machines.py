"""Prime's API bent one answer at a time, in every phase of a renting, with kills.

Each round rents a pod with the program's own code, against the copy of Prime's API, in process and
by a clock that the campaign turns. Rounds with an even number go through `catalogue`: every field
of every answer, every status, list and loss, in each phase, one at a time. In the others chance
adds to it: the program is killed at a call, halted, or its machine reboots, clocks jump, a second
renter has the same name, account, or state directory. Afterwards the pods that were made, those
that were ended and what is said of them must add up.
"""

import argparse
import asyncio
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from hud_tui import patience
from hud_tui.client import transport
from hud_tui.errors import HudError, HudUnclear, HudUsage
from hud_tui.remote import clock, pods
from hud_tui.remote.budget import Budgets
from hud_tui.remote.machines import Machines
from hud_tui.remote.pods import PodFailed, Pods, RentalRequest
from hud_tui.remote.prime import Prime, PrimeSettings
from hud_tui.service_file import Rental
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.campaigns.renting import KINDS, WAYS, Renters, Verdict, choose_renters
from tests.prime_server import KEY, PrimeServer, offer

URL = "http://127.0.0.1/api/v1"
PRICE, HOURS, DEARER = 2.0, 2.0, 9.0
BILLED = 0.42
STEP_S = 200.0
"""Seconds between two checks of a budget."""
ROUND_S = 3 * 3600.0
LATE_S = 900.0
"""Seconds that a pod may outlive its budget while an answer is bent."""
LASTS_S = 3600.0
LAG_S = 600.0
"""Seconds by which a late list is late."""
FOREIGN = {"pod1": "box", "pod2": "box-0123abcd"}
"""Colleagues' pods, by id, with names like ours."""
STATUSES = (200, 204, 302, 400, 401, 402, 403, 404, 408, 409, 422, 425, 429, 500, 502, 503, 504)
WORDS: tuple[Any, ...] = ({"detail": "no"}, {}, [], "page")
"""What an answer of another status says; the first is in Prime's words."""
TEXTS = ("", "<html>", "[]", "{", "null", "\0", "[" * 100_000)
ODD: tuple[Any, ...] = (None, "", "x", -1, 0, 1e308, True, [], {}, [None], "2099-01-01T00:00:00Z")
MISSING = object()
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where its files are, which are replaced some hundred times a round."""
CLOCKS = (0.0, -86_400.0, 86_400.0, 365 * 86_400.0, 8 * 3600.0)
"""Seconds by which this machine's clock jumps in a round."""
BASES = {
    "plain": (),
    "lost": ("GET /pods", "GET /pods/ID"),
    "dearer": ("GET /pods", "GET /pods/ID"),
    "absent": ("GET /pods/ID",),
    "refused": ("GET /pods",),
}
"""What happens in any case, so that each phase is reached, and whose answers are bent then (none
named: all): the request's answer is lost, the price is another, one list lacks the pod, or the
request is refused."""


class Killed(BaseException):
    """The program ends here, as by SIGKILL."""


@dataclass
class Time:
    """What the program's clocks say; Prime's is the true one."""

    true: float = 1_800_000_000.0
    up: float = 5000.0
    ahead: float = 0.0
    boot: str = "boot-1"
    off_s: float = 0.0
    """How long this machine was off, where nothing can end a pod."""

    def pass_by(self, seconds: float) -> None:
        self.true += seconds
        self.up += seconds

    def reboot(self, off_s: float) -> None:
        self.true += off_s
        self.off_s += off_s
        self.up, self.boot = 20.0, f"{self.boot}+"

    @contextmanager
    def told(self) -> Iterator[None]:
        """The program sees these clocks."""
        with (
            patch.object(clock, "wall", lambda: self.true + self.ahead),
            patch.object(clock, "boot_s", lambda: self.up),
            patch.object(clock, "boot_id", lambda: self.boot),
            patch.object(patience, "monotonic", lambda: self.up),
        ):
            yield


# Bent answers.


@dataclass(frozen=True)
class Spot:
    """One answer of a renting."""

    call: str
    """E.g. ``GET /pods/ID``."""
    number: int
    """Which of the answers to that call, from 0."""

    def __str__(self) -> str:
        return f"{self.call} #{self.number}"


@dataclass(frozen=True)
class Bend:
    """How an answer is bent."""

    kind: str
    """status, text, list, field, late, lost."""
    value: Any = None
    path: tuple[str | int, ...] = ()
    """Of a field: keys and positions in the answer."""
    done: bool = True
    """Whether the request is carried out."""
    lasts: bool = False
    """Whether all answers to that call are bent for an hour."""

    def __str__(self) -> str:
        value = "missing" if self.value is MISSING else repr(self.value)[:60]
        where = "".join(f".{part}" for part in self.path)
        more = ("" if self.done else ", not done") + (", for an hour" if self.lasts else "")
        return f"{self.kind}{where} {value}{more}"

    def apply(self, answer: httpx.Response | None) -> httpx.Response:
        """The answer as it arrives; None: the request was not carried out.

        Raises:
            Unreached: The answer has no such field or list.
        """
        if self.kind == "lost":
            raise httpx.ReadTimeout("lost")
        if self.kind == "status":
            status, words = self.value
            return httpx.Response(status, json=words, headers={"retry-after": "1"})
        if self.kind == "text":
            return httpx.Response(200, text=self.value)
        assert answer is not None
        if self.kind == "late":  # it was answered from an earlier state
            return answer
        body = answer.json()
        changed = self._listed(body) if self.kind == "list" else self._field(body)
        return httpx.Response(answer.status_code, json=changed)

    def _listed(self, body: Any) -> Any:
        for name in ("data", "items"):
            if isinstance(body, dict) and isinstance(body.get(name), list):
                how, is_counted = self.value
                kept = LISTS[how](body[name])
                total = "total_count" if name == "data" else "totalCount"
                return {**body, name: kept} | ({total: len(kept)} if is_counted else {})
        raise Unreached

    def _field(self, body: Any) -> Any:
        *way, last = self.path
        owner = body
        try:
            for part in way:
                owner = owner[part]
            if self.value is MISSING:
                del owner[last]
            else:
                owner[last] = self.value
        except (LookupError, TypeError) as error:
            raise Unreached from error
        return body


class Unreached(Exception):
    """The answer has not what was to be bent."""


LISTS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "empty": lambda items: [],
    "without the last": lambda items: items[:-1],
    "without the first": lambda items: items[1:],
    "repeated": lambda items: [*items, *items],
    "with null": lambda items: [None, *items],
    "the last twice": lambda items: [*items, *items[-1:]],
}


def fields(
    body: Any, way: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each field of an answer and what it holds; of a list, those of the first and last entry."""
    if isinstance(body, dict):
        for name, value in body.items():
            yield (*way, name), value
            yield from fields(value, (*way, name))
    elif isinstance(body, list) and body:
        for position in {0, len(body) - 1}:
            yield from fields(body[position], (*way, position))


def other_type(value: Any) -> Any:
    """A value of another type."""
    if isinstance(value, str):
        return 7
    if isinstance(value, bool | int | float):
        return "x"
    return [] if isinstance(value, dict) else {"x": 1}


def bends(call: str, body: Any) -> Iterator[Bend]:
    """All ways in which one answer is bent, one at a time."""
    writes = not call.startswith("GET")
    for done in (True, False) if writes else (True,):
        yield Bend("lost", "after" if done else "before", done=done)
        for status in STATUSES:
            for words in WORDS[: 2 if writes or status in (200, 404) else 1]:
                yield Bend("status", (status, words), done=done)
    for text in TEXTS:
        yield Bend("text", text)
    if not writes:
        yield Bend("status", (500, WORDS[0]), lasts=True)
        yield Bend("status", (403, WORDS[0]), lasts=True)
        yield Bend("text", "<html>", lasts=True)
        yield Bend("late", LAG_S)
        yield Bend("late", LAG_S, lasts=True)
    if isinstance(body, dict) and ("data" in body or "items" in body):
        for how in LISTS:
            yield Bend("list", (how, True))
            yield Bend("list", (how, False))
        yield Bend("list", ("with null", True), lasts=True)
    for way, value in fields(body):
        for odd in (None, MISSING, other_type(value)):
            yield Bend("field", odd, way)


@dataclass(frozen=True)
class Case:
    """One bent answer of one renting."""

    base: str
    spot: Spot
    bend: Bend

    def __str__(self) -> str:
        return f"{self.base}: {self.spot}: {self.bend}"


@cache
def catalogue() -> tuple[Case, ...]:
    """Every bent answer in every phase, from the answers of rentings where none is bent."""
    cases = []
    for base, calls in BASES.items():
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            none = Case(base, Spot("", 0), Bend("none"))
            reference = Round(none, random.Random(0), Path(folder))
            faults = asyncio.run(reference.play())
        assert not faults, faults
        for call, bodies in reference.lines[0].answers.items():
            if calls and call not in calls:
                continue
            last = len(bodies) - 1
            for number in sorted({0, min(1, last), last // 2, last}):
                for bend in bends(call, bodies[number]):
                    cases.append(Case(base, Spot(call, number), bend))
    return tuple(case for case in cases if not is_twofold(case))


def is_twofold(case: Case) -> bool:
    """Whether Prime would say twice, in its own words and by two calls, that it has no such pod."""
    bend = case.bend
    is_404 = bend.kind == "status" and bend.value == (404, WORDS[0])
    return case.base == "absent" and case.spot.call == "GET /pods/ID" and is_404


class Line(httpx.AsyncBaseTransport):
    """A program's way to Prime: bends an answer, lets time pass, kills the program at a call."""

    def __init__(self, round_: "Round", case: Case | None, kill: int = -1, pause: int = -1) -> None:
        """`case`: what is bent, None for nothing; `kill`, `pause`: at which call, from 0."""
        self._round, self._case, self._kill, self._pause = round_, case, kill, pause
        self._inner = httpx.ASGITransport(round_.server.app())
        self.answers: dict[str, list[Any]] = {}
        """Body of each answer, by call."""
        self.calls = 0
        self.since: float | None = None
        """When the answer that was to be bent was."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self.calls - 1 == self._kill:
            raise Killed
        self._round.time.pass_by(181.0 if self.calls - 1 == self._pause else 1.0)
        await asyncio.sleep(0)  # another program goes on
        call = call_of(request)
        answered = self.answers.setdefault(call, [])
        bend = self._bend(Spot(call, len(answered)))
        answered.append(None)
        inner = self._inner
        if bend is not None and bend.kind == "late":
            inner = httpx.ASGITransport(self._round.as_of(bend.value).app())
        answer = None
        if bend is None or bend.done:
            answer = await inner.handle_async_request(request)
            await answer.aread()
            answered[-1] = json_of(answer)
        self._round.keep()
        if bend is not None:
            with suppress(Unreached):
                answer = bend.apply(answer)
        assert answer is not None
        answer.headers.setdefault("date", formatdate(self._round.time.true, usegmt=True))
        answer.request = request
        return answer

    def _bend(self, spot: Spot) -> Bend | None:
        """What is done to this answer."""
        if self._case is None:
            return None
        case, now = self._case, self._round.time.true
        if spot == case.spot:
            self.since = now
        is_later = self.since is not None and spot.call == case.spot.call and case.bend.lasts
        if spot == case.spot or (is_later and now - (self.since or 0.0) < LASTS_S):
            return case.bend
        if case.base == "lost" and spot == Spot("POST /pods", 0):
            return Bend("lost", "after")
        if case.base == "refused" and spot == Spot("POST /pods", 0):
            return Bend("status", (402, WORDS[0]), done=False)
        if case.base == "absent" and spot == Spot("GET /pods", 3):
            return Bend("list", ("without the last", True))
        return None


def call_of(request: httpx.Request) -> str:
    """E.g. ``GET /pods/ID``."""
    path = request.url.path.removeprefix("/api/v1")
    named = ("/pods", "/pods/status", "/pods/history")
    if path.startswith("/pods") and path not in named:
        path = "/pods/ID"
    return f"{request.method} {path}"


def json_of(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


# Rentings.


@dataclass
class Renter:
    """A program that rents a pod, and what it said."""

    state: Path
    line: Line
    name: str
    said: str = "nothing"
    """``rented``, ``refused``, ``unknown``, ``failed`` once it was rented, or ``killed``."""
    is_early: bool = False
    """Whether its pod may be ended before its hours."""


@dataclass
class Round:
    """One renting, by one program or two, and what went wrong in it."""

    case: Case
    chance: random.Random
    folder: Path
    is_mixed: bool = False
    """Whether chance adds kills, pauses, clocks and a second renter."""
    time: Time = field(default_factory=Time)
    server: PrimeServer = field(default_factory=PrimeServer)
    lines: list[Line] = field(default_factory=list)
    renters: list[Renter] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    past: list[tuple[float, dict[str, Any], list[Any]]] = field(default_factory=list)
    """Time, pods and history after each request."""

    async def play(self) -> list[tuple[str, str]]:
        """All of it; returns the faults."""
        chance, server = self.chance, self.server
        server.offers = [offer("H100_80GB", 1, PRICE), offer("A100_80GB", 1, 3.0)]
        server.polls = 1
        for id_, name in FOREIGN.items():
            server.runs(name, id_)
        server.charged = DEARER if self.case.base == "dearer" else None
        server.clock = lambda: self.time.true
        self.keep()
        self.story.append(str(self.case))
        asked = self._begin()
        with self.time.told(), patched():
            await asyncio.gather(*map(self._rent, self.renters))
            if self.is_mixed:
                self.time.ahead += chance.choice(CLOCKS)
                if chance.random() < 0.1:
                    self.time.reboot(chance.choice([60.0, 1800.0]))
                self.story.append(f"clock {self.time.ahead:+.0f} s, {self.time.boot}")
            await self._watch()
            await self._look()
            self._judge(asked.rentals())
        return self.faults

    def keep(self) -> None:
        """Remember what there is, for late answers."""
        running = {id_: dict(pod) for id_, pod in self.server.pods.items()}
        self.past.append((self.time.true, running, [*self.server.history]))

    def as_of(self, late_s: float) -> PrimeServer:
        """Prime as it was so many seconds ago."""
        at = self.time.true - late_s
        _, running, ended = next((old for old in reversed(self.past) if old[0] <= at), self.past[0])
        return replace(self.server, pods=deepcopy(running), history=ended)

    def _begin(self) -> Renters:
        chance = self.chance
        kill = pause = -1
        ways = ("one", *WAYS) if self.is_mixed else WAYS[:1]
        asked = choose_renters(chance, self.folder, ways)
        if self.is_mixed:
            kill = chance.randrange(14) if chance.random() < 0.4 else -1
            pause = chance.randrange(14) if chance.random() < 0.4 else -1
            self.story.append(f"renters: {asked.way}, {kill=} {pause=}")
        self.lines.append(Line(self, self.case, kill, pause))
        self.lines += [Line(self, None) for _ in asked.states[1:]]
        each = zip(asked.states, self.lines, asked.names, strict=True)
        self.renters = [Renter(*parts) for parts in each]
        return asked

    def _prime(self, renter: Renter) -> Prime:
        settings = PrimeSettings(URL, KEY)
        return Prime(settings, partial(clock.hear, renter.state), renter.line)

    async def _rent(self, renter: Renter) -> None:
        idle_min, limit = 0, None
        if self.is_mixed:
            idle_min = self.chance.choice([0, 0, 0, 30])
            limit = self.chance.choice([None, PRICE])
        renter.is_early = idle_min > 0 or limit is not None

        async def rent() -> None:
            async with self._prime(renter) as prime:
                rented = Pods(prime, renter.state)
                offers = (await prime.offers(1)).offers
                wanted = [offer for offer in offers if offer.price() == PRICE]
                if not wanted:
                    raise HudUsage("nothing to be rented fits")
                terms = (wanted[0], PRICE, HOURS, idle_min, limit)
                request = RentalRequest(*terms, name=renter.name, image="ubuntu")
                rental = await rented.rent(request)
                renter.said = "rented"
                await rented.wait(rental, lambda address: There(), "")  # type: ignore

        try:
            await self._tried(rent)
        except Killed:
            renter.said = "killed"
        except HudUnclear:
            renter.said = "unknown"
        except PodFailed:
            renter.said = "failed"
        except HudError as error:
            # Without an id it is the request that was refused, or what came before it.
            renter.said = "refused" if renter.said == "nothing" else "failed"
            self.story.append(error.message)
        self.story.append(renter.said)

    async def _tried(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it; an error that is none of the program's own is a fault."""
        try:
            await act()
        except HudError:
            raise
        except Exception:
            what = traceback.format_exc().strip().splitlines()
            self._fault("crashes", " | ".join(what[-3:]))

    def _states(self) -> dict[Path, Renter]:
        return {renter.state: renter for renter in reversed(self.renters)}

    async def _watch(self) -> None:
        """The process that keeps budgets, at times two of them, until long after the budget."""
        kept = {
            state: [Budgets(Machines(state), prime=partial(self._prime, one)) for _ in range(2)]
            for state, one in self._states().items()
        }
        until = self.time.true + ROUND_S
        with self.time.told():
            while self.time.true < until:
                needed = [each for each in kept.values() if each[0].is_needed()]
                if not needed:
                    return
                self.time.pass_by(STEP_S)
                both = self.is_mixed and self.chance.random() < 0.2
                halted = self.is_mixed and self.chance.random() < 0.02
                checks = [self._check(one) for each in needed for one in each[: 1 + both]]
                await asyncio.gather(*checks)
                if halted:  # all of them, for three minutes
                    self.time.pass_by(180.0)

    async def _check(self, budgets: Budgets) -> None:
        with suppress(HudError, Killed):  # it is started again
            await self._tried(budgets.check)

    async def _look(self) -> None:
        """What ``pods list`` does, a few times afterwards."""
        for renter in self._states().values():
            for _ in range(5):
                self.time.pass_by(LASTS_S / 4)
                async with self._prime(renter) as prime:
                    with suppress(HudError, Killed):
                        await self._tried(Pods(prime, renter.state).reconcile)

    # What must add up.

    def _fault(self, kind: str, what: str) -> None:
        self.faults.append((kind, what))

    def _judge(self, rentals: list[Rental]) -> None:
        early_s = None if any(renter.is_early for renter in self.renters) else LATE_S
        verdict = Verdict(PRICE * HOURS, HOURS, LATE_S + self.time.off_s, early_s, self.faults)
        verdict.judge(self.server, FOREIGN, rentals)
        self._judge_said(rentals)
        billed = {rental.id: rental.billed for rental in rentals if not rental.runs}
        for ended in self.server.history:
            if billed.get(ended["id"], BILLED) != BILLED:
                self._fault("dollars", f"{ended['id']} was billed ${BILLED}, not {billed}")

    def _judge_said(self, rentals: list[Rental]) -> None:
        """What each renter said, by what was made under the names that it asked for."""
        made = Counter(str(body.pod.name).rpartition("-")[0] for body in self.server.created)
        for name in {renter.name for renter in self.renters}:
            said = [renter.said for renter in self.renters if renter.name == name]
            least = said.count("rented") + said.count("failed")
            most = len(said) - said.count("refused")
            if not least <= made[name] <= most:
                self._fault("doubles" if made[name] > most else "false", f"{made[name]} for {said}")
        for rental in rentals:
            if rental.runs:
                self._fault("false", f"{rental.name} is said to run, {rental.id or 'without id'}")
            if not rental.id and rental.spent(self.time.true) > 0:
                self._fault("dollars", f"{rental.name} is said to have cost something: {rental}")


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
        patch("hud_tui.remote.prime.retry_delay", at_once),
        patch("hud_tui.storage.os.fsync", lambda descriptor: None),
    ):
        yield


Outcome = tuple[list[tuple[str, str]], Counter[str]]
"""The faults of a round, and what it did."""


def play_round(seed: int, number: int) -> Outcome:
    cases = [*catalogue()]
    random.Random(seed).shuffle(cases)
    chance = random.Random(f"{seed}/{number}")
    is_mixed = number % 2 == 1
    case = chance.choice(cases) if is_mixed else cases[number // 2 % len(cases)]
    if is_mixed and case.bend.kind == "field" and chance.random() < 0.5:
        case = replace(case, bend=replace(case.bend, value=chance.choice(ODD)))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        played = Round(case, chance, Path(folder), is_mixed)
        faults = asyncio.run(played.play())
    line = played.lines[0]
    if not is_mixed and line.since is None:
        faults.append(("unreached", "the answer was not bent"))
    did = Counter(
        bent=int(line.since is not None),
        made=len(played.server.created),
        ended=sum(one["id"] not in FOREIGN for one in played.server.history),
        unknown=sum(renter.said == "unknown" for renter in played.renters),
        killed=sum(renter.said == "killed" for renter in played.renters),
    )
    story = f"--first {number} --count 1 --seed {seed}: {'; '.join(played.story)}"
    return [(kind, f"{what}; {story}") for kind, what in faults], did


async def play(plan: Plan, report: Report) -> None:
    did = Counter[str]()
    total = len(await asyncio.to_thread(catalogue))
    async for faults, done in _played(plan, report):
        did += done
        for kind, what in faults:
            report.found(kind, what)
    print(
        f"{did['bent']} answers were bent, of {total} kinds; {did['made']} pods were made,"
        f" {did['ended']} ended; {did['unknown']} rentings were said to be unknown,"
        f" {did['killed']} were killed"
    )


async def _played(plan: Plan, report: Report) -> AsyncIterator[Outcome]:
    """The outcome of each round, in order."""
    workers: int = plan.options.workers
    rounds = (plan.options.first + number for number in plan.rounds(report))
    if workers < 2:
        for number in rounds:
            yield await asyncio.to_thread(play_round, plan.seed, number)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        while batch := list(islice(rounds, 20 * workers)):
            seeds = [plan.seed] * len(batch)
            for outcome in await asyncio.to_thread(list, pool.map(play_round, seeds, batch)):
                yield outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first renting")


CAMPAIGN = Campaign(
    "machines",
    "rentings",
    count=8000,
    small=20,
    play=play,
    kinds=("crashes", *KINDS, "unreached"),
    add_arguments=add_arguments,
)
