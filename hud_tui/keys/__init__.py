"""Every key of the app, in one table.

Bindings, the footer, the help on ``?``, the palette, ``hud-tui keys`` and the README's list
of keys are all made from it, so a key that is shown is a key that works.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from hud_tui.keys import around, views
from hud_tui.keys.action import Action
from hud_tui.keys.views import VIEWS

__all__ = ["ACTIONS", "VIEWS", "WRITES", "Action", "key", "keyed", "of_view", "remap", "with_keys"]

ACTIONS = (
    *(*around.PANEL, *around.HISTORY, *around.APP, *around.CONNECT),
    *(*around.LIST, *around.PICKER, *around.DIALOG, *around.JSON),
    *(*views.MODELS, *views.LAUNCH, *views.CHECKPOINTS, *views.LIVE),
    *(*around.CHARTS, *around.GROUP, *around.OVERLAYS),
    *(*views.JOBS, *views.ALARMS, *around.LOG),
)

WRITES = frozenset(
    {
        *("models.fork", "launch.submit", "launch.measure", "alarms.set_head"),
        *(f"checkpoints.{name}" for name in ("set_head", "roll_back", "undo", "redo")),
        *("checkpoints.try", "checkpoints.pin", "checkpoints.fork"),
        *("live.cancel_run", "live.resume_run", "jobs.cancel_job", "jobs.resume_job"),
    }
)
"""Ids of what changes the service, or has it compute: not done with ``--read-only``."""


_BY_ID = {action.id: action for action in ACTIONS}
_in_use: dict[str, str] = {}


def remap(keymap: Mapping[str, str]) -> None:
    """From now on, these keys (by action's id) are the ones that work and are shown."""
    _in_use.clear()
    _in_use.update(keymap)


def with_keys(action: Action, keymap: Mapping[str, str]) -> Action:
    """The action with the keys that a keymap has for it, if any."""
    return replace(action, keys=keymap[action.id]) if action.id in keymap else action


def of_view(view: str) -> list[Action]:
    """One view's actions with the keys in use, most used first."""
    return [with_keys(action, _in_use) for action in ACTIONS if action.view == view]


def key(id_: str) -> str:
    """The first key in use of an action, as people write it."""
    return with_keys(_BY_ID[id_], _in_use).shown


def keyed(text: str) -> str:
    """Our own text that says what to press, e.g. ``{app.reconnect} starts it``.

    At the beginning of a sentence ``{^jobs.open}`` gives ``Enter`` where ``{jobs.open}``
    gives ``enter``.
    """
    return _NAMED.sub(_written, text)


_NAMED = re.compile(r"\{(\^?)([a-z]+\.[a-z_.0-9-]+)\}")


def _written(found: re.Match[str]) -> str:
    shown = key(found[2])
    return shown.capitalize() if found[1] and shown.isalpha() and len(shown) > 1 else shown
