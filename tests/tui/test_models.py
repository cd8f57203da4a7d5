"""The Models view: the catalog as it is, and every key of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from textual.worker import WorkerState

from hud_tui.service.engines.base import About
from hud_tui.tui.screens import models
from hud_tui.tui.start import Start
from tests.conftest import Served, fork
from tests.toy_engine import ToyEngine
from tests.tui.cockpit import grow
from tests.tui.conftest import Connector, Opened, caller, forked, opened

HOSTILE = "a[/red]b"


@asynccontextmanager
async def catalog(served: Served, *names: str, **more: Any) -> AsyncIterator[Opened]:
    """The view over one's own models of these names, the first with two steps."""
    async with caller(served) as http:
        ids = [str((await fork(http, name))["id"]) for name in names]
        if ids:
            await grow(http, ids[0], 2)
    async with opened(Connector(served), Start("models"), **more) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.models is not None)
        yield app


def cells(app: Opened, name: str) -> list[str]:
    return next(
        [cell.plain for cell in row.cells]
        for row in app.screen.rows.rows
        if not row.heading and row.cells[1].plain == name
    )


def names(app: Opened) -> list[str]:
    return [row.cells[1].plain for row in app.screen.rows.rows if not row.heading]


def headings(app: Opened) -> list[str]:
    return [row.cells[0].plain for row in app.screen.rows.rows if row.heading and row.cells]


async def test_it_lists_own_models_apart_from_bases(served: Served) -> None:
    async with catalog(served, "one", "zero", "two", size=(120, 40)) as app:
        assert headings(app) == ["your models", "bases to fork"]
        assert names(app) == ["two", "zero", "one", "toy/four"]
        assert [cells(app, name)[3] for name in ("two", "zero", "toy/four")] == [
            *["▶ base"] * 2,
            "",
        ]
        await app.until(lambda: cells(app, "one")[3] == "▶ step-000002")
        assert cells(app, "one")[4] == "2"
        assert cells(app, "one")[5:7] == ["–", "–"], "nobody sampled its head yet"
        assert cells(app, "one")[9] == "toy/four"
        assert cells(app, "two")[0] == "●"
        assert cells(app, "one")[0] == " "


async def test_the_cursor_moves_by_arrows_and_letters(served: Served) -> None:
    async with catalog(served, "one", "two", "three") as app:
        here = [app.screen.rows.cursor]
        keys = "down j k up end home G g pagedown pageup ctrl+d ctrl+u"
        for key in keys.split():
            await app.press(key)
            here.append(app.screen.rows.cursor)
        assert here == [1, 2, 3, 2, 1, 6, 1, 6, 1, 6, 1, 6, 1]


async def test_enter_goes_to_live_to_launch_or_asks_for_a_fork_s_name(served: Served) -> None:
    async with catalog(served, "one", "two") as app:
        for keys, note, view_then, name in (
            (("home",), "selects two", "launch", "two"),
            (("home", "down"), "selects one", "live", "one"),
        ):
            await app.press(*keys)
            await app.until(lambda note=note: note in app.said("#note"))
            await app.press("enter", then=view_then)
            assert app.run.model.name == name
            await app.press("1", then="models")
        await app.ask("end", "enter")
        await app.press("enter", then="launch")
        assert app.run.model.name == "four-rl"


async def test_a_read_that_is_answered_late_leaves_the_cursor_where_a_key_put_it(
    served: Served,
) -> None:
    async with catalog(served, "one", "two") as app:
        await app.press("home", "down", "enter", then="live")
        async with caller(served) as http:
            await fork(http, "three")
        app.net.free = lambda: False
        await app.press("1", then="models")
        assert app.screen.rows.key == app.run.model.id
        await app.press("end")
        last = app.screen.rows.key
        app.net.free = lambda: True
        await app.until(lambda: "three" in names(app))
        assert app.screen.rows.key == last != app.run.model.id


async def test_a_name_that_cannot_be_a_fork_s_is_said_in_the_dialog(served: Served) -> None:
    async with catalog(served, "one", HOSTILE) as app:
        model = next(model for model in app.screen.models if model.name == HOSTILE)
        assert model.model_name in names(app), "a hostile name is only text"
        await app.ask("F")
        await app.press("delete", "enter")
        await app.until(lambda: "enter a name" in app.said("#dialog-problem"))
        await app.press(*"ONE")
        taken = "a model with this name exists"
        await app.until(lambda: taken in app.said("#dialog-problem"))
        await app.press("enter")
        assert taken in app.said("#dialog-problem")
        assert app.net.sent == []
        await app.press("escape", then="models")
        await app.ask("F")
        await forked(served, "raced")
        await app.press(*"raced", "enter")
        await app.until(lambda: "exists already" in app.said("#dialog-problem"))
        await app.press("ctrl+u", *"free", "enter", then="launch")
        assert app.net.sent == ["POST /v2/models/fork"] * 2


