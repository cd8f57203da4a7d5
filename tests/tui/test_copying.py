"""Copying: the bytes that the terminal gets, and what becomes of what is too large for it."""

import base64
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hud_tui.tui.app import COPIED_FILE, MOST_COPIED, Options
from tests.conftest import until
from tests.tui import runs
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
