"""The config file: ``config.toml`` in the config directory. Missing settings have their defaults.

Unknown tables and fields are errors, so that typing errors are noticed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from itertools import combinations
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hud_tui.errors import TABLE, BadTuning, HudUsage
from hud_tui.key_names import read_key, spell, types_text
from hud_tui.keys import ACTIONS, VIEWS, Action, with_keys
from hud_tui.rl.text import one_line
from hud_tui.settings import OFF, directory
from hud_tui.storage import read_regular

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic_core import ErrorDetails

    from hud_tui.rl.alarms.alarm import Notify
    from hud_tui.rl.alarms.thresholds import Thresholds


# The directory of exported files: the table ``[export]``.


@dataclass(frozen=True)
class Export:
    __pydantic_config__ = TABLE

    directory: str = ""
    """Directory for new files, ``~`` for home; empty: the current directory."""

    def __post_init__(self) -> None:
        if "\0" in self.directory:
            raise BadTuning("directory", "expected a path")


# Where runs are logged beside the service: the table ``[sinks]``.


@dataclass(frozen=True)
class Sinks:
    """Other places that runs and evaluations are logged to."""

    __pydantic_config__ = TABLE

    wandb: str = ""
    """Project of Weights & Biases, ``PROJECT`` or ``ENTITY/PROJECT``; empty: nothing is logged."""

    def __post_init__(self) -> None:
        if self.wandb and (problem := project_problem(self.wandb)):
            raise BadTuning("wandb", problem)


def project_problem(text: str) -> str:
    """Why a text is no name of a project of Weights & Biases; empty if it is one."""
    parts = text.split("/")
    is_name = len(parts) <= 2 and all(0 < len(part) <= 128 for part in parts)
    if is_name and text.isprintable() and not set(text) & set("\\#?%:"):
        return ""
    return f"{one_line(text, 60)}: expected PROJECT or ENTITY/PROJECT"


# Read-only mode: the table ``[safety]``.


@dataclass(frozen=True)
class Safety:
    """Protection against mistakes."""

    __pydantic_config__ = TABLE

    read_only: bool = False
    """Block requests that change the service or cost computation."""


@dataclass(frozen=True)
class ReadOnly:
    """Read-only mode: its source, and how to leave it."""

    why: str
    """E.g. ``started with --read-only``."""
    cure: str
    """How to allow changes again."""
    kind: str = "read-only"
    """Kind, shown in the status line."""


OFFLINE = "offline"
"""Read-only while the service does not answer; ends by itself."""
NO_ANSWER = ReadOnly(
    "the service does not answer, so nothing can be changed",
    "wait, or press {app.reconnect} to reconnect",
    OFFLINE,
)


def why_read_only(flag: bool, environ: Mapping[str, str], safety: Safety) -> ReadOnly | None:
    """The source of read-only mode; None if changes are allowed. `flag`: whether ``--read-only``
    was given."""
    if flag:
        return ReadOnly("started with --read-only", "start without it to change something")
    if environ.get("HUD_TUI_READ_ONLY", "").strip().lower() not in OFF:
        return ReadOnly("HUD_TUI_READ_ONLY is set", "unset it to change something")
    if safety.read_only:
        return ReadOnly("config.toml says read_only in [safety]", "remove it to change something")
    return None


CONFIG_NAME = "config.toml"
MOST_BYTES = 1_000_000
"""Maximum size of the file, bytes."""


@dataclass(frozen=True)
class Config:
    """The tables of the file; None for defaults."""

    alarms: "Thresholds | None" = None
    """``[alarms.zero_variance]`` and so on: thresholds of the detectors."""
    notify: "Notify | None" = None
    """``[notify]``: bell, desktop notifications, webhook."""
    export: Export = field(default_factory=Export)
    """``[export]``: directory of new files."""
    safety: Safety = field(default_factory=Safety)
    """``[safety]``: read-only mode."""
    sinks: Sinks = field(default_factory=Sinks)
    """``[sinks]``: where runs are logged, too."""
    keys: "Keymap" = field(default_factory=dict)
    """``[keys]``: other keys for actions."""

    @property
    def export_dir(self) -> Path:
        """Directory for new files."""
        return Path(expanduser(self.export.directory or "."))


def readers() -> dict[str, Callable[[object], Any]]:
    """Reader of each table; a reader raises `BadTuning`."""
    from hud_tui.rl.alarms import alarm, monitor  # 30 ms, only needed if there is a file

    usual: dict[str, Any] = {
        "alarms": monitor.usual_thresholds(),
        "notify": alarm.Notify(),
        "export": Export(),
        "safety": Safety(),
        "sinks": Sinks(),
    }
    return {name: partial(read_table, table) for name, table in usual.items()} | {
        "keys": read_keymap
    }


T = TypeVar("T", bound="DataclassInstance")


def read_table(usual: T, table: object) -> T:
    """A table as typed values; missing ones are those of `usual`. Raises BadTuning: names the
    invalid setting by its path, e.g. ``zero_variance.warn``."""
    from pydantic import ValidationError  # 40 ms, only needed if there is a file

    from hud_tui.wire import adapter

    text = json.dumps(_completed(usual, table), default=str)
    try:
        read: T = adapter(type(usual)).validate_json(text)
        return read
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        bad, path = first.get("ctx", {}).get("error"), list(first["loc"])
        if isinstance(bad, BadTuning):
            raise BadTuning(".".join(filter(None, (*map(str, path), bad.name))), bad.why) from None
        raise BadTuning(".".join(map(str, path)), _expected(usual, first)) from None


def _completed(usual: "DataclassInstance", section: object) -> object:
    """The table, with defaults for missing settings."""
    if not isinstance(section, Mapping):
        return section
    values = {field.name: getattr(usual, field.name) for field in fields(usual)}
    inner = {
        name: _completed(values[name], table)
        for name, table in section.items()
        if is_dataclass(values.get(name))
    }
    return asdict(usual) | dict(section) | inner


KINDS = {
    "dataclass_type": "a table",
    "bool_type": "true or false",
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    "string_type": "text",
}
"""Pydantic's names of wrong types: what was expected."""


