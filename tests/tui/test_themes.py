"""Themes: a key goes through the four, the palette names them, and the choice is kept."""

import json
from pathlib import Path

import pytest

from hud_tui.settings import Start
from hud_tui.tui.app import HudApp
from hud_tui.tui.theme import RAMPS, TITLES, RampFilter
from hud_tui.tui.widgets.row_list import RowList
from tests.conftest import Served
from tests.tui.conftest import Connector, opened


def ramp(app: HudApp) -> tuple[str, ...]:
    [found] = [one for one in app._filters if isinstance(one, RampFilter)]
    return found.ramp


async def test_a_key_goes_through_them_all(served: Served, tmp_path: Path) -> None:
    async with opened(Connector(served), Start("models"), state=lambda: tmp_path) as app:
        await app.until(lambda: isinstance(app.screen.focused, RowList))
        worn = []
        for _ in TITLES:
            await app.press("t")
            worn.append(app.app.theme)
            app.app.store.flush()
            assert ramp(app.app) == RAMPS[app.app.theme]
            assert json.loads((tmp_path / "look.json").read_text()) == {
                "version": 1,
                "theme": app.app.theme,
            }
        assert worn == [*list(TITLES)[1:], *list(TITLES)[:1]]
        await app.until_notice("theme: high contrast")


@pytest.mark.parametrize(
    "kept", ['{"theme": "hud-light"}', '{"theme": "none"}', '{"theme": 3}', "{"]
)
def test_the_choice_is_kept_and_a_broken_one_is_none(
    served: Served, tmp_path: Path, kept: str
) -> None:
    (tmp_path / "look.json").write_text(kept)
    app = HudApp(Connector(served), None, Start(), state=lambda: tmp_path)
    assert app.theme == ("hud-light" if "light" in kept else "hud-dark")
    assert ramp(app) == RAMPS[app.theme]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ('{"theme": "none"}', "theme: expected one of hud-dark, hud-light"),
        ('{"theme": "hud-dark"', "line 1, column 21: Expecting ',' delimiter"),
    ],
)
async def test_a_broken_choice_is_told_and_left(
    served: Served, tmp_path: Path, kept: str, said: str
) -> None:
    file = tmp_path / "look.json"
    file.write_text(kept)
    start = Start("models", view="models")
    async with opened(Connector(served), start, state=lambda: tmp_path) as app:
        await app.until_notice(f"{file}: {said}")
        assert [one.severity for one in app.app._notifications] == ["warning"]
        await app.until_view("models")
        await app.press("t")
        await app.until(lambda: app.app.theme == "hud-light")
    assert file.read_text() == kept
