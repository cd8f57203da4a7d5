"""ModelsScreen."""

from typing import ClassVar

from textual.binding import BindingType

from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen


class ModelsScreen(HudScreen):
    VIEW = "models"
    BINDINGS: ClassVar[list[BindingType]] = bindings("models")
