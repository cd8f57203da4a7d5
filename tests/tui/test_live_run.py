"""The Live view over the real service: a run is watched, cancelled and taken up again."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.rl.progress import Liveness, State
from hud_tui.settings import Start, local_settings
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.chart_settings import OverlayList
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.live import LiveScreen, RunPanel
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.run_status import status_line
from tests.conftest import Served, fork, submit, until
from tests.service.calls import set_head, tree
from tests.tui import runs
from tests.tui.cockpit import cockpit, grown
from tests.tui.conftest import caller, toy_of, training


@pytest.fixture
async def calls(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with caller(served) as client:
        yield client


def app_on(served: Served, model: str) -> HudApp:
    async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
        return HudClient(local_settings(served.url, served.api_key, ""))

    return HudApp(connect, "local", Start("status", model=model))


def live_of(app: HudApp) -> LiveScreen:
    assert isinstance(app.screen, LiveScreen)
    return app.screen


def status_of(app: HudApp) -> str:
    job = live_of(app).run.job
    return job.status if job is not None else ""


async def test_x_cancels_after_asking_and_r_resumes_the_run(served: Served) -> None:
    model_id, _ = await training(served)
    app = app_on(served, model_id)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: isinstance(app.screen, LiveScreen) and status_of(app) == "running")
        await pilot.press("R")
        assert isinstance(app.screen, LiveScreen), "a run under way cannot be resumed"
        await pilot.press("X")
        await until(lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, LiveScreen))
        assert status_of(app) == "running", "leaving the dialog changes nothing"
        await pilot.press("X")
        await until(lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("y")
        await until(lambda: isinstance(app.screen, LiveScreen) and status_of(app) == "cancelled")
        toy_of(served).rest_after(1)
        taken = live_of(app).run.series.length
        await pilot.press("X")
        assert isinstance(app.screen, LiveScreen), "a run that ended cannot be cancelled"
        await pilot.press("R")
        await until(lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("y")
        await until(lambda: isinstance(app.screen, LiveScreen) and status_of(app) == "running")
        await until(lambda: live_of(app).run.series.length > taken)


async def test_a_run_is_watched_from_its_first_rollout_to_its_end(
    served: Served, calls: httpx.AsyncClient
) -> None:
    model = await fork(calls)
    app = app_on(served, model["id"])
    async with app.run_test(size=(120, 40)):
        await until(lambda: isinstance(app.screen, LiveScreen) and live_of(app).run.loaded)
        assert live_of(app).query_one("#nothing").display
        await submit(calls, model["id"], steps=6)
        await until(lambda: status_of(app) == "succeeded")
        live = live_of(app)
        await until(lambda: live.shown.series.length == 6)
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
    async with cockpit(served, Start("status", model=model["id"])) as flown:
        await flown.until(lambda: flown.view.run.loaded)
        told = "Head at step-000003. 2 steps after it are on another branch: c overlays it."
        await flown.until(lambda: flown.said("Reason") == told)
        await flown.press("c")
        await flown.until(lambda: isinstance(flown.screen, OverlayList))
        await flown.press("down", "enter")
        live: Any = flown.view
        await flown.until(lambda: live.chart_view.overlay is not None)
        assert live.chart_view.overlay.name == "step-000005"


def test_the_run_s_steps_are_told_from_the_tree_s() -> None:
    run = runs.run_of(60)
    freshness = Liveness(State.LIVE, "stream", 1.0)
    assert "step 60/400  " in status_line(run, freshness, None, 120).plain
    assert run.job is not None
    again = replace(run, job=run.job.model_copy(update={"step": 20}))
    assert "step 20/400 of this run" in status_line(again, freshness, None, 120).plain
    assert "step 20/400 of this run" in status_line(again, freshness, None, 80).plain


def test_a_run_s_name_has_a_quarter_of_a_wide_line() -> None:
    run, freshness = runs.run_of(60), Liveness(State.LIVE, "stream", 1.0)
    assert run.job is not None
    name = "A running job sends nothing any more"
    run = replace(run, job=run.job.model_copy(update={"name": name}))
    assert status_line(run, freshness, None, 200).plain.startswith(f" {name} running  step 60")
    assert status_line(run, freshness, None, 120).plain.startswith(f" {name[:30].rstrip()}")


async def test_d_says_what_the_run_was_started_with(served: Served) -> None:
    model_id, _ = await training(served)
    app = app_on(served, model_id)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: isinstance(app.screen, LiveScreen) and status_of(app) == "running")
        given = live_of(app).run.job
        assert given is not None
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, RunPanel))
        pane = app.screen.query_one(TextPane)
        await until(lambda: "starts from" in pane.plain)
        lines = [line.split() for line in pane.plain.splitlines()]
        size = str((given.parameters or {})["group_size"])
        assert any(line[:3] == ["group", "size", size] for line in lines)
        assert ["starts", "from", "base", "weights"] in lines
        assert ["Adam", "beta1", "0.9", "default"] in lines
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, LiveScreen))
