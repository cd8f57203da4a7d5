"""Bytes that the Live view writes to a terminal: at four updates a second, and when idle.

Run: python -m tests.bench.bench_live_bytes
The app runs in a process of its own on a pseudo-terminal of 120 × 40, with Textual's own
driver. Each update is one more step of a run: curves, numbers, groups, log and progress
change. Then nothing happens, and nothing may be written.
"""

import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios

from hud_tui.events import CheckpointAdded, JobChanged
from tests.tui import runs
from tests.tui.stage import Stage

STEPS, UPDATES, EVERY_S, IDLE_S = 300, 24, 0.25, 3.0
GOAL_KB = 40.0
"""kB a second."""


class Played(Stage):
    """A run that takes a step four times a second, then none; then the app leaves."""

    async def play_run(self) -> None:
        report = int(os.environ["REPORT_FD"])
        await asyncio.sleep(2.0)
        os.write(report, b"a")
        for node in runs.checkpoints(STEPS + UPDATES)[STEPS:]:
            fresh = node.model_copy(update={"is_active": True})
            for event in (
                CheckpointAdded(checkpoint=fresh),
                runs.taken(fresh),
                JobChanged(job=runs.job(node.step or 0, 2 * STEPS)),
            ):
                self.staged.scene = self.scene.fold(event)
            self.play(self.scene)
            await asyncio.sleep(EVERY_S)
        await asyncio.sleep(1.0)
        os.write(report, b"b")
        await asyncio.sleep(IDLE_S)
        os.write(report, b"c")
        await asyncio.sleep(0.5)
        self.exit()

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self.play_run())


def measure() -> tuple[float, int]:
    """Bytes a second while the run goes on, and all bytes while it does not."""
    terminal, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    told, report = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_live_bytes", "--child"],
        stdin=child, stdout=child, stderr=child, pass_fds=(report,), start_new_session=True,
        env={**os.environ, "REPORT_FD": str(report), "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(child)
    os.close(report)
    written, phase = {"": 0, "a": 0, "b": 0, "c": 0}, ""
    while process.poll() is None:
        ready, _, _ = select.select([terminal, told], [], [], 1.0)
        if terminal in ready:
            try:
                written[phase] += len(os.read(terminal, 65_536))
            except OSError:
                break
        elif told in ready and (mark := os.read(told, 1).decode()):
            phase = mark
    process.wait()
    os.close(terminal)
    assert phase == "c", "the app did not play its run to the end"
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


if __name__ == "__main__":
    sys.exit(main())
