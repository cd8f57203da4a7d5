"""Where lines of text break: not within a number that is written in groups, or before its %."""

import re

from rich import _wrap
from textual.content import Content

WORD = re.compile(r"\s*(?:\S|(?<=\d) (?=%|\d{3}(?!\d)))+\s*")
"""As Rich's, but ``2 100`` and ``45 %`` are words."""


def keep_numbers_whole() -> None:
    """In all that Rich and Textual wrap. Neither knows a space at which no line breaks."""
    _wrap.re_word = WORD


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most so many cells; none without any."""
    return [line.plain.rstrip() for line in Content(text).wrap(width)] if text else []
