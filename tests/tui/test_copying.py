"""Copying and exporting: the bytes that the terminal gets, and the files that ``e`` writes."""

import asyncio
import base64
import csv
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from hud_tui.keys import VIEWS
from hud_tui.tui.app import COPIED_FILE, MOST_COPIED, Options
from hud_tui.tui.screens.dialogs import ChoiceDialog
from hud_tui.tui.screens.runs import RunsScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.table import RowList
from tests.conftest import Served, ended, submit, until
from tests.tui import runs
from tests.tui.cockpit import grown
from tests.tui.conftest import Connector, Opened, opened, trained
from tests.tui.stage import Stage

HEAD, TAIL = "\x1b]52;c;", "\a"


class Terminal:
    """An app with what it writes to the terminal's clipboard, and what it says."""

    def __init__(
        self, state: Callable[[], Path] | None = None, advice: str | Callable[[], str] = ""
    ) -> None:
        options = Options(copy_advice=advice if callable(advice) else lambda: advice)
        self.stage = Stage(runs.run_of(3), state=state, options=options)
        self.sent: list[str] = []

    def listen(self) -> None:
        self.stage._driver.write = self.hear

    def hear(self, data: str) -> None:
        if "]52;" in data:
            self.sent.append(data)

    @property
    def notices(self) -> list[str]:
        return [notice.message for notice in self.stage._notifications]

    async def copied(self, text: str) -> str:
        """Copy it; the notice that says what came of it."""
        async with self.stage.run_test():
            self.listen()
            self.stage.copy_to_clipboard(text)
            await until(lambda: bool(self.notices))
            [notice] = self.notices
            return notice


def carried(sequence: str) -> str:
    assert sequence.startswith(HEAD)
    assert sequence.endswith(TAIL)
    return base64.b64decode(sequence[len(HEAD) : -len(TAIL)], validate=True).decode()


TEXTS = [
    ("arith-rl", "arith-rl", "copied 8 bytes: arith-rl"),
    ("tab\there\nund weiter", "tab\there\nund weiter", "copied 19 bytes: tab⇥here⏎und weiter"),
    ("é" * 600, "é" * 600, f"copied 1.2 kB: {'é' * 48}…"),
    ("a\x1b]52;c;!\x07\x9b\u202eb\r", "a␛]52;c;!␇⟨009B⟩⟨202E⟩b␍", "copied 38 bytes: a␛"),
    ("half \ud800 pair", "half ⟨D800⟩ pair", "copied 20 bytes: half ⟨D800⟩ pair"),
    ("[red]x[/]", "[red]x[/]", "copied 9 bytes: [red]x[/]"),
]


async def test_the_terminal_gets_the_text_whole_and_harmless() -> None:
    terminal = Terminal()
    async with terminal.stage.run_test() as pilot:
        terminal.listen()
        terminal.stage.copy_to_clipboard("")
        await pilot.pause()
        assert terminal.sent == terminal.notices == []
        for text, sent, notice in TEXTS:
            terminal.stage.copy_to_clipboard(text)
            await until(lambda notice=notice: "".join(terminal.notices[-1:]).startswith(notice))
            assert carried(terminal.sent[-1]) == sent == terminal.stage.clipboard
        assert len(terminal.sent) == len(TEXTS)


async def test_the_largest_sequence_has_100_000_bytes(tmp_path: Path) -> None:
    terminal = Terminal(lambda: tmp_path)
    assert (await terminal.copied("x" * MOST_COPIED)).startswith("copied 75 kB: xxx")
    assert [len(one.encode()) for one in terminal.sent] == [100_000]
    assert not (tmp_path / COPIED_FILE).exists()


@pytest.mark.parametrize("text", ["x" * (MOST_COPIED + 1), "é" * 40_000 + "\x1b[2J\n"])
async def test_what_is_too_large_is_in_a_file_whole_and_private(tmp_path: Path, text: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / COPIED_FILE).write_text("an older one")
    terminal = Terminal(lambda: state)
    notice = await terminal.copied(text)
    assert terminal.sent == []
    assert notice.startswith("Not copied: ")
    assert f"The whole text is in {state / COPIED_FILE}" in notice
    assert (state / COPIED_FILE).read_text("utf-8") == text.replace("\x1b", "␛")
    assert stat.S_IMODE((state / COPIED_FILE).stat().st_mode) == 0o600
    assert [file.name for file in state.iterdir()] == [COPIED_FILE]


