"""Text from a server, a model or a file, made safe for a terminal; text forms of ages, counts,
sizes.

Control characters can move the cursor, change the window title or write to the clipboard;
bidirectional overrides can make a line read as something else. Each is replaced by a visible
character, so that nothing is hidden and nothing takes effect.

Source: ECMA-48 (C0 and C1 controls); Unicode UAX #9 (bidirectional formatting).
"""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf, isfinite
from shlex import quote
from typing import Any

BRAILLE = 0x2800
"""The empty braille cell; the eight low bits of a cell's code are its dots."""

# Ages and durations in at most five characters.


AGE_UNITS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
"""Seconds in each unit, longest first."""


def age(stamp: str | float | None, now: float) -> str:
    """Time since a moment, e.g. ``41 s`` or ``3 h``; ``–`` if unknown.

    Args:
        stamp: ISO 8601, or Unix seconds.
        now: Unix seconds. A stamp in the future (from another clock) gives ``0 s``.
    """
    then = seconds(stamp) if isinstance(stamp, str) else stamp
    if then is None or not isfinite(then):
        return "–"
    past = max(0, int(now - then))
    size, unit = next((each for each in AGE_UNITS if past >= each[0]), (1, "s"))
    return f"{past // size} {unit}"


def clock_text(stamp: float, now: float) -> str:
    """Unix seconds as local time, with the date unless that is today's, e.g. ``14:02``; a dash if
    no calendar has them."""
    try:
        then, today = datetime.fromtimestamp(stamp), datetime.fromtimestamp(now)
    except (OverflowError, OSError, ValueError):
        return "–"
    return then.strftime("%H:%M" if then.date() == today.date() else "%d %b %H:%M")


def moment(stamp: float) -> str:
    """Unix seconds as date and time in UTC; a dash if unknown."""
    if not 0 < stamp < 2e11:
        return "–"
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def seconds(stamp: str | None) -> float | None:
    """An ISO 8601 time as Unix seconds; None if it is not one."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None


LONGEST_S = 1e12
"""Longest duration that is written, seconds."""


def duration(seconds: float) -> str:
    """A number of seconds in a few characters: ``41 s``, ``1m12s``, ``2h05m``, ``3d04h``."""
    whole = int(max(0.0, min(seconds, LONGEST_S)))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


# Formatting of counts.


def dollars(amount: float) -> str:
    """E.g. ``$12.40``; below a cent with two significant digits."""
    if 0 < amount < 0.01:
        return f"${amount:.2g}" if amount >= 0.0001 else "below $0.0001"
    return f"${amount:.2f}"


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage, e.g. ``12 %``."""
    return f"{100 * share:.{digits}f} %"


def spaced(number: int) -> str:
    """An integer with a space between groups of three digits, e.g. ``12 345``."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, thing: str) -> str:
    """A count with its unit, e.g. ``1 step`` or ``1 200 steps``."""
    return f"{spaced(number)} {thing}{'s' * (number != 1)}"


def names_text(names: Sequence[object], most: int = 5) -> str:
    """The first names, and the number of others, e.g. ``add-1, add-2 and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(one_line(name, 80) for name in names[:most]) + more


BYTE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: float | None) -> str:
    """Bytes with at least two digits, e.g. ``2.1 MB``; ``?`` if unknown."""
    if count is None:
        return "?"
    for unit, name in BYTE_UNITS:
        if count >= unit:
            number = count / unit
            return f"{number:.1f} {name}" if number < 9.95 else f"{number:.0f} {name}"
    return f"{count:.0f} bytes"


def read_loss_config(text: str) -> dict[str, float]:
    """Parse a loss's own parameters, e.g. ``clip_low_threshold=.8,clip_high_threshold=1.28``.

    Raises:
        ValueError: A part is not KEY=NUMBER; the message names it.
    """
    config: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (word.strip() for word in part.partition("="))
        try:
            config[key] = float(value)
        except ValueError:
            config[key] = inf
        if not key or not isfinite(config[key]):
            raise ValueError(f"expected KEY=NUMBER, found {one_line(part, 40)!r}")
    return config


