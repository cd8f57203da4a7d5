"""From a key to the repaint of the Live view, and its memory, at 100 000 steps × 20 metrics.

Run: python -m tests.bench.bench_live_long
Time is our own work on a screen of 120 × 40 for one key of the crosshair, and of the zoom:
draw every pane and hand out every line. It is given as a multiple of a floor measured in
the same process, so that a slow machine gives the same. Memory is what Python allocates for
the metrics and for the curves of all of them, beside the checkpoints that they came in.
"""

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter

from hud_tui.rl.compare import ChartView
from hud_tui.rl.metrics import Series
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.chart import ChartData
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from tests.bench import long_run
from tests.bench.timing import floor_s
from tests.tui.stage import Stage

KEYS = 30
GOAL_MS, FLOORS = 16.0, 3.0
"""The goal, and as a multiple of the floor, which took 5.4 ms on two quiet cores."""
GOAL_MB = 40.0


def one_key(stage: Stage, act: Callable[[], None]) -> float:
    """Seconds of our own work for one key."""
    start = perf_counter()
    act()
    for pane in stage.live.query(LinesView):
        for row in range(pane.size.height):
            pane.render_line(row)
    return perf_counter() - start


async def keys() -> tuple[float, float]:
    """Least seconds of a key of the crosshair, and of one that zooms or pans."""
    stage = Stage(long_run.run())
    async with stage.run_test(size=(120, 40)) as pilot:
        waste = stage.live.query_one(GroupGrid).waste
        while waste.length < long_run.STEPS:
            await pilot.pause()
        await pilot.pause()
        live = stage.live
        moves, zooms = [], []
        for number in range(KEYS):
            moves.append(one_key(stage, lambda n=number: live.action_cursor(-10 if n % 2 else -1)))  # type: ignore[misc]
            await pilot.pause()
        assert live.cursor is not None
        for number in range(KEYS):
            zooms.append(one_key(stage, lambda n=number: live.action_zoom(-1 if n % 2 else 1)))  # type: ignore[misc]
            await pilot.pause()
        return min(moves), min(zooms)


def megabytes() -> float:
    """MB of the metrics, and of the curves of all of them, drawn once."""
    tracemalloc.start()
    series = Series()
    for node in long_run.nodes():
        series = series.add(node)
    chart_data, run = ChartData(), Run(series=series)
    for key in series.keys:
        assert len(chart_data.buckets(run, key, ChartView(), 100)) == 100
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len([key for key in series.keys if series.last(key) == series.last(key)]) >= 20
    return used / 1e6


def main() -> int:
    used = megabytes()
    moved, zoomed = asyncio.run(keys())
    floor = floor_s()
    missed = used > GOAL_MB
    print(f"live memory, 100000 steps × 20 metrics: {used:.1f} MB; goal {GOAL_MB:.1f} MB")
    for name, spent in (("crosshair", moved), ("zoom", zoomed)):
        print(
            f"live {name} key to repaint, 100000 steps × 20 metrics: {spent / floor:.2f} floors"
            f" ({1000 * spent:.1f} ms); goal {FLOORS:.2f} ({GOAL_MS:.0f} ms)"
        )
        missed = missed or spent > FLOORS * floor
    return missed


if __name__ == "__main__":
    sys.exit(main())
