"""How the app's own views look: the scenes, at a small and at a usual size."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from hud_tui.tui.widgets.run_curves import RunPreview
from tests.tui.scenes import SCENES, SIZES, settle

pytestmark = pytest.mark.usefixtures("still_time")

MINE = (
    *("welcome", "models", "launch", "jobs", "help"),
    *("runs", "runs-grouped", "runs-columns", "runs-empty", "runs-compared"),
    *("evaluations", "evaluate", "evaluated-head", "compare"),
)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", MINE)
def test_looks(name: str, size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    scene = SCENES[name]
    assert snap_compare(scene.app(), run_before=scene.ready, terminal_size=size)


def test_runs_on_a_large_screen(snap_compare: Callable[..., bool]) -> None:
    scene = SCENES["runs"]

    async def drawn(pilot: Pilot[None]) -> None:
        await scene.ready(pilot)
        preview = pilot.app.screen.query_one(RunPreview)
        await settle(pilot, lambda: preview.curve.display)
        await pilot.pause()

    assert snap_compare(scene.app(), run_before=drawn, terminal_size=(200, 60))
