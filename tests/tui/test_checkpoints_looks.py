"""How the Checkpoints and the Jobs views look: a service and a clock that stand still."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from hud_tui.tui.app import HudApp
from tests.conftest import until
from tests.tui.still import StillClient, StillJobs, branched, chain, still

pytestmark = pytest.mark.usefixtures("still_time")
SMALL, USUAL = (80, 24), (120, 40)

TREES: dict[str, tuple[Callable[[], StillClient], tuple[int, int], list[str]]] = {
    "tree-small": (lambda: StillClient(branched()), SMALL, ["j", "j"]),
    "tree-usual": (lambda: StillClient(branched()), USUAL, ["g"]),
    "tree-branch": (lambda: StillClient(branched()), USUAL, [*"jjjjjjjjjjj"]),
    "tree-chain": (lambda: StillClient(chain(400)), SMALL, ["G", "k"]),
    "tree-filtered": (lambda: StillClient(branched()), SMALL, ["slash", *"loss=ppo", "enter"]),
    "tree-empty": (lambda: StillClient([]), SMALL, []),
    "head-small": (lambda: StillClient(branched()), SMALL, ["j", "j", "H"]),
    "head-usual": (lambda: StillClient(branched()), USUAL, [*"jjjjjjjjjj", "H"]),
}
JOBS = {
    "jobs-small": (SMALL, []),
    "jobs-usual": (USUAL, []),
    "traces-small": (SMALL, ["enter"]),
    "traces-usual": (USUAL, ["enter"]),
    "rollout-small": (SMALL, ["enter", "enter"]),
    "rollout-usual": (USUAL, ["enter", "enter", "G"]),
}


def begin(app: HudApp, keys: list[str]) -> Callable[[Pilot[None]], object]:
    """Wait for the view, then press keys, each after the one before has been answered."""

    async def before(pilot: Pilot[None]) -> None:
        def shown() -> bool:
            return app.shown_view is not None and app.shown_view.run.loaded

        async def holds(condition: Callable[[], bool]) -> None:
            async def held() -> bool:
                await pilot.pause()
                return condition()

            await until(held)

        await holds(shown)
        await holds(lambda: not working(app))
        for key in keys:
            await pilot.press(key)
            await holds(lambda: not working(app))

    return before


def working(app: HudApp) -> bool:
    """Whether the view still reads what it will show."""
    return any(worker.group == "read" and worker.is_running for worker in app.workers)


@pytest.mark.parametrize("scene", TREES)
def test_trees(scene: str, snap_compare: Callable[..., bool]) -> None:
    make, size, keys = TREES[scene]
    app = still(make())
    assert snap_compare(app, run_before=begin(app, keys), terminal_size=size)


@pytest.mark.parametrize("scene", JOBS)
def test_jobs(scene: str, snap_compare: Callable[..., bool]) -> None:
    size, keys = JOBS[scene]
    app = still(StillJobs(chain(12)), "jobs")
    assert snap_compare(app, run_before=begin(app, keys), terminal_size=size)
