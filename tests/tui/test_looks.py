"""How the views look: every scene small and of usual size, the main ones on a large screen too."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from hud_tui.tui.widgets.run_curves import RunPreview
from tests.tui.scenes import LARGE, SCENES, SIZES, VIEWS, settle

pytestmark = pytest.mark.usefixtures("still_time")

MINE = (
    *("welcome", "models", "launch", "jobs", "machines", "help"),
    *("runs", "runs-grouped", "runs-columns", "runs-empty", "runs-compared"),
    *("evaluations", "evaluate", "evaluated-head", "compare"),
)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", MINE)
def test_looks(name: str, size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    scene = SCENES[name]
    assert snap_compare(scene.app(), run_before=scene.ready, terminal_size=size)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_on_a_large_screen(name: str, snap_compare: Callable[..., bool]) -> None:
    scene = SCENES[name]

    async def drawn(pilot: Pilot[None]) -> None:
        await scene.ready(pilot)
        for preview in pilot.app.screen.query(RunPreview):
            await settle(pilot, lambda preview=preview: preview.curve.display)
        await pilot.pause()

    assert snap_compare(scene.app(), run_before=drawn, terminal_size=LARGE)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("back", [1, 2], ids=["rollouts", "list"])
def test_jobs_and_rollouts(
    back: int, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """The levels above one rollout."""
    scene = SCENES["jobs"]

    async def left(pilot: Pilot[None]) -> None:
        await scene.ready(pilot)
        await pilot.press(*["escape"] * back)
        await pilot.pause()

    assert snap_compare(scene.app(), run_before=left, terminal_size=size)
