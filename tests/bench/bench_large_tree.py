"""The first reading of a tree of 50 MB: how long it takes, and how long no key is answered.

Run: python -m tests.bench.bench_large_tree
A service in a process of its own sends a tree of 10 000 steps with 20 metrics and 24 groups
each, and has no event stream, as HUD has none. The app opens its Live view on it. Measured is
the processor time from the app's start until the run is on the screen, as a multiple of a
floor of the same process: such a body through `json.loads` into columns. While it is read and
in the seconds after it, when the app asks again and draws, another task of the same loop looks
how much was done before it had its turn, in processor time too.
"""

import asyncio
import gc
import json
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import nan
from time import monotonic, process_time, thread_time

from hud_tui.client.client import HudClient
from hud_tui.settings import Settings, Start
from hud_tui.tui.app import HudApp, Options, settle
from tests.bench import large_tree
from tests.bench.timing import floor_s
from tests.conftest import until
from tests.tui.conftest import run_of

AFTER_S = 5.0
GOAL_FLOORS = 2.0
GOAL_MS, STALL_FLOORS = 100.0, 18.5
"""The goal, and as a multiple of the floor of `timing`, which took 5.4 ms on two quiet cores."""


def build(body: bytes) -> dict[str, "array[float]"]:
    """The least that a cockpit must do with a tree: an id and its metrics in columns."""
    columns: dict[str, array[float]] = {}
    for number, row in enumerate(json.loads(body)):
        for key, value in row["metrics"].items():
            column = columns.setdefault(key, array("d", [nan]) * number)
            column.append(value)
    return columns


def build_s(body: bytes) -> float:
    """Processor time of that, without a garbage collector, which takes longer than all else."""
    gc.disable()
    start = process_time()
    assert len(build(body)) >= large_tree.METRICS
    used = process_time() - start
    gc.enable()
    return used


@dataclass
class Turns:
    """The most that the loop did between two turns of a task: seconds of its own thread."""

    longest: float = 0.0

    async def watch(self) -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = thread_time()
            self.longest, last = max(self.longest, now - last), now


@dataclass(frozen=True)
class Found:
    used_s: float
    clock_s: float
    reading_s: float
    """Of `Turns`, while the tree was read."""
    after_s: float
    """And in the AFTER_S that followed."""


async def measure(settings: Settings) -> Found:
    async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
        return HudClient(settings)

    gc.disable()
    options = Options(settle=settle)  # as the program does
    app = HudApp(connect, "hud", Start("status", model="arith-rl"), options=options)
    turns = Turns()
    async with app.run_test(size=(120, 40)):
        await until(lambda: app.shown_view is not None)
        used, clock = process_time(), monotonic()
        watch = asyncio.create_task(turns.watch())
        await until(lambda: run_of(app).loaded)
        found = process_time() - used, monotonic() - clock, turns.longest
        turns.longest = 0.0
        assert len(run_of(app).tree) == large_tree.STEPS
        await asyncio.sleep(AFTER_S)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    return Found(*found, turns.longest)


async def first_reading() -> Found:
    async with large_tree.served() as settings:
        return await measure(settings)


def main() -> int:
    found = asyncio.run(first_reading())
    whole, moment = build_s(large_tree.body()), floor_s()
    print(
        f"tree of 50 MB, first reading: {found.used_s / whole:.2f} floors"
        f" ({found.used_s:.1f} s of a processor, {found.clock_s:.1f} s); goal {GOAL_FLOORS:.2f}"
    )
    stalls = {"while it is read": found.reading_s, "after it": found.after_s}
    for when, longest in stalls.items():
        print(
            f"tree of 50 MB, longest stall {when}: {longest / moment:.2f} floors"
            f" ({1000 * longest:.0f} ms); goal {STALL_FLOORS:.2f} ({GOAL_MS:.0f} ms)"
        )
    slow = found.used_s > GOAL_FLOORS * whole
    return slow or max(stalls.values()) > STALL_FLOORS * moment


if __name__ == "__main__":
    sys.exit(main())
