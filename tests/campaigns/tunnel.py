"""Faults of a tunnel: each process of it killed or halted, ports taken, ids of others, garbage.

A machine behind a real sshd runs the service; two clients call it through the tunnel. After each
fault, or two at once, both must reach it again by themselves within LIMIT_S; ``remote list`` must
never say "up" of what has not answered lately; there must be one keeper and one ssh; and at the
end nothing of it may run.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from unittest import SkipTest
from unittest.mock import patch

from hud_tui.processes import alive, boot_s, holder
from hud_tui.remote import keeper
from hud_tui.remote.engines import Wish, describe, find_engine
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address
from hud_tui.service_file import HEARD_S, keep_line, keeper_lock, line_text, with_machine
from hud_tui.settings import read_paths
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.remote.far import HAS_SSHD, WHY_NOT, Far, far_machine

KINDS = ("unreachable", "false ups", "doubles", "leftovers", "strangers harmed")
LIMIT_S = 60.0
"""Seconds after the end of a fault in which both clients reach the service again."""
LATE_S = 300.0
"""How long one that does not is waited for, to say how long it took."""
LIVES = 20
"""Rounds that one machine goes through."""
HELD_S = 10.0
"""Seconds that a port is taken, or that a host answers garbage."""
LEFT_S = 30.0
"""Seconds in which everything ends that is to end."""
LOOK_S = 0.25
FALSE = 32
"""Looks in a row that "up" may be said of what has not answered for HEARD_S: the next answer comes
to the keeper some seconds before it comes to this program, or after it."""
DOUBLES = 12
"""Looks in a row that there may be two at once: one ends while the next one begins."""
JUMPS = ("+0", "-1d", "+1d", "+400d", "-400d", "+7h")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@dataclass(frozen=True)
class Running:
    """A process, as /proc has it."""

    pid: int
    parent: int
    title: str


def running() -> list[Running]:
    """All processes but zombies."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found.append(Running(int(entry.name), int(fields[1]), title.strip()))
    return found


def under(parents: set[int], found: list[Running]) -> set[int]:
    """The processes that these have started, and those that they have."""
    children = {one.pid for one in found if one.parent in parents} - parents
    return children | under(parents | children, found) if children else set()


