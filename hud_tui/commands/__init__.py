"""The grammar of the command line: commands, flags and their help."""

import argparse
from functools import partial

from hud_tui.commands.jobs import add_jobs
from hud_tui.commands.models import add_models
from hud_tui.commands.offline import add_offline
from hud_tui.commands.parser import Parser, global_flags, new_command
from hud_tui.commands.runs import add_runs
from hud_tui.commands.service import add_service

EXIT_CODES = """\
exit codes with --headless:
  0 ok   1 refused, or the job failed   2 usage   3 unreachable   4 not authorised
  5 preflight failed   6 an alarm, as --fail-on says   130 interrupted"""


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(
        "hud-tui",
        description="A terminal cockpit for reinforcement-learning post-training on HUD. Without "
        "--headless it opens the app on the command's screen.",
        epilog="examples:\n  hud-tui --local\n  hud-tui --headless --local status\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    global_flags(parser, False)
    app = parser.add_argument_group("the app")
    app.add_argument("--record", metavar="FILE", help="write the session's events to a new file")
    app.add_argument("--demo", metavar="NAME", help="play a run that goes wrong: no service needed")
    parser.set_defaults(command="status", ref=None, verbose=False, state_dir=None, data_dir=None)
    parser.set_defaults(again=True)
    add = partial(new_command, parser.add_subparsers(title="commands", metavar="COMMAND"))
    add_models(add)
    add_runs(add)
    add_jobs(add)
    add_offline(add)
    add_service(add)
    return parser
