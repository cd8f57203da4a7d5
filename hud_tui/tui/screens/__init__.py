"""The six views, by name. A view is imported when it is first shown."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from textual.screen import Screen

_CLASSES = {
    "models": "ModelsScreen",
    "launch": "LaunchScreen",
    "live": "LiveScreen",
    "checkpoints": "CheckpointsScreen",
    "jobs": "JobsScreen",
    "alarms": "AlarmsScreen",
}


def view_class(name: str) -> type[Screen[Any]]:
    """The screen of a view: ``<Name>Screen`` in the module of that name."""
    found: type[Screen[Any]] = getattr(import_module(f"hud_tui.tui.screens.{name}"), _CLASSES[name])
    return found


def load_views() -> None:
    """Import every view, and what the first chart needs, so that showing one is quick."""
    for name in _CLASSES:
        view_class(name)
    import_module("plotext")


def _maker(name: str) -> Callable[[], Screen[Any]]:
    return lambda: view_class(name)()


VIEW_SCREENS: dict[str, str | Callable[[], Screen[Any]]] = {name: _maker(name) for name in _CLASSES}
