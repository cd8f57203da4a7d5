"""Money fails closed: whatever Prime answers, clocks say, and processes do."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from email.utils import formatdate
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from hud_tui.client.transport import LONGEST_S
from hud_tui.errors import HudRefused, HudUnclear, HudUsage
from hud_tui.processes import process
from hud_tui.remote import clock, watcher
from hud_tui.remote.budget import HEARD_S, UNHEARD, Budgets
from hud_tui.remote.machines import Machines
from hud_tui.remote.pods import NEW_S, Filter, PodFailed, Pods, RentalRequest
from hud_tui.remote.prime import Prime, PrimeSettings, open_prime, read_prime
from hud_tui.service_file import (
    Rental,
    budget_found,
    budget_kept,
    costs_text,
    guards_text,
    read_rentals,
    write_rental,
)
from hud_tui.storage import locked
from tests import prime_server
from tests.conftest import until
from tests.prime_server import KEY, PrimeServer, offer
from tests.remote.far import Far
from tests.remote.test_pods import RENT
from tests.service.headless import Command


@pytest.fixture
def state(tmp_path: Path, prime: PrimeServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("hud_tui.client.transport.ATTEMPTS", 1)
    monkeypatch.setattr("hud_tui.remote.pods.LOOK_UP_S", 0.0)
    return tmp_path / "state"


@pytest.fixture
async def api(state: Path) -> AsyncIterator[Prime]:
    async with open_prime(state) as opened:
        yield opened


async def rented(
    api: Prime, state: Path, max_price: float | None = None, idle_min: int = 0
) -> Rental:
    """A pod named ``box`` for two hours at $4.20."""
    [offer] = [offer for offer in (await api.offers(2)).offers if offer.price() == 4.2]
    request = RentalRequest(offer, 4.2, 2.0, idle_min, max_price, name="box", image="ubuntu")
    return await Pods(api, state).rent(request)


async def test_hours_begin_when_it_was_created(api: Prime, state: Path, prime: PrimeServer) -> None:
    """This process was halted between the two."""
    now = [float(round(clock.prime_now(state)))]
    prime.clock = lambda: now[0]

    def halt() -> None:
        now[0] += 180.0

    [offer] = [offer for offer in (await api.offers(2)).offers if offer.price() == 4.2]
    request = RentalRequest(offer, 4.2, 2.0, name="box", image="ubuntu")
    rental = await Pods(api, state, keep=halt, now=lambda: now[0]).rent(request)
    assert (rental.at, rental.deadline) == (now[0], now[0] + 7200.0)
    prime.bend = lambda pod: pod.update(createdAt="2099-01-01T00:00:00Z")
    bent = await Pods(api, state, now=lambda: now[0]).rent(replace(request, name="bent"))
    assert bent.at == now[0]


def late(state: Path, seconds: float = 7300.0) -> Budgets:
    """What keeps budgets, so much later."""
    return Budgets(Machines(state), clock=lambda: clock.prime_now(state) + seconds)


@pytest.mark.parametrize("trouble", [500, 403, "gpuName", "gpuCount", "id"])
async def test_hours_are_enforced_without_a_list(
    api: Prime, state: Path, prime: PrimeServer, trouble: int | str
) -> None:
    """The end by the pod's id comes first, and a foreign pod that is odd is only that."""
    await rented(api, state)
    if isinstance(trouble, int):
        for _ in range(20):
            prime.refuse("GET /pods", trouble)
    else:
        prime.runs("box", "theirs", **{trouble: None})
    with suppress(HudRefused):  # of the list
        await late(state).check()
    assert {*prime.pods} - {"theirs"} == set()
    assert [rental.why for rental in read_rentals(state)] == ["its hours are spent"]


