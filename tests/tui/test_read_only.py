"""The app with --read-only: it says so, every key that would change something says why not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.widgets import Button

from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly
from hud_tui.keys import ACTIONS, WRITES, of_view
from hud_tui.settings import Start
from hud_tui.tui.app import HudApp
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import HudScreen, TopLine
from hud_tui.tui.screens.dialogs import Dialog
from tests.conftest import Served, fork
from tests.tui.cockpit import grow
from tests.tui.conftest import Connector, Opened, caller, cancel, opened, training

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
            assert isinstance(screen, HudScreen)
            await app.until(lambda: screen.run.training and screen.run.loaded)
            yield app
        await cancel(served, job_id)


def test_what_changes_the_service_is_in_the_table() -> None:
    assert {action.id for action in ACTIONS} >= WRITES


@pytest.mark.parametrize("view", KEYS)
async def test_a_key_that_would_change_something_says_why_not(
    served: Served, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(HudApp, "notify", lambda app, text, **more: said.append(text))
    async with looking(served, view) as app:
        for count, key in enumerate(KEYS[view], 1):
            action = next(one for one in of_view(view) if key in one.keys.split(","))
            assert action.id in WRITES
            can = app.screen.check_action
            await app.until(lambda can=can, name=action.name: can(name, ()) is not False)
            await app.press(key)
            await app.until(lambda count=count: said.count(SAID) == count)
            assert not isinstance(app.screen, Dialog)
        assert app.net.sent == []


def _told(app: Opened) -> int:
    """How often it was said why not."""
    return app.notices.count(SAID)


@pytest.mark.parametrize("width", [120, 40, 28])
async def test_the_top_line_says_so_and_the_footer_has_no_such_key(
    served: Served, width: int
) -> None:
    async with looking(served, "checkpoints", width) as app:
        await app.until(lambda: "read-only" in str(app.screen.query_one(TopLine).render()))
        shown = {action.id for action in app.screen.query_one(KeyLine).actions}
        assert shown
        assert not shown & WRITES


async def test_neither_enter_on_a_base_nor_the_button_sends_anything(served: Served) -> None:
    async with opened(read_only(served), Start("models")) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.query("#note") and "forks" in app.said("#note"))
        await app.press("enter")
        await app.until(lambda: _told(app) == 1)
        app.app.clear_notifications()  # the same is shown once
        await app.press("2")
        await app.until_view("launch")
        button = app.screen.query_one("#submit", Button)
        button.disabled = False
        button.press()
        await app.until(lambda: _told(app) == 1)
        assert app.net.sent == []


async def test_the_palette_and_the_help_are_told_the_same(served: Served) -> None:
    async with looking(served, "models") as app:
        await app.press("question_mark", *"under a name")
        await app.until(lambda: app.screen.query("#help-list"))
        await app.press("enter")
        await app.until(lambda: _told(app) == 1)
        assert app.net.sent == []


async def test_leaving_does_not_offer_to_end_the_run(served: Served) -> None:
    async with looking(served, "live") as app:
        await app.press("q")
        await app.until_dialog()
        assert [button.id for button in app.screen.query(Button)] == ["cancel", "leave"]
        await app.press("escape")
        await app.until_view("live")
