"""Names of keys: in Textual and in text, and which ones terminals can send.

Source: Textual 8.2, ``textual.keys``; the tests compare with it.
"""

from difflib import get_close_matches
from unicodedata import name as unicode_name

NAMED = frozenset(
    {
        *("enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end"),
        *("pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 25)),
    }
)
_MOVING = NAMED - {"enter", "escape", "tab", "space", "backspace"}
"""Keys that terminals can send with ctrl and shift."""
_ALSO = {"esc": "escape", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "return": "enter"}
_ALSO |= {"←": "left", "→": "right", "↑": "up", "↓": "down", "backtab": "shift+tab"}
_REPLACED = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace"}
"""Combinations for which terminals send the same as for another key."""


def key_of(character: str) -> str:
    """Textual's name of a printable character, e.g. ``question_mark``."""
    if character == " ":
        return "space"
    if character.isalnum():
        return character
    name = unicode_name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _REPLACED.get(name, name)


_CHARACTERS = {key_of(character): character for character in map(chr, range(33, 127))}
_SPELLED = _CHARACTERS | {
    **{"escape": "esc", "pageup": "pgup", "pagedown": "pgdn"},
    **{"left": "←", "right": "→", "up": "↑", "down": "↓"},
}


def spell(key: str) -> str:
    """A key of Textual in the usual notation, e.g. ``?``, ``^p``, ``shift+←``."""
    *held, name = key.split("+")
    written = _SPELLED.get(name, name)
    return "".join("^" if modifier == "ctrl" else f"{modifier}+" for modifier in held) + written


def types_text(key: str) -> bool:
    """Whether an input field handles the key itself."""
    return key in _CHARACTERS or len(key) == 1 or key in ("space", "backspace", "delete")


def read_key(written: str) -> str:
    """The name in Textual of a key in either notation.

    Raises:
        ValueError: There is no such key, or terminals do not send it; the message says what to
            write.
    """
    text = _ALSO.get(written.lower(), written)
    if len(text) == 1 and text.isprintable():
        return key_of(text)
    if len(text) == 2 and text[0] == "^":
        text = f"ctrl+{text[1]}"
    *held, name = text.lower().split("+")
    name = _ALSO.get(name, name)
    key = "+".join([*sorted(held), name])
    if not held and (name in NAMED or name in _CHARACTERS):
        return key
    if held and _is_sent(sorted(held), name):
        return key
    raise ValueError(_why_not(held, name, key))


def _is_sent(held: list[str], name: str) -> bool:
    if held == ["ctrl"]:
        letter = len(name) == 1 and name.isascii() and name.isalpha()
        return name in _MOVING or (letter and f"ctrl+{name}" not in _SAME)
    if held == ["shift"]:
        return name in _MOVING or name == "tab"
    if held == ["alt"]:
        return name in _MOVING or (len(name) == 1 and name.isascii() and name.isalnum())
    return held == ["ctrl", "shift"] and name in _MOVING


def _why_not(held: list[str], name: str, key: str) -> str:
    if key in _SAME:
        return f"terminals send the same for it as for {_SAME[key]}"
    if held == ["shift"] and len(name) == 1 and name.isalpha():
        return f"no such key; write {name.upper()}"
    is_key = name in NAMED or name in _CHARACTERS or (len(name) == 1 and bool(held))
    if set(held) <= {"ctrl", "shift", "alt"} and is_key:
        return "terminals do not send that"
    close = get_close_matches(name, sorted(NAMED | set(_CHARACTERS) | set(_ALSO)), n=1)
    meant = f"; did you mean {'+'.join([*held, close[0]])}?" if close else "."
    return f"no such key{meant} They are written like ?, F, ctrl+s, shift+left, f5, enter"
