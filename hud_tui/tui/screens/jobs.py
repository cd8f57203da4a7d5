"""JobsScreen."""

from typing import ClassVar

from textual.binding import BindingType

from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen


class JobsScreen(HudScreen):
    VIEW = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = bindings("jobs")
