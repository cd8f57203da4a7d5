"""Where the time goes, over Live: by its keys, on the embedded service and in a replay."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hud_tui.client.replay import Recorder, player, read_file
from hud_tui.events import StepTaken
from hud_tui.rl.timeline import ZERO_VARIANCE
from hud_tui.tui.app import Options
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.time import MOST_STEPS, NO_STEP, STEPS, TimeScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.rollout_columns import RolloutColumns
from tests.conftest import Served, caller, fork, submit
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import Opened, trained
from tests.tui.conftest import opened as played


def said(screen: TimeScreen, selector: str = "#time-said") -> str:
    return str(screen.query_one(selector).render())


async def opened(flown: Cockpit, steps: int) -> TimeScreen:
    await flown.until(lambda: len(flown.run.tree) == steps)
    screen = await flown.open(TimeScreen, "percent_sign")
    await flown.until(lambda: screen.pane.timeline.times)
    return screen


@asynccontextmanager
async def timed(served: Served) -> AsyncIterator[tuple[Cockpit, TimeScreen]]:
    """The time of a run that has taken four steps."""
    model, _ = await trained(served, 4)
    async with cockpit(served, Start("status", model=model)) as flown:
        yield flown, await opened(flown, 4)


async def test_the_newest_steps_then_one_then_a_rollout(served: Served) -> None:
    async with timed(served) as (flown, screen):
        live = flown.app.screen_stack[-2]
        assert [time.step for time in screen.pane.timeline.times[:4]] == [1, 2, 3, 4]
        assert "of the time" in said(screen)
        await flown.press("left")
        await flown.until(lambda: len(screen.pane.timeline.times) == 1)
        [time] = screen.pane.timeline.times
        assert (live.cursor, time.step) == (3, 4)  # the crosshair of Live
        await flown.press("down", "down")
        chosen = screen.pane.chosen
        assert chosen.task_slug in said(screen, "#time-chosen")
        group = await flown.open(GroupScreen, "enter")
        columns = group.query_one(RolloutColumns)
        assert columns.answers[columns.picked].trace_id == chosen.trace_id
        assert group.group.task_slug == chosen.task_slug
        await flown.press("escape")
        await flown.until_screen(TimeScreen)
        await flown.press("end")
        await flown.until(lambda: len(screen.pane.timeline.times) > 1)
        assert live.cursor is None
        await flown.press("left", "escape")
        await flown.until_screen(LiveScreen)
        assert live.cursor == 3


async def test_the_discarded_rollouts_are_listed_sorted_and_opened(served: Served) -> None:
    async with timed(served) as (flown, screen):
        await flown.until(lambda: "of the run discarded" in said(screen, "#discarded-said"))
        assert " of the run discarded: zero variance · " in said(screen, "#discarded-said")
        table = screen.table
        assert {item.reason for item in screen._discarded} == {ZERO_VARIANCE}
        newest = [row.key for row in table.rows]
        assert newest == [item.trace_id for item in screen._discarded]
        await flown.press("tab", "o", "o")
        await flown.until(lambda: "by task" in said(screen, "#discarded-said"))
        slugs = {item.trace_id: item.task_slug for item in screen._discarded}
        listed = [slugs[row.key] for row in table.rows]
        assert listed == sorted(listed, key=str)
        await flown.press("down")
        key = table.key
        group = await flown.open(GroupScreen, "enter")
        columns = group.query_one(RolloutColumns)
        assert columns.answers[columns.picked].trace_id == key


async def test_more_or_fewer_steps_are_shown(served: Served) -> None:
    async with timed(served) as (flown, screen):
        await flown.press("plus", "plus")
        assert screen.steps == STEPS // 4
        await flown.until(lambda: len(screen.pane.timeline.times) == 2)
        await flown.press(*["minus"] * 9)
        assert screen.steps == MOST_STEPS
        await flown.until(lambda: len(screen.pane.timeline.times) > 4)


async def test_a_recording_replays_the_timeline(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    recorder = Recorder(file, print)
    async with caller(served) as http:
        model_id = str((await fork(http))["id"])
        start = Start("status", model=model_id)
        async with cockpit(served, start, options=Options(recorder=recorder)) as flown:
            await flown.until(lambda: flown.run.loaded)
            await submit(http, model_id, steps=3, learning_rate=1e-6)
            await flown.until(lambda: flown.run.job is not None and len(flown.run.tree) == 3)
            await flown.until(lambda: not flown.run.training)
            before = [time for time in (await opened(flown, 3)).pane.timeline.times]
    recorder.close()
    taken = [time for time in before if time.checkpoint_id]
    recorded = [moment.event for moment in read_file(file).moments]
    assert [event.time for event in recorded if isinstance(event, StepTaken)] == taken
    async with played(player(None, str(file), 5000.0), mode="replay") as app:
        await app.until_view("live")
        await app.until(lambda: len(app.run.tree) == 3 and not app.run.training)
        screen = await app.open(TimeScreen, "percent_sign")
        await app.until(lambda: screen.pane.timeline.times == tuple(taken))
        assert "of the time" in said(screen)
        await app.press("left")
        await app.until(lambda: len(screen.pane.timeline.times) == 1)
        assert screen.pane.timeline.times[0] == taken[-1]
        await app.press("down")
        group = await app.open(GroupScreen, "enter")
        assert group.replayed


async def test_a_service_that_does_not_say_is_told_so() -> None:
    async with playing() as app:
        screen = await app.open(TimeScreen, "percent_sign")
        await app.until(lambda: said(screen) == NO_STEP)
        await app.press("down", "enter", "o", "tab", "escape")
        await app.until(lambda: app.screen is not screen)


@asynccontextmanager
async def playing() -> AsyncIterator[Opened]:
    """A demo, which has steps but not their time."""
    async with played(player("healthy", None, 5000.0), mode="replay") as app:
        await app.until_view("live")
        await app.until(lambda: not app.run.training and bool(app.run.series.length))
        yield app
