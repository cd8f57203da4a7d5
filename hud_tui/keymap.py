"""Keymap: other keys for actions. The table ``[keys]`` of the config file: id → key or keys."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import combinations

from hud_tui.key_names import read_key, spell, types_text
from hud_tui.keys import ACTIONS, VIEWS, Action, with_keys
from hud_tui.rl.alarms.tuning import BadTuning
from hud_tui.rl.text import one_line

Keymap = Mapping[str, str]
"""Of each action that is given another key, by id: its keys, separated by commas."""
MOST = 8
"""Keys of one action."""
LISTS = ("models", "launch", "checkpoints", "jobs", "alarms")
"""Views in which a list has the focus, and sees a key first."""


def read_keymap(given: object) -> Keymap:
    """The table as keys that Textual knows. An id may be quoted, or be tables in tables.

    Raises:
        BadTuning: An id that is none, a key that is none, or one key for two actions.
    """
    if not isinstance(given, Mapping):
        raise BadTuning("", "expected a table")
    known = {action.id: action for action in ACTIONS}
    keymap: dict[str, str] = {}
    for id_, value in _flat(given):
        if id_ not in known:
            raise BadTuning(one_line(id_, 80), _unknown(id_, known))
        keymap[id_] = _keys(known[id_], value)
    _refuse_clashes(keymap)
    return keymap


def _flat(given: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _unknown(id_: str, known: Mapping[str, Action]) -> str:
    close = get_close_matches(id_, known, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"no such action{meant} (hud-tui keys lists them)"


def _keys(action: Action, value: object) -> str:
    listed: list[object] = value if isinstance(value, list) else [value]
    written = [one for one in listed if isinstance(one, str)]
    if not 0 < len(listed) <= MOST or len(written) < len(listed):
        raise BadTuning(action.id, f"expected a key, or a list of 1 to {MOST} keys")
    try:
        keys = [read_key(one) for one in written]
    except ValueError as error:
        raise BadTuning(action.id, f"{_quoted(written)}: {error}") from error
    for key in keys:
        if action.priority and types_text(key):
            raise BadTuning(action.id, f"{spell(key)} is typed in fields; this works there too")
    return ",".join(dict.fromkeys(keys))


def _quoted(written: list[str]) -> str:
    return one_line(" ".join(written), 60)


def _refuse_clashes(keymap: Keymap) -> None:
    usual = {action.id: action for action in ACTIONS}
    now = [with_keys(action, keymap) for action in ACTIONS]
    for one, other in _meeting(now):
        if one.id not in keymap and other.id not in keymap:
            continue
        for key in _shared(one, other) - _shared(usual[one.id], usual[other.id]):
            mine, yours = (one, other) if one.id in keymap else (other, one)
            why = f"{spell(key)} is the key of {yours.id} too; give one of them another"
            raise BadTuning(mine.id, why)


def _shared(one: Action, other: Action) -> set[str]:
    return set(one.keys.split(",")) & set(other.keys.split(","))


def _meeting(actions: list[Action]) -> Iterator[tuple[Action, Action]]:
    """Pairs of actions that would hide one another on one key."""
    by_view: dict[str, list[Action]] = {}
    for action in actions:
        by_view.setdefault(action.view, []).append(action)
    for view, own in by_view.items():
        yield from combinations(own, 2)
        around = by_view["app"] if view in VIEWS or view == "connect" else []
        around = around + (by_view["list"] if view in LISTS else [])
        yield from ((mine, other) for mine in own for other in around)
    yield from ((a, b) for a in by_view["app"] for b in by_view["list"])
