"""The Live view over the real service: a run is watched, cancelled and taken up again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from hud_tui.rl.progress import Liveness, State
from hud_tui.settings import Start
from hud_tui.tui.screens.base import TextPanel
from hud_tui.tui.screens.chart_settings import OverlayList
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.run_status import status_line
from tests.conftest import Served, submit
from tests.service.calls import set_head, tree
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import caller, forked, toy_of, training


@asynccontextmanager
async def watched(served: Served, model: str) -> AsyncIterator[Cockpit]:
    """Live on a model, once its tree is read."""
    async with cockpit(served, Start("status", model=model)) as flown:
        await flown.until(lambda: flown.run.loaded)
        yield flown


def is_now(flown: Cockpit, status: str) -> bool:
    """Whether the run's status is this, and nothing lies over Live."""
    return (
        flown.screen is flown.view and flown.run.job is not None and flown.run.job.status == status
    )


async def test_x_cancels_after_asking_and_r_resumes_the_run(served: Served) -> None:
    model_id, _ = await training(served)
    async with watched(served, model_id) as flown:
        await flown.until(lambda: is_now(flown, "running"))
        await flown.press("R")
        assert flown.screen is flown.view, "a run under way cannot be resumed"
        assert "R in Live or Runs resumes it." in await flown.ask("X")
        await flown.press("escape")
        await flown.until(lambda: is_now(flown, "running"))
        await flown.agree("X")
        await flown.until(lambda: is_now(flown, "cancelled"))
        toy_of(served).rest_after(1)
        taken = flown.run.series.length
        await flown.press("X")
        assert flown.screen is flown.view, "a run that ended cannot be cancelled"
        await flown.agree("R")
        await flown.until(lambda: is_now(flown, "running"))
        await flown.until(lambda: flown.run.series.length > taken)


async def test_a_run_is_watched_from_its_first_rollout_to_its_end(served: Served) -> None:
    model_id = await forked(served)
    async with watched(served, model_id) as flown:
        live: Any = flown.view
        assert live.query_one("#nothing").display
        await submit(flown.http, model_id, steps=6)
        await flown.until(lambda: is_now(flown, "succeeded"))
        await flown.until(lambda: live.shown.series.length == 6)
        assert live.focus_key == "reward_mean"
        assert live.shown.series.last("reward_mean") > live.shown.series.values("reward_mean")[0]
        assert len(live.query_one(GroupGrid).groups.rows) == len(live.shown.groups) > 0
        assert not live.query_one("#nothing").display


async def test_steps_that_the_head_was_set_back_from_are_named_with_the_key_that_shows_them(
    served: Served,
) -> None:
    async with caller(served) as http:
        model = await grown(http, "back", 5)
        nodes = await tree(http, model["id"])
        assert (await set_head(http, model["id"], nodes[2]["id"])).is_success
    async with watched(served, model["id"]) as flown:
        told = "Head at step-000003. 2 steps after it are on another branch: c overlays it."
        await flown.until(lambda: flown.said("Reason") == told)
        await flown.press("c")
        await flown.until(lambda: isinstance(flown.screen, OverlayList))
        await flown.press("down", "enter")
        live: Any = flown.view
        await flown.until(lambda: live.chart_view.overlay is not None)
        assert live.chart_view.overlay.name == "step-000005"


def test_the_run_s_steps_are_told_from_the_tree_s_and_its_name_has_a_quarter_of_the_line() -> None:
    def line(width: int, **job: Any) -> str:
        run = runs.run_of(60)
        run = replace(run, job=run.job.model_copy(update=job))
        return status_line(run, Liveness(State.LIVE, "stream", 1.0), None, width).plain

    assert "step 60/400  " in line(120)
    assert "step 20/400 of this run" in line(120, step=20)
    assert "step 20/400 of this run" in line(80, step=20)
    name = "A running job sends nothing any more"
    assert line(200, name=name).startswith(f" {name} running  step 60")
    assert line(120, name=name).startswith(f" {name[:30].rstrip()}")


async def test_d_says_what_the_run_was_started_with(served: Served) -> None:
    model_id, _ = await training(served)
    async with watched(served, model_id) as flown:
        await flown.until(lambda: is_now(flown, "running"))
        pane = (await flown.open(TextPanel, "d")).query_one(TextPane)
        await flown.until(lambda: "starts from" in pane.plain)
        lines = [line.split() for line in pane.plain.splitlines()]
        size = str(flown.run.job.parameters["group_size"])
        assert any(line[:3] == ["group", "size", size] for line in lines)
        assert ["starts", "from", "base", "weights"] in lines
        assert ["Adam", "beta1", "0.9", "default"] in lines
        await flown.press("escape", then="live")
