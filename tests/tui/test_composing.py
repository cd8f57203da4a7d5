"""News that come while a view is composed, loads or goes: they wait, or are dropped."""

from asyncio import CancelledError, sleep
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from hud_tui.events import WorkChanged
from hud_tui.keys import VIEWS
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.chart_settings import OverlayList
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.set_head import HeadDialog
from hud_tui.tui.screens.try_prompt import TryPanel
from hud_tui.tui.start import Start
from hud_tui.wire import WorkState
from tests.conftest import Served, until
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import Connector, Net, forked, opened, run_of, trained


def news(app: HudApp) -> None:
    """The followed model's job has changed, and a frame is due."""
    busy = run_of(app).training
    status = WorkState(status="succeeded" if busy else "running", id="j1", step=1, steps=2)
    app.workspace.session.fold(WorkChanged(work=status))


@contextmanager
def at_every_widget(
    monkeypatch: pytest.MonkeyPatch, app: HudApp, calls: list[Any]
) -> Iterator[None]:
    """Send news before and after the widgets of every node of the screen are mounted."""
    mount = Widget.mount_composed_widgets

    async def mount_with_news(node: Widget, widgets: list[Widget]) -> None:
        calls.append(node)
        news(app)
        await mount(node, widgets)
        news(app)

    with monkeypatch.context() as patched:
        patched.setattr(Widget, "mount_composed_widgets", mount_with_news)
        yield


async def test_news_while_a_view_is_composed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await forked(served)
    async with opened(Connector(served), Start("jobs")) as app:
        await app.until_view("jobs")
        await app.until(lambda: app.screen.is_mounted)
        for view in (one for one in VIEWS if one != "jobs"):
            composed: list[Any] = []
            with at_every_widget(monkeypatch, app.app, composed):
                await app.app.action_view(view)
                await app.until(lambda: app.screen.is_mounted)
            assert composed, view
            assert getattr(app.screen, "VIEW", "") == view
            await app.until(lambda: app.screen.run is app.run)
            assert app.app._exception is None
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        with at_every_widget(monkeypatch, app.app, composed):
            await app.app.action_view("jobs")
            await app.until(lambda: app.screen.is_mounted)
        await app.until(lambda: app.screen.run is app.run)


async def test_what_is_waited_for_can_be_said_before_the_screen_is_composed() -> None:
    app = HudApp(Connector(None), None, Start())
    mount = Widget.mount_composed_widgets
    said: list[bool] = []

    async def mount_after_words(node: Widget, widgets: list[Widget]) -> None:
        app.connect_screen.wait("connecting…")
        said.append(app.connect_screen.is_mounted)
        await mount(node, widgets)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Widget, "mount_composed_widgets", mount_after_words)
        async with app.run_test():
            assert said[0] is False


async def test_news_while_the_app_ends(served: Served) -> None:
    await forked(served)
    async with opened(Connector(served), Start("run")) as app:
        await app.until_view("launch")
        await app.until(lambda: app.screen.is_mounted)
        shown = app.screen.run
        app.app.exit()
        news(app.app)
        assert app.screen.run is shown


async def test_an_answer_to_a_dialog_that_was_left_is_dropped(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        answered: list[str] = []

        async def accept(text: str) -> str:
            dialog.dismiss(None)
            answered.append(text)
            return ""

        dialog = InputDialog("Name it", [], "Name", value="mine", accept=accept)
        app.app.push_screen(dialog)
        await app.until_dialog()
        await app.press("enter")
        await app.until(lambda: answered)
        await app.until_view("models")
        assert app.app._exception is None


async def test_an_answer_to_a_view_that_is_gone_ends_its_worker(served: Served) -> None:
    async with opened(Connector(served), Start("jobs")) as app:
        await app.until_view("jobs")
        view = app.app.shown_view
        await app.until(lambda: view.is_built)
        assert await view.attempt(sleep(0, "heard")) == "heard"
    with pytest.raises(CancelledError):
        await view.attempt(sleep(0, "too late"))


async def test_no_view_begins_in_a_field_that_nobody_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    focused: list[Widget | None] = []
    focus = Screen.set_focus

    def noted(screen: Screen[object], widget: Widget | None, *how: bool, **more: bool) -> None:
        focused.append(widget)
        focus(screen, widget, *how, **more)

    monkeypatch.setattr(Screen, "set_focus", noted)
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        for opens in ("C", *"2345671"):
            view = app.screen
            await app.press(opens)
            await app.until(lambda view=view: app.screen is not view)
            await app.until(lambda: app.screen.is_mounted and focused)
            assert [type(one) for one in focused if isinstance(one, Input)] == [], opens
            if opens == "C":
                await app.press("escape", then="models")


OVER: list[tuple[str, tuple[str, ...], tuple[str, ...], type[Screen[object]]]] = [
    ("live", ("tab",), ("enter",), GroupScreen),
    ("live", (), ("c",), OverlayList),
    ("checkpoints", ("G", "up"), ("H",), HeadDialog),
    ("checkpoints", ("G", "up"), ("T",), TryPanel),
    ("models", ("F",), (*"late", "enter"), InputDialog),
]
"""The view, the keys to what loads, those that make it load, and what then lies over the view."""


async def well(flown: Cockpit) -> None:
    """The app goes on: every view can be shown."""
    for number, view in enumerate(VIEWS, 1):
        await flown.press(str(number), then=view)
    assert flown.app.crash is None


async def test_what_loads_can_be_left(served: Served) -> None:
    await trained(served, 3, group_size=2, tasks_per_step=2)
    async with cockpit(served, Start("live")) as flown:
        for view, first, keys, kind in OVER:
            await flown.press(str(VIEWS.index(view) + 1), then=view)
            await flown.until(lambda: flown.view.run.loaded and not flown.net.held)
            if view == "models":
                await flown.until(lambda: flown.view.models)
                await flown.open(kind, *first)
            else:
                await flown.press(*first)
            await left_while_it_loads(flown, keys, kind)
        await flown.press("3", then="live")
        flown.net.free = lambda: False
        for key in "12456":
            await flown.press(key, "enter", "escape", "3", then="live")
        flown.net.free = lambda: True
        await until(lambda: not flown.net.held)
        await well(flown)


async def left_while_it_loads(
    flown: Cockpit, keys: tuple[str, ...], kind: type[Screen[object]]
) -> None:
    flown.net.free = lambda: False
    await flown.press(*keys)
    await flown.until(lambda: isinstance(flown.screen, kind) and flown.net.held)
    over, flown.net.look_s = flown.screen, 0.0
    flown.net.free = lambda: not over.children  # just after its widgets, before itself
    await flown.open(HudScreen, "escape")
    await until(lambda: not flown.net.held)
    flown.net.free, flown.net.look_s = lambda: True, Net.look_s
    assert flown.app.crash is None


async def test_the_app_can_be_left_while_a_view_loads(served: Served) -> None:
    await trained(served, 3, group_size=2, tasks_per_step=2)
    for key in "15":
        async with cockpit(served, Start("live")) as flown:
            await flown.until(lambda flown=flown: flown.view.run.loaded)
            views = [flown.view]
            flown.net.free = lambda views=views: not any(view.children for view in views)
            await flown.press(key, then=VIEWS[int(key) - 1])
            views.append(flown.view)
            await flown.press("q")
        assert flown.app.crash is None
