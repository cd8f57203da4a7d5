"""The app and its panes, folds and filters open as they were left, in the next app."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from textual.widgets import Input

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound
from hud_tui.notebook import SALT, scope_of
from hud_tui.rl.groups import Order
from hud_tui.storage import JsonStore
from hud_tui.tui.app import HudApp
from hud_tui.tui.layout import Layout, LayoutStore, read_valid
from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.screens.jobs import Level
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.session import LOCAL
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.table import RowList
from hud_tui.tui.workspace import opening
from hud_tui.wire import Job, Model
from tests.conftest import Served, fork
from tests.tui import runs
from tests.tui.cockpit import grow, grown
from tests.tui.conftest import Connector, Opened, asked, settings_of
from tests.tui.still import StillClient

AGAIN = Start(again=True)
"""``hud-tui`` alone."""


class Account(Connector):
    """The service, with a key of one's own where one is given."""

    def __init__(self, served: Served, key: str = "") -> None:
        super().__init__(served)
        self.key = key

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        assert self.served is not None
        settings = settings_of(self.served)
        client = HudClient(settings, self.net)
        if self.key:  # the service takes one key only; what is kept goes by another
            client.settings = replace(settings, api_key=self.key)
        return client


@asynccontextmanager
async def session(
    served: Served,
    state: Path,
    start: Start = AGAIN,
    mode: str = "local",
    size: tuple[int, int] = (120, 40),
    key: str = "",
) -> AsyncIterator[Opened]:
    """One run of the program; the next one with the same state directory comes after it."""
    connector = Account(served, key)
    app = HudApp(connector, mode, asked(start), state=lambda: state)
    async with app.run_test(size=size, notifications=True) as pilot:
        opened = Opened(app, pilot, connector)
        await opened.until(lambda: app.shown_view is not None and app.shown_view.is_built)
        yield opened


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory, which is there but empty."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
async def models(http: httpx.AsyncClient) -> list[Any]:
    """Two models of one's own, ``first`` with steps and the newer ``second`` with some too."""
    return [await grown(http, name, 3) for name in ("first", "second")]


def layout_file(state: Path, served: Served, key: str = "") -> Path:
    scope = scope_of(state, LOCAL, key or served.api_key)
    return state / f"layout-{scope}.json"


def follows(app: Opened, name: str) -> bool:
    model = app.run.model
    return model is not None and model.model_name == name and app.run.loaded


async def test_the_model_and_the_view_are_those_that_were_left(
    served: Served, models: list[Any], state: Path
) -> None:
    async with session(served, state) as app:
        await app.until_view("live")
        await app.until(lambda: follows(app, "second"))
    async with session(served, state, Start("status", model="first")) as app:
        await app.until(lambda: follows(app, "first"))
        await app.press("4", then="checkpoints")
    async with session(served, state) as app:
        await app.until_view("checkpoints")
        await app.until(lambda: follows(app, "first"))


FIRST, SECOND = (runs.MODEL.model_copy(update={"id": id_, "model_name": id_}) for id_ in "ab")
TRAINED = Job(id="j1", status="succeeded", metadata={"kind": "training", "model_id": "a"})
LEFT = Layout(model="a", model_name="a", view="jobs")
OPENED: list[tuple[Start, Layout, list[Job], tuple[str, str | None, str]]] = [
    (Start("status"), Layout(), [], ("live", "b", "")),
    (Start("status"), Layout(), [TRAINED], ("live", "a", "")),
    (Start("status", model="a"), Layout(), [], ("live", "a", "")),
    (Start("status", ref="j1"), Layout(), [TRAINED], ("live", "a", "")),
    (Start("status", model="no"), Layout(), [], ("models", "b", "no model named no")),
    (Start("status", ref="no"), Layout(), [], ("models", "b", "no job")),
    (AGAIN, Layout(), [], ("live", "b", "")),
    (AGAIN, LEFT, [], ("jobs", "a", "")),
    (AGAIN, replace(LEFT, model="c", model_name="c"), [], ("models", "b", "c, selected last")),
    (Start("models"), LEFT, [], ("models", "a", "")),
    (Start("head", model="b"), LEFT, [], ("checkpoints", "b", "")),
    (Start("status"), LEFT, [], ("live", "b", "")),  # the newest run's, as it says
]


