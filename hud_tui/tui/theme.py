"""Themes, the reward ramp, and filters for terminals without Unicode or colours.

The two usual themes have two text tones, one accent, one warm and one hot colour. The accent marks
what is served now. The reward ramp runs from blue to yellow, so the accent is a sky blue brighter
than any of it, and warm is an orange.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.theme import Theme

from hud_tui.rl.text import BRAILLE
from hud_tui.storage import JsonStore


def _themed(theme: Theme, **own: str) -> Theme:
    """The theme with Textual's variables: most are its own colours, the others are given."""
    own = {name.replace("_", "-"): colour for name, colour in own.items()}
    foreground, background, panel, accent = map(
        str, (theme.foreground, theme.background, theme.panel, theme.accent)
    )
    grounds = ("background", "corner-color", "background-hover", "background-active")
    variables = {
        "border-blurred": own["border"],
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-foreground": foreground,
        "block-cursor-blurred-background": panel,
        "block-cursor-blurred-text-style": "none",
        "input-cursor-background": foreground,
        "scrollbar": own["border"],
        "scrollbar-active": accent,
        **{f"scrollbar-{ground}": background for ground in grounds},
        **own,
    }
    return replace(theme, variables=variables)


DARK = _themed(
    Theme(
        name="hud-dark",
        dark=True,
        primary="#7f93ad",
        secondary="#7f93ad",
        accent="#63c8ff",
        warning="#ffb454",
        error="#ff6e6e",
        success="#8fce9b",
        foreground="#d5dce6",
        background="#0d1117",
        surface="#141a22",
        panel="#1c2430",
    ),
    text_muted="#8592a3",
    text_disabled="#5b6675",
    border="#2c3745",
    block_cursor_foreground="#ffffff",
    block_cursor_background="#2b3b52",
    input_selection_background="#3a5270",
    scrollbar_hover="#43536a",
)
LIGHT = _themed(
    Theme(
        name="hud-light",
        dark=False,
        primary="#52657d",
        secondary="#52657d",
        accent="#0a6fb4",
        warning="#a35b00",
        error="#b3261e",
        success="#2f7d43",
        foreground="#1d2530",
        background="#fbfcfd",
        surface="#f1f4f7",
        panel="#e4e9ef",
    ),
    text_muted="#5c6977",
    text_disabled="#94a0ad",
    border="#c8d1db",
    block_cursor_foreground="#0d1117",
    block_cursor_background="#c9dcf0",
    input_selection_background="#b9d4ee",
    scrollbar_hover="#a8b5c3",
)


# The reward ramp, and replacements for terminals without Unicode.
#
# The ramp is sequential and reads the same to a colour-blind eye: brightness rises with
# the reward. It leaves out the darkest fifth of its source and lifts the three that
# follow, which a dark terminal would swallow.
#
# Source: viridis (van der Walt and Smith 2015, matplotlib), sampled at nine points.


def _ramp(colours: str) -> tuple[str, ...]:
    return tuple(f"#{colour}" for colour in colours.split())