async def test_a_fork_that_never_arrived_is_said_and_one_whose_answer_is_lost_is_found(
    served: Served,
) -> None:
    async with catalog(served, "one") as app:
        app.net.path, app.net.lose = "/v2/models/fork", "request"
        await app.ask("F")
        await app.press(*"lost", "enter")
        await app.until(lambda: "no answer" in app.said("#dialog-problem"))
        assert app.net.sent == ["POST /v2/models/fork"]
        app.net.lose = "answer"
        await app.press("enter", then="launch")
        assert app.run.model.name == "lost"
        assert app.net.sent == ["POST /v2/models/fork"] * 2


async def test_the_filter_narrows_by_name_and_base_and_escape_clears_it(served: Served) -> None:
    async with catalog(served, "alpha", "beta") as app:
        await app.press("slash", *"alp")
        await app.until(lambda: names(app) == ["alpha"])
        await app.press("ctrl+u", *"toy bet")
        await app.until(lambda: names(app) == ["beta"])
        await app.press("enter")
        assert app.screen.focused is app.screen.rows
        await app.press("slash", *"xyz")
        await app.until(lambda: names(app) == [])
        assert "esc shows all" in app.said("#note")
        await app.press("escape")
        assert app.screen.focused is app.screen.rows
        assert names(app) == []
        await app.press("escape")
        await app.until(lambda: len(names(app)) == 3)
        assert not app.screen.filter_field.display


async def test_the_slug_is_copied_and_a_refused_catalog_is_told_and_read_again(
    served: Served,
) -> None:
    async with catalog(served, "my model") as app:
        assert not app.screen.query_one("#about").display, "on this machine"
        await app.press("y")
        assert app.app.clipboard == "my-model"
        await app.until_notice("copied 8 bytes: my-model")
        connection = app.app.workspace.session.client.wire
        kept, connection.http = connection.http, _refusing()
        await app.until_notice("the catalog is closed", "r")
        connection.http = kept
        await app.press("down")
        before = app.screen.rows.key
        await app.until(lambda: app.said("#about") == "Four ways to answer")
        await forked(served, "two")
        await app.press("r")
        await app.until(lambda: names(app) == ["two", "my-model", "toy/four"])
        assert app.screen.rows.key == before is not None, "the cursor stays on its model"


def _refusing() -> httpx.AsyncClient:
    answer = httpx.Response(403, json={"detail": "the catalog is closed"})
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))


async def test_a_model_on_a_server_says_which_and_what_its_queue_does_also_while_a_read_is_slow(
    served: Served, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "QUEUE_S", 0.05)
    engine.place = About("tinker", "http://trainer:8000", "active", 1, 7 * 86_400)
    async with catalog(served, "mine", size=(120, 40)) as app:
        await app.until(lambda: "http://trainer:8000" in app.said("#about"))
        assert app.said("#about") == (
            "tinker on http://trainer:8000 · queue active · 1 adapter slot in use"
            " · checkpoints kept for 7 d"
        )
        await app.pilot.resize_terminal(80, 24)
        await app.until(lambda: app.screen.query_one("#about").size.height == 2)
        engine.place = About("tinker", "http://trainer:8000", HOSTILE, 3)
        await app.until(lambda: "⚠" in app.said("#about"))
        assert f"⚠ {HOSTILE} · 3 adapter slots in use" in app.said("#about")
        assert app.said("#about").endswith("kept until deleted")

        app.net.holds, app.net.free = "/v2/models", lambda: False
        await app.until(lambda: app.net.held > 0)
        [slow] = [one for one in app.app.workers if one.group == "read" and one.is_running]
        looked = 0

        def look() -> None:
            nonlocal looked
            looked += 1

        app.screen.set_interval(models.QUEUE_S, look)
        await app.until(lambda: looked > 4)
        assert slow.is_running, "it is not begun again for the queue"
        app.net.free = lambda: True
        await app.until(lambda: slow.is_finished)
        assert slow.state is WorkerState.SUCCESS
