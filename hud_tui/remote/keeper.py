"""The process that keeps a tunnel open: ``python -m hud_tui.remote.keeper STATE DATA NAME``.

It opens the tunnel, reopens it when the connection breaks, starts the server there if it does not
run, and writes its state to ``line.json`` every few seconds. It exits when the machine is neither
used nor trained on from here.
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
from pathlib import Path
from time import monotonic, time
from typing import Any

from hud_tui.errors import HudError, HudUnreachable, HudUsage
from hud_tui.remote.engines import find_engine
from hud_tui.remote.machines import Machine, Machines, machines_in
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import BACKOFF_S, Tunnel
from hud_tui.rl.text import one_line
from hud_tui.service_file import (
    alive,
    keep_line,
    read_ready,
    read_rentals,
    serving_pid,
    used_machine,
    with_machine,
)
from hud_tui.settings import Paths

POLL_S = 5.0
"""Seconds between two checks of tunnel and machine."""
ANSWER_S = 5.0
UNNEEDED_S = 10.0
"""Seconds until it exits after nobody needs the tunnel."""


@dataclass
class Line:
    """State of a tunnel and of the machine at its end; the content of line.json."""

    pid: int
    state: str = "connecting"
    """``connecting``, ``up``, ``silent`` (the server there does not answer) or ``broken``."""
    why: str = "connecting"
    since: float = 0.0
    """Since when, Unix seconds."""
    at: float = 0.0
    """Time of the last check, Unix seconds."""
    latency_s: float | None = None
    """Round trip of one call to the server."""
    breaks: int = 0
    """Number of broken connections since the process started."""
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

    async def run(self) -> None:
        """Run until the tunnel is not needed."""
        with self._machines.alone(self._name, "keeper"):
            keeping = asyncio.create_task(self._keep())
            try:
                await self._until_unneeded()
            finally:
                keeping.cancel()
                with suppress(asyncio.CancelledError):
                    await keeping

    async def _until_unneeded(self) -> None:
        """Return once the tunnel has not been needed for a while."""
        until = monotonic() + UNNEEDED_S
        while monotonic() < until:
            if is_needed(self._machines, self._data, self._name):
                until = monotonic() + UNNEEDED_S
            await asyncio.sleep(min(1.0, POLL_S))

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
            pause = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
            failures += 1
            self.line.become("broken", why.message + (f" ({why.hint})" if why.hint else ""))
            self._write()
            await asyncio.sleep(pause)

    async def _once(self) -> HudError:
        """Open the tunnel once; returns why it ended."""
        machine = self._machines.get(self._name)
        self._check_pod(machine)
        setup = Setup(self._machines, machine, patience_s=0)
        try:
            await setup.start()
            port = await setup.port()
            tunnel = Tunnel(self._machines.ssh(machine), machine.local_port, port)
            going = asyncio.create_task(tunnel.run())
            try:
                return await self._watch(going, setup, machine, port)
            finally:
                tunnel.close()
                await going
        finally:
            await setup.aclose()

    async def _watch(
        self, going: "asyncio.Task[HudError]", setup: Setup, machine: Machine, port: int
    ) -> HudError:
        """Check the tunnel while it is open; returns why it ended."""
        url = machine.url + find_engine(machine.engine).health
        quick = 0.1  # until it is up for the first time
        while True:
            await asyncio.wait([going], timeout=quick if quick < POLL_S else POLL_S)
            probe = asyncio.ensure_future(asyncio.to_thread(answers, url))
            await asyncio.wait([going, probe], return_when=asyncio.FIRST_COMPLETED)
            if going.done():
                probe.cancel()
                return going.result()
            latency = probe.result()
            if latency is None and quick < POLL_S:
                quick *= 1.5
                continue
            quick = POLL_S
            self.line.latency_s = latency
            self.line.pulse = await setup.pulse()
            if latency is None:
                self.line.become("silent", "the server there does not answer yet")
            else:
                self.line.become("up")
            self._write()
            self._check_pod(machine)
            if not self.line.pulse["running"]:
                await setup.start()
            if self.line.pulse["port"] not in (port, None):
                return HudUsage("the server there has another port now")

    def _check_pod(self, machine: Machine) -> None:
        """Raises HudUsage: the machine was rented, and its rental has ended."""
        for rental in read_rentals(self._machines.state):
            if rental.id and rental.id == machine.pod and not rental.runs:
                fix = "train here: hud-tui remote use --off"
                raise HudUsage(f"{rental.name} has ended: {rental.why}", fix)

    def _write(self) -> None:
        self.line.at = time()
        self._machines.set_line(self._name, vars(self.line))


def answers(url: str) -> float | None:
    """Seconds until a server answers a GET with any status; None if it does not."""
    began = monotonic()
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S):
            return monotonic() - began
    except urllib.error.HTTPError as error:
        error.close()
        return monotonic() - began
    except (OSError, ValueError):
        return None


USE_S = 60.0
"""Longest wait for a tunnel, seconds."""
END_S = 5.0
"""Longest wait for the end of the process that keeps one, seconds."""


async def use(
    machines: Machines, machine: Machine, paths: Paths, report: Callable[[str], None]
) -> None:
    """Train on a machine that is set up from now on, once its server answers through the tunnel.
    `paths` are those without a machine; `report` is called with what is being waited for.

    Raises:
        HudUnreachable: It does not answer; the previous machine stays in use.
    """
    before = machines.used()
    machines.use(machine, find_engine(machine.engine).speaks)
    if machines.line(machine.name).get("state") != "up":
        await end(machines, machine.name)  # so that the next one has the environment of today
    try:
        await _up(machines, machine, paths, report)
    except BaseException:
        known = machines.get(before) if before else None
        machines.use(known, find_engine(known.engine).speaks if known else "")
        raise


async def _up(
    machines: Machines, machine: Machine, paths: Paths, report: Callable[[str], None]
) -> None:
    """Wait until the tunnel to a machine in use is up."""
    began = time()
    await asyncio.to_thread(keep_line, with_machine(paths), machine.name)
    while True:
        line = machines.line(machine.name)
        if line.get("state") == "up" and line.get("at", 0) >= began - 2 * POLL_S:
            return
        message = f"opening the tunnel, for up to {USE_S:.0f} s"
        if line.get("at", 0) >= began and line.get("why"):
            message = str(line["why"])
        message = f"{machine.name}: {message.removeprefix(f'{machine.name}: ')}"
        if time() - began > USE_S:
            hint = f"hud-tui remote status {machine.name}; its log: remote log {machine.name}"
            raise HudUnreachable(message, hint)
        report(message)
        await asyncio.sleep(0.1)


async def unuse(machines: Machines, paths: Paths) -> None:
    """Train on this machine again. The tunnel's process ends, unless a local service still trains
    through it. `paths` are those without a machine."""
    name = machines.used()
    data = with_machine(paths).data if name else paths.data
    machines.use(None)
    if name and not is_needed(machines, data, name):
        await end(machines, name)


async def end(machines: Machines, name: str) -> None:
    """End the process that keeps a machine's tunnel, if one does, and wait for it."""
    pid, until = machines.line(name).get("pid"), monotonic() + END_S
    if not (isinstance(pid, int) and pid > 1 and name in machines.names()):
        return
    if machines.busy(name, "keeper"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        while monotonic() < until:
            if not machines.busy(name, "keeper"):
                return
            await asyncio.sleep(0.02)


def is_needed(machines: Machines, data: Path, name: str) -> bool:
    """Whether a machine is in use, or a local service trains on it."""
    if name not in machines.names():
        return False
    with suppress(HudUsage):
        used = used_machine(machines.state)
        if used is not None and used.name == name:
            return True
        ready = read_ready(data / "service.json")
        return ready is not None and alive(ready.pid) and serving_pid(data) == ready.pid
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
