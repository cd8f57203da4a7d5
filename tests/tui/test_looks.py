"""How the app's own views look: the scenes, at a small and at a usual size."""

from collections.abc import Callable

import pytest

from tests.tui.scenes import SCENES, SIZES

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
