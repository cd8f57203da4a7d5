"""The app opens as it was left: quit it, open another on the same state directory, and look."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.notebook import SALT, scope_of
from hud_tui.settings import Start
from hud_tui.storage import JsonStore
from hud_tui.tui.app import HudApp
from hud_tui.tui.layout import Layout, read_layout
from hud_tui.tui.session import LOCAL
from tests.conftest import Served
from tests.tui.cockpit import grow
from tests.tui.conftest import Connector, Opened, asked, settings_of

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
    base = (await http.get("/v2/models")).json()["items"][0]["id"]
    made = []
    for name in ("first", "second"):
        body = {"source_model_id": base, "name": name}
        made.append((await http.post("/v2/models/fork", json=body)).json())
        await grow(http, made[-1]["id"], 3)
    return made


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
        await app.press("6", then="jobs")
        await app.press("question_mark", "escape")
    async with session(served, state) as app:
        await app.until_view("jobs")
        await app.until(lambda: follows(app, "first"))


async def test_a_command_goes_before_what_was_left(
    served: Served, models: list[Any], state: Path
) -> None:
    async with session(served, state, Start("checkpoints", model="first")) as app:
        await app.until(lambda: follows(app, "first"))
    async with session(served, state, Start("models")) as app:
        await app.until_view("models")
        await app.until(lambda: follows(app, "first"))
    async with session(served, state, Start("head", model="second")) as app:
        await app.until_view("checkpoints")
        await app.until(lambda: follows(app, "second"))
    async with session(served, state, Start("models", model="first")):
        pass
    async with session(served, state, Start("status")) as app:
        await app.until_view("live")
        await app.until(lambda: follows(app, "second"))  # the newest run's, as it says


async def test_a_model_that_is_gone_is_told_and_models_is_shown(
    served: Served, models: list[Any], state: Path
) -> None:
    async with session(served, state, Start("checkpoints", model="first")) as app:
        await app.until(lambda: follows(app, "first"))
    file = layout_file(state, served)
    file.write_text(file.read_text().replace(models[0]["id"], "gone"))
    async with session(served, state) as app:
        await app.until_notice("first, selected last time, no longer exists: choose another model")
        await app.until_view("models")
    async with session(served, state) as app:
        await app.until_view("models")
        assert app.notices == []


async def test_before_there_is_a_model_the_app_begins_at_the_beginning(
    served: Served, state: Path
) -> None:
    async with session(served, state) as app:
        await app.until_view("models")
        await app.press("6", then="jobs")
    async with session(served, state) as app:
        await app.until_view("models")


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
        await app.press("6", then="jobs")
    async with session(served, state) as app:
        await app.until_view("checkpoints")
        await app.until(lambda: follows(app, "first"))
    assert {SALT, layout_file(state, served).name} < set(os.listdir(state))
    assert layout_file(state, served, "hud-another").exists()
    names = [name for name in os.listdir(state) if name.endswith(".json")]
    kept = "".join((state / name).read_text() for name in names)
    assert served.api_key not in kept
    assert "hud-another" not in kept


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"view": "live",}', "line 1, column "),
        ('{"version": 2, "view": "jobs"}', "version: 2, and this hud-tui knows 1 only"),
        ('{"view": "home"}', "view: expected one of models"),
        ('{"unfolded": {"m": [["a"]]}}', "unfolded.m.0"),
        ('{"model": 7}', "model: Input should be a valid string"),
    ],
)
async def test_a_broken_or_newer_file_is_told_and_left(
    served: Served, models: list[Any], state: Path, body: str, said: str
) -> None:
    file = layout_file(state, served)
    file.write_text(body)
    async with session(served, state) as app:
        await app.until_notice(f"{file}: {said}")
        await app.until_view("live")
        await app.press("4", then="checkpoints")
    assert file.read_text() == body


async def test_two_apps_at_once_keep_each_others_choices(
    served: Served, models: list[Any], state: Path
) -> None:
    async with session(served, state) as one:
        one.app.workspace.context.layout.arrange(models_filter="tiny")
        one.app.store.flush()
        async with session(served, state) as two:
            two.app.workspace.context.layout.arrange(jobs_filter="arith")
            one.app.workspace.context.layout.arrange(full_pane=True)
        two_left = json.loads(layout_file(state, served).read_text())
        assert (two_left["models_filter"], two_left["jobs_filter"]) == ("tiny", "arith")
    kept = read_layout(JsonStore(lambda: state), layout_file(state, served).stem[7:])
    assert (kept.models_filter, kept.jobs_filter, kept.full_pane) == ("tiny", "arith", True)
    assert not [name for name in os.listdir(state) if name.endswith(".tmp")]


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
    found = read_layout(store, "x")
    assert store.problems() == []
    assert found.unfolded == {"m": (("a", "b"),)}
    assert json.loads(json.dumps(asdict(found))) == {**asdict(Layout()), "model": "m", **odd}


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