class Jobs(StillClient):
    """A service with these models, newest first, and these jobs."""

    def __init__(self, models: list[Model], jobs: list[Job]) -> None:
        super().__init__()
        self.known = {model.id: (model, ()) for model in models}
        self.listed = jobs

    async def jobs(self, limit: int = 200) -> list[Job]:
        return self.listed

    async def job(self, job_id: str) -> Job:
        for job in self.listed:
            if job.id == job_id:
                return job
        raise HudNotFound(404, "no such job")


@pytest.mark.parametrize(("start", "left", "jobs", "opens"), OPENED)
async def test_a_command_goes_before_what_was_left_and_that_before_the_newest_run(
    start: Start, left: Layout, jobs: list[Job], opens: tuple[str, str | None, str]
) -> None:
    client: Any = Jobs([SECOND, FIRST], jobs)
    first = await opening(client, start if start.again else asked(start), left)
    view, model, trouble = opens
    assert (first.view, first.model and first.model.id) == (view, model)
    assert trouble in str(first.trouble or "")
    assert bool(trouble) is (first.trouble is not None)


async def test_before_there_is_a_model_the_app_begins_at_the_beginning() -> None:
    client: Any = Jobs([], [])
    for start in (AGAIN, asked(Start("status")), asked(Start("head"))):
        assert (await opening(client, start, LEFT if start.again else Layout())).view == "models"


async def test_what_is_played_keeps_nothing(served: Served, models: list[Any], state: Path) -> None:
    async with session(served, state, mode="replay") as app:
        await app.press("4", then="checkpoints")
    assert os.listdir(state) == []


async def test_another_key_opens_as_if_for_the_first_time(
    served: Served, models: list[Any], state: Path
) -> None:
    async with session(served, state, Start("checkpoints", model="first")) as app:
        await app.until(lambda: follows(app, "first"))
    async with session(served, state, key="hud-another") as app:
        await app.until_view("live")
        await app.until(lambda: follows(app, "second"))
    assert {SALT, layout_file(state, served).name} < set(os.listdir(state))
    assert layout_file(state, served, "hud-another").exists()
    names = [name for name in os.listdir(state) if name.endswith(".json")]
    kept = "".join((state / name).read_text() for name in names)
    assert served.api_key not in kept
    assert "hud-another" not in kept


