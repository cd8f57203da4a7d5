"""The command log's screen: every key of it, what is empty, and what came from elsewhere."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hud_tui.audit_log import NAME, AuditEntry, CommandLog, as_curl, as_hud, as_hud_tui, as_python
from hud_tui.tui.screens.dialogs import ChoiceDialog
from hud_tui.tui.screens.json import JsonScreen
from hud_tui.tui.screens.log import LogScreen, entry_text, folded
from hud_tui.tui.start import Start
from tests.conftest import Served
from tests.tui.conftest import Connector, Opened, opened

HOSTILE = "a\x1b]0;owned\x07[red]b[/]\u202e"
MODELS = Start("models", view="models")
URL = "http://127.0.0.1:8900/v2/models/m/head"
HEAD = AuditEntry(
    10.0, "set head", "m1", "me/arith", before="a1", after="b2", outcome="done", url=URL
)
SAID = (HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, "odd", HOSTILE)
ODD = AuditEntry(20.0, *SAID, method="POST", url=URL)


class Logging(Connector):
    """Writes down what is changed, as the command line's connector does."""

    def __init__(self, served: Served | None, state: Path) -> None:
        self.kept = CommandLog(state, "app")
        super().__init__(served, observe=self.kept.add)


@asynccontextmanager
async def logged(
    served: Served, state: Path, *entries: AuditEntry, width: int = 80
) -> AsyncIterator[Opened]:
    """The log's screen, with these entries; opened by its key."""
    connector = Logging(served, state)
    for one in entries:
        connector.kept.add(one)
    async with opened(connector, MODELS, size=(width, 24), state=lambda: state) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.focused)
        await app.press("C", then="log")
        await app.until(lambda: (text := app.said("#log-text")) and "reading" not in text)
        yield app


def log(app: Opened) -> LogScreen:
    assert isinstance(app.screen, LogScreen)
    return app.screen


def rows(app: Opened) -> list[list[str]]:
    return [[cell.plain for cell in row.cells] for row in log(app).list.rows]


async def test_nothing_was_changed_yet(served: Served, tmp_path: Path) -> None:
    async with logged(served, tmp_path / "state") as app:
        assert "No changes were made from this machine yet" in app.said("#log-text")
        assert not app.screen.check_action("copy_as", ())
        await app.press("C", "escape", then="models")


async def test_what_the_app_does_is_there_and_can_be_copied(served: Served, tmp_path: Path) -> None:
    async with logged(served, tmp_path) as app:
        await app.press("escape", then="models")
        await app.until(lambda: app.screen.query("#note") and "forks" in app.said("#note"))
        await app.press("enter", then="launch")
        await app.press("C", then="log")
        await app.until(lambda: rows(app))
        [row] = rows(app)
        assert row[1:3] == ["✔", "fork"]
        assert row[5] == "app"
        [one] = CommandLog(tmp_path).read()[0]
        assert one.by == "app"
        await app.press("y")
        await app.until(lambda: app.app.clipboard == as_hud_tui(one))
        for place, text in enumerate((as_curl(one), as_hud(one), as_python(one))):
            await app.open(ChoiceDialog, "Y")
            await app.press(*["right"] * place, "enter")
            await app.until(lambda text=text: app.app.clipboard == text)
        assert "command  hud-tui --headless --local fork --name=" in app.said("#log-text")
        assert (tmp_path / NAME).read_text().count("\n") == 1


async def test_what_cannot_be_written_down_is_told_once(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.tui.app.UNLOGGED_S", 0.01)
    (tmp_path / NAME).mkdir()
    said = f"done, but not in the command log, which cannot be written: {os.strerror(errno.EISDIR)}"
    async with opened(Logging(served, tmp_path), MODELS, state=lambda: tmp_path) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.query("#note") and "forks" in app.said("#note"))
        await app.press("enter", then="launch")
        await app.until_notice(said)
        assert app.app.workspace is not None
        client = app.app.workspace.session.client
        [base, *_] = await client.models()
        await client.fork(base.id, "another")
        await app.press("1", then="models")
        assert said not in app.told


async def test_filter_details_refresh_and_back(served: Served, tmp_path: Path) -> None:
    other = AuditEntry(30.0, "cancel", subject="j1", outcome="refused", message="409: no", by="app")
    async with logged(served, tmp_path, HEAD, other) as app:
        assert [row[2] for row in rows(app)] == ["cancel", "set head"]
        await app.press("j")
        await app.until(lambda: "a1 → b2" in app.said("#log-text"))
        await app.open(JsonScreen, "enter")
        await app.press("escape", then="log")
        await app.press("slash", *"409", "enter")
        await app.until(lambda: [row[2] for row in rows(app)] == ["cancel"])
        assert "message  409: no" in app.said("#log-text")
        await app.press("slash", *" zzz", "enter")
        await app.until(lambda: "No entry matches" in app.said("#log-text"))
        await app.press("escape")
        await app.until(lambda: len(rows(app)) == 2)
        assert isinstance(app.connector, Logging)
        app.connector.kept.add(HEAD)
        await app.until(lambda: len(rows(app)) == 3)  # what is added comes by itself
        app.connector.kept.add(other)
        await app.press("r")
        await app.until(lambda: len(rows(app)) == 4)
        await app.press("q", then="models")


async def test_hostile_entries_are_shown_and_cannot_act(served: Served, tmp_path: Path) -> None:
    async with logged(served, tmp_path, HEAD, ODD, width=120) as app:
        for width in (120, 80, 40):
            await app.pilot.resize_terminal(width, 24)
            await app.until(lambda width=width: app.screen.size.width == width)
            drawn = " ".join(cell for row in rows(app) for cell in row) + app.said("#log-text")
            assert "[red]b[/]" in drawn
            for bad in ("\x1b", "\x07", "\u202e"):
                assert bad not in drawn
        await app.until_notice("hud-tui has no command", "y")
        await app.open(ChoiceDialog, "Y")
        assert "request body is not kept" in " ".join(map(str, app.screen.lines))
        await app.press("enter")
        await app.until(lambda: app.app.clipboard == as_curl(ODD))


async def test_a_broken_file_says_so_and_the_rest_is_shown(served: Served, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xff\xfe{\n[\n")
    async with logged(served, tmp_path, HEAD) as app:
        assert len(rows(app)) == 1
        assert "2 lines cannot be read" in app.said("#log-title")


async def test_without_a_state_directory_that_is_said(served: Served) -> None:
    async with opened(Connector(served), MODELS) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.focused)
        await app.press("C", then="log")
        await app.until(lambda: "No state directory" in app.said("#log-text"))


async def test_while_connecting_there_is_no_view_that_it_could_cover(tmp_path: Path) -> None:
    async with opened(Logging(None, tmp_path), mode=None, state=lambda: tmp_path) as app:
        await app.press("C")
        assert app.screen is app.app.connect_screen


def test_a_series_is_one_row() -> None:
    rollouts = [AuditEntry(float(n), "rollout", outcome="done") for n in range(5)]
    log = [HEAD, *rollouts, HEAD, HEAD]
    assert [(one.verb, count) for one, count in folded(log)] == [
        ("set head", 1),
        ("set head", 1),
        ("rollout", 5),
        ("set head", 1),
    ]
    failed = AuditEntry(9.0, "rollout", outcome="refused")
    assert [count for _, count in folded([*rollouts, failed])] == [1, 5]


def test_an_unclear_end_is_said_to_be_one() -> None:
    said = "\n".join(line.plain for line in entry_text(AuditEntry(1.0, "submit", request_id="r-1")))
    assert "no answer: it may have been done" in said
    assert "request r-1" in said
