"""The app as a program: from a terminal to an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from hud_tui.errors import HudUsage
from hud_tui.start import Start

if TYPE_CHECKING:
    from hud_tui.config import Config
    from hud_tui.rl.notify import Notify
    from hud_tui.tui.app import Connect, HudApp
    from hud_tui.tui.notifying import Notifier


@dataclass(frozen=True)
class Session:
    """What the app has beside the service."""

    state: Callable[[], Path]
    """Finds the state directory, for what the user chose and the traceback of a crash."""
    config: Config | None = None
    """What the config file says."""
    record: str | None = None
    """The file to write the session's events to."""
    clock: Callable[[], float] = time
    """Unix seconds, for ages on the screen."""


def run(connect: Connect, mode: str | None, start: Start, session: Session) -> int:
    """Run the app until it is left; returns the exit code.

    Args:
        connect: Makes the client.
        mode: ``local``, ``hud``, ``replay``, or None to ask.
        start: What the app opens with.
        session: Its files.

    Raises:
        HudUsage: This is no terminal, or the recording cannot be begun.
    """
    need_terminal()
    gc.disable()
    from hud_tui.tui.app import HudApp  # 100 ms that a pipe need not wait
    from hud_tui.tui.bindings import use_keymap
    from hud_tui.tui.shelf import Shelf

    limits = None if session.config is None else session.config.alarms
    app = HudApp(connect, mode, start, session.clock, shelf=Shelf(session.state), thresholds=limits)
    app.settle = settle
    if session.config is not None:
        use_keymap(app, session.config.keys)
        app.make_notifier = partial(_notifier, app, session.config.notify)
        app.export_dir = session.config.export_dir
    if session.record is not None:
        from hud_tui.client.recorder import Recorder

        app.recorder = Recorder(Path(session.record), app.say)
    crash: Exception | None = None
    try:
        app.run()
    except Exception as error:
        crash = error
    gc.enable()
    app.shelf.flush()
    if app.recorder is not None:
        app.recorder.close()
    crash = app.crash or crash
    if crash is None:
        return app.return_code or 0
    from hud_tui.tui.crash import report

    return report(crash, session.state(), secrets(app))


def _notifier(app: HudApp, notify: Notify | None) -> Notifier:
    from hud_tui.tui.notifying import Notifier  # 10 ms that the first frame need not wait

    return Notifier(notify, app.bell, app.write_terminal)


def settle() -> None:
    """Let the garbage collector begin, without what is loaded: to look through all of that takes
    it up to 0.2 s, in which no key is answered, and nothing of it ever goes."""
    gc.freeze()
    gc.enable()


def need_terminal() -> None:
    """Refuse what would leave the app waiting for keys that cannot come.

    Raises:
        HudUsage: Input, output or errors go somewhere else.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None or not stream.isatty():
            raise HudUsage("the app needs a terminal; use --headless")


def secrets(app: HudApp) -> list[str]:
    """The keys that this session knows."""
    used = app.client.settings.api_key if app.client is not None else ""
    return [used, app.key or "", os.environ.get("HUD_API_KEY", "")]