def wrong_loss_config(
    loss_fn: str, config: Mapping[str, float], defaults: Mapping[str, float]
) -> str:
    """What is wrong with a loss's own parameters; empty if nothing is.

    Args:
        defaults: Its keys with their defaults.
    """
    clips = defaults.keys() >= CLIP_KEYS
    for key, value in config.items():
        if key not in defaults and not (key == EPSILON and clips):
            return f"{loss_fn} has no config key {one_line(key, 60)!r}"
        if not isfinite(value) or value < 0:
            return f"{key} must be a finite number from 0, not {value:g}"
    if EPSILON in config and (config[EPSILON] > 1 or CLIP_KEYS & config.keys()):
        return "epsilon is a number from 0 to 1 that stands for both clip thresholds: 1 ± epsilon"
    full = {**defaults, **spelled_out(config)}
    low, high = full.get("clip_low_threshold", 0.0), full.get("clip_high_threshold", 0.0)
    if low > high:
        return f"clip_low_threshold must not exceed clip_high_threshold: {low:g} is above {high:g}"
    return ""


CLIP_KEYS = frozenset({"clip_low_threshold", "clip_high_threshold"})
EPSILON = "epsilon"


def spelled_out(config: Mapping[str, float]) -> dict[str, float]:
    """A loss's parameters with the two thresholds that `epsilon` stands for: the loss clips ratios
    at 1 ± epsilon (Schulman et al. 2017, arXiv:1707.06347, equation 7)."""
    full = dict(config)
    if EPSILON in full:
        epsilon = full.pop(EPSILON)
        full |= {"clip_low_threshold": 1 - epsilon, "clip_high_threshold": 1 + epsilon}
    return full


def write_loss_config(config: Mapping[str, float]) -> str:
    """The text that `read_loss_config` parses."""
    return ",".join(f"{key}={value}" for key, value in config.items())


LIMIT = 20_000
"""Maximum characters shown of one text; the others are only counted."""
WHOLE = sys.maxsize
"""No limit, for text that is copied or written to a file."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: object, limit: int = LIMIT) -> str:
    """Make text printable: control characters become visible ones, e.g. ESC becomes ``␛``.

    Newlines and tabs stay. Text beyond `limit` characters is replaced by a note of its length.
    """
    text = str(text)
    cut = f"… ({len(text) - limit} more characters)" if len(text) > limit else ""
    return _UNSAFE.sub(_picture, text[:limit]) + cut


def last_lines(text: str, most: int = 1) -> list[str]:
    """The last lines of a text that are not blank."""
    return [line for line in text.splitlines() if line.strip()][-most:]


def one_line(text: object, limit: int = 200) -> str:
    """`clean` for a table cell or a status line: newlines and tabs become visible too, and text
    that is cut ends in ``…``."""
    text = str(text)
    line = clean(text[:limit], limit).replace("\n", "⏎").replace("\t", "⇥")
    return f"{line}…" if len(text) > limit else line


def command_line(program: str, *words: object) -> str:
    """A command of this program to paste into a shell: every word is quoted.

    Args:
        program: Its beginning, with the flags of the service in use: ``Settings.program``.
        words: The command, its subject and its flags.
    """
    return " ".join([program, *(quote(one_line(word, 300)) for word in words)])


def count_unsafe(text: str) -> int:
    """Number of characters that `clean` replaces."""
    return len(_UNSAFE.findall(text))


def pictures(text: str) -> list[str]:
    """The characters that `clean` inserts, in order."""
    return [_picture(match) for match in _UNSAFE.finditer(text)]


def has_surrogate(text: str) -> bool:
    """Whether the text contains a lone surrogate, which UTF-8 cannot encode."""
    return _SURROGATE.search(text) is not None


def with_text(value: Any) -> Any:
    """A JSON value with the lone surrogates in its texts made visible. An escape within JSON brings
    them past every decoder, and then they can be neither stored nor sent."""
    if isinstance(value, str):
        return _SURROGATE.sub(_picture, value)
    if isinstance(value, dict):
        return {with_text(key): with_text(part) for key, part in value.items()}
    return [with_text(part) for part in value] if isinstance(value, list) else value


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{code:04X}⟩"
