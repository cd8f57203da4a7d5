"""What ``preflight`` and ``run`` take from older files, where the command line does not say it."""

import argparse
from pathlib import Path

from hud_tui.errors import HudUsage


def fill_in(args: argparse.Namespace) -> None:
    """Take the lock file's primary data set where no SOURCE is given.

    Raises:
        HudUsage: A file cannot be read; or, headless, there is no SOURCE at all.
    """
    given = vars(args)
    if args.command in ("preflight", "run") and given.get("source") is None:
        from hud_tui.older.lock_file import primary_source

        try:
            args.source = primary_source(Path())
        except HudUsage:
            if args.headless:
                raise  # the app lets people choose
