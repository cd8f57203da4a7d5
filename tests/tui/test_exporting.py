"""``e`` in every view: what is on the screen, in a new file."""

import asyncio
import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from hud_tui.keys import VIEWS
from hud_tui.settings import Start
from hud_tui.tui.app import Options
from hud_tui.tui.screens.dialogs import ChoiceDialog
from tests.conftest import Served
from tests.tui.cockpit import grown
from tests.tui.conftest import Connector, Opened, opened

SVG = "{http://www.w3.org/2000/svg}"
KEYS = {view: str(place) for place, view in enumerate(VIEWS, 1)}


@pytest.fixture
async def model(http: httpx.AsyncClient) -> Any:
    """A model with three steps."""
    return await grown(http, "mine", 3)


async def exported(app: Opened, place: Path, choice: str) -> Path:
    """Press the key, choose, and wait for the file; it is what the notice says."""
    before = set(os.listdir(place))
    said = await app.ask("ctrl+e")
    assert str(place) in said
    app.screen.query_one(f"#{choice}").focus()
    await app.press("enter")
    await app.until(lambda: any("wrote " in notice for notice in app.told))
    [new] = set(os.listdir(place)) - before
    await app.until_notice(str(place / new))
    app.app.clear_notifications()
    return place / new


def into(directory: Path) -> dict[str, Any]:
    """An app that exports to this directory."""
    return {"options": Options(export_dir=directory)}


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


async def test_every_view_is_exported_as_it_is(served: Served, model: Any, tmp_path: Path) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 40), **into(tmp_path)) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.series.length == 3)
        for view, key in KEYS.items():
            await app.press(key, then=view)
            file = await exported(app, tmp_path, "svg")
            assert file.name == f"mine-{view}.svg"
            assert ElementTree.fromstring(file.read_text("utf-8")).tag == f"{SVG}svg"
            if view == "checkpoints":
                assert "step-000003" in file.read_text("utf-8")


TABLES: dict[str, Callable[[list[dict[str, str]], Any], bool]] = {
    "models": lambda rows, model: model["id"] in [row["id"] for row in rows],
    "live": lambda rows, model: [row["step"] for row in rows] == ["1", "2", "3"],
    "checkpoints": lambda rows, model: [row["is_head"] for row in rows] == 2 * ["false"] + ["true"],
    "runs": lambda rows, model: [row["model"] for row in rows] == [model["name"]],
    "jobs": lambda rows, model: rows == [],
    "alarms": lambda rows, model: rows == [],
}


async def test_a_views_table_its_groups_and_a_report(
    served: Served, model: Any, tmp_path: Path
) -> None:
    async with opened(Connector(served), Start("models"), **into(tmp_path)) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.series.length == 3)
        for view, right in TABLES.items():
            await app.press(KEYS[view], then=view)
            await app.until(lambda: getattr(app.screen, "models", ()) is not None)
            await app.until(lambda: getattr(app.screen, "rows", ()) is not None)
            assert right(read(await exported(app, tmp_path, "csv")), model), view
            body = json.loads((await exported(app, tmp_path, "json")).read_text("utf-8"))
            assert body["kind"] == "export"
        await app.press(KEYS["live"], then="live")
        folders = [await exported(app, tmp_path, "report") for _ in range(2)]
        assert [folder.name for folder in folders] == ["mine-report", "mine-report-2"]
        page = await asyncio.to_thread((folders[0] / "report.md").read_text, "utf-8")
        assert "# Run of `mine`" in page
        await app.press("tab")
        await app.until(lambda: app.screen.pane == "groups")
        assert (await exported(app, tmp_path, "csv")).name == "mine-groups.csv"


async def test_escape_writes_nothing_and_enter_the_picture(
    served: Served, model: Any, tmp_path: Path
) -> None:
    before = os.listdir(tmp_path)
    async with opened(Connector(served), Start("status"), size=(40, 12), **into(tmp_path)) as app:
        await app.until_view("live")
        await app.ask("ctrl+e")
        assert isinstance(app.screen, ChoiceDialog)
        await app.press("escape", then="live")
        assert os.listdir(tmp_path) == before
        await app.ask("ctrl+e")
        await app.until(lambda: app.screen.focused and app.screen.focused.id == "svg")
        await app.until_notice("wrote ", "enter")
        assert len([name for name in os.listdir(tmp_path) if name.endswith(".svg")]) == 1


async def test_a_place_that_cannot_be_written_to_is_told(
    served: Served, model: Any, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    await asyncio.to_thread(file.write_text, "")
    async with opened(Connector(served), Start("status"), **into(file)) as app:
        await app.until_view("live")
        await app.agree("ctrl+e")
        await app.until_notice("choose a writable directory")
        await app.until_view("live")
