"""Processor time of a rollout on an environment of one's own: on the one that `init-env` writes.

Run: HUD_PYTHON=VENV/bin/python python -m tests.bench own_environment [CHECKOUT]
HUD_PYTHON names the Python of a virtual environment that has hud; without it nothing is measured.
A run takes steps of 48 rollouts; counted are all its processes, from the first step to the last:
service, engine, driver, worker, and the host with the rollouts' processes. With a CHECKOUT of an
earlier state both run in turns, and the least of each counts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep

from hud_tui.rollouts.run_files import RunFolder, run_folder
from tests.bench.terminal import places
from tests.bench.timing import floor_s

ROOT = Path(__file__).parents[2]
GOAL = 24.0
"""Processor time of a rollout in multiples of the floor's: .13 s where that takes 5.4 ms."""
PROCESSOR_RATIO, TIME_RATIO = 0.5, 0.6
"""Of what they were at the state before: a rollout's processor time, and a step's time."""
STEPS, TURNS = 5, 3
LONGEST_S = 600.0
SHAPE = ("--tasks-per-step", "6", "--group-size", "8", "--turns", "4", "--max-tokens", "32")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds."""

    rollout: float
    """Processor time of one rollout."""
    step: float
    """Time of one step."""


def main() -> int:
    python = os.environ.get("HUD_PYTHON")
    if python is None:
        print("a rollout on an own environment: not measured, as HUD_PYTHON is not set")
        return 0
    before = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else None
    checkouts = [ROOT, *([before] if before else [])]
    costs: dict[Path, list[Cost]] = {checkout: [] for checkout in checkouts}
    floor = floor_s(process_time)
    for _ in range(TURNS if before else 1):
        for checkout in checkouts:
            costs[checkout].append(run(checkout, python))
        floor = min(floor, floor_s(process_time))
    rollout, step = (
        min(getattr(cost, what) for cost in costs[ROOT]) for what in ("rollout", "step")
    )
    shown = f"{rollout / floor:.1f} floors ({1000 * rollout:.0f} ms), goal {GOAL:g}"
    print(f"processor time of a rollout on an own environment: {shown}; {step:.2f} s a step")
    missed = rollout > GOAL * floor
    if before is not None:
        beside = rollout / min(cost.rollout for cost in costs[before])
        time = step / min(cost.step for cost in costs[before])
        print(f"beside {before.name}, processor time: {beside:.2f}, goal {PROCESSOR_RATIO}")
        print(f"beside {before.name}, time of a step: {time:.2f}, goal {TIME_RATIO}")
        missed |= beside > PROCESSOR_RATIO or time > TIME_RATIO
    return int(missed)


def run(checkout: Path, python: str) -> Cost:
    """A run of one checkout, in directories of its own."""
    with TemporaryDirectory() as home:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("HUD_")}
        environ = {**kept, **places(home), "PYTHONPATH": str(checkout), "HOME": home}
        try:
            headless(environ, "init-env", "sums")
            headless(environ, "fork", "tiny/agent-1M", "--name", "sums", "-y")
            words = ("train", "sums/env.py", "-m", "sums", "--python", python, "--no-trial", "-y")
            job = headless(environ, *words, *SHAPE, "--steps", str(STEPS), "--seed", "3")
            return follow(run_folder(Path(home, "state"), job["job_id"]), home)
        finally:
            headless(environ, "stop")


def headless(environ: Mapping[str, str], *words: str) -> dict[str, str]:
    """The data of the last document of a command."""
    command = [sys.executable, "-m", "hud_tui", "--headless", "--local", *words]
    done = subprocess.run(command, env=environ, cwd=environ["HOME"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    data: dict[str, str] = json.loads(done.stdout.splitlines()[-1])["data"]
    return data


def follow(folder: RunFolder, home: str) -> Cost:
    """What it cost between its first and its last step."""
    until, begun = perf_counter() + LONGEST_S, None
    while (state := folder.state()).step < STEPS:
        assert perf_counter() < until, "it does not end"
        assert state.status in ("queued", "running"), state
        if begun is None and state.step == 1:
            begun = perf_counter(), state.rollouts, spent_s(home)
        sleep(0.1)
    assert begun is not None, "a step was too short"
    assert state.failed == 0, "rollouts failed"
    spent = spent_s(home)
    processor = sum(seconds - begun[2].get(pid, 0.0) for pid, seconds in spent.items())
    return Cost(processor / (state.rollouts - begun[1]), (perf_counter() - begun[0]) / (STEPS - 1))


def spent_s(home: str) -> dict[int, float]:
    """Processor time of the processes that have this home, in seconds by their ids; of the host
    with that of the rollouts' processes, which it has waited for."""
    spent = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"HOME={home}\0".encode() not in Path("/proc", entry, "environ").read_bytes():
                continue
            is_host = b"import host\n" in Path("/proc", entry, "cmdline").read_bytes()
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own, waited_for = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        spent[int(entry)] = (own + waited_for * is_host) / TICKS
    return spent
