"""The four themes: text can be read, and colours with a meaning are told apart by every eye; a
reward has its place on the ramp, and a glyph its twin in ASCII.

Sources: relative luminance and contrast, WCAG 2.2 (1.4.3: 4.5:1, 1.4.6: 7:1). Colour blindness,
Machado, Oliveira and Fernandes 2009 (A Physiologically-based Model for Simulation of Color
Vision Deficiency), table 1, severity 1.0, in linear RGB. Distances, CIE 1976 L*a*b*, D65.
"""

from itertools import combinations, pairwise
from math import dist, nan

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from hud_tui.terminal import has_unicode
from hud_tui.tui.theme import (
    ASCII,
    COLOUR_BLIND,
    CONTRAST,
    RAMP,
    RAMPS,
    THEMES,
    TITLES,
    AsciiFilter,
    RampFilter,
    eighth,
    ramp_index,
    reward_style,
)

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]
NORMAL: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
PROTANOPIA: Matrix = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA: Matrix = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
EYES = {"normal": NORMAL, "protanopia": PROTANOPIA, "deuteranopia": DEUTERANOPIA}
XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = (0.95047, 1.0, 1.08883)
each_theme = pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)


def linear(colour: str) -> Vector:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in Color.parse(colour).normalized
    )
    return red, green, blue


def times(matrix: Matrix, vector: Vector) -> Vector:
    x, y, z = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def contrast(one: str, other: str) -> float:
    dark, light = sorted(times(XYZ, linear(colour))[1] for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def seen(colour: str, eye: Matrix) -> Vector:
    """L*a*b* of what this eye makes of it."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in times(eye, linear(colour)))
    parts = (
        part / white for part, white in zip(times(XYZ, (red, green, blue)), WHITE, strict=True)
    )
    x, y, z = (p ** (1 / 3) if p > 216 / 24389 else (24389 / 27 * p + 16) / 116 for p in parts)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(one: str, other: str, eye: Matrix = NORMAL) -> float:
    return dist(seen(one, eye), seen(other, eye))


def grounds(theme: Theme) -> list[str]:
    return [str(theme.background), str(theme.surface), str(theme.panel)]


def meanings(theme: Theme) -> dict[str, str]:
    named = {name: getattr(theme, name) for name in ("accent", "warning", "error", "foreground")}
    return {name: str(colour) for name, colour in named.items()}


def test_the_measures_are_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert seen("#ff0000", NORMAL) == pytest.approx((53.24, 80.09, 67.20), abs=0.05)
    assert apart("#ff0000", "#00ff00", DEUTERANOPIA) < apart("#ff0000", "#00ff00") / 2
    assert list(TITLES) == [theme.name for theme in THEMES] == list(RAMPS)


@each_theme
def test_text_and_colours_with_a_meaning_can_be_read(theme: Theme) -> None:
    least = 7.0 if theme is CONTRAST else 4.5
    tones = [str(theme.foreground), theme.variables["text-muted"]]
    for tone in tones:
        assert min(contrast(tone, ground) for ground in grounds(theme)) >= least
    cursors = ("block-cursor", "block-cursor-blurred")
    for name in cursors:
        shown = theme.variables[f"{name}-foreground"], theme.variables[f"{name}-background"]
        assert contrast(*shown) >= least

    least = 7.0 if theme is CONTRAST else 4.2
    for colour in meanings(theme).values():
        assert min(contrast(colour, ground) for ground in grounds(theme)) >= least
    faint = 7.0 if theme is CONTRAST else 2.0  # what cannot be done now: WCAG sets no limit
    disabled = theme.variables["text-disabled"]
    assert min(contrast(disabled, ground) for ground in grounds(theme)) >= faint


@each_theme
def test_accent_warm_hot_text_and_rewards_are_told_apart(theme: Theme) -> None:
    for one, other in combinations(meanings(theme).values(), 2):
        assert apart(one, other) >= 30
    assert min(apart(meanings(theme)["accent"], reward) for reward in RAMPS[theme.name]) >= 15


@pytest.mark.parametrize("eye", EYES)
def test_every_eye_tells_them_apart_in_the_colour_blind_theme(eye: str) -> None:
    """20 is some nine just noticeable differences (2.3 each, Mahy et al. 1994)."""
    found = meanings(COLOUR_BLIND)
    for one, other in combinations(found.values(), 2):
        assert apart(one, other, EYES[eye]) >= 20
    for name in ("accent", "warning", "error"):
        for reward in RAMPS[COLOUR_BLIND.name]:
            assert apart(found[name], reward, EYES[eye]) >= 20


@each_theme
@pytest.mark.parametrize("eye", EYES)
def test_rewards_go_away_from_the_ground_in_steps(theme: Theme, eye: str) -> None:
    ramp = RAMPS[theme.name]
    assert len(ramp) == len(RAMP)
    assert all(
        contrast(low, str(theme.background)) < contrast(high, str(theme.background))
        for low, high in pairwise(ramp)
    )
    assert min(apart(low, high, EYES[eye]) for low, high in pairwise(ramp)) >= 4
    assert apart(ramp[0], ramp[-1], EYES[eye]) >= 50
    assert contrast(ramp[0], str(theme.background)) >= (3.0 if theme is CONTRAST else 1.7)


def test_rewards_are_exchanged_and_nothing_else() -> None:
    ramp = RAMPS[COLOUR_BLIND.name]
    swap, ground = RampFilter(ramp), Color.parse("#0d1117")
    segments = [
        Segment("a", Style(color=RAMP[3], bold=True)),
        Segment("b", Style(color="#ffffff", bgcolor=RAMP[8])),
        Segment("c", Style(color="red")),
        Segment("d"),
    ]
    assert swap.enabled
    assert swap.apply(segments, ground) == [
        Segment("a", Style(color=ramp[3], bold=True)),
        Segment("b", Style(color="#ffffff", bgcolor=ramp[8])),
        *segments[2:],
    ]
    assert not RampFilter(RAMP).enabled


def test_equal_shares_of_a_scale_have_equal_styles() -> None:
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
    assert has_unicode(environ, encoding) is not wanted
