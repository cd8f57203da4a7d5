"""What every command's parser has: how it fails, what it says, and the flags that all take."""

import argparse
from collections.abc import Callable
from math import isfinite, nan
from typing import Any, NoReturn

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

LARGEST = 2**63 - 1
"""The largest integer that every part of a service can store."""
LONGEST = 100
"""Characters of a whole number that are read."""


class Parser(argparse.ArgumentParser):
    """A parser that raises where argparse would exit, and takes no flag for another."""

    def __init__(self, prog: str | None = None, **more: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        raise HudUsage(message, f"see {self.prog} --help")


Add = Callable[..., Parser]
"""(name, about, *examples) → the parser of a new command."""

Commands = argparse._SubParsersAction  # argparse gives it no public name


def new_command(commands: "Commands[Parser]", name: str, about: str, *examples: str) -> Parser:
    """`Add`, given where the commands are."""
    parser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  hud-tui {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    global_flags(parser)
    parser.set_defaults(command=name, again=False)
    return parser


def global_flags(parser: Parser, absent: bool | str = argparse.SUPPRESS) -> None:
    """Flags that may stand before or after the command; `absent` is what one is that does not."""
    flags = parser.add_argument_group("connection and output")
    about = {
        "headless": "print JSON on stdout instead of opening the app",
        "local": "use the embedded service: no key, no network; started where none runs",
        "read_only": "send nothing that changes the service or that it computes "
        "(HUD_TUI_READ_ONLY)",
        "version": "print the version",
    }
    for name, text in about.items():
        flags.add_argument(flag(name), action="store_true", default=absent, help=text)
    for name, text in (("state", "service.json and logs"), ("data", "models and checkpoints")):
        flags.add_argument(
            f"--{name}-dir",
            metavar="DIR",
            default=argparse.SUPPRESS,
            help=f"where the embedded service keeps its {text} (HUD_TUI_{name.upper()}_DIR)",
        )


def whole_number(text: str) -> int:
    """The type of a flag that takes a whole number. Raises what argparse reports."""
    try:
        number = int(text) if len(text) <= LONGEST else None
    except ValueError:
        number = None
    if number is None or abs(number) > LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {_short(text)}")
    return number


def finite_number(text: str) -> float:
    """The type of a flag that takes a number. Raises what argparse reports."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number, found {_short(text)}")
    return number


def _short(text: str) -> str:
    return repr(one_line(text, 40))


def consent(parser: Parser) -> None:
    """The flags of a command that changes something."""
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; needed without a terminal"
    )
    about = "the name of a protected model, to change it all the same"
    parser.add_argument("--confirm", metavar="NAME", help=about)


def flag(field: str) -> str:
    """The flag of a field, e.g. ``--group-size``."""
    return "--" + field.replace("_", "-")
