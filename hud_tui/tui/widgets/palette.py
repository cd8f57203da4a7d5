"""The one reward ramp, and what to draw where a terminal has no Unicode.

The ramp is sequential and reads the same to a colour-blind eye: brightness rises with
the reward. It leaves out the darkest fifth of its source and lifts the three that
follow, which a dark terminal would swallow.

Source: viridis (van der Walt and Smith 2015, matplotlib), sampled at nine points.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

RAMP = (
    "#4f529b",
    "#455f98",
    "#32709a",
    "#277d8e",
    "#1f938b",
    "#28ae80",
    "#5ec962",
    "#addc30",
    "#fde725",
)
"""Lowest reward to highest."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
"""Nothing to a full cell, by eighths of its height."""
LOCK = "⚿"
"""A model that is changed only by who types its name."""
ALL_GOOD, ALL_BAD = "═", "┄"
"""Groups without spread, apart from each other and from any spread without colour too."""
_TWINS = {
    **dict(zip("▁▂▃▄▅▆▇█", "_..:-=+#", strict=True)),
    **dict.fromkeys("─╴╶╌┄┈⋯", "-"),
    **dict.fromkeys("━═╸╺", "="),
    **dict.fromkeys("│┃║┊┆", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┣┫┳┻╋╞╡╤╧╪", "+"),
    **dict.fromkeys("▶▸►", ">"),
    **dict.fromkeys("◂◀", "<"),
    **dict.fromkeys("▲△", "^"),
    **dict.fromkeys("▼▽▾", "v"),
    **dict.fromkeys("●◉■", "o"),
    **dict.fromkeys("◌○◇□", "."),
    **dict.fromkeys("⚠⚑", "!"),
    **dict.fromkeys("░▏▎", "."),
    **dict.fromkeys("▒▍▌▋", ":"),
    **dict.fromkeys("▓▊▉", "#"),
    "★": "*",
    LOCK: "#",
    "◆": "p",
    "◐": "c",
    "✎": "n",
    "↻": "@",
    "⏸": "=",
    "⏎": "$",
    "␛": "?",
    "⋮": ":",
    "…": "~",
    "·": ".",
    "×": "x",
    "±": "~",
    "Δ": "d",
    "–": "-",
    "−": "-",
    "✔": "+",
    "✘": "x",
    "∞": "I",
    "←": "<",
    "→": ">",
    "↑": "^",
    "↓": "v",
    "‹": "<",
    "›": ">",
    "≤": "<",
    "≥": ">",
    "Σ": "S",
    "␣": "_",
    "⇥": ">",
    "␡": "?",
    "⟨": "(",
    "⟩": ")",
    "�": "?",
    "≈": "~",
}
BRAILLE = 0x2800
"""The empty braille cell; the eight low bits of a cell's code are its dots."""
ASCII = {
    **{ord(glyph): twin for glyph, twin in _TWINS.items()},
    **{BRAILLE + dots: " .:+*####"[dots.bit_count()] for dots in range(256)},
}
"""One character for one: a twin never moves what stands beside it."""
_OTHER = re.compile("[^\x00-\x7f]")


def ramp_index(value: float, low: float, high: float) -> int:
    """Which colour of the ramp, 0 … 8: NaN and an empty range are the lowest."""
    if not high > low or value != value:
        return 0
    share = (value - low) / (high - low)
    return round(min(1.0, max(0.0, share)) * (len(RAMP) - 1))


def reward_style(value: float, low: float = 0.0, high: float = 1.0) -> Style:
    """The style of a reward on the scale [low, high], the same in every view."""
    return _style(ramp_index(value, low, high))


def eighth(share: float) -> str:
    """A cell filled from below to a share in [0, 1]; any share above 0 shows."""
    if not share > 0:
        return EIGHTHS[0]
    return EIGHTHS[min(8, max(1, round(share * 8)))]


def mark_glyph(spread: float, teaches: bool, all_good: bool, widest: float) -> str:
    """A group in one cell: as high as its spread; a flat one has a line of its own.

    Args:
        spread: Of its rewards.
        teaches: Whether it has any.
        all_good: Of a flat group, whether it was solved every time.
        widest: The spread of a full cell.
    """
    if teaches:
        return eighth(max(0.01, spread / widest))
    return ALL_GOOD if all_good else ALL_BAD


def wants_ascii(environ: Mapping[str, str], encoding: str | None) -> bool:
    """Whether this terminal has no Unicode: HUD_TUI_ASCII is set, or the encoding says so."""
    if "HUD_TUI_ASCII" in environ:
        return environ["HUD_TUI_ASCII"] not in ("", "0")
    return environ.get("TERM") == "linux" or "utf" not in (encoding or "utf-8").lower()


class AsciiFilter(LineFilter):
    """Replace every glyph of the screen by its ASCII twin, just before it is written."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def to_ascii(text: str) -> str:
    """As wide a text in ASCII; a character that has no twin, as in a model's name, is ``?``."""
    if text.isascii():
        return text
    return _OTHER.sub(lambda found: "?" * cell_len(found.group()), text.translate(ASCII))


def ascii_filter(encoding: str | None) -> AsciiFilter:
    """The app's filter, switched on where the terminal needs it."""
    return AsciiFilter(enabled=wants_ascii(os.environ, encoding))


@lru_cache(len(RAMP))
def _style(index: int) -> Style:
    return Style(color=RAMP[index])
