"""``doctor``'s checks of machines: ssh, its keys and agent, tunnels, and rented machines."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time

from hud_tui.errors import HudError, HudUsage, Severity
from hud_tui.remote.clock import JUMP_S, ahead_s, prime_now
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.prime import read_prime
from hud_tui.remote.ssh import usable_key
from hud_tui.rl.text import age, counted, one_line
from hud_tui.service_file import (
    KEEPER,
    KEY,
    SILENT_S,
    Rental,
    budget_found,
    budget_kept,
    ends_text,
    guards_text,
    read_rentals,
    stopped_text,
)
from hud_tui.settings import every_variable
from hud_tui.storage import read_private

Found = tuple[Severity, str, str]
"""Level, what was found, and what to do about it."""
PATIENCE_S = 15.0
AGENT_S = 5.0


def check_machines(machines: Machines) -> Iterator[Found]:
    """All findings; each machine is asked whether it answers."""
    try:
        listed, rentals = machines.all(), read_rentals(machines.state)
    except HudUsage as error:
        yield "failure", error.message, error.hint
        return
    if not listed and not any(rental.runs for rental in rentals):
        yield "ok", "no machines but this one: hud-tui remote add HOST", ""
        return
    if shutil.which("ssh") is None:
        yield "failure", "ssh is not installed here", "install OpenSSH's client"
        return
    yield check_agent()
    for machine in listed:
        yield from check_keys(machines, machine)
    for machine, failed in zip(listed, asyncio.run(_asked(machines, listed)), strict=True):
        yield _answered(machine, failed)
    for machine in listed:
        yield from check_line(machines, machine)
    yield from check_costs(machines.state, prime_now(machines.state))


async def _asked(machines: Machines, listed: Sequence[Machine]) -> list[HudError | None]:
    """For each machine why it does not answer; None if it does."""

    async def ask(machine: Machine) -> HudError | None:
        try:
            await machines.ssh(machine, shared=False).check("true", PATIENCE_S)
        except HudError as error:
            return error
        return None

    return list(await asyncio.gather(*map(ask, listed)))


def _answered(machine: Machine, error: HudError | None) -> Found:
    if error is not None:
        return "warning", f"{machine.name}: {error.message}", error.hint
    if machine.ready:
        what = f"{machine.engine} {machine.model}".strip()
        return "ok", f"{machine.label} answers, and is set up: {what}", ""
    fix = f"hud-tui remote add {machine.address} --name {machine.name}"
    return "warning", f"{machine.label} answers; its set-up is not complete", fix


def check_agent() -> Found:
    """Whether ssh has an agent with keys; without one keys come from files."""
    try:
        code = subprocess.run(
            ["ssh-add", "-l"], stdin=subprocess.DEVNULL, capture_output=True, timeout=AGENT_S
        ).returncode
    except (OSError, subprocess.SubprocessError):
        code = 2
    messages = {0: "the ssh agent holds keys", 1: "the ssh agent holds no key: ssh-add adds one"}
    return "ok", messages.get(code, "no ssh agent: keys come from files"), ""


def check_keys(machines: Machines, machine: Machine) -> Iterator[Found]:
    """Whether key files exist, and are private."""
    if machine.address.key is not None:
        try:
            usable_key(machine.address.key)
        except HudUsage as error:
            yield "failure", f"{machine.name}: {error.message}", error.hint
    key = machines.folder_of(machine.name) / KEY
    try:
        read_private(key, 4096)
    except FileNotFoundError:
        pass
    except OSError as error:
        message = f"{one_line(key, 300)}: {error.strerror}"
        yield "failure", message, f"chmod 600 {one_line(key, 300)}"


def check_line(machines: Machines, machine: Machine) -> Iterator[Found]:
    """The state of the tunnel to the machine in use."""
    if machines.used() != machine.name:
        return
    line = machines.line(machine.name)
    if not machines.busy(machine.name, KEEPER):
        why = f"{machine.name} is used, and nothing keeps its tunnel"
        yield "warning", why, "hud-tui --local starts it again"
    elif line.get("state") == "up":
        took = line.get("latency_s") or 0.0
        breaks = counted(int(line.get("breaks") or 0), "break")
        yield "ok", f"{machine.name} is used; its tunnel is up: {took * 1000:.0f} ms, {breaks}", ""
    else:
        why, since = one_line(line.get("why") or "connecting", 300), line.get("since") or 0.0
        fix = f"hud-tui remote status {machine.name}; or train here: hud-tui remote use --off"
        yield "warning", f"{machine.name} is used; its tunnel: {why} ({age(since, time())})", fix


def check_costs(state: Path, now: float) -> Iterator[Found]:
    """What is rented, and what should have ended. `now`: Unix seconds by Prime's clock."""
    for rental in read_rentals(state):
        if rental.runs:
            yield from _check_rental(state, rental, now)
    if not any(rental.runs for rental in read_rentals(state)):
        return
    try:
        read_prime(every_variable())
    except HudError as error:
        yield "warning", f"pods cannot be ended from here: {error.message}", error.hint
    ahead = ahead_s(state)
    if abs(ahead) > JUMP_S:
        way = "ahead of" if ahead > 0 else "behind"
        message = f"this machine's clock is {age(0.0, abs(ahead))} {way} Prime's"
        yield "warning", message, "set it; budgets go by Prime's and by the time since boot"
    why = one_line(budget_found(state).get("why") or "", 200)
    if not budget_kept(state, now):
        message = "no process here keeps the budget of what is rented"
        yield "warning", message, "hud-tui pods list starts it"
    elif why:
        message = f"what is rented cannot be ended from here now: {why}"
        yield "warning", message, "hud-tui pods list; or end it at https://app.primeintellect.ai"
    else:
        yield "ok", "a process here keeps the budget of what is rented", ""


def _check_rental(state: Path, rental: Rental, now: float) -> Iterator[Found]:
    end = f"hud-tui pods terminate {rental.name}"
    cost = rental.costs(now)
    if not rental.id:
        message = f"{rental.name} may have been rented: Prime's answer was lost, or did not fit"
        yield "warning", message, "hud-tui pods list looks for it"
    elif now > rental.deadline:
        late = age(rental.deadline, now)
        yield "failure", f"{rental.name} runs {late} longer than its budget: {cost}", end
    else:
        until = ends_text(rental, now, ahead_s(state))
        guards = guards_text(state, rental, now)
        yield "warning", f"{rental.name} ({rental.gpus}) is rented: {cost}, {until}; {guards}", end
    if rental.status == "STOPPED":
        yield "warning", f"{rental.name} is shut down, and {stopped_text(rental)}", end
    if rental.watched and now - rental.heard_at > SILENT_S:
        why = f": {rental.heard}" if rental.heard else ""
        message = f"{rental.name}: its watcher has not spoken for {age(rental.heard_at, now)}{why}"
        yield "warning", message, f"hud-tui pods status {rental.name} asks it, and starts it again"
    if rental.unfinished:
        message = f"{rental.name} is not set up"
        message += "" if rental.watched else ", and not watched"
        yield "warning", message, f"hud-tui pods setup {rental.name}"
