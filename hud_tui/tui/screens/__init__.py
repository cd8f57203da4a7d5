"""The five views, by name."""

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.screens.jobs import JobsScreen
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.models import ModelsScreen

VIEW_SCREENS: dict[str, str | Callable[[], Screen[Any]]] = {
    "models": ModelsScreen,
    "launch": LaunchScreen,
    "live": LiveScreen,
    "checkpoints": CheckpointsScreen,
    "jobs": JobsScreen,
}
