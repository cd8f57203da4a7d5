"""The reward ramp reads without colour vision, and without Unicode."""

from itertools import pairwise
from math import nan

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from hud_tui.tui.theme import (
    ASCII,
    RAMP,
    AsciiFilter,
    eighth,
    ramp_index,
    reward_style,
    wants_ascii,
)


def luminance(colour: str) -> float:
    return Color.parse(colour).brightness


def test_the_ramp_grows_brighter_with_the_reward_and_equal_rewards_have_equal_styles() -> None:
    assert all(luminance(low) < luminance(high) for low, high in pairwise(RAMP))
    assert reward_style(0.5) == reward_style(5, 0, 10)
    assert reward_style(0.0) != reward_style(1.0)


@pytest.mark.parametrize(
    ("value", "low", "high", "place"),
    [
        (0, 0, 1, 0),
        (1, 0, 1, 8),
        (0.5, 0, 1, 4),
        (-3, 0, 1, 0),
        (9, 0, 1, 8),
        (nan, 0, 1, 0),
        (5, 5, 5, 0),
        (0, -1, 1, 4),
    ],
)
def test_a_reward_has_its_place(value: float, low: float, high: float, place: int) -> None:
    assert ramp_index(value, low, high) == place


@pytest.mark.parametrize(
    ("share", "cell"), [(0, " "), (1e-9, "▁"), (0.5, "▄"), (1, "█"), (2, "█"), (nan, " ")]
)
def test_a_bar_shows_its_share(share: float, cell: str) -> None:
    assert eighth(share) == cell


def test_every_twin_is_one_ascii_cell_and_the_filter_replaces_nothing_else() -> None:
    for code, twin in ASCII.items():
        assert twin.isascii()
        assert twin.isprintable()
        assert len(twin) == cell_len(chr(code)) == 1
    segments = [Segment("reward ▲+.1 ⣿⠀│")]
    [seen] = AsciiFilter().apply(segments, Color(0, 0, 0))
    assert seen.text == "reward ^+.1 # |"


@pytest.mark.parametrize(
    ("environ", "encoding", "wanted"),
    [
        ({}, "utf-8", False),
        ({}, None, False),
        ({}, "ascii", True),
        ({"TERM": "linux"}, "utf-8", True),
        ({"HUD_TUI_ASCII": "1"}, "utf-8", True),
        ({"HUD_TUI_ASCII": "0", "TERM": "linux"}, "ascii", False),
    ],
)
def test_who_gets_ascii(environ: dict[str, str], encoding: str | None, wanted: bool) -> None:
    assert wants_ascii(environ, encoding) is wanted
