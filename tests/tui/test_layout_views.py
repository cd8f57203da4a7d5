"""Panes, folds and filters of the views are those that were left, in the next app."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from textual.widgets import Input

from hud_tui.rl.groups import Order
from hud_tui.settings import Start
from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.screens.jobs import Level
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.row_list import RowList
from tests.conftest import Served
from tests.tui.cockpit import grow
from tests.tui.conftest import Opened
from tests.tui.test_layout import follows, session, state

__all__ = ["state"]


@pytest.fixture
async def model(http: httpx.AsyncClient) -> Any:
    """A model with a straight run that folds, and a younger one without a step."""
    base = (await http.get("/v2/models")).json()["items"][0]["id"]
    body = {"source_model_id": base, "name": "mine"}
    made = (await http.post("/v2/models/fork", json=body)).json()
    await grow(http, made["id"], 14)
    await http.post("/v2/models/fork", json={"source_model_id": base, "name": "other"})
    return made


def live(app: Opened) -> LiveScreen:
    assert isinstance(app.screen, LiveScreen)
    return app.screen


def tree(app: Opened) -> CheckpointsScreen:
    assert isinstance(app.screen, CheckpointsScreen)
    return app.screen


async def until_tree(app: Opened, rows: int) -> None:
    await app.until_view("checkpoints")
    await app.until(lambda: len(tree(app).run.tree) == 14 and len(tree(app).tree_list.rows) == rows)


async def test_the_tree_s_filter_and_details(served: Served, model: Any, state: Path) -> None:
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 1)
        assert tree(app).details_pane.display
        await app.press("d", "slash", *"step:3..5", "enter")
        await app.until(lambda: len(tree(app).tree_list.rows) == 3)
    async with session(served, state) as app:
        await until_tree(app, 3)
        assert tree(app).filter_field.value == "step:3..5"
        assert tree(app).filter_field.display
        assert tree(app).focused is tree(app).tree_list
        assert not tree(app).details_pane.display
        await app.press("d")
        await app.until(lambda: tree(app).details_pane.display)
        await app.press("escape")
        await app.until(lambda: len(tree(app).tree_list.rows) > 3)
    async with session(served, state) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 3)
        assert not tree(app).filter_field.display
        assert tree(app).details_pane.display


async def test_what_is_folded_of_a_model_s_tree(served: Served, model: Any, state: Path) -> None:
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 1)
        folded = len(tree(app).tree_list.rows)
        assert folded < 15
        await app.press("a")
        await app.until(lambda: len(tree(app).tree_list.rows) == 15)
    async with session(served, state) as app:
        await until_tree(app, 15)
        await app.press("1", then="models")
        view = app.screen
        await app.until(lambda: len(view.rows.rows) > 2)
        view.rows.select(next(m.id for m in view.models or () if m.model_name == "other"))
        await app.press("enter")
        await app.until(lambda: follows(app, "other"))
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await until_tree(app, 15)
        await app.press("a")
        await app.until(lambda: len(tree(app).tree_list.rows) == folded)
    async with session(served, state) as app:
        await until_tree(app, folded)
        assert app.app.workspace.context.layout.now.unfolded == {}


async def test_a_tree_s_filter_holds_for_the_next_model_too(
    served: Served, http: httpx.AsyncClient, model: Any, state: Path
) -> None:
    """What the field says is what is listed."""
    models = (await http.get("/v2/models")).json()["items"]
    await grow(http, next(one["id"] for one in models if one["model_name"] == "other"), 4)
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 1)
        await app.press("slash", *"step:2", "enter")
        await app.until(lambda: len(tree(app).tree_list.rows) == 1)
        app.app.workspace.session.choose(
            next(one for one in app.app.workspace.session.catalog if one.model_name == "other")
        )
        await app.until(lambda: follows(app, "other") and len(tree(app).run.tree) == 4)
        await app.until(lambda: len(tree(app).tree_list.rows) == 1)


async def test_the_panes_of_live(served: Served, model: Any, state: Path) -> None:
    async with session(served, state, Start("status", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(live(app).charts.keys) > 2)
        await app.until(lambda: live(app).focused is live(app).metrics)
        await app.press("l")
        await app.until(lambda: live(app).focus_key == live(app).charts.keys[1])
        chart = live(app).focus_key
        await app.press("enter", "tab")
        await app.until(lambda: live(app).focused is live(app).query_one(GroupGrid))
        await app.press("v", "o")
        await app.until(lambda: live(app).full)
    async with session(served, state) as app:
        await app.until_view("live")
        await app.until(lambda: follows(app, "mine") and len(live(app).charts.keys) > 2)
        groups = live(app).query_one(GroupGrid)
        await app.until(lambda: live(app).focused is groups)
        assert (live(app).pane, live(app).full) == ("groups", True)
        assert (groups.face, groups.order) == (Face.STRIP, Order.TASK)
        assert live(app).focus_key == chart
        await app.press("escape")
        await app.until(lambda: not live(app).full)
        await app.press("tab")
        await app.until(lambda: live(app).pane == "events")
    async with session(served, state, size=(80, 24)) as app:
        await app.until_view("live")
        await app.until(lambda: live(app).pane == "events" and not live(app).full)


async def test_the_filter_of_models(served: Served, model: Any, state: Path) -> None:
    async with session(served, state, Start("models", model="mine")) as app:
        await app.until_view("models")
        await app.press("slash", *"oth", "enter")
        await app.until(lambda: names(app) == ["other"])
    async with session(served, state) as app:
        await app.until_view("models")
        await app.until(lambda: names(app) == ["other"])
        field = app.screen.query_one("#filter", Input)
        assert (field.value, field.display) == ("oth", True)
        assert not field.has_focus
        await app.press("escape")
        await app.until(lambda: len(names(app)) > 1)
    async with session(served, state) as app:
        await app.until_view("models")
        await app.until(lambda: len(names(app)) > 1)
        assert not app.screen.query_one("#filter", Input).display


def names(app: Opened) -> list[str]:
    view = app.screen
    assert isinstance(view, ModelsScreen)
    ids = [row.key for row in view.rows.rows if not row.heading]
    return [one.model_name for one in view.models or () if one.id in ids]


async def test_the_filter_of_jobs_while_one_is_looked_at_too(
    served: Served, http: httpx.AsyncClient, model: Any, state: Path
) -> None:
    async with session(served, state, Start("jobs", model="mine")) as app:
        await app.until_view("jobs")
        await app.press("slash", *"none", "enter")
        await app.until(lambda: app.app.workspace.context.layout.now.jobs_filter == "none")
    async with session(served, state) as app:
        await app.until_view("jobs")
        view = app.screen
        await app.until(lambda: view.browser.field.value == "none" and view.browser.field.display)
        view.browser.level = Level.TRACES
        await app.until(lambda: view.browser.field.value == "")
        view.browser.level = Level.JOBS
        await app.until(lambda: view.browser.field.value == "none")
        assert app.app.workspace.context.layout.now.jobs_filter == "none"
        await app.press("escape")
        await app.until(lambda: app.app.workspace.context.layout.now.jobs_filter == "")


@pytest.mark.parametrize("text", ["mine", "none"])
async def test_a_remembered_filter_does_not_take_the_keys(
    served: Served, http: httpx.AsyncClient, model: Any, state: Path, text: str
) -> None:
    """The keys go to the list, whether or not a row is left; escape clears the filter."""
    for _ in range(2):
        job = uuid4().hex
        await http.post(f"/v2/trace/job/{job}/enter", json={"name": f"mine {job}"})
    views = (("jobs", "6"), ("models", "1"), ("checkpoints", "4"))
    async with session(served, state, Start("jobs", model="mine")) as app:
        for view, key in views:
            await app.press(key, then=view)
            await app.until(lambda: bool(app.screen.focused))
            await app.press("slash", *text, "enter")
    for view, key in views:
        async with session(served, state, Start("status", model="mine")) as app:
            await app.until(lambda: follows(app, "mine") and app.run.loaded)
            app.net.free = lambda: False  # the view has nothing to list at first
            await app.press(key, then=view)
            field = app.screen.query_one(FilterField)
            await app.until(lambda field=field: field.value == text and field.display)
            await app.press("down", "j", "k")
            assert (field.value, field.has_focus) == (text, False)
            app.net.free = lambda: True
            if text == "mine" and view != "checkpoints":
                await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("slash", "x", "escape", "escape")
            await app.until(lambda field=field: field.value == "" and not field.display)
            await app.until(lambda: bool(app.screen.focused))
            await app.press("slash", *text, "enter")


async def test_a_reset_shows_every_view_as_at_first(
    served: Served, model: Any, state: Path
) -> None:
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 1)
        folded = len(tree(app).tree_list.rows)
        await app.press("a", "d", "slash", *"step:3", "enter")
        await app.until(lambda: len(tree(app).tree_list.rows) == 1)
        await app.press("3", then="live")
        await app.until(lambda: live(app).focused is live(app).metrics)
        await app.press("escape", "enter", "tab", "L")
        await app.until(lambda: live(app).full and live(app).chart_view.log and live(app).focused)
        assert "back to their defaults" in await app.ask("ctrl+l")
        await app.press("escape", then="live")
        assert live(app).full
        await app.agree("ctrl+l")
        await app.until(lambda: app.screen is app.app.shown_view and not live(app).full)
        assert not live(app).chart_view.log
        assert app.notices == []
        await app.until(lambda: live(app).focused is live(app).metrics)
        await app.press("4", then="checkpoints")
        await app.until(lambda: not tree(app).tree_list.lanes.unfolded)
        await app.until(lambda: len(tree(app).tree_list.rows) > 1)
        await app.until(lambda: tree(app).details_pane.display)
        assert tree(app).filter_field.value == ""
    async with session(served, state) as app:
        await until_tree(app, folded)
        assert follows(app, "mine")
