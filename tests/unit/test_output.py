"""What headless commands say on stderr: one line, in which no text acts on the terminal."""

import pytest

from hud_tui.cli.connect import progress
from hud_tui.cli.output import emit_error, tell
from hud_tui.errors import HudError

HOSTILE = "a\x1b]0;owned\x07b\nhud-tui: all is well\u202e"


def test_no_text_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"job {HOSTILE} is submitted")
    emit_error(HudError(HOSTILE, HOSTILE))
    err = capsys.readouterr().err
    assert all(line.isprintable() for line in err.splitlines())
    assert err.count("\n") == 2


def test_progress_is_clean_on_a_terminal_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress()(HOSTILE)
    err = capsys.readouterr().err
    assert err.startswith("\r\x1b[K")
    assert err.removeprefix("\r\x1b[K").isprintable()