RAMP = _ramp("4f529b 455f98 32709a 277d8e 1f938b 28ae80 5ec962 addc30 fde725")
EIGHTHS = " ▁▂▃▄▅▆▇█"
"""Blocks from empty to full, by eighths of a cell's height."""
LOCK = "⚿"
ALL_SOLVED, ALL_FAILED = "═", "┄"
"""Glyphs of zero-variance groups, distinct without colour too."""
_TWINS = {
    **dict(zip("▁▂▃▄▅▆▇█", "_..:-=+#", strict=True)),
    **dict.fromkeys("─╴╶╌┄┈⋯", "-"),
    **dict.fromkeys("━═╸╺", "="),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("│┃║┊┆", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┣┫┳┻╋╞╡╤╧╪", "+"),
    **dict.fromkeys("▶▸►▷", ">"),
    **dict.fromkeys("◂◀", "<"),
    **dict.fromkeys("▲△", "^"),
    **dict.fromkeys("▼▽▾", "v"),
    **dict.fromkeys("●◉■", "o"),
    **dict.fromkeys("◌○◇□", "."),
    **dict.fromkeys("⚠⚑", "!"),
    **dict.fromkeys("░▏▎", "."),
    **dict.fromkeys("▒▍▌▋", ":"),
    **dict.fromkeys("▓▊▉", "#"),
    LOCK: "#",
    **dict(zip("╥★☆◆◐✎↻⏸⏎␛⋮…·×÷±┅Δ–−✔", "Y*+pcn@=$?:~.x/~-d--+", strict=True)),
    **dict(zip("✘∞←→↑↓‹›≤≥Σπ␣⇥␡⟨⟩�≈‖≠", "xI<>^v<><>Sp_>?()?~|/", strict=True)),
}
ASCII = {
    **{ord(glyph): twin for glyph, twin in _TWINS.items()},
    **{BRAILLE + dots: " .:+*####"[dots.bit_count()] for dots in range(256)},
}
"""One character for one: a twin never moves what stands beside it."""
_OTHER = re.compile("[^\x00-\x7f]")


def ramp_index(value: float, low: float, high: float) -> int:
    """Index of a colour of the ramp, 0 … 8; 0 for NaN and for an empty range."""
    if not high > low or value != value:
        return 0
    share = (value - low) / (high - low)
    return round(min(1.0, max(0.0, share)) * (len(RAMP) - 1))


def reward_style(value: float, low: float = 0.0, high: float = 1.0) -> Style:
    """The style of a reward on the scale [low, high], the same in every view."""
    return _style(ramp_index(value, low, high))


def reward_bar(reward: float, high: float = 1.0) -> Content:
    """A reward as a bar in one cell, on a scale from 0 to `high`; blank for NaN."""
    if reward != reward:
        return Content(" ")
    return Content.styled(eighth(max(reward, 1e-6) / high), RAMP[ramp_index(reward, 0.0, high)])


def eighth(share: float) -> str:
    """A cell filled from below to a share in [0, 1]; any share above 0 is visible."""
    if not share > 0:
        return EIGHTHS[0]
    return EIGHTHS[min(8, max(1, round(share * 8)))]


def bar_cells(fraction: float, width: int) -> tuple[str, str]:
    """The done and the open part of a progress bar of half cells."""
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    done = "━" * (halves // 2) + ("╸" if halves % 2 else "")
    return done, "─" * (width - len(done))


def mark_glyph(std: float, has_signal: bool, all_solved: bool, widest: float) -> str:
    """A group in one cell, as high as the std of its rewards; `widest` fills the cell.
    Zero-variance groups have glyphs of their own."""
    if has_signal:
        return eighth(max(0.01, std / widest))
    return ALL_SOLVED if all_solved else ALL_FAILED


class AsciiFilter(LineFilter):
    """Replaces every glyph by an ASCII character just before the screen is written."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def to_ascii(text: str) -> str:
    """The text in ASCII with the same width; characters without a replacement become ``?``."""
    if text.isascii():
        return text
    return _OTHER.sub(lambda match: "?" * cell_len(match.group()), text.translate(ASCII))


@lru_cache(len(RAMP))
def _style(index: int) -> Style:
    return Style(color=RAMP[index])


# Two themes for low vision and colour blindness, and the reward ramps of all four themes.
#
# High contrast: every text has at least 7:1 against its ground (WCAG 2.2, criterion 1.4.6), on
# black. Colour-blind safe: accent, warm and hot lie on the axis from blue to yellow and apart in
# brightness, which deuteranopes and protanopes see; rewards are greys, so that only what has a
# meaning of its own is coloured.


CONTRAST = _themed(
    Theme(
        name="hud-high-contrast",
        dark=True,
        primary="#b9cbe4",
        secondary="#b9cbe4",
        accent="#6fd3ff",
        warning="#ffb000",
        error="#ff8f8f",
        success="#8dffa0",
        foreground="#ffffff",
        background="#000000",
        surface="#0a0d12",
        panel="#14191f",
    ),
    text_muted="#a6aebb",
    text_disabled="#9ea6b2",
    border="#8c98a8",
    block_cursor_foreground="#ffffff",
    block_cursor_background="#00355e",
    block_cursor_blurred_background="#232b35",
    input_selection_background="#00528f",
    scrollbar_hover="#c8d0da",
)
COLOUR_BLIND = replace(
    DARK,
    name="hud-colour-blind",
    accent="#56c4ff",
    warning="#ffa200",
    error="#ff5a36",
    success="#b9c6d6",
    variables={**DARK.variables, "scrollbar-active": "#56c4ff"},
)
TITLES = {
    DARK.name: "dark",
    LIGHT.name: "light",
    CONTRAST.name: "high contrast",
    COLOUR_BLIND.name: "colour-blind safe",
}
"""What each theme is called, in the order in which one key goes through them."""
THEMES = (DARK, LIGHT, CONTRAST, COLOUR_BLIND)
RAMPS = {
    DARK.name: RAMP,
    LIGHT.name: _ramp("87d448 52c368 2caf7e 219989 26828d 306a8d 3b518a 44367f 461668"),
    CONTRAST.name: _ramp("2e6e8e 26828d 21968a 22a884 3dba74 64ca5d 95d740 cae126 fde725"),
    COLOUR_BLIND.name: _ramp("4f5560 5f6570 707680 818791 949aa3 a8adb5 bdc1c7 d3d6da eceef0"),
}
"""Of each theme the colours of rewards, lowest to highest: each further from the ground than the
last. Viridis, as in the palette: downwards on a light ground, its brighter part on black."""


# The screen without colours, for NO_COLOR: what a colour says, an attribute says.
#
# Source: https://no-color.org


RAISED = 0.11
"""Difference in brightness from which a background marks something, such as a cursor or a
button."""
FAINT, GREY = 0.7, 0.25
"""Difference in brightness, and range of red, green and blue, up to which text counts as muted."""
REVERSE, DIM = Style(reverse=True), Style(dim=True)


class PlainFilter(LineFilter):
    """Removes all colours; a marked background becomes reverse, and muted text dim."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, plain(style, background) if style is not None else None, control)
            for text, style, control in segments
        ]


@lru_cache(4096)
def plain(style: Style, background: Color) -> Style:
    """A style without its colours, on a screen of this background."""
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


THEME_FILE = "look"


class RampFilter(LineFilter):
    """Replaces the reward ramp's colours by those of a theme."""

    def __init__(self, ramp: Sequence[str]) -> None:
        super().__init__(enabled=tuple(ramp) != RAMP)
        self.ramp = tuple(ramp)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, style and _exchanged(style, self.ramp), control)
            for text, style, control in segments
        ]


