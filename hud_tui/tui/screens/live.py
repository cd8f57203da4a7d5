"""LiveScreen."""

from typing import ClassVar

from textual.binding import BindingType

from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen


class LiveScreen(HudScreen):
    VIEW = "live"
    BINDINGS: ClassVar[list[BindingType]] = bindings("live")
