"""The async client, through which this program makes every request to a HUD service."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient as HudClient
    from hud_tui.client.trainer import TrainingClient as TrainingClient
    from hud_tui.client.trainer_inputs import Rollout as Rollout

# httpx imports its command line, which imports click, rich and pygments if they are installed.
# That takes 35 ms and is not needed here; httpx continues without it when the import fails.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_HOMES = {"HudClient": "client", "TrainingClient": "trainer", "Rollout": "trainer_inputs"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a headless command needs only some of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
