"""Renters as processes: they rent, are killed, halted, or see a clock that jumps.

Each round serves the copy of Prime's API, whose pods answer ssh with garbage, and starts one
``pods create`` or two: with one state directory or one each, under libfaketime where it is
installed. They, and the processes that keep their budgets, are killed, interrupted or halted, alone
or all; a process id that was written down becomes another program's. Then `pods list` runs, and
every pod must end within its budget.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hud_tui.remote.clock import prime_now
from hud_tui.service_file import budget_found
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.campaigns.renting import KINDS, Renters, Verdict, choose_renters
from tests.prime_server import KEY, PrimeServer, offer, serving

HOURS, PRICE = 0.004, 2.0
FOREIGN = "pod1"
"""A colleague's pod with the name of ours."""
LATE_S = 150.0
"""Seconds that a pod may outlive its budget beside the pauses: processes start slowly on a busy
machine, and Prime's clock is known to a second."""
CLOCKS = ("", "", "-1d", "+365d", "+8h")
FAKETIME = shutil.which("faketime")
DEEDS = ("nothing", "kill", "interrupt", "halt", "kill the keeper", "halt the keeper", "halt all")


@dataclass
class Round:
    """One renting by processes, and what went wrong in it."""

    chance: random.Random
    folder: Path
    pause_s: float
    server: PrimeServer = field(default_factory=PrimeServer)
    story: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    _sessions: list[int] = field(default_factory=list)
    """Sessions of the processes that were started."""

    async def play(self) -> None:
        self.server.offers = [offer("H100_80GB", 1, PRICE)]
        self.server.runs("box", FOREIGN)
        key = self.folder / "id"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        await asyncio.to_thread(subprocess.run, command, check=True)
        self.server.keys = [key.with_suffix(".pub").read_text()]
        host = await asyncio.start_server(self._garbage, "127.0.0.1", 0)
        self.server.ssh = f"root@127.0.0.1 -p {host.sockets[0].getsockname()[1]}"
        asked = choose_renters(self.chance, self.folder)
        states = {*asked.states}
        jump = self.chance.choice(CLOCKS) if FAKETIME else ""
        deed = self.chance.choice(DEEDS)
        self.story += [f"renters: {asked.way}", f"clock {jump or 'right'}", deed]
        rent = ("pods", "create", "--gpus=1xH100", "--bare", "-y", f"--hours={HOURS}", "--name")
        with serving(self.server):
            renters = [
                await self._start(state, jump, *rent, name)
                for state, name in zip(asked.states, asked.names, strict=True)
            ]
            try:
                await asyncio.sleep(self.chance.uniform(1.0, 8.0))
                await self._do(deed, renters, states)
                for state in states:
                    listed = await self._start(state, jump, "pods", "list")
                    await listed.wait()
                await self._until_ended()
            finally:
                for renter in renters:
                    _signal(renter.pid, signal.SIGKILL)
                    await renter.wait()
                for rental in asked.rentals():
                    if rental.runs:
                        self.story.append(f"{rental.name} is said to run, as {rental.id or '?'}")
                for state in states:
                    if any(rental.runs for rental in asked.rentals()):
                        _signal(self._keeper(state), signal.SIGKILL)
                host.close()
        self._judge(asked)

    async def _garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A host that is no ssh server."""
        with suppress(OSError):
            writer.write(
                self.chance.choice([b"", b"SSH-2.0-\0\n", os.urandom(5000), b"HTTP/1.1\n"])
            )
            await writer.drain()
            writer.close()

    async def _start(self, state: Path, jump: str, *words: str) -> asyncio.subprocess.Process:
        before = [str(FAKETIME), "-m", "-f", jump] if jump else []
        place = {f"HUD_TUI_{name}_DIR": f"{state}-{name}" for name in ("DATA", "CONFIG")}
        settings = {
            **{"PRIME_API_KEY": KEY, "PRIME_API_BASE_URL": self.server.url},
            **{"PRIME_SSH_KEY_PATH": str(self.folder / "id"), "HOME": str(self.folder)},
            **{"HUD_TUI_STATE_DIR": str(state), "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        }
        process = await asyncio.create_subprocess_exec(
            *(*before, sys.executable, "-m", "hud_tui", *words),
            env={**os.environ, **place, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._sessions.append(process.pid)
        return process

    def end(self) -> None:
        """Kill what was started and still runs, faketime's children too."""
        for session in self._sessions:
            with suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)

    def _keeper(self, state: Path) -> int:
        """The process that keeps budgets; 0 if none has said its id."""
        pid = budget_found(state).get("pid")
        return pid if isinstance(pid, int) else 0

    async def _do(
        self, deed: str, renters: list[asyncio.subprocess.Process], states: set[Path]
    ) -> None:
        """Kill or halt processes; what was halted goes on after the pause."""
        ours = [renter.pid for renter in renters]
        keepers = [self._keeper(state) for state in states]
        if deed == "kill":
            _signal(ours[0], signal.SIGKILL)
        elif deed == "interrupt":
            _signal(ours[0], signal.SIGINT)
        elif deed == "kill the keeper":
            for pid in keepers:
                _signal(pid, signal.SIGKILL)
            for state in states:
                self._reuse(state)
        halted = {"halt": ours[:1], "halt the keeper": keepers, "halt all": ours + keepers}
        for pid in halted.get(deed, []):
            _signal(pid, signal.SIGSTOP)
        if deed in halted:
            await asyncio.sleep(self.pause_s)
        for pid in halted.get(deed, []):
            _signal(pid, signal.SIGCONT)

    def _reuse(self, state: Path) -> None:
        """Have the id that was written down be this process's, and its word be fresh."""
        file = state / "remotes/budget.json"
        if file.exists():
            said = {**budget_found(state), "pid": os.getpid(), "at": prime_now(state)}
            file.write_text(json.dumps(said))

    async def _until_ended(self) -> None:
        for _ in range(int(HOURS * 3600 + LATE_S)):
            if {*self.server.pods} == {FOREIGN} or not self.server.created:
                return
            await asyncio.sleep(1.0)

    def _judge(self, asked: Renters) -> None:
        verdict = Verdict(PRICE * HOURS, HOURS, LATE_S + self.pause_s, 5.0)
        verdict.judge(self.server, [FOREIGN], asked.rentals())
        if len(self.server.created) > asked.most:
            verdict.fault("doubles", f"{len(self.server.created)} pods")
        self.faults = verdict.faults


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if pid not in (0, 1, os.getpid()):
            os.kill(pid, number)


async def play_round(plan: Plan, number: int) -> Round:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        chance = random.Random(f"{plan.seed}/{number}")
        played = Round(chance, Path(folder), plan.options.pause)
        try:
            await played.play()
        finally:
            played.end()
    return played


async def play(plan: Plan, report: Report) -> None:
    rounds, made = plan.rounds(report), 0
    while batch := list(islice(rounds, plan.options.workers)):
        for number, played in zip(
            batch,
            await asyncio.gather(*(play_round(plan, number) for number in batch)),
            strict=True,
        ):
            made += len(played.server.created)
            for kind, what in played.faults:
                report.found(kind, f"round {number}: {what}; {'; '.join(played.story)}")
    print(f"{made} pods were made")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, help="rounds at once (default 1)")
    parser.add_argument("--pause", type=float, default=15.0, help="seconds of a halt (default 15)")


CAMPAIGN = Campaign(
    "renters", "rentings", count=60, small=1, play=play, kinds=KINDS, add_arguments=add_arguments
)
