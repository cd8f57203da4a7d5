"""Protected models in the app: a sign in Models, and a name to type before one is changed."""

import pytest
from textual.widgets import Input

from hud_tui.settings import Start
from hud_tui.tui.screens.dialogs import ConfirmDialog, InputDialog
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.theme import LOCK
from tests.conftest import Served, until
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import caller, cancel, status, training
from tests.tui.test_checkpoints import noted, tree_of
from tests.tui.test_models import catalog, cells, table, view

NAME = "arith-rl"


def protect(flown: Cockpit, model_id: str) -> None:
    flown.app.workspace.session.client.wire.guard.protection.protect(model_id, NAME, True)


async def named(flown: Cockpit) -> InputDialog:
    """The dialog that wants the name."""
    await flown.until_screen(InputDialog)
    await flown.until(lambda: isinstance(flown.app.screen.focused, Input))
    screen = flown.app.screen
    assert isinstance(screen, InputDialog)
    assert "is protected on this machine" in flown.dialog
    return screen


async def test_a_key_protects_and_a_name_takes_that_back(served: Served) -> None:
    async with catalog(served, "arith-rl") as app:
        name = NAME
        await app.until_notice("choose a model of yours", "end", "P")
        await app.until(lambda: cells(app, name))
        table(app).select(next(m.id for m in view(app).models or () if m.model_name == name))
        await app.until_notice("changes ask for its name", "P")
        await app.until(lambda: cells(app, f"{name} {LOCK}"))
        await app.ask("P")
        await app.press(*"arith", "enter")
        await app.until(lambda: f"type {name}" in str(app.said("#dialog-problem")))
        await app.open(ModelsScreen, "escape")
        assert cells(app, f"{name} {LOCK}")
        await app.ask("P")
        await app.until_notice("no longer protected", *name, "enter")
        await app.until(lambda: cells(app, name))
        assert app.app.workspace.session.client.wire.guard.protected == {}


async def test_the_head_is_set_once_the_name_is_typed(served: Served) -> None:
    async with tree_of(served, 3) as (flown, model_id):
        protect(flown, model_id)
        before = await flown.head(model_id)
        await flown.agree("b")
        await named(flown)
        await flown.press("escape")
        await flown.until(lambda: flown.app.screen is flown.view)
        assert await flown.head(model_id) == before
        assert flown.net.sent == []
        await flown.agree("b")
        await named(flown)
        await noted(flown, "verified", *NAME, "enter")
        assert await flown.head(model_id) != before


@pytest.mark.parametrize("command", ["jobs", "status"])
async def test_a_job_is_cancelled_once_the_name_is_typed(served: Served, command: str) -> None:
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", 1))["id"])
        _, job_id = await training(served, 0, model_id)
        async with cockpit(served, Start(command, model=model_id)) as flown:
            protect(flown, model_id)
            await flown.until(lambda: flown.view.run.training)
            action = "cancel_job" if command == "jobs" else "cancel_run"
            await flown.until(lambda: command != "jobs" or getattr(flown.view, "jobs", None))
            await flown.until(lambda: flown.view.check_action(action, ()) is not False)
            await flown.open(ConfirmDialog, "X")
            await flown.press("y")
            await named(flown)
            assert await status(served, job_id) == "running"
            await flown.press(*NAME, "enter")

            async def over() -> bool:
                return await status(served, job_id) != "running"

            await until(over)
        await cancel(served, job_id)
