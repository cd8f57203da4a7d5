"""Text from a server, a model or a file, made safe for a terminal.

Control characters can move the cursor, retitle the window or write to the clipboard;
bidirectional overrides can make a line read as what it is not. Each is replaced by a
visible stand-in, so nothing is hidden and nothing acts.

Source: ECMA-48 (C0 and C1 controls); Unicode UAX #9 (bidirectional formatting).
"""

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from math import inf, isfinite

# Ages in at most five characters.


AGE_UNITS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
"""Seconds in each unit, longest first."""

STEP_S = 10


def coarse(now: float) -> float:
    """`now` rounded for ages in lists: all of them change together and rarely, which saves
    terminal output."""
    return now // STEP_S * STEP_S


def age(stamp: str | float | None, now: float) -> str:
    """Time since a moment, e.g. ``41 s`` or ``3 h``; ``–`` where it is unknown.

    Args:
        stamp: ISO 8601, or Unix seconds.
        now: Unix seconds. A time in the future, by another clock, counts as ``0 s`` ago.
    """
    then = seconds(stamp) if isinstance(stamp, str) else stamp
    if then is None:
        return "–"
    past = max(0, int(now - then))
    size, unit = next((each for each in AGE_UNITS if past >= each[0]), (1, "s"))
    return f"{past // size} {unit}"


def seconds(stamp: str | None) -> float | None:
    """An ISO 8601 time as Unix seconds; None if it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None


# Formatting of counts.


def spaced(number: int) -> str:
    """A whole number with a space before each three digits, e.g. ``12 345``."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, thing: str) -> str:
    """A count with its unit, e.g. ``1 step`` or ``1 200 steps``."""
    return f"{spaced(number)} {thing}{'s' * (number != 1)}"


BYTE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: float | None) -> str:
    """Bytes to two digits or more, e.g. ``2.1 MB``; ``?`` where nobody knows."""
    if count is None:
        return "?"
    for unit, name in BYTE_UNITS:
        if count >= unit:
            number = count / unit
            return f"{number:.1f} {name}" if number < 9.95 else f"{number:.0f} {name}"
    return f"{count:.0f} bytes"


def read_loss_config(text: str) -> dict[str, float]:
    """A loss's own keys as they are typed, e.g. ``clip_low_threshold=.8,clip_high_threshold=1.28``.

    Raises:
        ValueError: Not so; the message names the part.
    """
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (word.strip() for word in part.partition("="))
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = inf
        if not key or not isfinite(found[key]):
            raise ValueError(f"expected KEY=NUMBER, found {one_line(part, 40)!r}")
    return found


def write_loss_config(config: Mapping[str, float]) -> str:
    """The same, to be typed again."""
    return ",".join(f"{key}={value}" for key, value in config.items())


LIMIT = 20_000
"""Characters kept of one text; the rest is counted, not shown."""
WHOLE = sys.maxsize
"""Limit for text that is copied or written to a file, not shown: unlimited."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: object, limit: int = LIMIT) -> str:
    """Make text printable: controls become visible pictures, e.g. ESC becomes ``␛``.

    Newlines and tabs stay. Text beyond `limit` characters is cut and says so.
    """
    text = str(text)
    cut = f"… ({len(text) - limit} more characters)" if len(text) > limit else ""
    return _UNSAFE.sub(_picture, text[:limit]) + cut


def one_line(text: object, limit: int = 200) -> str:
    """`clean`, with newlines and tabs as pictures too, and only ``…`` where it is cut: for a
    table cell or a status line."""
    text = str(text)
    kept = clean(text[:limit], limit).replace("\n", "⏎").replace("\t", "⇥")
    return f"{kept}…" if len(text) > limit else kept


def count_unsafe(text: str) -> int:
    """How many characters `clean` replaces."""
    return len(_UNSAFE.findall(text))


def pictures(text: str) -> list[str]:
    """The pictures that `clean` inserts, in order."""
    return [_picture(match) for match in _UNSAFE.finditer(text)]


def has_surrogate(text: str) -> bool:
    """Whether it contains a lone surrogate, which UTF-8 cannot encode."""
    return _SURROGATE.search(text) is not None


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{code:04X}⟩"
