"""``keys``: every key of the app, with the config file's changes, as a table or as JSON."""

import os
from typing import Any

from hud_tui.config import NAME, config_dir, read_config
from hud_tui.errors import HudUsage
from hud_tui.headless.output import emit
from hud_tui.keys import ACTIONS, Action, with_keys


def keys(view: str | None, document: bool) -> int:
    """Print them; returns the exit code.

    Args:
        view: Only of this place, e.g. ``live``; None for all.
        document: Print JSON; else a table.

    Raises:
        HudUsage: There is no such view, or the config file has a key that cannot be used.
    """
    directory = config_dir(os.environ)
    keymap = read_config(directory).keys
    views = dict.fromkeys(action.view for action in ACTIONS)
    if view is not None and view not in views:
        raise HudUsage(f"no view is called {view}", f"there are {', '.join(views)}")
    found = [with_keys(one, keymap) for one in ACTIONS if view in (None, one.view)]
    if document:
        rows = [_document(one, one.id in keymap) for one in found]
        emit("keys", {"file": str(directory / NAME), "keys": rows})
    else:
        _print(found)
    return 0


def _document(action: Action, changed: bool) -> dict[str, Any]:
    return {
        "id": action.id,
        "view": action.view,
        "keys": action.keys.split(","),
        "shown": action.all_shown,
        "label": action.label,
        "does": action.help,
        "changed": changed,
    }


def _print(found: list[Action]) -> None:
    widths = [max(len(text) for text in column) for column in zip(*map(_cells, found), strict=True)]
    for one in found:
        *cells, does = _cells(one)
        padded = (f"{text:{width}}" for text, width in zip(cells, widths[:-1], strict=True))
        print("  ".join([*padded, does]))


def _cells(action: Action) -> tuple[str, str, str]:
    return action.id, action.all_shown, action.help
