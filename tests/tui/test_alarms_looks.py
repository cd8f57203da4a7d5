"""How the Alarms view looks, on runs that are always the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from hud_tui.events import TreeRead
from hud_tui.rl.alarms.demos import PATHOLOGIES
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore
from hud_tui.tui.alarms import AlarmBook, AlarmWatch
from hud_tui.tui.screens.alarms import AlarmsScreen
from hud_tui.wire import Checkpoint
from tests.conftest import until
from tests.tui import runs
from tests.tui.stage import Stage, StagedSession
from tests.unit.inspecting import rows_of

SMALL, USUAL, TINY = (80, 24), (120, 40), (40, 12)
SCENES: dict[str, tuple[str, tuple[int, int], list[str]]] = {
    "usual": ("length-hack", USUAL, ["down"]),
    "small": ("off-policy", SMALL, []),
    "over": ("gradient-explosion", USUAL, ["end"]),
    "acknowledged": ("off-policy", SMALL, ["space", "down", "A"]),
    "tiny": ("zero-variance", TINY, []),
    "well": ("", SMALL, []),
}


def gone_wrong(name: str) -> Run:
    """A run that has gone wrong in this way, or has not, with what the detectors say."""
    if not name:
        return runs.run_of(60)
    rows = rows_of(PATHOLOGIES[name])
    nodes = tuple(
        Checkpoint(
            id=f"c{row.step}",
            name=f"step-{row.step:06d}",
            prev_model_checkpoint_id=f"c{row.step - 1}" if row.place else None,
            is_active=row is rows[-1],
            mean_reward=row.metrics["reward_mean"],
            metrics=dict(row.metrics),
            step=row.step,
        )
        for row in rows
    )
    return Run(model=runs.MODEL).fold(TreeRead(checkpoints=nodes))


class JudgedSession(StagedSession):
    watch: AlarmWatch

    @property
    def alarms(self) -> AlarmWatch:
        return self.watch

    def renew_alarms(self) -> None:
        self.watch.renew()
        self.scene = replace(self.scene, alarms=self.watch.report)
        self.owner.session_changed()


class AlarmStage(Stage):
    """The Alarms view of a run, judged without a service."""

    SESSION = JudgedSession

    def __init__(self, run: Run) -> None:
        monitor = AlarmMonitor()
        monitor.follow(run.tree, run.job)
        super().__init__(replace(run, alarms=monitor.report()))
        watch = AlarmWatch(None, AlarmBook(JsonStore(), "m"))
        watch._monitor = monitor
        assert isinstance(self.staged, JudgedSession)
        self.staged.watch = watch
        self.view = AlarmsScreen(self.workspace.context)

    def get_default_screen(self) -> AlarmsScreen:
        return self.view


@pytest.mark.parametrize("name", SCENES)
def test_looks(name: str, snap_compare: Callable[..., bool]) -> None:
    pathology, size, keys = SCENES[name]
    stage = AlarmStage(gone_wrong(pathology))

    async def shown(pilot: Pilot[None]) -> None:
        await until(lambda: stage.view.run.alarms.steps > 0)
        await pilot.press(*keys)
        await pilot.pause()

    assert snap_compare(stage, run_before=shown, terminal_size=size)