@dataclass
class Scene:
    """A machine, the tunnel to it, and its clients."""

    far: Far
    machines: Machines
    machine: Machine
    clock: Path
    """File with what the clients' wall clock is off by."""
    pause_s: float
    clients: list[asyncio.subprocess.Process] = field(default_factory=list)
    reached: dict[int, float] = field(default_factory=dict)
    """When each client's last answered call began, on `boot_s`."""
    heard: float = field(default_factory=boot_s)
    """When this program itself had an answer through the tunnel."""

    def pids(self, what: str) -> set[int]:
        """The processes of one part of the tunnel."""
        found = running()
        if what == "keeper":
            kept_by = holder(keeper_lock(self.machines.state, self.machine.name))
            return {kept_by.pid} if kept_by is not None else set()
        if what == "ssh":
            forward = f"-L 127.0.0.1:{self.machine.local_port}:"
            return {one.pid for one in found if forward in one.title}
        if what == "master":
            titled = f"ssh: {os.environ['XDG_RUNTIME_DIR']}/"
            return {one.pid for one in found if one.title.startswith(titled)}
        if what == "session":
            theirs = under({self.far.process.pid}, found)
            return {one.pid for one in found if one.pid in theirs and one.title.startswith("sshd")}
        if what == "client":
            return {client.pid for client in self.clients}
        root = Path(self.machine.root)
        with suppress(OSError, ValueError):
            if what == "loop":
                return {int(os.readlink(root / "loop").partition("@")[0])}
            served_by = int((root / "server.pid").read_text())
            return {served_by} | (under({served_by}, found) if what == "engine" else set())
        return set()

    def send(self, what: str, number: signal.Signals) -> set[int]:
        """Send a signal to a part; returns who got it."""
        got = self.pids(what)
        for pid in got:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return got

    async def start_client(self) -> None:
        environment = dict(os.environ)
        if FAKETIME is not None:
            environment |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.campaigns.tunnel_client"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        self.clients.append(client)
        self.reached[client.pid] = 0.0

    async def listen(self, client: asyncio.subprocess.Process) -> None:
        assert client.stdout is not None
        while line := await client.stdout.readline():
            self.reached[client.pid] = float(line)

    async def probe(self) -> None:
        """Call the service through the tunnel, beside the clients."""
        url = self.machine.url + find_engine(self.machine.engine).health
        while True:
            if (await asyncio.to_thread(keeper.ask, url)) is not None:
                self.heard = boot_s()
            await asyncio.sleep(LOOK_S)

    async def look(self, report: Report, doing: Callable[[], str]) -> None:
        """Look for what must never be: a false "up", two keepers or two tunnels."""
        doubles = claims = 0
        while True:
            line = self.machines.line(self.machine.name)
            silent = boot_s() - self.heard
            is_claimed = line_text(line, time()).startswith("up") and silent > HEARD_S
            claims = claims + 1 if is_claimed else 0
            if claims == FALSE:
                report.found("false ups", f"{doing()}: no answer for {silent:.0f} s")
            doubles = doubles + 1 if len(self.pids("ssh")) > 1 else 0
            if doubles == DOUBLES:
                report.found("doubles", f"{doing()}: {self.pids('ssh')}")
            await asyncio.sleep(LOOK_S)

    async def recovered(self, since: float, limit_s: float) -> bool:
        """Whether both clients get an answer to a call that began after that."""
        while min(self.reached.values()) < since:
            if boot_s() - since > limit_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def settled(self, limit_s: float) -> str:
        """Empty once there is one keeper, one ssh and an "up"; else what there is."""
        until = boot_s() + limit_s
        while True:
            counts = {what: len(self.pids(what)) for what in ("keeper", "ssh", "master")}
            counts["loop"] = sum(map(alive, self.pids("loop")))
            line = line_text(self.machines.line(self.machine.name), time())
            well = counts["keeper"] == counts["ssh"] == counts["loop"] == 1 and counts["master"] < 2
            if well and line.startswith("up"):
                return ""
            if boot_s() > until:
                return f"{counts}, {line}"
            await asyncio.sleep(LOOK_S)


Fault = Callable[[Scene, random.Random], Awaitable[None]]
PARTS = ("keeper", "ssh", "master", "session", "server", "engine", "loop")


def killed(*parts: str) -> Fault:
    async def fault(scene: Scene, chance: random.Random) -> None:
        for part in parts:
            scene.send(part, signal.SIGKILL)

    return fault


def halted(*parts: str) -> Fault:
    async def fault(scene: Scene, chance: random.Random) -> None:
        halted = [pid for part in parts for pid in scene.send(part, signal.SIGSTOP)]
        await asyncio.sleep(scene.pause_s)
        for pid in halted:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return fault


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Somebody else listens at a port as soon as that is free, and says nothing."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for _ in range(200):
            with suppress(OSError):
                other.bind(("127.0.0.1", port))
                other.listen()
                break
            os.sched_yield()
        yield


async def port_taken_here(scene: Scene, chance: random.Random) -> None:
    await killed("keeper", "ssh")(scene, chance)
    with taken(scene.machine.local_port):
        await asyncio.sleep(HELD_S)


async def port_taken_there(scene: Scene, chance: random.Random) -> None:
    port = int((Path(scene.machine.root) / "port").read_text())
    await killed("server")(scene, chance)
    with taken(port):
        await asyncio.sleep(HELD_S)


async def ids_of_others(scene: Scene, chance: random.Random) -> None:
    """The files name a process that is none of ours, and whose id was one."""
    other = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        lock, name = keeper_lock(scene.machines.state, scene.machine.name), scene.machine.name
        line = scene.machines.line(name)
        scene.send("keeper", signal.SIGSTOP)  # so that it writes nothing more
        scene.machines.set_line(name, {**line, "pid": other.pid, "ssh": f"{other.pid} 1"})
        scene.send("keeper", signal.SIGKILL)
        lock.write_text(f"{other.pid} 1\n")
        await asyncio.sleep(5)
        if other.returncode is not None:
            raise StrangerHarmed
    finally:
        with suppress(ProcessLookupError):
            other.kill()
        await other.wait()


