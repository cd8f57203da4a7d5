"""Themes, terminals without colour or Unicode, and text that is longer than its field."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

import hud_tui
from hud_tui.tui.app import HudApp
from hud_tui.tui.start import Start
from hud_tui.tui.theme import ASCII, RAMPS, THEMES, TITLES, PlainFilter, RampFilter, to_ascii
from tests.conftest import Served
from tests.tui.conftest import Connector, forked, opened
from tests.tui.stage import bare
from tests.tui.test_crash import at_a_terminal


def ramp(app: HudApp) -> tuple[str, ...]:
    [found] = [filter for filter in app._filters if isinstance(filter, RampFilter)]
    return found.ramp


async def test_a_key_goes_through_them_all(tmp_path: Path) -> None:
    worn = []
    async with bare(state=lambda: tmp_path) as app:
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
async def test_a_broken_choice_is_told_and_left(tmp_path: Path, kept: str, said: str) -> None:
    file = tmp_path / "look.json"
    file.write_text(kept)
    async with bare(state=lambda: tmp_path) as app:
        await app.until_notice(f"{file}: {said}")
        assert [notification.severity for notification in app.app._notifications] == ["warning"]
        await app.press("t")
        await app.until(lambda: app.app.theme == "hud-light")
    assert file.read_text() == kept


PAINTED = """
from hud_tui.tui.start import Start
from hud_tui.tui.app import HudApp

async def connect(mode, key, progress):
    raise AssertionError("nobody asked")

class Once(HudApp):
    def on_mount(self):
        self.call_after_refresh(self.call_after_refresh, self.exit)

Once(connect, None, Start()).run()
"""
COLOUR = re.compile(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)(?:;[\d;]*)?m")


async def test_no_color_sends_none() -> None:
    environ = {"NO_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": ""}
    code, written = await at_a_terminal("-c", PAINTED, environ=environ)
    assert code == 0
    assert "Which service?" in written
    assert not COLOUR.search(written)
    assert "\x1b[1m" in written  # weight is no colour


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_without_colours_the_cursor_and_what_is_muted_are_still_told_apart(theme: Theme) -> None:
    ground, cursor = theme.background, theme.variables["block-cursor-background"]
    segments = [
        Segment("plain", Style.parse(f"{theme.foreground} on {ground}")),
        Segment("cursor", Style.parse(f"bold {theme.foreground} on {cursor}")),
        Segment("panel", Style.parse(f"{theme.foreground} on {theme.panel}")),
        Segment("muted", Style.parse(f"{theme.variables['text-muted']} on {ground}")),
        Segment("error", Style.parse(f"{theme.error} on {ground}")),
    ]
    seen = PlainFilter().apply(segments, Color.parse(ground or ""))
    assert {segment.text: str(segment.style) for segment in seen} == {
        "plain": "none",
        "cursor": "bold reverse",
        "panel": "none",
        "muted": "dim",
        "error": "none",
    }


def glyphs() -> Iterator[tuple[str, str]]:
    """Every character beyond ASCII that the app's own texts have, and the file."""
    for part in ("tui", "rl"):
        for file in sorted((Path(hud_tui.__file__).parent / part).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            said = [node for node in ast.walk(tree) if id(node) not in docs]
            for node in said if file.name != "text.py" else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from ((one, file.name) for one in node.value if not one.isascii())


def test_every_glyph_of_the_app_has_an_ascii_twin() -> None:
    assert [glyph for glyph in glyphs() if ord(glyph[0]) not in ASCII] == []


@pytest.mark.parametrize("text", ["naïve 模型 🙂", "Ω", "plain"])
def test_what_has_no_twin_is_as_wide_in_ascii(text: str) -> None:
    shown = to_ascii(text)
    assert shown.isascii()
    assert cell_len(shown) == cell_len(text)


async def test_launch_in_ascii(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUD_TUI_ASCII", "1")
    await forked(served)
    async with opened(Connector(served), Start("preflight")) as app:
        await app.until_view("launch")
        await app.until(lambda: "< " in app.drawn and "learning rate" in app.drawn)
        assert app.drawn.isascii()


async def test_typed_text_that_is_longer_than_its_field_is_seen(served: Served) -> None:
    async with opened(Connector(served), Start("preflight"), size=(40, 12)) as app:
        await app.until_view("launch")
        await app.press("slash", *"no-such-directory-that-is-wider-than-all-tasks.json")
        assert "tasks.json" in app.drawn
