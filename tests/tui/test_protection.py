"""Protected models, and the app with --read-only: what says so, and what every key then does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.widgets import Button, Input

from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly
from hud_tui.keys import ACTIONS, VIEWS, WRITES, of_view
from hud_tui.tui.app import HudApp
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import TopLine
from hud_tui.tui.screens.dialogs import ConfirmDialog, Dialog, InputDialog
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.start import Start
from hud_tui.tui.theme import LOCK
from tests.conftest import Served, fork, until
from tests.tui.cockpit import Cockpit, cockpit, grow, grown
from tests.tui.conftest import Connector, Opened, caller, cancel, opened, status, training
from tests.tui.test_checkpoints import noted, tree_of
from tests.tui.test_models import catalog, cells

NAME = "arith-rl"


def protect(flown: Cockpit, model_id: str) -> None:
    flown.app.workspace.session.client.wire.guard.protection.protect(model_id, NAME, True)


async def named(flown: Cockpit) -> InputDialog:
    """The dialog that wants the name."""
    await flown.until_screen(InputDialog)
    await flown.until(lambda: isinstance(flown.app.screen.focused, Input))
    assert "is protected on this machine" in flown.dialog
    return flown.screen


async def test_a_key_protects_and_a_name_takes_that_back(served: Served) -> None:
    async with catalog(served, "arith-rl") as app:
        name = NAME
        await app.until_notice("choose a model of yours", "end", "P")
        await app.until(lambda: cells(app, name))
        app.screen.rows.select(next(m.id for m in app.screen.models or () if m.model_name == name))
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


WHY = ReadOnly("started with --read-only", "start without it to change something")
SAID = f"read-only: {WHY.why}\n{WHY.cure}"
KEYS = {
    "models": ("F",),
    "launch": ("ctrl+s", "T"),
    "live": ("X",),
    "checkpoints": ("H", "b", "u", "U", "T", "p", "F"),
    "jobs": ("X", "R"),
}


def read_only(served: Served) -> Connector:
    return Connector(served, guard=Guard(lambda: WHY))


@asynccontextmanager
async def looking(served: Served, view: str, width: int = 80) -> AsyncIterator[Opened]:
    """The app on a view, with a model that trains."""
    async with caller(served) as http:
        model_id = str((await fork(http))["id"])
        await grow(http, model_id, 2)
        _, job_id = await training(served, 0, model_id)
        commands = {"live": "status", "launch": "run"}
        start = Start(commands.get(view, view), model=model_id)
        async with opened(read_only(served), start, size=(width, 24)) as app:
            await app.until_view(view)
            screen = app.screen
            await app.until(lambda: screen.run.training and screen.run.loaded)
            yield app
        await cancel(served, job_id)


def test_what_changes_the_service_is_in_the_table() -> None:
    assert {action.id for action in ACTIONS} >= WRITES


async def test_a_key_that_would_change_something_says_why_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(HudApp, "notify", lambda app, text, **more: said.append(text))
    async with looking(served, "models") as app:
        for view, keys in KEYS.items():
            await app.press(str(VIEWS.index(view) + 1), then=view)
            await app.until(lambda: app.screen.run.training and app.screen.run.loaded)
            for key in keys:
                action = next(one for one in of_view(view) if key in one.keys.split(","))
                assert action.id in WRITES
                can, count = app.screen.check_action, said.count(SAID) + 1
                await app.until(lambda can=can, name=action.name: can(name, ()) is not False)
                await app.press(key)
                await app.until(lambda count=count: said.count(SAID) == count)
                assert not isinstance(app.screen, Dialog)
        assert app.net.sent == []


def _told(app: Opened) -> int:
    return app.notices.count(SAID)


async def test_the_top_line_says_so_and_neither_footer_help_nor_leaving_offers_a_change(
    served: Served,
) -> None:
    async with looking(served, "checkpoints") as app:
        top = app.screen.query_one(TopLine)
        for width in (120, 40, 28, 80):
            await app.pilot.resize_terminal(width, 24)
            await app.until(lambda width=width: top.size.width == width)
            await app.until(lambda: "read-only" in str(top.render()))
            shown = {action.id for action in app.screen.query_one(KeyLine).actions}
            assert shown
            assert not shown & WRITES
        await app.press("1", then="models")
        await app.press("question_mark", *"under a name")
        await app.until(lambda: app.screen.query("#help-list"))
        await app.press("enter")
        await app.until(lambda: _told(app) == 1)
        await app.press("3", then="live")
        await app.ask("q")
        assert [button.id for button in app.screen.query(Button)] == ["cancel", "leave"]
        await app.press("escape", then="live")
        assert app.net.sent == []


async def test_neither_enter_on_a_base_nor_the_button_sends_anything(served: Served) -> None:
    async with opened(read_only(served), Start("models")) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.query("#note") and "forks" in app.said("#note"))
        await app.press("enter")
        await app.until(lambda: _told(app) == 1)
        app.app.clear_notifications()  # the same is shown once
        await app.press("2", then="launch")
        button = app.screen.query_one("#submit", Button)
        button.disabled = False
        button.press()
        await app.until(lambda: _told(app) == 1)
        assert app.net.sent == []