class StrangerHarmed(Exception):
    """A process that is none of ours was ended."""


async def started_twice(scene: Scene, chance: random.Random) -> None:
    """Beside the two that the clients start."""
    await killed("keeper")(scene, chance)
    paths = with_machine(read_paths())
    starts = [asyncio.to_thread(keep_line, paths, scene.machine.name) for _ in range(3)]
    await asyncio.gather(*starts)


async def garbage_from_shell(scene: Scene, chance: random.Random) -> None:
    keys = scene.far.place / "authorized_keys"
    usual = keys.read_text()
    text = chance.choice(("yes", "cat /dev/urandom", "printf '\\377\\0{'", "echo '{}'; exit 1"))
    keys.write_text(f'command="{text}" {usual}')
    try:
        await killed("session")(scene, chance)
        await asyncio.sleep(HELD_S)
    finally:
        keys.write_text(usual)


async def garbage_for_sshd(scene: Scene, chance: random.Random) -> None:
    """Something else listens where sshd did."""
    text = chance.choice((b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\0" * 5000, b"SSH-2.0-x\r\n"))

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        writer.close()

    scene.send("session", signal.SIGKILL)
    scene.far.stop()
    try:
        async with await asyncio.start_server(greet, "127.0.0.1", scene.far.port):
            await asyncio.sleep(HELD_S)
    finally:
        scene.far.start()


async def clock_jumps(scene: Scene, chance: random.Random) -> None:
    scene.clock.write_text(f"{chance.choice(JUMPS)}\n")
    await asyncio.sleep(3)


FAULTS: dict[str, Fault] = {
    **{f"kill {part}": killed(part) for part in PARTS},
    "kill keeper and ssh": killed("keeper", "ssh"),
    "kill master and sessions": killed("master", "session"),
    "kill server and loop": killed("server", "loop"),
    **{f"halt {part}": halted(part) for part in PARTS},
    "halt all": halted(*PARTS, "client"),
    "port taken here": port_taken_here,
    "port taken there": port_taken_there,
    "ids of others": ids_of_others,
    "started twice": started_twice,
    "garbage from the shell": garbage_from_shell,
    "garbage for sshd": garbage_for_sshd,
    **({"clock jumps": clock_jumps} if FAKETIME is not None else {}),
}


REPLACED = (["halt ssh"], ["halt master"], ["halt session"], ["halt keeper"])
"""Without these the service is reached within LIMIT_S, also while they are halted."""


@asynccontextmanager
async def scene_in(place: Path, pause_s: float, report: Report) -> AsyncIterator[Scene]:
    """A machine that is set up and in use, and its clients; ends all of it, and counts what is
    left."""
    with far_machine(place / "far") as far, patch.dict(os.environ):
        os.environ.pop("HUD_API_KEY", None)
        for name in ("HOME", "HUD_TUI_STATE_DIR", "HUD_TUI_DATA_DIR", "HUD_TUI_CONFIG_DIR"):
            os.environ[name] = str(place / name.lower())
        os.environ["HUD_TUI_SSH_CONFIG"] = str(far.config)
        os.environ["XDG_RUNTIME_DIR"] = str(place)
        machines = Machines(read_paths().state, far.config)
        wish = Wish("box", "hud-tui", env=sys.prefix)
        setup = Setup(machines, await describe(machines, Address("far"), wish))
        machine = await setup.run({})
        machines.use(machine, "hud")
        clock = place / "clock"
        clock.write_text("+0\n")
        scene = Scene(far, machines, machine, clock, pause_s)
        for _ in range(2):
            await scene.start_client()
        listening = [asyncio.create_task(scene.listen(client)) for client in scene.clients]
        try:
            yield scene
        finally:
            await _end(scene, setup, report)
            await asyncio.gather(*listening)


async def _end(scene: Scene, setup: Setup, report: Report) -> None:
    for client in scene.clients:
        client.terminate()
    for client in scene.clients:
        await client.wait()
        _forget_shared_memory(client.pid)
    await keeper.unuse(scene.machines, read_paths())
    await setup.stop()
    await setup.aclose()
    for _ in range(int(LEFT_S / LOOK_S)):
        if not left_of(scene):
            return
        await asyncio.sleep(LOOK_S)
    for one in left_of(scene):
        report.found("leftovers", f"{one.pid} {one.title[:300]}")
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


def _forget_shared_memory(pid: int) -> None:
    """Remove what libfaketime leaves of a process."""
    for left in Path("/dev/shm").glob(f"faketime_*_{pid}"):
        left.unlink()


def left_of(scene: Scene) -> list[Running]:
    """What still runs here or there, but sshd."""
    here, there = f"HUD_TUI_STATE_DIR={scene.machines.state}", f"HOME={scene.far.home}"
    marks = (here.encode(), there.encode())
    found = []
    for one in running():
        with suppress(OSError):
            environment = (Path("/proc") / str(one.pid) / "environ").read_bytes().split(b"\0")
            if any(mark in environment for mark in marks):
                found.append(one)
    return found


@dataclass
class Playing:
    """What is being played, and how long each fault took to be over."""

    report: Report
    chance: random.Random
    names: list[str]
    doing: str = "start"
    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def round(self, scene: Scene, number: int) -> bool:
        """Whether the service was reached again."""
        count = 1 + (self.chance.random() < 0.25)
        first, other = self.names[number % len(self.names)], self.chance.choice(self.names)
        chosen = [first, other][:count]
        self.doing = f"round {number}, {' with '.join(chosen)}"
        try:
            await asyncio.gather(*(FAULTS[name](scene, self.chance) for name in chosen))
        except StrangerHarmed:
            self.report.found("strangers harmed", self.doing)
        ended = boot_s()
        last = ended - min(scene.reached.values())
        if chosen in REPLACED and scene.pause_s > 2 * LIMIT_S and last > LIMIT_S:
            self.report.found("unreachable", f"{self.doing}: for {last:.0f} s, while it was halted")
        reached = await scene.recovered(ended, LIMIT_S)
        if not reached:
            line = scene.machines.line(scene.machine.name)
            late = await scene.recovered(ended, LATE_S)
            how = f"after {boot_s() - ended:.0f} s" if late else "never"
            self.report.found("unreachable", f"{self.doing}: {how}; {line_text(line, time())}")
            if not late:
                return False
        self.took[" with ".join(chosen) if count == 1 else "two at once"].append(boot_s() - ended)
        if odd := await scene.settled(LIMIT_S):
            self.report.found("doubles", f"{self.doing}: {odd}")
        return True

    def print_times(self) -> None:
        for name, times in sorted(self.took.items()):
            median, most = statistics.median(times), max(times)
            print(f"  {name}: {len(times)}, back after {median:.1f} s, {most:.1f} s at most")


async def play(plan: Plan, report: Report) -> None:
    if not HAS_SSHD:
        raise SkipTest(WHY_NOT)
    names = [one for one in FAULTS if plan.options.only in one]
    playing = Playing(report, plan.random, names)
    playing.chance.shuffle(names)
    rounds = plan.rounds(report)
    number = next(rounds, None)
    while number is not None:
        with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp") as place:
            async with scene_in(Path(place), plan.options.pause, report) as scene:
                tasks = [
                    asyncio.create_task(scene.probe()),
                    asyncio.create_task(scene.look(report, lambda: playing.doing)),
                ]
                assert await scene.recovered(boot_s(), LATE_S), "it was never reached"
                for _ in range(LIVES):
                    is_well = await playing.round(scene, number)
                    number = next(rounds, None)
                    if number is None or not is_well:
                        break
                for task in tasks:
                    task.cancel()
    playing.print_times()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pause", type=float, default=15.0, help="seconds that a halt lasts (15)")
    parser.add_argument("--only", default="", help="faults with this in their name alone")


CAMPAIGN = Campaign(
    "tunnel", "faults", count=200, small=2, play=play, kinds=KINDS, add_arguments=add_arguments
)
