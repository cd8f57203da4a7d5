"""A run that ends before its first step: its rollouts are there, and the curve says why."""

from dataclasses import replace

from hud_tui.settings import Start
from hud_tui.tui.screens.jobs import JobsScreen, Level
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.wire import JobStatus
from tests.conftest import Served, ended, fork, submit, until
from tests.toy_engine import ToyEngine
from tests.tui import runs
from tests.tui.cockpit import cockpit
from tests.tui.conftest import caller
from tests.tui.stage import Stage


async def test_its_rollouts_are_in_jobs(served: Served, engine: ToyEngine) -> None:
    engine.flatten()
    async with caller(served) as http:
        job_id = await submit(http, str((await fork(http))["id"]), steps=3)
        assert (await ended(http, job_id))["step"] == 0
    async with cockpit(served, Start("jobs")) as flown:

        def screen() -> JobsScreen:
            assert isinstance(flown.view, JobsScreen)
            return flown.view

        await flown.until(lambda: bool(screen().browser.list.rows))
        await flown.press("enter")
        await flown.until(lambda: screen().level is Level.TRACES and screen().part is not None)
        part = screen().part
        assert part is not None
        assert (part.number, len({trace.attempt for trace in part.traces})) == (1, 20)


async def test_the_curve_says_why_there_is_none() -> None:
    waits = replace(runs.run_of(0), job=JobStatus(status="running", id="j", step=0))
    stage = Stage(waits)
    async with stage.run_test(size=(120, 40)):
        chart = stage.live.query_one(FocusChart)

        def heading() -> str:
            return chart.render_line(0).text + chart.render_line(1).text

        assert "The first step is being sampled." in heading()
        gave_up = JobStatus(status="failed", id="j", step=0, error="too hard for this model")
        stage.play(replace(waits, job=gave_up))
        await until(lambda: "the run ended before its first step." in heading())
