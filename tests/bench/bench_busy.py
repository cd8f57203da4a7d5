"""Keys while a fast run is followed on busy processors: from the key to its answer on the terminal.

The run of bench_follow, but ten steps a second, and eight processes beside it that never rest. The
key freezes the view, or lets it go on, which draws every pane anew. The time is that on the clock,
so nothing else should run on the machine.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from subprocess import Popen
from time import monotonic

from tests.bench.bench_events import FOLLOWED, FROZEN, KEY, drain
from tests.bench.bench_follow import Followed, followed

BUSY, KEYS, PAUSE_S = 8, 50, 0.4
STEPS, EVERY_S = 10_000, 0.1
"""More than pass meanwhile, and seconds apart."""
GOAL_MS = 250.0
"""For nine of ten keys."""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never rest."""
    processes = [Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def keys(run: Followed) -> list[float]:
    """Milliseconds from each key to its answer."""
    terminal, found = run.app.terminal, list[float]()
    run.begin(STEPS, EVERY_S)
    for number in range(KEYS):
        drain(terminal, PAUSE_S)
        start = monotonic()
        terminal.type(KEY)
        terminal.read_until(FOLLOWED if number % 2 else FROZEN)
        found.append(1000 * (monotonic() - start))
    return found


def main() -> int:
    with followed() as run, busy(BUSY):
        found = sorted(keys(run))
    slow = found[-len(found) // 10]
    print(
        f"a key beside {BUSY} busy processes: nine of ten in {slow:.0f} ms"
        f" (median {median(found):.0f} ms); goal {GOAL_MS:.0f} ms"
    )
    return slow > GOAL_MS