async def test_where_no_file_can_be_written_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    terminal = Terminal(lambda: tmp_path / "state")
    assert "Writing it to a file failed: " in await terminal.copied("z" * 80_000)
    nowhere = Terminal()
    assert "e exports to a file" in await nowhere.copied("z" * 80_000)
    assert terminal.sent == nowhere.sent == []


async def test_a_terminal_that_takes_none_is_not_said_to_have_copied() -> None:
    advice = "tmux set -s set-clipboard on"
    terminal = Terminal(advice=advice)
    notice = await terminal.copied("arith-rl")
    assert notice == f"copied 8 bytes (OSC 52; the terminal may block it): arith-rl\n→ {advice}"
    assert [carried(one) for one in terminal.sent] == ["arith-rl"]


async def test_the_terminal_is_judged_once() -> None:
    asked: list[str] = []
    terminal = Terminal(advice=lambda: asked.append("asked") or "")
    async with terminal.stage.run_test():
        for text in ("one", "two"):
            terminal.stage.copy_to_clipboard(text)
            await until(lambda text=text: any(text in said for said in terminal.notices))
    assert asked == ["asked"]


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
    return {"options": Options(export_dir=directory)}


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


TABLES: dict[str, Callable[[list[dict[str, str]], Any], bool]] = {
    "models": lambda rows, model: model["id"] in [row["id"] for row in rows],
    "live": lambda rows, model: [row["step"] for row in rows] == ["1", "2", "3"],
    "checkpoints": lambda rows, model: [row["is_head"] for row in rows] == 2 * ["false"] + ["true"],
    "runs": lambda rows, model: [row["model"] for row in rows] == [model["name"]],
    "jobs": lambda rows, model: rows == [],
    "alarms": lambda rows, model: rows == [],
}


async def test_every_view_is_exported_with_its_table_its_groups_and_a_report(
    served: Served, model: Any, tmp_path: Path
) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 40), **into(tmp_path)) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.series.length == 3)
        for view, key in KEYS.items():
            await app.press(key, then=view)
            if view in ("checkpoints", "launch"):
                picture = await exported(app, tmp_path, "svg")
                assert picture.name == f"mine-{view}.svg"
                drawn = picture.read_text("utf-8")
                assert ElementTree.fromstring(drawn).tag == f"{SVG}svg"
                assert "step-000003" in drawn
            right = TABLES.get(view)
            if right is None:
                continue
            await app.until(lambda: getattr(app.screen, "models", ()) is not None)
            await app.until(lambda: getattr(app.screen, "rows", ()) is not None)
            assert right(read(await exported(app, tmp_path, "csv")), model), view
        await app.press(KEYS["live"], then="live")
        folders = [await exported(app, tmp_path, "report") for _ in range(2)]
        assert [folder.name for folder in folders] == ["mine-report", "mine-report-2"]
        page = await asyncio.to_thread((folders[0] / "report.md").read_text, "utf-8")
        assert "# Run of `mine`" in page
        await app.press("tab")
        await app.until(lambda: app.screen.pane == "groups")
        assert (await exported(app, tmp_path, "csv")).name == "mine-groups.csv"


async def test_a_filtered_table_is_exported_as_it_is_shown(
    served: Served, http: httpx.AsyncClient, model: Any, tmp_path: Path
) -> None:
    """The file is of no model, because the table is of all."""
    await ended(http, await submit(http, model["id"], steps=1))
    _, job_id = await trained(served)
    async with opened(Connector(served), Start("models"), **into(tmp_path)) as app:
        await app.until_view("models")
        for view, one in {"models": "mine", "runs": job_id, "jobs": job_id}.items():
            await app.press(KEYS[view], then=view)
            await app.until(lambda: count_of(app) > 1)
            assert "all rows" in await app.ask("ctrl+e")
            await app.press("escape", then=view)
            await app.press("slash", *one, "enter")
            await app.until(lambda: count_of(app) == 1)
            assert f"{view}, the 1 row shown, full precision" in await app.ask("ctrl+e")
            await app.press("escape", then=view)
            file = await exported(app, tmp_path, "json")
            assert file.name == f"hud-{view}.json"
            body = json.loads(file.read_text("utf-8"))
            assert body["kind"] == "export"
            [row] = body["rows"]
            assert row["id"] == (model["id"] if view == "models" else job_id)


def count_of(app: Opened) -> int:
    """How many models, runs or jobs the view lists."""
    if isinstance(app.screen, RunsScreen):
        return len(app.screen.table.lines)
    return sum(not row.heading for row in app.screen.query(RowList).first().rows)


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
