"""How the Live view looks: runs that are always the same, on a clock that stands still."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from hud_tui.events import CheckpointAdded
from hud_tui.rl.alarms.alarm import Level, Report
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.rollout import RolloutColumns
from tests.conftest import until
from tests.tui import runs
from tests.tui.stage import LIVE, Stage

pytestmark = pytest.mark.usefixtures("still_time")
SMALL, USUAL = (80, 24), (120, 40)
STALLED = Liveness(State.STALLED, "stream", 12.0)


def alarmed(steps: int) -> Run:
    """A run with an alarm on a metric, and one on none."""
    drift = runs.alarm(
        40,
        name="kl_sampler",
        title="off-policy drift",
        level=Level.CRITICAL,
        metric="kl_sample_train",
        limit=0.0045,
    )
    return replace(runs.run_of(steps), alarms=Report((drift,)))


def evaluated(steps: int) -> Run:
    """A run whose every tenth checkpoint was evaluated on held-out tasks."""
    run = runs.branched(steps, steps // 2, steps // 2)
    for row in range(9, run.series.length, 10):
        value = 0.3 + row / 150
        found = runs.evaluation(value, value - 0.09, value + 0.08)
        node = run.tree[run.tree.find(run.series.id_at(row)) or 0]
        node = node.model_copy(update={"evaluations": [found]})
        run = run.fold(CheckpointAdded(checkpoint=node))
    return run


SCENES: dict[str, tuple[Callable[[], Run], tuple[int, int], list[str], Liveness]] = {
    "small": (lambda: runs.run_of(60), SMALL, [], LIVE),
    "usual": (lambda: runs.run_of(60), USUAL, [], LIVE),
    "sampling": (lambda: runs.sampling(runs.run_of(5), 37), USUAL, [], LIVE),
    "ended": (lambda: runs.run_of(400, status="succeeded"), USUAL, ["g", "o"], LIVE),
    "odd": (runs.odd_metrics, USUAL, ["x", "down", "enter"], LIVE),
    "frozen-log": (lambda: runs.run_of(60), SMALL, ["f", "L", "tab", "tab"], LIVE),
    "stalled": (lambda: runs.run_of(60), SMALL, ["S", "S"], STALLED),
    "crosshair": (lambda: runs.run_of(60), USUAL, ["shift+left", "shift+left", "i", "c"], LIVE),
    "crosshair-small": (lambda: runs.run_of(60), SMALL, ["shift+left", "enter"], LIVE),
    "compared": (lambda: runs.branched(60, 30, 40), USUAL, ["v", "down", "enter", "left"], LIVE),
    "charts": (lambda: runs.run_of(60), USUAL, ["a", "down", "space"], LIVE),
    "charts-small": (lambda: runs.run_of(60), SMALL, ["a", "down", "greater_than_sign"], LIVE),
    "compare": (lambda: runs.branched(60, 30, 40), SMALL, ["c", "down"], LIVE),
    "strip": (lambda: runs.run_of(60), USUAL, ["enter", "tab", "v", "shift+left"], LIVE),
    "strip-small": (lambda: runs.run_of(300), SMALL, ["tab", "v", "shift+left"], LIVE),
    "waste": (lambda: runs.run_of(60), USUAL, ["tab", "v", "v"], LIVE),
    "waste-small": (lambda: runs.run_of(60), SMALL, ["enter", "tab", "v", "v"], LIVE),
    "failed": (lambda: runs.failed_run(30), SMALL, [], LIVE),
    "alarmed": (lambda: alarmed(60), USUAL, ["h"], LIVE),
    "alarmed-small": (lambda: alarmed(60), SMALL, ["h", "left"], LIVE),
    "evaluated": (lambda: evaluated(60), USUAL, [], LIVE),
    "evaluated-small": (lambda: evaluated(60), SMALL, ["shift+left", "shift+left"], LIVE),
    "details": (lambda: runs.run_of(60), USUAL, ["d"], LIVE),
    "details-small": (lambda: runs.run_of(60), SMALL, ["d"], LIVE),
    "nothing": (lambda: Run(model=runs.MODEL, loaded=True), SMALL, [], LIVE),
}


@pytest.mark.parametrize("scene", SCENES)
def test_looks(scene: str, snap_compare: Callable[..., bool]) -> None:
    make, size, keys, freshness = SCENES[scene]
    stage = Stage(make(), freshness)
    assert snap_compare(stage, press=keys, terminal_size=size)


@pytest.mark.parametrize("size", [SMALL, USUAL], ids=["small", "usual"])
def test_a_group_looks(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    async def read(pilot: Pilot[None]) -> None:
        await pilot.press("shift+left", "tab", "down", "down", "enter")

        async def whole() -> bool:
            await pilot.pause()
            columns = pilot.app.screen.query(RolloutColumns)
            return bool(columns) and all(one.text for one in columns.first().answers)

        await until(whole)
        await pilot.press("right")

    stage = Stage(runs.run_of(60))
    assert snap_compare(stage, run_before=read, terminal_size=size)
