"""The shared async client: every request this program makes goes through here."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient as HudClient
    from hud_tui.client.trainer import TrainingClient as TrainingClient
    from hud_tui.client.trainer_inputs import Rollout as Rollout

# httpx's own command line imports click, rich and pygments where they are installed: 35 ms
# for something nobody calls here. httpx falls back on its own when the import fails.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_HOMES = {"HudClient": "client", "TrainingClient": "trainer", "Rollout": "trainer_inputs"}


def __getattr__(name: str) -> Any:
    """What loops import from here, loaded when they do: a command needs only some of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