async def test_one_that_fails_to_end_holds_up_no_other(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    first = await rented(api, state)
    write_rental(state, replace(first, name="other", id="pod1", asked=""))
    prime.runs()
    prime.refuse("DELETE /pods/pod0001", 500)
    with pytest.raises(HudUnclear):
        await late(state).check()
    assert {*prime.pods} <= {"pod0001"}


async def test_a_refusal_is_no_end_and_is_asked_again(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    rental = await rented(api, state)
    prime.refuse("DELETE /pods/pod0001", 500)
    budgets = Budgets(Machines(state), clock=lambda: rental.deadline + 1, poll_s=0.01)
    await asyncio.wait_for(budgets.run(), 30)
    assert prime.pods == {}
    assert not read_rentals(state)[0].runs


async def test_one_that_its_watcher_shut_down_is_not_billed_on(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    write_rental(state, await rented(api, state), watched=True)
    prime.pods["pod0001"]["status"] = "STOPPED"
    await late(state, 0.0).check()
    assert prime.pods == {}
    assert [rental.why for rental in read_rentals(state)] == ["its watcher shut it down"]


async def test_missing_from_one_answer_is_no_end(
    api: Prime, state: Path, prime: PrimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is asked for; where that is not answered, whole lists decide, minutes apart."""
    await rented(api, state)
    kept = prime.pods.pop("pod0001")
    now = [clock.prime_now(state) + 3600]
    pods = Pods(api, state, now=lambda: now[0])

    async def runs() -> bool:
        [one], _ = await pods.reconcile()
        return one.runs

    for _ in range(10):
        prime.refuse("GET /pods/pod0001", 403)
        assert await runs(), "so many lists within no time"
    now[0] += 400
    prime.runs("box", "theirs", id=None)
    prime.refuse("GET /pods/pod0001", 403)
    assert await runs(), "a list that cannot be read whole"
    prime.pods = {"pod0001": kept}
    assert await runs()
    assert read_rentals(state)[0].missing == 0
    prime.pods.clear()
    for _ in range(3):
        prime.refuse("GET /pods/pod0001", 403)
        assert await runs()
        now[0] += 100
    prime.refuse("GET /pods/pod0001", 403)
    assert not await runs()
    prime.pods = {"pod0001": kept}
    assert await runs(), "it is there after all"
    prime.pods.clear()
    assert not await runs(), "Prime says that there is none"


async def test_a_404_of_something_between_is_no_end(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    await rented(api, state)

    async def page(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/pods"):
            body = {"total_count": 0, "offset": 0, "limit": 100, "data": []}
            return httpx.Response(200, json=body)
        return httpx.Response(404, text="<html>no such page</html>")

    settings = read_prime({"PRIME_API_KEY": KEY})
    settings = replace(settings, url=api.settings.url)
    async with Prime(settings, transport=httpx.MockTransport(page)) as portal:
        now = clock.prime_now(state) + 3600
        [one], _ = await Pods(portal, state, now=lambda: now).reconcile()
        assert one.runs
        with pytest.raises(HudUnclear):
            await portal.terminate("pod0001")


async def test_another_accounts_key_decides_nothing(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    rental = await rented(api, state)
    write_rental(state, rental, account="another")
    prime.pods.clear()
    now = clock.prime_now(state) + 3600
    pods = Pods(api, state, now=lambda: now)
    [one], _ = await pods.reconcile()
    assert one.runs
    with pytest.raises(HudUsage, match="rented with another key"):
        await pods.terminate(one, "terminated", "box")
    assert read_rentals(state)[0].runs


@pytest.mark.parametrize("lost", ["lost", "dropped"])
async def test_a_colleagues_pod_of_the_same_name_is_left_alone(
    api: Prime, state: Path, prime: PrimeServer, lost: str
) -> None:
    """Whether the lost request was carried out or not."""
    prime.runs("box", "theirs")
    setattr(prime, lost, 1)
    if lost == "dropped":
        with pytest.raises(HudUnclear):
            await rented(api, state)
    else:
        assert (await rented(api, state)).id == "pod0001"
    await Pods(api, state).reconcile()
    _, others = await Pods(api, state).reconcile()
    assert [one.id for one in others] == ["theirs"], "it is shown"
    await late(state).check()
    assert {*prime.pods} == {"theirs"}
    [rental] = read_rentals(state)
    assert rental.asked.startswith("box-")
    assert len(rental.asked) == len("box-") + 8


async def test_a_request_that_is_sent_twice_is_paid_for_by_one_budget_each(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    await rented(api, state)
    prime.pods["twin0002"] = {**prime.pods["pod0001"], "id": "twin0002"}
    both, others = await Pods(api, state).reconcile()
    assert {one.id for one in both} == {"pod0001", "twin0002"}
    assert others == []
    await late(state).check()
    assert prime.pods == {}


UNFIT: dict[str, Any] = {
    "no id": lambda pod: pod.pop("id"),
    "id null": lambda pod: pod.update(id=None),
    "id a number": lambda pod: pod.update(id=7),
    "id a path": lambda pod: pod.update(id="../keys"),
    "another name": lambda pod: pod.update(name="theirs"),
    "price a text": lambda pod: pod.update(priceHr="free"),
    "gpuCount null": lambda pod: pod.update(gpuCount=None),
    "createdAt a number": lambda pod: pod.update(createdAt=1),
    "status a list": lambda pod: pod.update(status=[]),
    "empty": lambda pod: pod.clear(),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("listed", [True, False])
async def test_an_answer_that_does_not_fit_is_no_refusal(
    api: Prime, state: Path, prime: PrimeServer, unfit: str, listed: bool
) -> None:
    prime.bend = UNFIT[unfit]
    if not listed:
        prime.refuse("GET /pods", 500)
    hint = ""
    try:
        assert (await rented(api, state)).id == "pod0001"
    except HudUnclear as error:
        hint = error.hint
    assert not (listed and hint), hint
    assert not hint or "it may have been rented" in hint
    said = costs_text(state, clock.prime_now(state))
    assert "rented and costing money: box" in said
    with suppress(HudRefused):
        await late(state).check()
    assert prime.pods == {}
    assert read_rentals(state)[0].why == "its hours are spent"


@pytest.mark.parametrize(("status", "body"), [(302, "{}"), (403, "<html>"), (503, "{}"), (404, "")])
async def test_what_is_no_clear_refusal_is_unknown(
    state: Path, api: Prime, status: int, body: str
) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, text=body))
    async with Prime(PrimeSettings("https://prime.example", KEY), transport=transport) as portal:
        [offer, *_] = (await api.offers(2)).offers
        with pytest.raises(HudUnclear):
            await portal.create(offer, "box-1", "ubuntu", None, 1.0)


async def test_a_refusal_of_what_was_done_is_none(
    api: Prime, state: Path, prime: PrimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something between has sent the request twice, and the second was refused."""
    create = Prime.create

    async def refused_after(self: Prime, *given: Any) -> Any:
        await create(self, *given)
        raise HudRefused(402, "no")

    monkeypatch.setattr(Prime, "create", refused_after)
    assert (await rented(api, state)).id == "pod0001"
    prime.pods.clear()


async def test_two_programs_that_use_one_name_rent_one_pod(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    both = await asyncio.gather(rented(api, state), rented(api, state), return_exceptions=True)
    [refusal] = [one for one in both if isinstance(one, HudUsage)]
    assert "a pod named box was rented already" in refusal.message
    assert len(prime.created) == 1
    assert [rental.id for rental in read_rentals(state)] == ["pod0001"]


async def test_an_end_that_was_none_is_found_and_repeated(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    """Prime said that it has no such pod; the process stays until that is sure."""
    await rented(api, state)
    now = [clock.prime_now(state) + 7300]
    budgets = Budgets(Machines(state), clock=lambda: now[0])
    prime.refuse("DELETE /pods/pod0001", 404)
    await budgets.check()
    assert prime.pods
    assert [rental.runs for rental in read_rentals(state)] == [False]
    assert budgets.is_needed()
    now[0] += 301
    await budgets.check()
    assert prime.pods == {}
    assert not budgets.is_needed(), "the history has it"


async def test_what_one_cost_that_has_ended_is_read_when_prime_has_it(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    rental = await rented(api, state)
    write_rental(state, rental, ended_at=clock.prime_now(state), why="its hours are spent")
    ended = prime.pods.pop(rental.id)
    await Pods(api, state).reconcile()
    assert [rental.billed for rental in read_rentals(state)] == [None]
    prime.end(ended, billed=0.42)
    await Pods(api, state).reconcile()
    assert [rental.billed for rental in read_rentals(state)] == [0.42]


async def test_watchers_are_asked_regularly_and_only_where_there_are_some(
    api: Prime, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rental, asked = await rented(api, state), list[str]()
    rental = write_rental(state, rental, address="me@127.0.0.1 -p 9")

    async def hear(self: Pods, rental: Rental, ssh_to: object) -> Rental:
        asked.append(rental.name)
        return rental

    monkeypatch.setattr(Pods, "hear", hear)
    now = [clock.prime_now(state)]
    budgets = Budgets(Machines(state), clock=lambda: now[0])
    await budgets.check()
    write_rental(state, rental, watched=True, heard_at=now[0])
    await budgets.check()
    assert asked == [], "at first it had none, then it was not due"
    now[0] += HEARD_S
    await budgets.check()
    assert asked == ["box"]


async def test_odd_answers_about_its_state_are_waited_out(
    api: Prime, state: Path, prime: PrimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rental = await rented(api, state)
    prime.ssh = "-oProxyCommand=sh"
    prime.refuse("GET /pods/status", 503)
    said: list[str] = []

    def report(text: str) -> None:
        said.append(text)
        if "100 % installed" in text:
            prime.ssh = "root@127.0.0.1 -p 22"

    class There:
        async def run(self, script: str, timeout_s: float) -> None:
            pass

    pods = Pods(api, state, report)
    address = await pods.wait(rental, lambda address: There(), "")  # type: ignore
    assert f"{address}" == "root@127.0.0.1 -p 22"
    assert any("HTTP 503" in text for text in said)
    assert any("ProxyCommand" in text for text in said)
    prime.refuse("GET /pods/status", 401)
    with pytest.raises(HudRefused):
        await pods.wait(rental, lambda address: There(), "")  # type: ignore
    for age_s, fails in ((NEW_S - 1, False), (NEW_S, True)):
        aged = Pods(api, state, now=partial(float, rental.at + age_s))
        prime.refuse("GET /pods/status", 404)
        with pytest.raises(PodFailed, match="no longer has it") if fails else nullcontext():
            await aged.wait(rental, lambda address: There(), "")  # type: ignore


async def test_pages_that_are_not_counted_are_read_to_the_end(
    api: Prime, prime: PrimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = prime_server._page

    def uncounted(*given: Any) -> Any:
        body = json.loads(bytes(known(*given).body))
        return JSONResponse({**body, "totalCount": "many"})

    monkeypatch.setattr(prime_server, "_page", uncounted)
    prime.offers = [offer("H100_80GB", 1, 1 + n / 1000, f"p{n}") for n in range(150)]
    assert len((await api.offers()).offers) == 150


async def test_a_higher_price_makes_the_hours_shorter(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    prime.charged = 9.0
    rental = await rented(api, state)
    assert (rental.price_hr, rental.most) == (9.0, 8.4)
    await late(state, 8.4 / 9 * 3600 - 60).check()
    assert prime.pods
    await late(state, 8.4 / 9 * 3600 + 60).check()
    assert prime.pods == {}
    assert [rental.why for rental in read_rentals(state)] == ["its dollars are spent"]


async def test_another_price_than_the_agreed_one_is_asked_for_again(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    prime.bend = lambda pod: pod.update(priceHr=9.0)
    assert (await rented(api, state)).price_hr == 4.2


async def test_a_price_above_the_users_limit_ends_it_at_once(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    prime.charged = 9.0
    said = r"costs \$9.00 per hour, more than --max-price \$5.00"
    with pytest.raises(PodFailed, match=said) as failed:
        await rented(api, state, max_price=5.0)
    assert failed.value.hint == "look again: hud-tui pods"
    assert prime.pods == {}
    assert not read_rentals(state)[0].runs


async def test_a_price_that_changes_later_counts_as_it_is_said_twice(
    api: Prime, state: Path, prime: PrimeServer
) -> None:
    rental = await rented(api, state)
    now = [rental.at + 3600]
    pods = Pods(api, state, now=lambda: now[0])
    prime.pods["pod0001"]["priceHr"] = 42.0
    [once], _ = await pods.reconcile()
    assert once.price_hr == 4.2
    [twice], _ = await pods.reconcile()
    assert (twice.price_hr, twice.paid) == (42.0, pytest.approx(4.2))
    assert twice.deadline == pytest.approx(now[0] + 360)


# Clocks.


def answered(state: Path, at: float) -> None:
    clock.hear(state, formatdate(at, usegmt=True))


@pytest.mark.parametrize("jump_s", [-86_400.0, 8 * 3600.0, 365 * 86_400.0])
def test_no_jump_of_this_machines_clock_is_time_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    true, up = [2e9], [100.0]
    monkeypatch.setattr(clock, "wall", lambda: true[0] + jump_s)
    monkeypatch.setattr(clock, "boot_s", lambda: up[0])
    assert not clock.is_known(tmp_path)
    answered(tmp_path, true[0])
    assert clock.is_known(tmp_path)
    assert clock.ahead_s(tmp_path) == pytest.approx(jump_s, abs=1)
    monkeypatch.setattr(clock, "wall", lambda: true[0])  # it is set right
    true[0] += 3600
    up[0] += 3600
    assert clock.prime_now(tmp_path) == pytest.approx(true[0], abs=1)
    answered(tmp_path, true[0] + 10**7)
    assert clock.prime_now(tmp_path) == pytest.approx(true[0], abs=1), "one answer errs"
    answered(tmp_path, true[0])
    for text in ("", "yesterday", "Tue, 99 Foo 2026", "\x00"):
        clock.hear(tmp_path, text)
    assert clock.prime_now(tmp_path) == pytest.approx(true[0], abs=1)


def test_time_that_the_boot_clock_missed_is_told_by_prime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot this machine's clock is believed for five minutes, then two answers."""
    true, up, boot = [2e9], [100.0], ["one"]
    monkeypatch.setattr(clock, "wall", lambda: true[0])
    monkeypatch.setattr(clock, "boot_s", lambda: up[0])
    monkeypatch.setattr(clock, "boot_id", lambda: boot[0])
    answered(tmp_path, true[0])
    true[0], up[0], boot[0] = true[0] + 120, 30.0, "two"
    assert clock.prime_now(tmp_path) == pytest.approx(true[0], abs=1)
    answered(tmp_path, true[0])
    true[0], up[0], boot[0] = true[0] + 36_000, 30.0, "three"
    assert clock.prime_now(tmp_path) == pytest.approx(true[0] - 36_000 + 30, abs=1)
    assert not clock.is_known(tmp_path)
    answered(tmp_path, true[0])
    answered(tmp_path, true[0] + 2)
    assert clock.prime_now(tmp_path) == pytest.approx(true[0] + 2, abs=1)


async def ended(*processes: asyncio.subprocess.Process) -> None:
    for one in processes:
        with suppress(ProcessLookupError):
            one.kill()
        await one.wait()


FAKETIME = shutil.which("faketime")


@pytest.mark.parametrize("jump", ["-1d", "+365d"])
async def test_the_process_under_a_clock_that_jumps(
    api: Prime, state: Path, prime: PrimeServer, jump: str
) -> None:
    """It neither ends what has hours left, nor lets go on what has none."""
    if FAKETIME is None:
        pytest.skip("faketime is not installed")
    await rented(api, state)
    command = [FAKETIME, "-m", "-f", jump, sys.executable, "-m", "hud_tui.remote.budget"]
    run = {**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    going = await asyncio.create_subprocess_exec(*command, str(state), env=run)
    try:
        await until(lambda: budget_found(state).get("why") == "" and bool(prime.seen("GET /pods")))
        await asyncio.sleep(0.5)
        assert prime.pods, "its hours are not spent"
        [rental] = read_rentals(state)
        write_rental(state, rental, at=rental.at - 7300)
        await until(lambda: prime.pods == {})
        assert await going.wait() == 0
    finally:
        await ended(going)


# The process, and its heartbeat.


async def test_a_halted_process_is_replaced_and_an_id_says_nothing(
    api: Prime, state: Path, prime: PrimeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rental = await rented(api, state)
    budget = state / "remotes/budget.json"
    budget.write_text(json.dumps({"pid": 1, "at": clock.prime_now(state), "why": ""}))
    assert not budget_kept(state, clock.prime_now(state)), "another program's id by now"
    command = [sys.executable, "-m", "hud_tui.remote.budget", str(state)]
    first = await asyncio.create_subprocess_exec(*command)
    second = None
    try:
        await until(lambda: "token" in budget_found(state))
        with locked(state / "remotes"):  # it is halted outside of its writes
            first.send_signal(signal.SIGSTOP)
        old = json.loads(budget.read_text())
        budget.write_text(json.dumps({**old, "at": old["at"] - 500}))
        assert not budget_kept(state, clock.prime_now(state))
        second = await asyncio.create_subprocess_exec(*command)
        await until(lambda: budget_found(state).get("token") not in (None, old["token"]))
        first.send_signal(signal.SIGCONT)
        assert await first.wait() == 0
        assert budget_kept(state, clock.prime_now(state)), "by the one that goes on"
        assert "here" in guards_text(state, rental, clock.prime_now(state))
        write_rental(state, rental, at=rental.at - 7300)
        await until(lambda: prime.pods == {})
        assert await second.wait() == 0
    finally:
        await ended(*filter(None, (first, second)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_dead_watcher_is_started_again_and_a_silent_one_is_said(
    hud: Command,
    pod: PrimeServer,
    machines: Machines,
    far: Far,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(watcher, "EVERY_S", 1)
    assert (await hud(*RENT)).code == 0
    [rental] = read_rentals(machines.state)
    assert rental.heard_at > 0
    files = far.home / ".hud-tui/watcher"
    owner = files / "owner"
    halted = process(int(owner.read_text().split()[0]))
    halted.send(number)
    before = owner.read_text()
    uptime = Path("/proc/uptime")
    await until(
        lambda: (
            float(uptime.read_text().split()[0]) - int((files / "heartbeat").read_text().split()[2])
            >= watcher.MISSED
        )
    )
    await Budgets(machines).check()
    assert owner.read_text() != before, "it was started again"
    [heard] = read_rentals(machines.state)
    assert (heard.heard, heard.heard_at > rental.heard_at) == ("", True)
    halted.send(signal.SIGCONT)
    await until(lambda: not halted.runs)  # one that was halted sees that another has its place
    before = owner.read_text()
    await Budgets(machines).check()
    assert owner.read_text() == before, "it lives, and counts to the same end"
    write_rental(machines.state, rental, hours=rental.hours - 0.5)
    await Budgets(machines).check()
    assert owner.read_text() != before, "it counted to a later end"
    write_rental(machines.state, rental, address="me@127.0.0.1 -p 9", heard_at=rental.at)
    await Budgets(machines).check()
    [silent] = read_rentals(machines.state)
    assert "refused" in silent.heard
    assert pod.pods
    now = clock.prime_now(machines.state) + 61 * 60
    after_a_sleep = Budgets(machines, clock=lambda: now)
    for _ in range(UNHEARD - 1):
        await after_a_sleep.check()
        now += HEARD_S
    assert pod.pods, "it was not asked often enough to be called silent"
    await after_a_sleep.check()
    assert pod.pods == {}, "the rule here takes over"


# What Prime says and is told.


async def test_shared_with_the_team_as_the_cli_is_configured(
    api: Prime, prime: PrimeServer, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".prime").mkdir()
    for shares, team in ((True, "t1"), (False, "t1"), (True, None)):
        stored = {"api_key": "k", "team_id": team, "share_resources_with_team": shares}
        (tmp_path / ".prime/config.json").write_text(json.dumps(stored))
        settings = read_prime({"PRIME_API_KEY": KEY, "PRIME_API_BASE_URL": prime.url})
        async with Prime(settings) as opened:
            [offer, *_] = (await opened.offers(2)).offers
            await opened.create(offer, f"box-{len(prime.created)}", "ubuntu", None, None)
        assert prime.created[-1].sharedWithTeam is (shares and team is not None)


async def test_what_is_shut_down_may_still_cost_and_is_said_to(
    api: Prime, prime: PrimeServer, state: Path
) -> None:
    await rented(api, state)
    prime.pods["pod0001"]["status"] = "STOPPED"
    await Pods(api, state).reconcile()
    said = costs_text(state, clock.prime_now(state))
    assert "shut down, and it still costs $0.05/h" in said


async def test_retry_after_is_obeyed_and_bounded(
    api: Prime, prime: PrimeServer, state: Path
) -> None:
    await rented(api, state)
    now = [round(clock.prime_now(state)) + 7300.0]
    budgets = Budgets(Machines(state), clock=lambda: now[0])
    prime.refuse("DELETE /pods/pod0001", 429, **{"retry-after": "99999"})
    with pytest.raises(HudRefused):
        await budgets.check()
    now[0] += 10
    await budgets.check()
    assert prime.pods, "not yet"
    now[0] += LONGEST_S - 10
    await budgets.check()
    assert prime.pods == {}


def test_what_is_said_fits_80_columns(tmp_path: Path) -> None:
    now = time()
    rental = Rental("x" * 63, "p1", "8×H100_80GB", price_hr=123.45, hours=100, at=now - 3600 * 99)
    write_rental(tmp_path, rental)
    write_rental(tmp_path, replace(rental, name="b", id="", watched=True, heard_at=now - 5))
    write_rental(tmp_path, replace(rental, name="c", hours=4, status="STOPPED"))
    write_rental(tmp_path, replace(rental, name="d", hours=200, heard_at=now - 3000))
    lines = costs_text(tmp_path, now).splitlines()
    long = [line for line in lines if len(line) > 80 - len("hud-tui: ")]
    assert [line[:13] for line in long] == ["  not set up:"]
    assert [line for line in lines if "rented" in line and "$123.45/h" not in line] == [
        "  unknown whether it was rented: hud-tui pods list looks for it"
    ]
    assert any("guarded by nothing" in line for line in lines)
    assert any(line.endswith("guards: pod 5 s ago") for line in lines)
    assert any(line.endswith("guards: pod (silent) 50 m ago") for line in lines)
    assert any("over its budget of $493.80" in line for line in lines)


async def test_an_offer_at_exactly_the_highest_price_is_taken(api: Prime) -> None:
    [offer] = [offer for offer in (await api.offers(2)).offers if offer.price() == 4.2]
    assert Filter(max_price=4.2).takes(offer)
    assert not Filter(max_price=4.19).takes(offer)
