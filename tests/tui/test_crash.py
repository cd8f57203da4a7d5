"""What is left of a crash: a usable terminal, a short message, a file, and no key anywhere."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hud_tui.errors import HudUnreachable, HudUsage
from hud_tui.tui.app import masked, need_terminal, report
from hud_tui.tui.start import Start
from tests.conftest import Served, pointed_at, until
from tests.tui.conftest import Connector, opened
from tests.tui.stage import bare
from tests.tui.typed_app import typed_app

KEY = "sk-hud-9f8e7d6c5b4a"
PROGRAM = f"""
import sys
from pathlib import Path
from hud_tui.tui.start import Start
from hud_tui.config import Config
from hud_tui.tui.app import run

async def connect(mode, key, progress):
    headers = {{"Authorization": "Bearer {KEY}"}}
    raise RuntimeError(f"no header for {{headers}}: \\x1b]0;title\\x07")

sys.exit(run(connect, "hud", Start(), lambda: Path(sys.argv[1]), Config()))
"""


async def at_a_terminal(*argv: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Run to the end in a terminal: the exit code, and all that was written to it."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *argv),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
    )
    os.close(slave)
    written = asyncio.create_task(asyncio.to_thread(_read_all, master))
    code = await process.wait()
    return code, await written


def _read_all(master: int) -> str:
    with os.fdopen(master, "rb", buffering=0) as terminal:
        parts = []
        while True:
            try:
                part = terminal.read(4096)
            except OSError:  # nobody holds the other end
                part = b""
            if not part:
                return b"".join(parts).decode(errors="replace")
            parts.append(part)


async def test_a_crash_says_what_and_where_and_no_key(tmp_path: Path) -> None:
    state = tmp_path / "state"
    code, written = await at_a_terminal("-c", PROGRAM, str(state), environ={"HUD_API_KEY": KEY})
    assert code == 1
    said = written[written.rindex("\x1b[?1049l") :]  # after the app's screen was left
    assert "RuntimeError: no header for" in said
    assert "report it" in said
    [file] = state.iterdir()
    assert str(file) in "".join(said.split("\r\n"))
    kept = file.read_text()
    assert "in connect" in kept
    assert "RuntimeError" in kept
    assert file.stat().st_mode & 0o777 == 0o600
    for text in (written, kept):
        assert KEY not in text
        assert "\x1b]0;title" not in text


def test_a_crash_is_told_where_no_file_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "file"
    state.write_text("not a directory")
    assert report(ValueError("odd"), state, [KEY]) == 1
    said = capsys.readouterr().err
    assert "ValueError: odd" in said
    assert "could not be written" in said


@pytest.mark.parametrize(
    "text",
    [
        f"key {KEY} refused",
        "Authorization: Bearer abc.def-123",
        "b'Bearer abc.def-123'",
        "{'api_key': 'abc.def-123'}",
        "HUD_API_KEY=abc.def-123 hud-tui",
    ],
)
def test_what_is_a_key_or_looks_like_one_is_masked(text: str) -> None:
    shown = masked(text, [KEY])
    assert "***" in shown
    assert KEY not in shown
    assert "abc.def" not in shown


async def test_a_worker_that_fails_with_a_hud_error_is_told_and_ends_nothing(
    served: Served,
) -> None:
    async def fail() -> None:
        raise HudUnreachable("no answer", "try again")

    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        app.screen.run_worker(fail())
        await app.until_notice("try again")
        await app.press("2", then="launch")


async def test_a_worker_that_fails_while_the_app_is_left_is_no_crash() -> None:
    async def fail_late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise HudUnreachable("no answer")

    async with bare() as hand:
        hand.app.run_worker(fail_late())
        await hand.pilot.pause()
        hand.app.exit()
    assert hand.app.crash is None


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_without_a_terminal_it_says_which_stream_is_none(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        is_one = name != stream
        monkeypatch.setattr(sys, name, SimpleNamespace(isatty=lambda is_one=is_one: is_one))
    with pytest.raises(HudUsage, match=f"needs a terminal, and {stream} is none"):
        need_terminal()


def test_without_a_terminal_it_says_so_at_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hud_tui", "--local", "--state-dir", str(tmp_path / "s")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == HudUsage.exit_code == 2
    assert b"is none (do not redirect it" in done.stderr
    assert not (tmp_path / "s").exists()


WITHOUT_HANGUPS = ("sh", "-c", 'trap "" HUP; exec "$0" "$@"')
WITH_HANGUPS = (
    *(sys.executable, "-c"),
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL);"
    "os.execvp(sys.argv[1], sys.argv[1:])",
)
"""Whoever starts the tests may ignore SIGHUP, as nohup does, which a process inherits."""


@pytest.mark.parametrize(
    ("how", "number"), [("gone", signal.SIGHUP), ("hup", signal.SIGHUP), ("term", signal.SIGTERM)]
)
async def test_without_its_terminal_it_ends_and_keeps_what_was_chosen(
    served: Served, tmp_path: Path, how: str, number: signal.Signals
) -> None:
    """A terminal that goes away without a signal, with SIGHUP ignored; and the two signals."""
    through = WITHOUT_HANGUPS if how == "gone" else WITH_HANGUPS
    environ: dict[str, Any] = {**pointed_at(served.url, served.api_key)}
    async with typed_app(["models"], tmp_path, through=through, **environ) as app:
        await app.until(lambda report: report.screen == "ModelsScreen")
        app.type(b"5")
        await app.until(lambda report: report.screen == "RunsScreen")
        if how == "gone":
            app.hang_up()
        else:
            app.process.send_signal(number)
        await until(lambda: app.ended)
        assert app.process.returncode == 128 + number
    assert view_in(tmp_path / "state") == "runs"


def view_in(state: Path) -> str:
    """The view in the one layout that was stored; there is no file of a crash."""
    assert not list(state.rglob("crash-*"))
    [layout] = state.glob("layout-*.json")
    return str(json.loads(layout.read_text())["view"])
