"""``keys``: every key of the app, including changes by the config file."""

import argparse
import os

from hud_tui.cli.output import aligned, emit
from hud_tui.config import CONFIG_NAME, config_dir, read_config
from hud_tui.errors import HudUsage
from hud_tui.keys import ACTIONS, with_keys


def keys(args: argparse.Namespace) -> int:
    """Print them, or those of one view; returns the exit code. Raises HudUsage: unknown view, or an
    invalid key in the config file."""
    directory = config_dir(os.environ)
    keymap = read_config(directory).keys
    views = dict.fromkeys(action.view for action in ACTIONS)
    if args.view is not None and args.view not in views:
        raise HudUsage(f"no view named {args.view}", f"known: {', '.join(views)}")
    usual = (action for action in ACTIONS if args.view in (None, action.view))
    actions = [with_keys(action, keymap) for action in usual]
    if args.headless:
        rows = [
            {
                "id": action.id,
                "view": action.view,
                "keys": action.keys.split(","),
                "shown": action.all_shown,
                "label": action.label,
                "does": action.help,
                "changed": action.id in keymap,
            }
            for action in actions
        ]
        emit("keys", {"file": str(directory / CONFIG_NAME), "keys": rows})
    else:
        table = [(action.id, action.all_shown, action.help) for action in actions]
        print("\n".join(aligned(table, most=200)))
    return 0
