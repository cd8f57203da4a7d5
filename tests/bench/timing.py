"""How the benches measure: the least of several timings, beside a floor of the same process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from time import perf_counter

FLOOR_LOOPS = 100_000
"""Of the floor's work; a few milliseconds."""


@dataclass(frozen=True)
class Goal:
    """The most that something may take."""

    ms: float
    """On two quiet cores, where the floor takes 5.4 ms."""
    floors: float
    """The same as a multiple of the floor, which is what counts: it is missed on a slow machine
    where it is missed on a fast one."""


KEY = Goal(16.0, 3.0)
"""From a key to the repaint."""
REPAINT = Goal(33.0, 6.0)
"""Of a screen that changes by itself, or of all of one."""
WHOLE = Goal(1000.0, 185.0)
"""From a key to a page that is read first."""


def best_s(
    call: Callable[[], object], repeats: int = 15, clock: Callable[[], float] = perf_counter
) -> float:
    """Least time of several calls by a clock, in seconds: noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def in_turns(measured: Sequence[float], others: Sequence[float]) -> float:
    """What was measured in turns with something else, in that: the median of the ratios to the mean
    of those before and after it. What the machine does for longer than a turn is in both."""
    around = [fmean(pair) for pair in pairwise(others)]
    return median(one / both for one, both in zip(measured, around, strict=True))


def floor_s(clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of a fixed piece of plain Python: this machine's speed, as loaded as it is now."""
    return best_s(_floor, clock=clock)


def _floor() -> int:
    total, seen = 0, {}
    for number in range(FLOOR_LOOPS):
        seen[number & 255] = number
        total += number * 3 % 7
    return total + len(seen)


def missed(found: Sequence[tuple[str, float, Goal]]) -> bool:
    """Print what took so many seconds beside its goal; whether anything took longer than that."""
    floor = floor_s()
    for name, spent, goal in found:
        shown = f"{spent / floor:.2f} floors ({1000 * spent:.1f} ms)"
        print(f"{name}: {shown}; goal {goal.floors:.2f} ({goal.ms:.0f} ms)")
    return any(spent > goal.floors * floor for _, spent, goal in found)
