"""What the detectors cost: all of them, over a run of 100 000 steps and for one step more.

Figures are multiples of a floor measured in the same process, so that a slow machine gives
the same. A run is read once, in slices between two keys; then each step costs the same,
however long the run is.
"""

from time import perf_counter

from hud_tui.rl.alarms.demos import healthy
from hud_tui.rl.alarms.monitor import DetectorSet
from tests.bench.timing import best_s, floor_s
from tests.unit.inspecting import row

STEPS, SMALL, REPEAT = 100_000, 2_000, 400
WHOLE, GROWTH = 1500.0, 2.0
"""Floors for the whole run (5.0 s where the floor took 5.4 ms); and how much longer one step
may take late in a long run than early in a short one."""


def grown(steps: int) -> tuple[DetectorSet, float]:
    """The detectors after so many steps, and the seconds that took without making the steps."""
    lines = [healthy(step) for step in range(1, 301)]
    rows = [row(step, lines[step % 300]) for step in range(1, steps + 1)]
    watch, start = DetectorSet(steps=steps), perf_counter()
    for one in rows:
        watch.read(one)
    return watch, perf_counter() - start


def one_more_s(watch: DetectorSet) -> float:
    """Least seconds of REPEAT more steps, and of saying what is found."""
    lines = [healthy(step) for step in range(REPEAT)]

    def grow() -> None:
        for metrics in lines:
            watch.read(row(len(watch) + 1, metrics))
        watch.report()

    return best_s(grow, 5)


def main() -> int:
    (long, whole_s), (short, _) = grown(STEPS), grown(SMALL)
    floor, late, early = floor_s(), one_more_s(long), one_more_s(short)
    print(
        f"alarms over {STEPS} steps: {whole_s / floor:.0f} floors"
        f" ({1e6 * whole_s / STEPS:.0f} µs a step); goal {WHOLE:.0f}"
    )
    print(
        f"alarms, {REPEAT} steps after {STEPS} against {SMALL}: {late / early:.2f} times;"
        f" goal {GROWTH:.2f}"
    )
    return whole_s > WHOLE * floor or late > GROWTH * early
