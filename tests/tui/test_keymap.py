"""Other keys than the usual: they work, the usual ones do not, and all that is shown says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.widgets import OptionList

from hud_tui.cli.main import main
from hud_tui.config import LISTS, read_keymap
from hud_tui.keys import ACTIONS, VIEWS
from hud_tui.settings import Start
from hud_tui.tui.keys import KeyLine, use_keymap
from hud_tui.tui.widgets.row_list import RowList
from tests.conftest import Served
from tests.tui.conftest import Connector, Opened, opened


@contextmanager
def remapped(app: Opened, table: dict[str, object]) -> Iterator[None]:
    use_keymap(app.app, read_keymap(table))
    try:
        yield
    finally:
        use_keymap(app.app, {})


async def test_a_view_is_on_another_key(served: Served) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        with remapped(app, {"app.view.live": ["f8", "f7"], "app.help": "f9"}):
            await app.until_view("models")
            await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("3")
            assert app.screen.VIEW == "models"
            await app.press("f8", then="live")
            await app.press("1", then="models")
            await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("f7", then="live")
            await app.until(lambda: "f8 Live" in _line(app) and "f9 help" in _line(app))
            await app.press("f9")
            await app.until(lambda: app.screen.query("#help-list"))
            listed = [str(one.prompt) for one in app.screen.query_one(OptionList).options]
            assert any(row.startswith("f8 f7") and "Watch the run" in row for row in listed)


async def test_a_key_line_without_room_names_the_views_by_their_keys(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        await app.until(lambda: "1-8 views" in _line(app))
        with remapped(app, {"app.view.jobs": "f8", "app.view.models": "f2"}):
            await app.until_view("models")
            app.screen.query_one(KeyLine).refresh()
            await app.until(lambda: "f2/2/3/4/5/f8/7/8 views" in _line(app))
            assert "1-8" not in _line(app)


def _line(app: Opened) -> str:
    return str(app.screen.query_one(KeyLine).render())


async def test_two_actions_change_places(served: Served) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        with remapped(app, {"app.view.checkpoints": "3", "app.view.live": "4"}):
            await app.until_view("models")
            await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("3", then="checkpoints")
            await app.press("4", then="live")


async def test_any_action_can_have_another_key(served: Served) -> None:
    """Of all that could be done with the usual keys, each is done by its new one."""
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        await app.until_view("models")
        await app.until(lambda: isinstance(app.screen.focused, RowList))
        for view in VIEWS:
            await app.press("exclamation_mark" if view == "alarms" else str(VIEWS.index(view) + 1))
            await app.until_view(view)
            each_action_has_another_key(app, view)


def each_action_has_another_key(app: Opened, view: str) -> None:
    usual = {one.binding.id for one in app.screen.active_bindings.values()} - {None}
    places = (view, "app", *(["list"] if view in LISTS else []))
    mine = [one for one in ACTIONS if one.view in places]
    fresh = [f"alt+{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    fresh += [f"{held}+f{n}" for held in ("ctrl+shift", "ctrl") for n in range(1, 25)]
    table = {one.id: key for one, key in zip(mine, fresh, strict=False)}
    assert len(table) == len(mine)
    with remapped(app, dict(table)):
        now = app.screen.active_bindings
        assert {one.binding.id for one in now.values()} - {None} >= usual
        assert {id_: now[key].binding.id for id_, key in table.items() if id_ in usual} == {
            id_: id_ for id_ in table if id_ in usual
        }


def test_the_app_does_not_start_with_a_key_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUD_TUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text("[keys]\nlive.follow = 'entre'\n")
    assert main(["--local"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'config.toml'}: keys.live.follow: entre: no such key" in said