_PLACES = {colour: number for number, colour in enumerate(RAMP)}


@lru_cache(4096)
def _exchanged(style: Style, ramp: tuple[str, ...]) -> Style:
    ink, ground = _place(style.color), _place(style.bgcolor)
    if ink is None and ground is None:
        return style
    return style + Style(
        color=ramp[ink] if ink is not None else None,
        bgcolor=ramp[ground] if ground is not None else None,
    )


def _place(colour: object) -> int | None:
    triplet = getattr(colour, "triplet", None)
    return None if triplet is None else _PLACES.get(triplet.hex)


class ThemeChoice:
    """The app's theme: the stored one, changed by a key or in the palette."""

    def __init__(self, app: App[None], store: JsonStore) -> None:
        """Use the stored theme, before the styles are read, so that they are read once."""
        self._app, self._store = app, store
        for theme in THEMES:
            app.register_theme(theme)
        name = store.read(THEME_FILE).get("theme", DARK.name)
        if name not in list(TITLES):
            store.leave(THEME_FILE, f"theme: expected one of {', '.join(TITLES)}")
            name = DARK.name
        app.set_reactive(App.theme, name)
        self._use_ramp(name)
        app.stylesheet.set_variables(app.get_css_variables())

    def wear(self, name: str) -> None:
        self._use_ramp(name)
        self._app.theme = name
        self._store.write(THEME_FILE, {"theme": name})

    def next(self) -> str:
        names = list(TITLES)
        name = names[(names.index(self._app.theme) + 1) % len(names)]
        self.wear(name)
        return TITLES[name]

    def _use_ramp(self, name: str) -> None:
        others = [filter_ for filter_ in self._app._filters if not isinstance(filter_, RampFilter)]
        self._app._filters = [RampFilter(RAMPS[name]), *others]
