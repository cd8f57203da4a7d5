"""What is left while it loads: the answer that comes late changes nothing, and ends nothing."""

from textual.screen import Screen

from hud_tui.keys import VIEWS
from hud_tui.settings import Start
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.chart_settings import OverlayList
from hud_tui.tui.screens.compare import TryPanel
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.set_head import HeadDialog
from tests.conftest import Served, until
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import Net, trained

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


async def test_what_loads_over_a_view_can_be_left(served: Served) -> None:
    await trained(served, 3, group_size=2, tasks_per_step=2)
    async with cockpit(served, Start("live")) as flown:
        for view, first, keys, kind in OVER:
            await flown.press(str(VIEWS.index(view) + 1), then=view)
            await flown.until(lambda: flown.view.run.loaded and not flown.net.held)
            await flown.press(*first)
            if view == "models":
                await flown.until(lambda kind=kind: isinstance(flown.screen, kind))
            await left_while_it_loads(flown, keys, kind)
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


async def test_a_view_that_loads_can_be_left(served: Served) -> None:
    await trained(served, 3, group_size=2, tasks_per_step=2)
    async with cockpit(served, Start("live")) as flown:
        await flown.until(lambda: flown.view.run.loaded)
        flown.net.free = lambda: False
        for key in "12456":
            await flown.press(key, "enter", "escape", "3", then="live")
        flown.net.free = lambda: True
        await until(lambda: not flown.net.held)
        await well(flown)


async def test_the_app_can_be_left_while_a_view_loads(served: Served) -> None:
    await trained(served, 3, group_size=2, tasks_per_step=2)
    for key in "125":
        async with cockpit(served, Start("live")) as flown:
            await flown.until(lambda flown=flown: flown.view.run.loaded)
            views = [flown.view]
            flown.net.free = lambda views=views: not any(view.children for view in views)
            await flown.press(key, then=VIEWS[int(key) - 1])
            views.append(flown.view)
            await flown.press("q")
        assert flown.app.crash is None
