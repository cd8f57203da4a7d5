"""A renting that is cut anywhere: gone on with, paid for once, said, and kept within its budget."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import pytest

from hud_tui.cli.connect import progress
from hud_tui.cli.main import main
from hud_tui.cli.remote_pods import costs_beside
from hud_tui.errors import HudRefused, HudUsage
from hud_tui.processes import alive, boot_s
from hud_tui.remote.budget import Budgets, why_spent
from hud_tui.remote.keeper import Keeper
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.pods import WORK, Pods, begun, check_key
from hud_tui.remote.prime import Prime, read_prime
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address
from hud_tui.service_file import (
    Rental,
    budget_kept,
    costs_text,
    keep_budgets,
    read_rentals,
    write_rental,
)
from hud_tui.settings import Paths
from tests.conftest import until
from tests.prime_server import KEY, PrimeServer
from tests.remote.far import Far
from tests.remote.test_pods import RENT
from tests.service.headless import Command

SET_UP = (*RENT[:4], "--engine", "hud-tui", "--env", sys.prefix, "-y")
Call = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.usefixtures("light")


async def cut(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool, command: Awaitable[Any]
) -> None:
    """Interrupt a command as this is called: before it, or after it."""
    known: Call = getattr(owner, name)

    async def once(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, known)
        if after:
            await known(*given, **named)
        raise asyncio.CancelledError

    monkeypatch.setattr(owner, name, once)
    with pytest.raises(asyncio.CancelledError):
        await command


PHASES = {
    "as it is asked for": (Prime, "create", False, 0),
    "as the answer is on its way": (Prime, "create", True, 1),
    "while it starts": (Prime, "status", True, 1),
    "before its watcher stands": (Pods, "wait", True, 1),
    "as its watcher stands": (Pods, "reach", True, 1),
    "before its set-up": (Setup, "plan", False, 1),
    "in its set-up": (Setup, "port", False, 1),
    "after its set-up": (Setup, "run", True, 1),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_renting_that_was_cut_is_said_and_gone_on_with(
    hud: Command,
    pod: PrimeServer,
    machines: Machines,
    far: Far,
    kept: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
) -> None:
    owner, name, after, rented = PHASES[phase]
    await cut(monkeypatch, owner, name, after, hud(*SET_UP))
    assert len(pod.pods) == rented
    [rental] = read_rentals(machines.state)
    assert kept, "a process keeps its budget since before it was asked for"
    assert f"not set up: hud-tui pods setup {rental.name}" in costs_text(machines.state, time())
    again = await hud(*SET_UP)
    assert (again.code, again.error["type"]) == (2, "usage")
    assert f"{rental.name} (2×H100_80GB) is rented already" in again.error["message"]
    assert f"hud-tui pods setup {rental.name}" in again.error["hint"]
    assert len(pod.created) == rented
    if not rented:
        for name in ("FORGET_S", "MISSING_S", "MISSES"):
            monkeypatch.setattr(f"hud_tui.remote.pods.{name}", 0)
        gone = await hud("pods", "setup", rental.name, "-y")
        assert "was not rented: Prime never heard of it" in gone.error["message"]
        assert costs_text(machines.state, time()) == ""
        return
    went_on = await hud("pods", "setup", rental.name, "-y")
    assert (went_on.code, went_on.data["ready"]) == (0, True), went_on.err
    [rental] = read_rentals(machines.state)
    assert (rental.id, rental.watched, rental.done) == ("pod0001", True, True)
    assert "not set up" not in costs_text(machines.state, time())
    assert (far.home / ".hud-tui/watcher/heartbeat").exists()
    assert len(pod.created) == 1
    await hud("pods", "terminate", rental.name, "-y")


def test_the_newest_pod_that_nobody_is_at_work_on_is_gone_on_with(machines: Machines) -> None:
    rentals = {name: Rental(name, name, at=time(), hours=1) for name in ("old", "new", "newest")}
    rentals["set-up"] = Rental("set-up", "set-up", at=time(), hours=1, done=True)
    for rental in rentals.values():
        write_rental(machines.state, rental)
    assert begun(machines) == rentals["newest"]
    with machines.alone("newest", WORK):
        assert begun(machines) == rentals["new"]
        assert begun(machines, {"new"}) == rentals["old"]
        assert begun(machines, {"new", "old"}) is None


@pytest.mark.parametrize("phase", [*PHASES][1:6])
async def test_a_renting_that_was_cut_ends_by_its_budget(
    hud: Command, pod: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Without the pod's own watcher after its idle minutes, and always after its hours."""
    owner, name, after, _ = PHASES[phase]
    await cut(monkeypatch, owner, name, after, hud(*SET_UP, "--idle", "30", "--hours", "2"))
    [rental] = read_rentals(machines.state)
    clock = [time() + 29 * 60]
    budgets = Budgets(machines, clock=lambda: clock[0])
    await budgets.check()
    assert pod.pods
    clock[0] += 120
    await budgets.check()
    assert bool(pod.pods) is rental.watched
    if rental.watched:  # now its own watcher says whether it is used
        clock[0] = rental.deadline
        await budgets.check()
    assert pod.pods == {}
    [ended] = read_rentals(machines.state)
    assert not ended.runs
    why = "its hours are spent" if rental.watched else "nobody went on with it for 30 min"
    assert ended.why == why


