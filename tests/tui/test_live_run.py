"""The Live view over the real service: a run is watched, cancelled and taken up again."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.settings import Start, local_settings
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.live import LiveScreen, RunPanel
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import TextPane
from tests.conftest import Served, fork, submit, until
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
