"""How the benches measure: the least of several timings, beside a floor of the same process."""

from collections.abc import Callable
from time import perf_counter

FLOOR_LOOPS = 100_000
"""Of the floor's work; a few milliseconds."""


def best_s(call: Callable[[], object], repeats: int = 15) -> float:
    """Least wall time of several calls, in seconds: noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def floor_s() -> float:
    """Seconds of a fixed piece of plain Python: this machine's speed, as loaded as it is now."""
    return best_s(_floor)


def _floor() -> int:
    total, seen = 0, {}
    for number in range(FLOOR_LOOPS):
        seen[number & 255] = number
        total += number * 3 % 7
    return total + len(seen)
