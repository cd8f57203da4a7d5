"""The process that keeps a tunnel open: ``python -m hud_tui.remote.keeper STATE DATA NAME``.

It opens the tunnel, reopens it when the connection breaks, starts the server there if it does not
run, and writes its state to ``line.json`` every few seconds. It exits when the machine is neither
used nor trained on from here. It lives as long as it holds its lock (`keeper_lock`): whoever needs
the tunnel starts it again (`guard_line`).
"""

import asyncio
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from time import monotonic, time
from typing import Any

from hud_tui.errors import HudError, HudUnreachable, HudUsage
from hud_tui.patience import Looks, Patience, backoff
from hud_tui.processes import boot_s, holder, holding, process, read_process
from hud_tui.remote.engines import find_engine
from hud_tui.remote.machines import Machine, Machines, machines_in
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import LineLost, Tunnel
from hud_tui.rl.text import one_line
from hud_tui.service_file import (
    is_serving,
    keep_line,
    keeper_lock,
    read_ready,
    read_rentals,
    used_machine,
    with_machine,
)
from hud_tui.settings import Paths

POLL_S = 5.0
"""Seconds between two checks of tunnel and machine."""
ANSWER_S = 5.0
PULSE_S = 15.0
"""Seconds that the machine may take to say how it is."""
HUNG_S = 60.0
"""Seconds in which its ssh does not log in, or hangs, after which a tunnel is opened anew."""
CLOSE_S = 2.0
"""Seconds that ssh may take to end before it is killed."""
BEAT_S = 1.0
"""Seconds between two signs of life."""
UNNEEDED = 10
"""Signs of life in which nobody needs the tunnel until it exits. They are counted, not timed, so
that a pause of this process, or a sleep of this machine, does not end it."""


@dataclass
class Line:
    """State of a tunnel and of the machine at its end; the content of line.json."""

    pid: int
    state: str = "connecting"
    """``connecting``, ``up``, ``silent`` (the server there does not answer) or ``broken``."""
    why: str = "connecting"
    since: float = 0.0
    """Since when, Unix seconds."""
    latency_s: float | None = None
    """Round trip of one call to the server."""
    breaks: int = 0
    """Number of broken connections since the process started."""
    heard: float = 0.0
    """When the server answered through the tunnel last, on `boot_s`; 0.0 if it never did."""
    ssh: str = ""
    """The ssh that forwards the port, as `Process`; empty if there is none."""
    pulse: dict[str, Any] = field(default_factory=dict)
    """As `Setup.pulse`."""

    def become(self, state: str, why: str = "") -> None:
        if state != self.state:
            self.since = time()
            self.breaks += state == "broken"
        self.state, self.why = state, one_line(why, 400)


