"""The Live view on a screen of 120 × 40: a step, a key in a long run, a key in large groups.

Measured is our own work: fold the step's events or take the key, draw every pane, and hand out
every line. What Textual then does with the lines is not ours. Memory is what Python allocates for
the metrics and for the curves of all of them, beside the checkpoints that they came in.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from math import sin
from time import perf_counter

from hud_tui.events import CheckpointAdded, Event, TreeRead, WorkChanged
from hud_tui.rl.chart import Chart, ChartData
from hud_tui.rl.compare import ChartView
from hud_tui.rl.metrics import Series
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.wire import Checkpoint
from tests.bench.timing import KEY, REPAINT, missed
from tests.tui import runs
from tests.tui.stage import Stage

STEPS, MORE = 10_000, 15
"""Steps of a run, and how many more it takes."""
LONG, METRICS = 100_000, 20
"""Steps and metrics of a long one."""
GROUPS, SIZE, GROUPED = 64, 64, 200
"""Groups and rewards of each of so many steps."""
KEYS = 30
GOAL_MB = 40.0
SCREEN = (120, 40)


def repainted_s(stage: Stage, act: Callable[..., object], *given: object) -> float:
    """Seconds of our own work for what is done, and for every line of the view."""
    start = perf_counter()
    act(*given)
    for pane in stage.live.query(LinesView):
        for row in range(pane.size.height):
            pane.render_line(row)
    return perf_counter() - start


def next_steps(first: int, count: int) -> Iterator[list[Event]]:
    """The events of each of the steps after `first`."""
    for node in runs.checkpoints(first + count)[first:]:
        yield [
            CheckpointAdded(checkpoint=node.model_copy(update={"is_active": True})),
            runs.taken(node),
            WorkChanged(work=runs.job(node.step or 0, 2 * first)),
        ]


def take(stage: Stage, events: list[Event]) -> None:
    run = stage.scene
    for event in events:
        run = run.fold(event)
    stage.play(run)


async def steps() -> float:
    """Least seconds of a repaint, each after one more step, with six small charts in sight."""
    stage, times = Stage(runs.run_of(STEPS, 2 * STEPS)), []
    async with stage.run_test(size=SCREEN) as pilot:
        await pilot.pause()
        seen = stage.live.metrics.body_rows // stage.live.metrics.tall
        assert seen * stage.live.metrics.per_row >= 6, "fewer than 6 small charts shown"
        for events in next_steps(STEPS, MORE):
            times.append(repainted_s(stage, take, stage, events))
            shown = stage.live.query_one(FocusChart).shown[0].text
            assert f"step {stage.scene.series.length} " in shown
            await pilot.pause()
    return min(times)


def values(step: int) -> dict[str, float]:
    """Twenty metrics of a step, noisy and all different."""
    noise = (step * 7919 + 13) % 1009 / 1009
    found = {f"own/{number}": noise * number + sin(step / 900) for number in range(METRICS - 2)}
    return {"reward_mean": 0.5 + 0.4 * noise, "entropy": 2 - noise, **found}


def long_nodes(groups: int = 0) -> Iterator[Checkpoint]:
    """The steps; copied, not validated: a bench need not wait for what it does not measure."""
    likes = runs.checkpoints(200, tasks=groups)
    for step in range(1, LONG + 1):
        own = {
            "id": f"c{step}",
            "name": f"step-{step:06}",
            "prev_model_checkpoint_id": f"c{step - 1}" if step > 1 else None,
            "is_active": step == LONG,
            "step": step,
            "metrics": values(step),
            **dict.fromkeys(("mean_reward", "num_tokens", "num_traces")),
        }
        yield likes[step % len(likes)].model_copy(update=own)


def run_of(nodes: Iterator[Checkpoint], steps: int) -> Run:
    """A run half of whose steps are these."""
    found = Run(model=runs.MODEL).fold(TreeRead(checkpoints=tuple(nodes)))
    return found.fold(WorkChanged(work=runs.job(steps, 2 * steps)))


async def long_keys() -> tuple[float, float]:
    """Least seconds of a key of the crosshair, and of one that zooms or pans, in a long run."""
    stage = Stage(run_of(long_nodes(groups=12), LONG))
    async with stage.run_test(size=SCREEN) as pilot:
        live, moves, zooms = stage.live, [], []
        while live.query_one(GroupGrid).waste.length < LONG:
            await pilot.pause()
        await pilot.pause()
        for number in range(KEYS):
            moves.append(repainted_s(stage, live.action_cursor, -10 if number % 2 else -1))
            await pilot.pause()
        assert live.cursor is not None
        for number in range(KEYS):
            zooms.append(repainted_s(stage, live.action_zoom, -1 if number % 2 else 1))
            await pilot.pause()
        return min(moves), min(zooms)


def megabytes() -> float:
    """MB of a long run's metrics, and of the curves of all of them, drawn once."""
    tracemalloc.start()
    series = Series()
    for node in long_nodes():
        series = series.add(node)
    chart = Chart(ChartData(), Run(series=series), ChartView())
    for key in series.keys:
        assert len(chart.buckets(key, 100)) == 100
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len([key for key in series.keys if series.last(key) == series.last(key)]) >= 20
    return used / 1e6


async def group_keys() -> dict[str, float]:
    """Least seconds of each key where groups have all of the view: to move their cursor or the
    crosshair, and to turn to each of their faces. What is known of a step's groups is kept: the
    first look at a hundred steps takes longer, once."""
    nodes = (
        node.model_copy(update={"groups": runs.groups(node.step or 0, GROUPS, SIZE)})
        for node in runs.checkpoints(GROUPED, tasks=1, grouped=0)
    )
    stage = Stage(run_of(nodes, GROUPED))
    async with stage.run_test(size=SCREEN) as pilot:
        await pilot.pause()
        live, groups = stage.live, stage.live.query_one(GroupGrid)
        live.show_pane("groups")
        live.full = True
        while not groups.has_focus or groups.waste.length < GROUPED:
            await pilot.pause()
        assert len(groups.groups.rows) == GROUPS
        cursor, crosshair, faces = [], [], dict[str, list[float]]()
        for number in range(KEYS):
            cursor.append(repainted_s(stage, live.action_move, 0, -1 if number % 2 else 1))
            await pilot.pause()
        for _ in range(KEYS):
            crosshair.append(repainted_s(stage, live.action_cursor, -1))
            await pilot.pause()
        for _ in range(KEYS):
            spent = repainted_s(stage, live.action_next_view)
            faces.setdefault(f"face ({groups.face})", []).append(spent)
            await pilot.pause()
        times = {"cursor": cursor, "crosshair": crosshair, **faces}
        return {name: min(taken) for name, taken in times.items()}


def main() -> int:
    used = megabytes()
    print(f"live memory, {LONG} steps × {METRICS} metrics: {used:.1f} MB; goal {GOAL_MB:.1f} MB")
    moved, zoomed = asyncio.run(long_keys())
    size = f"{LONG} steps × {METRICS} metrics"
    found = [
        (f"live repaint, {STEPS} steps, 6 charts", asyncio.run(steps()), REPAINT),
        (f"live crosshair key to repaint, {size}", moved, KEY),
        (f"live zoom key to repaint, {size}", zoomed, KEY),
    ]
    for name, spent in asyncio.run(group_keys()).items():
        found.append((f"groups {name} key to repaint, {GROUPS} × {SIZE} rewards", spent, KEY))
    return missed(found) or used > GOAL_MB
