"""From a key to the repaint with 64 groups of 64 rewards a step.

Run: python -m tests.bench.bench_groups
Time is our own work on a screen of 120 × 40 where the pane of groups has all of the view: for
one key that moves its cursor, that moves the crosshair to another step's groups, or that turns
to another of its faces; draw every pane and hand out every line. It is given as a multiple of
a floor measured in the same process, so that a slow machine gives the same. What is known of
a step's groups is kept: the first look at a hundred steps takes longer, once.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial

from hud_tui.events import JobChanged, TreeRead
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.group_grid import GroupGrid
from tests.bench.bench_live_long import one_key
from tests.bench.timing import floor_s
from tests.tui import runs
from tests.tui.stage import Stage

STEPS, GROUPS, SIZE, KEYS = 200, 64, 64, 30
GOAL_MS, FLOORS = 16.0, 3.0
"""The goal, and as a multiple of the floor, which took 5.4 ms on two quiet cores."""


def run() -> Run:
    """A run half way, all of whose steps have their groups."""
    nodes = tuple(
        node.model_copy(update={"groups": runs.groups(node.step or 0, GROUPS, SIZE)})
        for node in runs.checkpoints(STEPS, tasks=1, grouped=0)
    )
    found = Run(model=runs.MODEL).fold(TreeRead(checkpoints=nodes))
    return found.fold(JobChanged(job=runs.job(STEPS, 2 * STEPS)))


async def measure() -> dict[str, float]:
    """Least seconds of each key; of the one that turns to another face, for each face."""
    stage = Stage(run())
    async with stage.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        live, groups = stage.live, stage.live.query_one(GroupGrid)
        live.show_pane("groups")
        live.full = True
        while not groups.has_focus or groups.waste.length < STEPS:
            await pilot.pause()
        assert len(groups.groups.rows) == GROUPS
        keys: dict[str, Callable[[int], None]] = {
            "cursor": lambda number: live.action_move(0, -1 if number % 2 else 1),
            "crosshair": lambda number: live.action_cursor(-1),
            "face": lambda number: live.action_next_view(),
        }
        times: dict[str, list[float]] = {}
        for name, act in keys.items():
            for number in range(KEYS):
                spent = one_key(stage, partial(act, number))
                named = f"face ({groups.face})" if name == "face" else name
                times.setdefault(named, []).append(spent)
                await pilot.pause()
        return {name: min(taken) for name, taken in times.items()}


def main() -> int:
    found, floor = asyncio.run(measure()), floor_s()
    for name, spent in found.items():
        print(
            f"groups {name} key to repaint, {GROUPS} × {SIZE} rewards: {spent / floor:.2f} floors"
            f" ({1000 * spent:.1f} ms); goal {FLOORS:.2f} ({GOAL_MS:.0f} ms)"
        )
    return max(found.values()) > FLOORS * floor


if __name__ == "__main__":
    sys.exit(main())
