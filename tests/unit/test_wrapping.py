"""No line breaks within a number."""

import pytest
from textual.content import Content

from hud_tui.tui.wrapping import keep_numbers_whole, wrapped


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("about 2 100 more", ["about", "2 100", "more"]),
        ("of all 45 % at", ["of all", "45 % at"]),
        ("in 12 345 678", ["in", "12 345", "678"]),  # longer than a line
        ("step 1 2000", ["step 1", "2000"]),
    ],
)
def test_a_grouped_number_and_a_percentage_stay_whole(text: str, lines: list[str]) -> None:
    keep_numbers_whole()
    assert [line.plain for line in Content(text).wrap(7)] == lines
    assert wrapped(text, 7) == [line.rstrip() for line in lines]
    assert wrapped("", 7) == []
