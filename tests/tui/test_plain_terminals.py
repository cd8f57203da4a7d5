"""Terminals without colour or Unicode, and text that is longer than its field."""

import ast
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
from hud_tui.settings import Start
from hud_tui.tui.theme import ASCII, THEMES, PlainFilter, to_ascii
from tests.conftest import Served
from tests.tui.conftest import Connector, forked, opened
from tests.tui.test_crash import at_a_terminal

PAINTED = """
from hud_tui.settings import Start
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
    for term in ("xterm", "xterm-256color"):
        environ = {"NO_COLOR": "1", "TERM": term, "COLORTERM": ""}
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
    assert [one for one in glyphs() if ord(one[0]) not in ASCII] == []


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


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_typed_text_that_is_longer_than_its_field_is_seen(
    served: Served, size: tuple[int, int]
) -> None:
    async with opened(Connector(served), Start("preflight"), size=size) as app:
        await app.until_view("launch")
        await app.press("slash")
        await app.press(*"no-such-directory-of-a-long-name-that-is-wider-than-all-tasks.json")
        assert "tasks.json" in app.drawn
