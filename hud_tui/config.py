"""The config file: ``config.toml`` in the config directory. What it leaves out is as it comes.

A table or a field that is not known is refused, so that a typo does not go unnoticed.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hud_tui.errors import HudUsage
from hud_tui.regular_file import read_regular
from hud_tui.rl.alarms.tuning import BadTuning
from hud_tui.rl.export.place import Export, read_export
from hud_tui.rl.safety import Safety, read_safety
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.keymap import Keymap
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.rl.notify import Notify

NAME = "config.toml"
MOST = 1_000_000
"""Bytes of the largest file that is read."""


@dataclass(frozen=True)
class Config:
    """The file's tables; None is as it comes."""

    alarms: "Thresholds | None" = None
    """``[alarms.zero_spread]`` and so on: what each detector goes by."""
    notify: "Notify | None" = None
    """``[notify]``: what is told beyond the screen."""
    export: Export = field(default_factory=Export)
    """``[export]``: where new files go."""
    safety: Safety = field(default_factory=Safety)
    """``[safety]``: what is not to happen by mistake."""
    keys: "Keymap" = field(default_factory=dict)
    """``[keys]``: other keys for actions."""

    @property
    def export_dir(self) -> Path:
        """Where new files go."""
        return Path(expanduser(self.export.directory or "."))


def readers() -> dict[str, Callable[[object], Any]]:
    """How each table is read; a reader raises `BadTuning`."""
    from hud_tui.keymap import read_keymap
    from hud_tui.rl.alarms.thresholds import read_thresholds  # 30 ms that only a file need pay
    from hud_tui.rl.notify import read_notify

    return {
        "alarms": read_thresholds,
        "notify": read_notify,
        "export": read_export,
        "safety": read_safety,
        "keys": read_keymap,
    }


def config_dir(environ: Mapping[str, str]) -> Path:
    """Where the file is: HUD_TUI_CONFIG_DIR, else the platform's own place for such files."""
    given = environ.get("HUD_TUI_CONFIG_DIR")
    if given:
        return Path(expanduser(given)).absolute()
    if sys.platform == "linux":  # as platformdirs says, which takes 10 ms to load
        base = environ.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
        return Path(expanduser(base)) / "hud-tui"
    from platformdirs import PlatformDirs

    return PlatformDirs("hud-tui", appauthor=False).user_config_path


def read_config(directory: Path) -> Config:
    """The config file of this directory; the defaults where there is none.

    Raises:
        HudUsage: It cannot be read, is not TOML, or has a value that cannot be used; the
            message names the file and the line or the field.
    """
    file = directory / NAME
    try:
        text = _text(file)
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(file, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return Config(**{name: _read(file, name, table) for name, table in _parse(file, text)})


def _parse(file: Path, text: str) -> list[tuple[str, Any]]:
    import tomllib  # 4 ms that only a file need pay

    try:
        return list(tomllib.loads(text).items())
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5000 digits too
        raise _bad(file, f"is not TOML: {error}") from error


def _read(file: Path, name: str, table: object) -> Any:
    known = readers()
    if name not in known:
        raise _bad(file, f"{one_line(name, 60)}: no such table; there are {', '.join(known)}")
    try:
        return known[name](table)
    except BadTuning as error:
        path = f"{name}.{error.name}" if error.name else name
        raise _bad(file, f"{path}: {error.why}") from error


def _text(file: Path) -> str:
    return read_regular(file, MOST).decode("utf-8")


def _bad(file: Path, what: str) -> HudUsage:
    hint = "correct that, or take it out: what the file leaves out is as it comes"
    return HudUsage(f"{one_line(file, 400)}: {one_line(what, 600)}", hint)