async def test_the_same_name_goes_on(
    hud: Command, pod: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cut(monkeypatch, Prime, "status", True, hud(*RENT, "--name", "mine"))
    other = await hud(*RENT, "--name", "other", "--max-price", "6")
    assert (other.code, len(pod.created)) == (0, 2), "another name is another pod"
    assert (await hud(*RENT, "--name", "mine")).code == 0
    assert len(pod.created) == 2
    assert [rental.done for rental in read_rentals(machines.state)] == [True, True]
    for name in ("mine", "other"):
        await hud("pods", "terminate", name, "-y")
    refused = await hud(*RENT, "--name", "mine")
    assert "was rented before" in refused.error["message"]
    assert "not a pod's name" in (await hud(*RENT, "--name", "1_2")).error["message"]


async def test_one_more_where_it_is_wanted(
    hud: Command, pod: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cut(monkeypatch, Prime, "status", True, hud(*RENT))
    assert (await hud(*RENT, "--another")).code == 0
    assert len(pod.created) == 2


async def test_one_that_is_being_rented_by_another_program_is_left_alone(
    hud: Command, pod: PrimeServer, machines: Machines
) -> None:
    write_rental(machines.state, Rental("busy", "pod9", "1×A100", at=time(), hours=1))
    with machines.alone("busy", WORK):
        assert (await hud(*RENT)).code == 0
        refused = await hud("pods", "setup", "busy", "-y")
        assert "another hud-tui is at work on busy" in refused.error["message"]


async def test_progress_is_a_line_for_each_change(hud: Command, pod: PrimeServer) -> None:
    pod.polls = 4
    made = await hud(*RENT)
    name = made.data["name"]
    said = [line for line in made.err.splitlines() if f"{name}: " in line]
    assert [line.partition(f"{name}: ")[2] for line in said[1:]] == [
        "PROVISIONING",
        "ACTIVE, 40 % installed",
    ]


def test_what_is_waited_for_is_a_line_of_the_terminal_with_its_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time()
    write_rental(tmp_path, Rental("box", "p1", price_hr=2.0, hours=4, at=now, heard_at=now))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    progress(each=True, beside=partial(costs_beside, tmp_path, "box"))(f"box: ACTIVE, {'x' * 200}")
    line = capsys.readouterr().err.removeprefix("\r\x1b[K")
    assert len(line) < 80
    assert line.startswith("box: ACTIVE, xxx")
    ends = datetime.fromtimestamp(now + 4 * 3600).strftime("%H:%M")
    assert re.search(rf"…, \d+ s · \$0\.00 to .*{ends}; guards: pod \d+ s ago$", line)


async def test_what_would_be_rented(hud: Command, pod: PrimeServer, state: Path) -> None:
    said = await hud(*RENT[:-1], "--dry-run")
    assert (said.code, said.kind, said.data["most"]) == (0, "plan", 8.4)
    assert "nothing was rented; the same with -y" in said.err
    assert read_rentals(state) == []


# The process that keeps budgets.


def test_when_a_budget_is_spent() -> None:
    rental = Rental("p", "pod1", hours=2, idle_min=30, at=1000.0)
    assert why_spent(rental, 0, 1000 + 29 * 60) == ""
    assert why_spent(rental, 0, 1000 + 30 * 60) == "nobody went on with it for 30 min"
    assert why_spent(rental, 1000 + 600, 1000 + 39 * 60) == "", "somebody was at work on it"
    assert why_spent(replace(rental, idle_min=0), 0, 1000 + 7199) == ""
    assert why_spent(replace(rental, watched=True), 0, 1000 + 7199) == ""
    assert why_spent(replace(rental, watched=True), 10**9, 1000 + 7200) == "its hours are spent"
    heard = replace(rental, watched=True, address="me@far", heard_at=1000.0 + 900)
    assert why_spent(heard, 0, 1000 + 900 + 1799) == ""
    silent = "its watcher was silent and nobody used it for 30 min"
    assert why_spent(heard, 0, 1000 + 900 + 1800) == silent


def test_a_budget_is_dollars() -> None:
    """Hours shrink as the price rises; what was paid before counts at the price of then."""
    rental = Rental("p", "pod1", hours=4, price_hr=2.0, dollars=8.0, at=1000.0)
    assert rental.deadline == 1000 + 4 * 3600
    dear = replace(rental, price_hr=9.0)
    assert dear.deadline == pytest.approx(1000 + 8 / 9 * 3600)
    assert why_spent(dear, 0, dear.deadline) == "its dollars are spent"
    later = replace(rental, price_hr=6.0, paid=2.0, priced_at=1000.0 + 3600)
    assert later.deadline == 1000 + 2 * 3600
    assert later.spent(1000 + 5400) == 5.0
    cheap = replace(rental, price_hr=1.0)
    assert cheap.deadline == rental.deadline
    limited = replace(dear, max_price=4.0)
    assert "more than --max-price $4.00" in why_spent(limited, 0, 1001)


@pytest.mark.parametrize("trains", [False, True])
async def test_one_that_is_worked_or_trained_on_is_not_idle(
    machines: Machines, pod: PrimeServer, trains: bool
) -> None:
    write_rental(machines.state, Rental("p", "pod1", hours=9, idle_min=30, at=time()))
    pod.runs()
    clock = [time()]
    budgets = Budgets(machines, clock=lambda: clock[0])
    machines.use(machines.write(Machine("p", Address("far"), "hud-tui", pod="pod1")))
    machines.set_key("p", "key")
    machines.set_line("p", {"state": "up", "heard": boot_s() - (0 if trains else 61)})
    with nullcontext() if trains else machines.alone("p", WORK):
        clock[0] += 60 * 60
        await budgets.check()
    machines.set_line("p", {"state": "down"})
    clock[0] += 29 * 60
    await budgets.check()
    assert pod.pods
    clock[0] += 120
    await budgets.check()
    assert pod.pods == {}


async def test_the_process_itself(
    pod: PrimeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started once, finds the key, ends what is spent, and ends itself."""
    monkeypatch.undo()
    for name, value in {"PRIME_API_BASE_URL": pod.url, "PRIME_API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "data")
    pod.runs()
    write_rental(paths.state, Rental("p", "pod1", hours=1, at=time()))
    keep_budgets(paths, time())
    await until(lambda: budget_kept(paths.state, time()))
    found = json.loads((paths.state / "remotes/budget.json").read_text())
    assert found["why"] == ""
    keep_budgets(paths, time())
    os.kill(found["pid"], signal.SIGKILL)
    await until(lambda: not alive(found["pid"]))
    write_rental(paths.state, Rental("p", "pod1", hours=1, at=time() - 3601))
    keep_budgets(paths, time())
    await until(lambda: pod.pods == {})
    await until(lambda: not read_rentals(paths.state)[0].runs)
    pid = json.loads((paths.state / "remotes/budget.json").read_text())["pid"]
    await until(lambda: not alive(pid))


# The key that ssh will use.


async def test_the_key_is_checked_before_anything_is_rented(
    hud: Command, pod: PrimeServer, far: Far, state: Path, tmp_path: Path
) -> None:
    key = tmp_path / "id"
    refused = await hud(*RENT, "-i", str(key))
    assert (refused.code, refused.error["message"]) == (2, f"no ssh key {key}")
    assert f"ssh-keygen -t ed25519 -f {key}" in refused.error["hint"]
    usual = await hud(*RENT, "-i", str(tmp_path / "id_rsa"))
    make = "ssh-keygen -t ed25519 -f ~/.ssh/prime; then -i ~/.ssh/prime, or PRIME_SSH_KEY_PATH"
    assert usual.error["hint"] == f"make one: {make}"
    key.write_text("nothing")
    key.chmod(0o644)
    assert "open to others" in (await hud(*RENT, "-i", str(key))).error["message"]
    key.chmod(0o600)
    assert "not a private ssh key" in (await hud(*RENT, "-i", str(key))).error["message"]
    pod.keys = ["ssh-ed25519 AAAAother me@home"]
    unknown = await hud(*RENT)
    assert "Prime does not know the public half" in unknown.error["message"]
    assert "ssh-ed25519 AAAA" in unknown.error["hint"]
    assert (pod.created, read_rentals(state)) == ([], [])
    pod.refuse("GET /ssh_keys/", 403)
    made = await hud(*RENT)
    assert made.code == 0
    assert "Prime does not say whether it knows" in made.err


async def test_a_key_with_a_passphrase_needs_an_agent(
    pod: PrimeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "locked"
    make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key))
    assert await (await asyncio.create_subprocess_exec(*make)).wait() == 0
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    pod.keys = [public]
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    variables = {"PRIME_API_BASE_URL": pod.url, "PRIME_API_KEY": KEY}
    async with Prime(read_prime(variables)) as prime:
        with pytest.raises(HudUsage, match="no agent holds it"):
            await check_key(prime, str(key))

        async def held(*words: str) -> tuple[int, str]:
            return (0, f"{public} me\n") if words[0] == "ssh-add" else (1, "")

        monkeypatch.setattr("hud_tui.remote.ssh._output_of", held)
        assert await check_key(prime, str(key)) == ""
        for status in (403, 404, 405):
            pod.refuse("GET /ssh_keys/", status)
            assert "does not say whether it knows" in await check_key(prime, str(key))
        pod.refuse("GET /ssh_keys/", 402)
        with pytest.raises(HudRefused):
            await check_key(prime, str(key))


# What is said of one before its set-up.


async def test_a_log_before_there_is_one(
    hud: Command, pod: PrimeServer, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await hud(*RENT, "--name", "bare")).code == 0
    said = await hud("pods", "log", "bare")
    assert (said.code, said.data["lines"]) == (0, [])
    assert said.data["said"][0] == "bare: its set-up has not begun, so there is no log"
    assert await asyncio.to_thread(main, ["pods", "log", "bare"]) == 0
    assert "has not begun" in capsys.readouterr().out


async def test_a_shell_by_the_key_that_is_named(
    pod: PrimeServer, hud: Command, far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "mine"
    shutil.copy(far.place / "near/id", key)
    assert (await hud(*RENT, "--name", "bare")).code == 0
    monkeypatch.setenv("PRIME_SSH_KEY_PATH", "/nowhere")
    ran: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda file, words: ran.append(words))
    with suppress(TypeError):  # a program that was replaced returns nothing
        await asyncio.to_thread(main, ["pods", "ssh", "bare", "-i", str(key)])
    [words] = ran
    assert words[words.index("-i") + 1] == str(key)
    with suppress(TypeError):
        await asyncio.to_thread(main, ["pods", "ssh", "bare"])
    assert ran[1][ran[1].index("-i") + 1] == str(far.place / "near/id"), "as it was rented"


async def test_one_that_may_have_been_rented_is_not_called_ended(
    hud: Command, pod: PrimeServer, state: Path
) -> None:
    """Lists lag behind: terminate does not give up what may turn up, and cost, later."""
    write_rental(state, Rental("lost", hours=1, at=time(), asked="lost-1a2b3c4d"))
    unclear = await hud("pods", "terminate", "lost", "-y")
    assert (unclear.code, unclear.error["outcome"]) == (7, "unknown")
    assert "within 15 min, it was not rented" in unclear.error["hint"]
    pod.runs("lost-1a2b3c4d")
    ended = await hud("pods", "terminate", "lost", "-y")
    assert (ended.code, pod.pods) == (0, {})


def test_the_tunnel_of_a_pod_that_ended_says_so(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    keeper = Keeper(machines, tmp_path, "p")
    machine = Machine("p", Address("far"), "hud-tui", pod="pod1")
    write_rental(tmp_path, Rental("p", "pod1", hours=1, at=time()))
    keeper._check_pod(machine)
    write_rental(tmp_path, Rental("p", "pod1", ended_at=time(), why="its hours are spent"))
    with pytest.raises(HudUsage, match="p has ended: its hours are spent"):
        keeper._check_pod(machine)


def test_exactly_the_highest_price_is_not_too_dear() -> None:
    rental = Rental("p", "pod1", hours=4, price_hr=0.1 + 0.2, max_price=0.3, at=1000.0)
    assert why_spent(rental, 0, 1001) == ""
    assert why_spent(replace(rental, price_hr=0.31), 0, 1001)