class Keeper:
    """Keeps the tunnel to one machine."""

    def __init__(self, machines: Machines, data: Path, name: str) -> None:
        """`data`: the data directory that is served by that machine."""
        self._machines, self._data, self._name = machines, data, name
        self.line = Line(os.getpid(), since=time())
        self._is_compared = False
        """Whether the model's files here were found equal to the machine's."""

    async def run(self) -> None:
        """Run until the tunnel is not needed."""
        with holding(keeper_lock(self._machines.state, self._name)) as is_ours:
            if not is_ours:
                return
            end_left(self._machines, self._name)
            keeping = asyncio.create_task(self._keep())
            try:
                await self._until_unneeded()
            finally:
                keeping.cancel()
                with suppress(asyncio.CancelledError):
                    await keeping

    async def _until_unneeded(self) -> None:
        """Write signs of life; return once the tunnel has not been needed for a while."""
        unneeded = 0
        while unneeded < UNNEEDED:
            self._write()
            is_used = is_needed(self._machines, self._data, self._name)
            unneeded = 0 if is_used else unneeded + 1
            await asyncio.sleep(BEAT_S)

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = monotonic()
            try:
                why = await self._once()
            except HudError as error:
                why = error
            if monotonic() - began > 2 * POLL_S:
                failures = 0
            failures += 1
            self._become("broken", why.in_one)
            await asyncio.sleep(backoff(failures))

    async def _once(self) -> HudError:
        """Open the tunnel once; returns why it ended."""
        machine = self._machines.get(self._name)
        self._check_pod(machine)
        setup = Setup(self._machines, machine, patience_s=0)
        try:
            await setup.start()
            port = await setup.port()
            if not self._is_compared:
                await setup.compare_tokenizer()
                self._is_compared = True
            tunnel = Tunnel(self._machines.ssh(machine), machine.local_port, port)
            going = asyncio.create_task(tunnel.run(self._forwarding))
            try:
                return await self._watch(tunnel, going, setup, port)
            finally:
                tunnel.close()
                await asyncio.wait([going], timeout=CLOSE_S)
                going.cancel()  # kills an ssh that hangs
                await asyncio.wait([going])
        finally:
            await setup.aclose()

    async def _watch(
        self, tunnel: Tunnel, going: "asyncio.Task[HudError]", setup: Setup, port: int
    ) -> HudError:
        """Check the tunnel while it is open; returns why it ended."""
        machine = setup.machine
        url = machine.url + find_engine(machine.engine).health
        quick = 0.1  # until it is up for the first time
        hung = Patience(HUNG_S, POLL_S + 2 * ANSWER_S)
        while True:
            await asyncio.wait([going], timeout=min(quick, POLL_S))
            probe = asyncio.ensure_future(asyncio.to_thread(ask, url))
            await asyncio.wait([going, probe], return_when=asyncio.FIRST_COMPLETED)
            if going.done():
                probe.cancel()
                return going.result()
            latency = probe.result()
            # A server may take its time: that says nothing of the tunnel.
            works = latency is not None or await tunnel.works(ANSWER_S)
            if works:
                hung.renew()
            elif hung.is_over():
                return LineLost(f"the tunnel's ssh does not answer for {HUNG_S:.0f} s")
            self._heard(latency, works and quick > 1.0)
            if latency is None and quick < POLL_S:
                quick *= 1.5
                continue
            quick = POLL_S
            self._check_pod(machine)
            try:
                async with asyncio.timeout(PULSE_S):
                    self.line.pulse = await setup.pulse(using=True)
            except (HudError, TimeoutError) as error:
                if latency is not None:  # it is the other connection that does not work
                    continue
                if isinstance(error, HudError):
                    raise
                raise LineLost(f"{machine.name}: no answer within {PULSE_S:.0f} s") from None
            self._write()
            if not self.line.pulse["running"]:
                await setup.start()
            if self.line.pulse["port"] not in (port, None):
                return HudUsage("the server there has another port now")

    def _heard(self, latency: float | None, is_late: bool) -> None:
        """Note an answer of the server; `is_late`: whether none is worth a word."""
        if latency is not None:
            self.line.latency_s, self.line.heard = latency, boot_s()
            self._become("up")
        elif is_late:
            self._become("silent", "the server there does not answer yet")

    def _check_pod(self, machine: Machine) -> None:
        """Raises HudUsage: the machine was rented, and its rental has ended."""
        for rental in read_rentals(self._machines.state):
            if rental.id and rental.id == machine.pod and not rental.runs:
                fix = "train here: hud-tui remote use --off"
                raise HudUsage(f"{rental.name} has ended: {rental.why}", fix)

    def _forwarding(self, pid: int) -> None:
        """Write down which ssh forwards the port, for whoever comes after this process."""
        self.line.ssh = str(process(pid))
        self._write()

    def _become(self, state: str, why: str = "") -> None:
        self.line.become(state, why)
        self._write()

    def _write(self) -> None:
        self._machines.set_line(self._name, vars(self.line))


def ask(url: str) -> float | None:
    """Call a server through a tunnel by GET; returns the seconds until it answered, with any
    status, or None if it did not."""
    began = monotonic()
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S):
            return monotonic() - began
    except urllib.error.HTTPError as error:
        error.close()
        return monotonic() - began
    except (OSError, ValueError, HTTPException):
        return None


