"""ThemingApp: one of four themes, chosen by a key or in the palette, and remembered.

Widgets draw rewards in the colours of one ramp; where a theme has its own, they are exchanged
just before a line is written, as glyphs are on a terminal without Unicode.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.filter import LineFilter

from hud_tui.tui.more_themes import RAMPS, THEMES, TITLES
from hud_tui.tui.offline import OfflineApp
from hud_tui.tui.theme import DARK
from hud_tui.tui.widgets.palette import RAMP

if TYPE_CHECKING:
    from hud_tui.tui.shelf import Shelf

FILE = "look"
"""Where the choice is kept, on the shelf."""


class RampFilter(LineFilter):
    """Exchange the reward ramp's colours for a theme's own."""

    def __init__(self, ramp: Sequence[str]) -> None:
        super().__init__(enabled=tuple(ramp) != RAMP)
        self.ramp = tuple(ramp)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, style and _exchanged(style, self.ramp), control)
            for text, style, control in segments
        ]


_PLACES = {colour: place for place, colour in enumerate(RAMP)}


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


class ThemingApp(OfflineApp):
    shelf: Shelf

    def dress(self) -> None:
        """Put on the theme that was last chosen; before the styles are read."""
        for theme in THEMES:
            self.register_theme(theme)
        name = self.shelf.read(FILE).get("theme", DARK.name)
        if name not in list(TITLES):
            self.shelf.leave(FILE, f"theme: expected one of {', '.join(TITLES)}")
            name = DARK.name
        self.set_reactive(App.theme, name)
        self._use_ramp(name)
        self.stylesheet.set_variables(self.get_css_variables())

    def wear(self, name: str) -> None:
        """Change to this theme, and remember it."""
        self._use_ramp(name)
        self.theme = name
        self.shelf.write(FILE, {"theme": name})

    def action_theme(self) -> None:
        """The next theme; says which."""
        names = list(TITLES)
        self.wear(names[(names.index(self.theme) + 1) % len(names)])
        self.notify(f"theme: {TITLES[self.theme]}", markup=False, timeout=2)

    def _use_ramp(self, name: str) -> None:
        others = [one for one in self._filters if not isinstance(one, RampFilter)]
        self._filters = [RampFilter(RAMPS[name]), *others]


class ThemeCommands(Provider):
    """The palette's themes, by name."""

    async def discover(self) -> Hits:
        for name, title in TITLES.items():
            yield DiscoveryHit(f"Theme: {title}", partial(self._wear, name))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, title in TITLES.items():
            text = f"Theme: {title}"
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), partial(self._wear, name), text)

    def _wear(self, name: str) -> None:
        assert isinstance(self.app, ThemingApp)
        self.app.wear(name)