async def test_a_broken_or_newer_file_is_told_and_left(
    served: Served, models: list[Any], state: Path
) -> None:
    file = layout_file(state, served)
    file.write_text('{"version": 2, "view": "jobs"}')
    async with session(served, state) as app:
        await app.until_notice(f"{file}: version: 2, and this hud-tui knows 1 only")
        await app.until_view("live")
        await app.press("4", then="checkpoints")
    assert file.read_text() == '{"version": 2, "view": "jobs"}'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"view": "live",}', "line 1, column "),
        ('{"view": "home"}', "view: expected one of models"),
        ('{"unfolded": {"m": [["a"]]}}', "unfolded.m.0"),
        ('{"model": 7}', "model: Input should be a valid string"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(state: Path, body: str, said: str) -> None:
    (state / "layout-x.json").write_text(body)
    store = JsonStore(lambda: state)
    layout = LayoutStore(store, "x")
    layout.arrange(view="jobs")
    store.flush()
    [problem] = store.problems()
    assert problem.startswith(f"{state / 'layout-x.json'}: {said}")
    assert (state / "layout-x.json").read_text() == body


def test_two_apps_at_once_keep_each_others_choices(state: Path) -> None:
    one, two = (JsonStore(lambda: state) for _ in range(2))
    first, second = LayoutStore(one, "x"), LayoutStore(two, "x")
    for store, layout, choice in (
        (one, first, {"models_filter": "tiny"}),
        (two, second, {"jobs_filter": "arith"}),
        (one, first, {"full_pane": True}),
    ):
        layout.arrange(**choice)
        store.flush()
    kept = read_valid(JsonStore(lambda: state), "layout-x", Layout)
    assert (kept.models_filter, kept.jobs_filter, kept.full_pane) == ("tiny", "arith", True)
    assert os.listdir(state) == ["layout-x.json"]


def test_every_field_comes_back(state: Path) -> None:
    store = JsonStore(lambda: state)
    file = state / "layout-x.json"
    odd: dict[str, Any] = {
        "view": "jobs",
        "pane": "groups",
        "face": "waste",
        "order": "signal first",
    }
    odd |= {"unfolded": {"m": [["a", "b"]]}, "details": False, "full_pane": True}
    file.write_text(json.dumps({**asdict(Layout()), "model": "m", **odd, "more": 1}))
    layout = read_valid(store, "layout-x", Layout)
    assert store.problems() == []
    assert layout.unfolded == {"m": (("a", "b"),)}
    assert json.loads(json.dumps(asdict(layout))) == {**asdict(Layout()), "model": "m", **odd}


async def test_a_salt_that_others_can_read_is_told_once_and_nothing_is_kept(
    served: Served, models: list[Any], state: Path
) -> None:
    kept = layout_file(state, served)
    (state / SALT).chmod(0o644)
    async with session(served, state, Start("checkpoints", model="first")) as app:
        await app.until(lambda: follows(app, "first"))
        await app.until(lambda: app.told)
        told = [notice for notice in app.told if "accounts.salt" in notice]
        assert len(told) == 1
        assert (
            "others can access it (mode 0644, not 0600). Nothing is saved for this account"
            in told[0]
        )
    assert not kept.exists()


@pytest.fixture
async def model(http: httpx.AsyncClient) -> Any:
    """A model with a straight run that folds, and a younger one without a step."""
    made = await grown(http, "mine", 14)
    await fork(http, "other")
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


async def test_what_is_folded_of_a_model_s_tree(served: Served, model: Any, state: Path) -> None:
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) == 15)
        await app.press("a")
        await app.until(lambda: len(tree(app).tree_list.rows) < 15)
        folded = len(tree(app).tree_list.rows)
    async with session(served, state) as app:
        await until_tree(app, folded)
        await app.press("1", then="models")
        view = app.screen
        await app.until(lambda: len(view.rows.rows) > 2)
        view.rows.select(next(m.id for m in view.models or () if m.model_name == "other"))
        await app.press("enter")
        await app.until(lambda: follows(app, "other"))
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await until_tree(app, folded)
        await app.press("a")
        await app.until(lambda: len(tree(app).tree_list.rows) == 15)
        [(_, unfolded)] = app.app.workspace.context.layout.now.unfolded.items()
        assert len(unfolded) == 1


async def test_a_tree_s_filter_holds_for_the_next_model_too(
    served: Served, http: httpx.AsyncClient, model: Any, state: Path
) -> None:
    """What the field says is what is listed."""
    models = (await http.get("/v2/models")).json()["items"]
    await grow(http, next(model["id"] for model in models if model["model_name"] == "other"), 4)
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
        await app.until(lambda: view.filter_field.value == "none" and view.filter_field.display)
        view.level = Level.TRACES
        await app.until(lambda: view.filter_field.value == "")
        view.level = Level.JOBS
        await app.until(lambda: view.filter_field.value == "none")
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
    async with session(served, state, Start("status", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and app.run.loaded)
        for view, key in views:
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


async def test_a_reset_shows_every_view_as_at_first(
    served: Served, model: Any, state: Path
) -> None:
    async with session(served, state, Start("checkpoints", model="mine")) as app:
        await app.until(lambda: follows(app, "mine") and len(tree(app).tree_list.rows) > 1)
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
        await app.until(lambda: not tree(app).tree_list.lanes.unfolded.runs)
        await app.until(lambda: len(tree(app).tree_list.rows) > 1)
        await app.until(lambda: tree(app).details_pane.display)
        assert tree(app).filter_field.value == ""