USE_S = 60.0
"""Longest wait for a tunnel, seconds."""
END_S, LOOK_S = 5.0, 0.02
"""Longest wait for the end of the process that keeps one, and between two looks, seconds."""


async def use(
    machines: Machines, machine: Machine, paths: Paths, report: Callable[[str], None]
) -> None:
    """Train on a machine that is set up from now on, once its server answers through the tunnel.
    `paths` are those without a machine; `report` is called with what is being waited for. Raises
    HudUnreachable: it does not answer; the previous machine stays in use."""
    before = machines.used()
    machines.use(machine, find_engine(machine.engine).speaks)
    if machines.line(machine.name).get("state") != "up":
        await end(machines, machine.name)  # so that the next one has the environment of today
    try:
        await _up(machines, machine, paths, report)
    except BaseException:
        usual = machines.get(before) if before else None
        machines.use(usual, find_engine(usual.engine).speaks if usual else "")
        raise


async def _up(
    machines: Machines, machine: Machine, paths: Paths, report: Callable[[str], None]
) -> None:
    """Wait until the tunnel to a machine in use is up."""
    began = boot_s()
    await asyncio.to_thread(keep_line, with_machine(paths), machine.name)
    message = ""
    async for _ in Looks(0.1, USE_S):
        line = machines.line(machine.name)
        if line.get("state") == "up" and line.get("heard", 0) >= began - 2 * POLL_S:
            return
        message = f"opening the tunnel, for up to {USE_S:.0f} s"
        if line.get("beat", 0) >= began and line.get("why"):
            message = str(line["why"])
        message = f"{machine.name}: {message.removeprefix(f'{machine.name}: ')}"
        report(message)
    hint = f"hud-tui remote status {machine.name}; its log: remote log {machine.name}"
    raise HudUnreachable(message, hint)


async def unuse(machines: Machines, paths: Paths) -> None:
    """Train on this machine again. The tunnel's process ends, unless a local service still trains
    through it. `paths` are those without a machine."""
    name = machines.used()
    data = with_machine(paths).data if name else paths.data
    machines.use(None)
    if name and not is_needed(machines, data, name):
        await end(machines, name)


async def end(machines: Machines, name: str) -> None:
    """End the process that keeps a machine's tunnel, if one does, and its ssh; and wait for it. One
    that hangs is killed."""
    if name not in machines.names():
        return
    lock = keeper_lock(machines.state, name)
    for number in (signal.SIGTERM, signal.SIGKILL):
        keeper = holder(lock)
        if keeper is not None:
            keeper.send(number)
            async for _ in Looks(LOOK_S, END_S):
                if not keeper.runs:
                    break
    end_left(machines, name)


def end_left(machines: Machines, name: str) -> None:
    """Kill the ssh of a tunnel whose keeper was killed: it would hold the port. For who holds the
    keeper's lock, or knows that nobody does."""
    left = read_process(machines.line(name).get("ssh"))
    if left is not None and left.start:
        left.send(signal.SIGKILL)


def is_needed(machines: Machines, data: Path, name: str) -> bool:
    """Whether a machine is in use, or a local service trains on it."""
    if name not in machines.names():
        return False
    with suppress(HudUsage):
        used = used_machine(machines.state)
        if used is not None and used.name == name:
            return True
        ready = read_ready(data / "service.json")
        return ready is not None and is_serving(ready)
    return False


def main() -> None:
    state, data, name = sys.argv[1:]
    keeper = Keeper(machines_in(Path(state)), Path(data), name)
    with suppress(HudUsage, asyncio.CancelledError):  # another process keeps it; or it was ended
        asyncio.run(_until_ended(keeper))


async def _until_ended(keeper: Keeper) -> None:
    """Run until the tunnel is not needed, or SIGTERM, which closes it."""
    running = asyncio.ensure_future(keeper.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await running


if __name__ == "__main__":
    main()
