"""How the views look: on terminals of several sizes, all that is shown stands still."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from hud_tui.events import CheckpointAdded, TreeRead
from hud_tui.rl.alarms.alarm import Level, Report
from hud_tui.rl.alarms.demos import PATHOLOGIES
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore
from hud_tui.tui.alarms import AlarmBook, AlarmWatch
from hud_tui.tui.screens.alarms import AlarmsScreen
from hud_tui.tui.widgets.rollout_columns import RolloutColumns
from hud_tui.tui.widgets.run_curves import RunPreview
from hud_tui.wire import Checkpoint, WorkState
from tests.conftest import until
from tests.tui import runs
from tests.tui.scenes import LARGE, SCENES, SIZES, VIEWS, settle
from tests.tui.stage import Stage, StagedSession
from tests.tui.still import StillClient, branched, still
from tests.unit.inspecting import rows_of

pytestmark = pytest.mark.usefixtures("still_time")
SMALL, USUAL = SIZES

VIEWED = ("welcome", "models", "launch", "jobs", "machines", "help", "runs", "evaluations", "play")
OVER = (
    *("runs-grouped", "runs-columns", "runs-empty", "evaluate", "evaluated-head"),
    *("compare", "history", "ship", "time"),
)
"""What is made of a view that is there in each size."""
LOOKS = [
    *[(name, size) for name in VIEWED for size in SIZES],
    *[(name, SMALL) for name in OVER],
    ("runs-compared", USUAL),
    ("time-step", USUAL),
]


@pytest.mark.parametrize(
    ("name", "size"), LOOKS, ids=[f"{name}-{size[0]}x{size[1]}" for name, size in LOOKS]
)
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


@pytest.mark.parametrize("back", [1, 2], ids=["rollouts", "list"])
def test_jobs_and_rollouts(back: int, snap_compare: Callable[..., bool]) -> None:
    """The levels above one rollout."""
    scene = SCENES["jobs"]

    async def left(pilot: Pilot[None]) -> None:
        await scene.ready(pilot)
        await pilot.press(*["escape"] * back)
        await pilot.pause()

    assert snap_compare(scene.app(), run_before=left, terminal_size=USUAL)


ALARMS: dict[str, tuple[str, tuple[int, int], list[str]]] = {
    "usual": ("length-hack", USUAL, ["down"]),
    "small": ("off-policy", SMALL, []),
    "over": ("gradient-explosion", USUAL, ["end"]),
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
            prev_model_checkpoint_id=f"c{row.step - 1}" if row.index else None,
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


@pytest.mark.parametrize("name", ALARMS)
def test_alarms(name: str, snap_compare: Callable[..., bool]) -> None:
    pathology, size, keys = ALARMS[name]
    stage = AlarmStage(gone_wrong(pathology))

    async def shown(pilot: Pilot[None]) -> None:
        await until(lambda: stage.view.run.alarms.steps > 0)
        await pilot.press(*keys)
        await pilot.pause()

    assert snap_compare(stage, run_before=shown, terminal_size=size)


@pytest.mark.parametrize("name", PATHOLOGIES)
async def test_an_alarm_is_told_whole_on_a_small_screen(name: str) -> None:
    """Its first line has what the user answered, its last ones what to do."""
    run = replace(gone_wrong(name), job=WorkState(id="j", status="succeeded"))
    stage = AlarmStage(run)
    async with stage.run_test(size=SMALL) as pilot:
        await until(lambda: stage.view.run.alarms.steps > 0)
        await pilot.press("home")
        for _ in stage.view.run.alarms.alarms:
            await pilot.press("space")
            await pilot.pause()
            alarm = stage.view.alarm
            assert alarm is not None
            strips = stage.screen._compositor.render_strips()
            drawn = " ".join(" ".join(strip.text for strip in strips).split())
            assert f"{alarm.name} acknowledged" in drawn
            assert alarm.advice in drawn
            await pilot.press("down")


TREES: dict[str, tuple[Callable[[], Sequence[Checkpoint]], tuple[int, int], list[str]]] = {
    "tree-small": (branched, SMALL, ["j", "j"]),
    "tree-usual": (branched, USUAL, ["g"]),
    "tree-branch": (branched, USUAL, [*"jjjjjjjjjjjj"]),
    "tree-empty": (list, SMALL, []),
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


RUNS: dict[str, tuple[Callable[[], Run], tuple[int, int], list[str]]] = {
    "small": (lambda: runs.run_of(60), SMALL, []),
    "usual": (lambda: runs.run_of(60), USUAL, []),
    "sampling": (lambda: runs.sampling(runs.run_of(5), 37), USUAL, []),
    "odd": (runs.odd_metrics, USUAL, ["x", "down", "enter"]),
    "crosshair": (lambda: runs.run_of(60), USUAL, ["shift+left", "shift+left", "i", "c"]),
    "compared": (lambda: runs.branched(60, 30, 40), USUAL, ["v", "down", "enter", "left"]),
    "charts": (lambda: runs.run_of(60), USUAL, ["a", "down", "space"]),
    "compare": (lambda: runs.branched(60, 30, 40), SMALL, ["c", "down"]),
    "strip": (lambda: runs.run_of(60), USUAL, ["enter", "tab", "v", "shift+left"]),
    "waste": (lambda: runs.run_of(60), USUAL, ["tab", "v", "v"]),
    "alarmed": (lambda: alarmed(60), USUAL, ["h"]),
    "evaluated": (lambda: evaluated(60), USUAL, []),
    "details": (lambda: runs.run_of(60), USUAL, ["d"]),
}


@pytest.mark.parametrize("scene", RUNS)
def test_live(scene: str, snap_compare: Callable[..., bool]) -> None:
    make, size, keys = RUNS[scene]
    stage = Stage(make())
    assert snap_compare(stage, press=keys, terminal_size=size)


@pytest.mark.parametrize("size", SIZES, ids=["small", "usual"])
def test_a_group_looks(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    async def read(pilot: Pilot[None]) -> None:
        await pilot.press("shift+left", "tab", "down", "down", "enter")

        async def whole() -> bool:
            await pilot.pause()
            columns = pilot.app.screen.query(RolloutColumns)
            return bool(columns) and all(answer.text for answer in columns.first().answers)

        await until(whole)
        await pilot.press("right")

    stage = Stage(runs.run_of(60))
    assert snap_compare(stage, run_before=read, terminal_size=size)
