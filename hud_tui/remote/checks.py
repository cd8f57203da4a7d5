"""``doctor``'s checks of machines: ssh, its keys and agent, tunnels, and rented machines."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import time

from hud_tui.errors import HudError, HudUsage
from hud_tui.remote.clock import JUMP_S, ahead_s, prime_now
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.prime import read_prime
from hud_tui.remote.ssh import usable_key
from hud_tui.rl.findings import Finding, Severity
from hud_tui.rl.text import age, counted, one_line
from hud_tui.service_file import (
    KEEPER,
    KEY,
    budget_found,
    budget_kept,
    line_text,
    read_rentals,
    rental_notes,
    rental_text,
    watcher_note,
)
from hud_tui.settings import every_variable
from hud_tui.storage import read_private

_finding = partial(Finding, "machines")
PATIENCE_S = 15.0
AGENT_S = 5.0


def check_machines(machines: Machines) -> Iterator[Finding]:
    """All findings; each machine is asked whether it answers."""
    try:
        listed, rentals = machines.all(), read_rentals(machines.state)
    except HudUsage as error:
        yield _finding("failure", error.message, fix=error.hint)
        return
    if not listed and not any(rental.runs for rental in rentals):
        yield _finding("ok", "no machines but this one: hud-tui remote add HOST")
        return
    if shutil.which("ssh") is None:
        yield _finding("failure", "ssh is not installed here", fix="install OpenSSH's client")
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


def _answered(machine: Machine, error: HudError | None) -> Finding:
    if error is not None:
        return _finding("warning", f"{machine.name}: {error.message}", fix=error.hint)
    if machine.ready:
        what = f"{machine.engine} {machine.model}".strip()
        return _finding("ok", f"{machine.label} answers, and is set up: {what}")
    fix = f"hud-tui remote add {machine.address} --name {machine.name}"
    return _finding("warning", f"{machine.label} answers; its set-up is not complete", fix=fix)


def check_agent() -> Finding:
    """Whether ssh has an agent with keys; without one keys come from files."""
    try:
        code = subprocess.run(
            ["ssh-add", "-l"], stdin=subprocess.DEVNULL, capture_output=True, timeout=AGENT_S
        ).returncode
    except (OSError, subprocess.SubprocessError):
        code = 2
    messages = {0: "the ssh agent holds keys", 1: "the ssh agent holds no key: ssh-add adds one"}
    return _finding("ok", messages.get(code, "no ssh agent: keys come from files"))


def check_keys(machines: Machines, machine: Machine) -> Iterator[Finding]:
    """Whether key files exist, and are private."""
    if machine.address.key is not None:
        try:
            usable_key(machine.address.key)
        except HudUsage as error:
            yield _finding("failure", f"{machine.name}: {error.message}", fix=error.hint)
    key = machines.folder_of(machine.name) / KEY
    try:
        read_private(key, 4096)
    except FileNotFoundError:
        pass
    except OSError as error:
        message = f"{one_line(key, 300)}: {error.strerror}"
        yield _finding("failure", message, fix=f"chmod 600 {one_line(key, 300)}")


def check_line(machines: Machines, machine: Machine) -> Iterator[Finding]:
    """The state of the tunnel to the machine in use."""
    if machines.used() != machine.name:
        return
    line = machines.line(machine.name)
    is_up = line.get("state") == "up"
    if not machines.busy(machine.name, KEEPER):
        why = f"{machine.name} is used, and nothing keeps its tunnel"
        yield _finding("warning", why, fix="hud-tui --local starts it again")
        return
    breaks = counted(int(line.get("breaks") or 0), "break")
    message = f"{machine.name} is used; its tunnel: {line_text(line, time())}, {breaks}"
    fix = f"hud-tui remote status {machine.name}; or train here: hud-tui remote use --off"
    yield _finding("ok" if is_up else "warning", message, fix="" if is_up else fix)


def check_costs(state: Path, now: float) -> Iterator[Finding]:
    """What is rented, and what should have ended. `now`: Unix seconds by Prime's clock."""
    running = [rental for rental in read_rentals(state) if rental.runs]
    for rental in running:
        message = f"{rental.name} ({rental.gpus}) is rented: "
        message += rental_text(state, rental, now, ahead_s(state))
        level: Severity = "failure" if now > rental.deadline else "warning"
        yield _finding(level, message, fix=f"hud-tui pods terminate {rental.name}")
        for note, fix in filter(None, (*rental_notes(rental), watcher_note(rental, now))):
            yield _finding("warning", f"{rental.name}: {note}", fix=fix)
    if not running:
        return
    try:
        read_prime(every_variable())
    except HudError as error:
        what = f"pods cannot be ended from here: {error.message}"
        yield _finding("warning", what, fix=error.hint)
    ahead = ahead_s(state)
    if abs(ahead) > JUMP_S:
        way = "ahead of" if ahead > 0 else "behind"
        message = f"this machine's clock is {age(0.0, abs(ahead))} {way} Prime's"
        fix = "set it; budgets go by Prime's and by the time since boot"
        yield _finding("warning", message, fix=fix)
    why = one_line(budget_found(state).get("why") or "", 200)
    if not budget_kept(state, now):
        message = "no process here keeps the budget of what is rented"
        yield _finding("warning", message, fix="hud-tui pods list starts it")
    elif why:
        message = f"what is rented cannot be ended from here now: {why}"
        fix = "hud-tui pods list; or end it at https://app.primeintellect.ai"
        yield _finding("warning", message, fix=fix)
    else:
        yield _finding("ok", "a process here keeps the budget of what is rented")