def _expected(usual: "DataclassInstance", error: "ErrorDetails") -> str:
    """What a setting must be, in words."""
    bounds = error.get("ctx", {})
    match error["type"]:
        case "unexpected_keyword_argument":
            table: Any = usual
            for name in error["loc"][:-1]:
                table = getattr(table, str(name))
            names, noun = [field.name for field in fields(table)], getattr(table, "NOUN", "setting")
            return f"unknown {noun}; expected one of {', '.join(names)}"
        case "greater_than":
            return f"expected more than {bounds['gt']:g}"
        case "greater_than_equal":
            return f"expected {bounds['ge']:g} or more"
        case "less_than_equal":
            return f"expected at most {bounds['le']:g}"
        case "enum":
            return f"expected one of {bounds['expected']}".replace("'", "")
        case kind:
            return f"expected {KINDS[kind]}" if kind in KINDS else error["msg"]


def config_dir(environ: Mapping[str, str]) -> Path:
    return directory("config", environ.get("HUD_TUI_CONFIG_DIR"), environ)


def read_config(directory: Path) -> Config:
    """The config file of this directory; defaults if there is none. Raises HudUsage: unreadable,
    not TOML, or an invalid value; the message names the file and the line or field."""
    file = directory / CONFIG_NAME
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(file, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    import tomllib  # 4 ms, only needed if there is a file

    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5000 digits too
        raise _bad(file, f"is not TOML: {error}") from error
    return Config(**{name: _read(file, name, table) for name, table in tables.items()})


def _read(file: Path, name: str, table: object) -> Any:
    names = readers()
    if name not in names:
        raise _bad(file, f"{one_line(name, 60)}: unknown table; expected one of {', '.join(names)}")
    try:
        return names[name](table)
    except BadTuning as error:
        path = f"{name}.{error.name}" if error.name else name
        raise _bad(file, f"{path}: {error.why}") from error


def _bad(file: Path, what: str) -> HudUsage:
    hint = "fix it, or remove it to get the default"
    return HudUsage(f"{one_line(file, 400)}: {one_line(what, 600)}", hint)


# Custom keys: the table ``[keys]``, which maps an action's id to one or several keys.


Keymap = Mapping[str, str]
"""Custom keys by action id, separated by commas."""
MOST_KEYS = 8
"""Maximum number of keys of one action."""
LISTS = ("models", "launch", "checkpoints", "jobs", "alarms")
"""Views in which a focused list handles keys first."""


def read_keymap(table: object) -> Keymap:
    """Read the table as Textual's key names. An id may be quoted, or written as nested tables.
    Raises BadTuning: unknown id, invalid key, or one key for two actions."""
    if not isinstance(table, Mapping):
        raise BadTuning("", "expected a table")
    actions = {action.id: action for action in ACTIONS}
    keymap: dict[str, str] = {}
    for id_, value in _flat(table):
        if id_ not in actions:
            close = get_close_matches(id_, actions, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise BadTuning(one_line(id_, 80), f"unknown action{meant} (hud-tui keys lists them)")
        keymap[id_] = _keys(actions[id_], value)
    for action, other in _meeting([with_keys(action, keymap) for action in ACTIONS]):
        if action.id not in keymap and other.id not in keymap:
            continue
        for key in _shared(action, other) - _shared(actions[action.id], actions[other.id]):
            mine, yours = (action, other) if action.id in keymap else (other, action)
            why = f"{spell(key)} is also the key of {yours.id}; change one of them"
            raise BadTuning(mine.id, why)
    return keymap


def _flat(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _keys(action: Action, value: object) -> str:
    listed: list[object] = value if isinstance(value, list) else [value]
    written = [key for key in listed if isinstance(key, str)]
    if not 0 < len(listed) <= MOST_KEYS or len(written) < len(listed):
        raise BadTuning(action.id, f"expected a key, or a list of 1 to {MOST_KEYS} keys")
    try:
        keys = [read_key(key) for key in written]
    except ValueError as error:
        raise BadTuning(action.id, f"{one_line(' '.join(written), 60)}: {error}") from error
    for key in keys:
        if action.priority and types_text(key):
            why = f"{spell(key)} types text in input fields, where this action works too"
            raise BadTuning(action.id, why)
    return ",".join(dict.fromkeys(keys))


def _shared(action: Action, other: Action) -> set[str]:
    return set(action.keys.split(",")) & set(other.keys.split(","))


def _meeting(actions: list[Action]) -> Iterator[tuple[Action, Action]]:
    """Pairs of actions that conflict on one key."""
    by_view: dict[str, list[Action]] = {}
    for action in actions:
        by_view.setdefault(action.view, []).append(action)
    for view, own in by_view.items():
        yield from combinations(own, 2)
        around = by_view["app"] if view in VIEWS or view == "connect" else []
        around = around + (by_view["list"] if view in LISTS else [])
        yield from ((mine, other) for mine in own for other in around)
    yield from ((a, b) for a in by_view["app"] for b in by_view["list"])
