"""Crash: what is said and kept of an exception that nobody expected.

The message on the terminal is short. The traceback goes to a file that only its owner can
read, without the frames' variables and with every key masked: it is meant to be sent to
somebody.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from time import strftime
from traceback import format_exception

from hud_tui import __version__
from hud_tui.rl.text import clean, one_line

MASK = "***"
_CREDENTIAL = re.compile(
    r"""(?ix) (bearer\s+ | api[_-]?key["']?\s*[:=]\s*b?["']?) ([^\s"',;)}\]]+)"""
)


def report(error: BaseException, state: Path, secrets: Iterable[str]) -> int:
    """Say what happened in a few lines on stderr, and keep the traceback; returns the exit code.

    Args:
        error: What ended the app.
        state: The state directory, made where it is missing.
        secrets: Keys that may stand in messages.
    """
    known = [secret for secret in secrets if secret]
    what = one_line(masked(f"{type(error).__name__}: {error}", known), 300)
    try:
        kept = f"The traceback, without keys, is in {one_line(_keep(error, state, known), 400)}"
    except OSError as trouble:
        kept = f"Its traceback could not be written: {one_line(trouble, 300)}"
    lines = [
        f"hud-tui {__version__}: a bug ended the app: {what}",
        f"{kept}",
        "Please report it with that file to where you have hud-tui from.",
        "A run that was training goes on; start hud-tui again to see it.",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    return 1


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without these keys, and without what looks like one."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _CREDENTIAL.sub(rf"\1{MASK}", text)


def _keep(error: BaseException, state: Path, secrets: Iterable[str]) -> Path:
    """Write the traceback to a new file.

    Raises:
        OSError: It cannot be written.
    """
    text = f"hud-tui {__version__}, Python {sys.version}\n\n{''.join(format_exception(error))}"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = state / f"crash-{strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8", errors="replace") as written:
        written.write(clean(masked(text, secrets), 1_000_000))
    return file
