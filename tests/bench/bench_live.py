"""One repaint of the Live view after one more step of a long run.

Run: python -m tests.bench.bench_live
Measured is our own work on a screen of 120 × 40 with six small charts in sight: fold
the step's events, draw the focus chart, the small charts, the groups and the log, and
hand out every line. What Textual then does with the lines is not ours. The goal is 33 ms
on the machine that set FLOORS, as a multiple of a floor measured in the same process.
"""

import asyncio
import sys
from time import perf_counter

from hud_tui.events import CheckpointAdded, JobChanged
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.lines import LinesView
from tests.bench.timing import floor_s
from tests.tui import runs
from tests.tui.stage import Stage

STEPS, REPEATS = 10_000, 15
GOAL_MS = 33.0
FLOORS = 6.0
"""The goal as a multiple of the floor, which took 5.4 ms on two quiet cores."""


def next_steps(count: int) -> list[list[object]]:
    """The events of the steps after STEPS."""
    nodes = runs.checkpoints(STEPS + count)[STEPS:]
    return [
        [
            CheckpointAdded(checkpoint=node.model_copy(update={"is_active": True})),
            runs.taken(node),
            JobChanged(job=runs.job(node.step or 0, 2 * STEPS)),
        ]
        for node in nodes
    ]


def repaint(stage: Stage, run: Run) -> None:
    """Draw the run, and hand out every line of the view."""
    stage.play(run)
    for pane in stage.live.query(LinesView):
        for row in range(pane.size.height):
            pane.render_line(row)


async def measure() -> float:
    """Least seconds of a repaint, each after one more step."""
    stage, times = Stage(runs.run_of(STEPS, 2 * STEPS)), []
    async with stage.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        seen = stage.live.metrics.body_rows // stage.live.metrics.tall
        assert seen * stage.live.metrics.per_row >= 6, "fewer than 6 small charts in sight"
        for events in next_steps(REPEATS):
            run, start = stage.scene, perf_counter()
            for event in events:
                run = run.fold(event)  # type: ignore[arg-type]
            repaint(stage, run)
            times.append(perf_counter() - start)
            assert f"step {run.series.length} " in stage.live.query_one(FocusChart).shown[0].text
            await pilot.pause()
    return min(times)


def main() -> int:
    spent, floor = asyncio.run(measure()), floor_s()
    ratio = spent / floor
    print(
        f"live repaint, {STEPS} steps, 6 charts: {ratio:.2f} floors ({1000 * spent:.1f} ms);"
        f" goal {FLOORS:.2f} ({GOAL_MS:.0f} ms)"
    )
    return ratio > FLOORS


if __name__ == "__main__":
    sys.exit(main())
