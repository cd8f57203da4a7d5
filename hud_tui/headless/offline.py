"""Commands that need no service, or only ask for it: they run the same with the app or without."""

import argparse
from collections.abc import Callable

from hud_tui.headless.main import Connect
from hud_tui.settings import Paths


def run_offline(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Run one of `hud_tui.commands.offline.OFFLINE`; only its own modules are loaded."""
    match args.command:
        case "doctor":
            from hud_tui.headless.doctor import doctor

            return doctor(paths(), args.local, args.headless, args.fail_on == "warning")
        case "keys":
            from hud_tui.headless.keys import keys

            return keys(args.view, args.headless)
        case "init":
            from hud_tui.headless.init import init

            return init(args, connect)
        case "convert":
            from hud_tui.headless.convert import convert

            return convert(args)
        case "export":
            from hud_tui.headless.export import export

            return export(args, paths, connect)
        case "report":
            from hud_tui.headless.export import report

            return report(args, paths, connect)
        case "protect":
            from hud_tui.headless.protect import protect

            return protect(args, paths, connect)
        case "log":
            from hud_tui.headless.log import log

            return log(args, paths())
        case _:
            raise AssertionError(args.command)
