"""Bytes that the Live view writes to a terminal: at four updates a second, and when idle.

The app runs in a process of its own on a pseudo-terminal of 120 × 40, with Textual's own
driver. Each update is one more step of a run: curves, numbers, groups, log and progress
change. Then nothing happens, and nothing may be written.
"""

import asyncio
import os
import select
import sys

from tests.bench.bench_live import next_steps, take
from tests.bench.terminal import PATIENCE_S, program
from tests.tui import runs
from tests.tui.stage import Stage

STEPS, UPDATES, EVERY_S, IDLE_S = 300, 24, 0.25, 3.0
GOAL_KB = 40.0
"""kB a second."""


class Played(Stage):
    """A run that takes a step four times a second, then none."""

    async def play_run(self) -> None:
        report = int(sys.argv[2])
        await asyncio.sleep(2.0)
        os.write(report, b"a")
        for events in next_steps(STEPS, UPDATES):
            take(self, events)
            await asyncio.sleep(EVERY_S)
        await asyncio.sleep(1.0)
        os.write(report, b"b")
        await asyncio.sleep(IDLE_S)
        os.write(report, b"c")

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self.play_run())


def measure() -> tuple[float, int]:
    """Bytes a second while the run goes on, and all bytes while it does not."""
    told, report = os.pipe()
    command = ("-m", "tests.bench", "live_bytes", "--child", str(report))
    written, phase = {"": 0, "a": 0, "b": 0}, ""
    with program(command, pass_fds=(report,)) as terminal:
        while phase != "c":
            ready, _, _ = select.select([terminal.fd, told], [], [], PATIENCE_S)
            assert ready, "the app did not play its run to the end"
            if terminal.fd in ready:
                drawn = terminal.read()
                assert drawn, "the app has ended"
                written[phase] += len(drawn)
            else:
                phase = os.read(told, 1).decode()
    assert written["a"] > 10 * UPDATES, "the updates were not drawn"
    return written["a"] / (UPDATES * EVERY_S), written["b"]


def main() -> int:
    if "--child" in sys.argv:
        Played(runs.run_of(STEPS, 2 * STEPS)).run()
        return 0
    busy, idle = measure()
    print(f"live bytes to the terminal: {busy / 1000:.1f} kB/s at 4 updates/s; goal {GOAL_KB:.1f}")
    print(f"live bytes to the terminal, idle {IDLE_S:.0f} s: {idle}; goal 0")
    return busy > 1000 * GOAL_KB or idle > 0
