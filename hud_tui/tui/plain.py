"""Plain: the screen without colours, for NO_COLOR: what a colour says, an attribute says.

Source: https://no-color.org
"""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

RAISED = 0.11
"""Difference in brightness from which a background marks something: a cursor, a button."""
FAINT, GREY = 0.7, 0.25
"""Difference in brightness, and range of red, green and blue, up to which a text is muted."""
REVERSE, DIM = Style(reverse=True), Style(dim=True)


class PlainFilter(LineFilter):
    """Take every colour out; a marked background becomes reverse, and a muted text dim."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, plain(style, background) if style is not None else None, control)
            for text, style, control in segments
        ]


@lru_cache(4096)
def plain(style: Style, background: Color) -> Style:
    """A style without its colours.

    Args:
        style: As the screen has it.
        background: The screen's, which is told apart from what is marked.
    """
    base = background.brightness
    ground = base if style.bgcolor is None else Color.from_rich_color(style.bgcolor).brightness
    bare = style.without_color
    if abs(ground - base) > RAISED:
        return bare + REVERSE
    if style.color is None or style.color.is_default:
        return bare
    ink = Color.from_rich_color(style.color)
    muted = abs(ink.brightness - ground) < FAINT and max(ink.rgb) - min(ink.rgb) < GREY * 255
    return bare + DIM if muted else bare
