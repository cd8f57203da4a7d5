"""How the Checkpoints view looks: a service and a clock that stand still."""

from collections.abc import Callable, Sequence

import pytest
from textual.pilot import Pilot

from hud_tui.wire import Checkpoint
from tests.tui import runs
from tests.tui.scenes import settle
from tests.tui.still import StillClient, branched, still

pytestmark = pytest.mark.usefixtures("still_time")
SMALL, USUAL = (80, 24), (120, 40)

TREES: dict[str, tuple[Callable[[], Sequence[Checkpoint]], tuple[int, int], list[str]]] = {
    "tree-small": (branched, SMALL, ["j", "j"]),
    "tree-usual": (branched, USUAL, ["g"]),
    "tree-branch": (branched, USUAL, [*"jjjjjjjjjjj"]),
    "tree-chain": (lambda: runs.checkpoints(400), SMALL, ["G", "k"]),
    "tree-filtered": (branched, SMALL, ["slash", *"loss=ppo", "enter"]),
    "tree-empty": (list, SMALL, []),
    "head-small": (branched, SMALL, ["j", "j", "H"]),
    "head-usual": (branched, USUAL, [*"jjjjjjjjjj", "H"]),
}


@pytest.mark.parametrize("scene", TREES)
def test_trees(scene: str, snap_compare: Callable[..., bool]) -> None:
    tree, size, keys = TREES[scene]
    app = still(StillClient(tree()))

    def reads() -> bool:
        return any(worker.group == "read" and worker.is_running for worker in app.workers)

    async def play(pilot: Pilot[None]) -> None:
        """Press each key after the one before has been answered."""
        await settle(pilot, lambda: app.shown_view and app.shown_view.run.loaded and not reads())
        run = app.shown_view.run
        await settle(pilot, lambda: app.shown_view.run.alarms.steps == run.series.length)
        for key in keys:
            await pilot.press(key)
            await settle(pilot, lambda: not reads())

    assert snap_compare(app, run_before=play, terminal_size=size)
