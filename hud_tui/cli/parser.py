"""The parser of the command line, and what every command has in common."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from math import isfinite, nan
from typing import Any, NoReturn

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

LONGEST = 100
"""Most characters of a whole number."""


class Parser(argparse.ArgumentParser):
    """A parser that raises HudUsage instead of exiting, without abbreviated flags."""

    later = ""
    """``MODULE:FUNCTION`` under `hud_tui.cli` that adds the flags when the command is used."""

    def __init__(self, prog: str | None = None, **more: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **more)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, which calls this for the chosen command; that one refuses what it does not
        know, so that the hint names its help."""
        self.load()
        words = args if args is None else self.positionals_first(args)
        parsed, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def positionals_first(self, words: Sequence[str]) -> list[str]:
        """The words of a command with what is positional before its flags and their values.

        argparse gives optional positionals their words, or none, as soon as it meets the first: of
        ``play ENV --turns 4 TASK`` it would refuse TASK.
        """
        if any(action.nargs == argparse.PARSER for action in self._actions):
            return list(words)  # what follows a command's name is that command's
        positionals: list[str] = []
        flags: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*flags, word, *positionals, *rest]
            if not is_flag(word):
                positionals.append(word)
                continue
            flags.append(word)
            if (flag := self._option_string_actions.get(word)) is None:
                if word.partition("=")[0] in self._option_string_actions:
                    continue
                return list(words)  # refused in the words that were typed
            if flag.nargs is None:
                flags.extend(rest[:1])
                del rest[:1]
            while flag.nargs == "+" and rest and not is_flag(rest[0]):
                flags.append(rest.pop(0))
        return [*positionals, *flags]

    def load(self) -> None:
        """Add the flags that are added when the command is used."""
        module, _, name = self.later.partition(":")
        if module:
            self.later = ""
            getattr(import_module(f"hud_tui.cli.{module}"), name)(self)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; ``--sort -reward`` and ``--columns -age`` are values, not flags."""
        return super().parse_args(None if args is None else joined(args), namespace)

    def error(self, message: str) -> NoReturn:
        raise HudUsage(message, f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse; an unknown command is answered with the likely one, not with all."""
        if action.nargs == argparse.PARSER and value not in (names := list(action.choices or ())):
            what = (action.metavar or "COMMAND").lower()  # type: ignore[union-attr]
            hint = likely_command(value, names) or f"see {self.prog} --help"
            raise HudUsage(f"no {what} named {one_line(value, 40)}", hint)
        super()._check_value(action, value)


def is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"


OF_VIEWS = {"launch": "run", "live": "watch", "alarms": "watch"}
"""Commands for views of the app that have no command of their name."""


def likely_command(word: str, names: Sequence[str]) -> str:
    """A hint with the commands that were probably meant; empty if there are none like it."""
    from difflib import get_close_matches  # only for a word that is wrong

    of_view = OF_VIEWS.get(word.casefold(), "")
    close = [of_view] if of_view in names else get_close_matches(word.casefold(), names, 3)
    return f"did you mean {' or '.join(close)}?" if close else ""


SIGNED = frozenset({"--sort", "--columns"})
"""Flags whose value may begin with a dash."""


def joined(words: Sequence[str]) -> list[str]:
    """The command line with such values joined to their flags."""
    joined_words: list[str] = []
    for word in words:
        if joined_words and joined_words[-1] in SIGNED and word[:1] == "-" and word[:2] != "--":
            joined_words[-1] = f"{joined_words[-1]}={word}"
        else:
            joined_words.append(word)
    return joined_words


Add = Callable[..., Parser]
"""(about, *examples) → the parser of a new command."""

Subparsers = argparse._SubParsersAction  # has no public name


def new_command(commands: "Subparsers[Parser]", name: str, about: str, *examples: str) -> Parser:
    """The parser of a new command; `Add` without its first two arguments."""
    parser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  hud-tui {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    global_flags(parser, has_host=name != "serve")
    parser.set_defaults(command=name, again=False, changes=lambda args: False)
    return parser


def global_flags(
    parser: Parser, absent: bool | str = argparse.SUPPRESS, has_host: bool = True
) -> None:
    """Flags accepted both before and after the command; `absent` is their default. `has_host`:
    whether `--host` chooses a service; that of ``serve`` is the address that it binds."""
    flags = parser.add_argument_group("connection and output")
    about = {
        "--headless": "print JSON on stdout; do not open the app",
        "--local": "use the embedded service: no key, no network; started if none runs",
        "--read-only": "send no request that changes the service or costs computation "
        "(HUD_TUI_READ_ONLY)",
        "--insecure": "let a key travel in clear text, by http, to another machine "
        "(HUD_TUI_INSECURE)",
        "--version": "print the version and the build, as a bug report quotes them",
    }
    for flag, text in about.items():
        flags.add_argument(flag, action="store_true", default=absent, help=text)
    if has_host:
        about_host = (
            "use the hud-tui service at this URL: https, or http on loopback (HUD_TUI_HOST; "
        )
        about_host += "its key: hud-tui login URL, or HUD_TUI_KEY)"
        flags.add_argument(
            *("--host",),
            dest="service_url",
            metavar="URL",
            default=argparse.SUPPRESS,
            help=about_host,
        )
    for name, text in (("state", "service.json and logs"), ("data", "models and checkpoints")):
        flags.add_argument(
            f"--{name}-dir",
            metavar="DIR",
            default=argparse.SUPPRESS,
            help=f"directory for the embedded service's {text} (HUD_TUI_{name.upper()}_DIR)",
        )


def of_model(
    parser: Parser,
    dest: str = "model",
    metavar: str = "MODEL",
    about: str | None = None,
    required: bool = False,
) -> None:
    """MODEL as a positional argument, or as ``-m MODEL``, as in all commands about a model."""
    which = parser.add_mutually_exclusive_group(required=required)
    # without a default, so that a missing positional does not overwrite -m
    which.add_argument(dest, nargs="?", metavar=metavar, default=argparse.SUPPRESS, help=about)
    names = ("-m", "--model", "--model-id")
    which.add_argument(*names, dest=dest, metavar=metavar, help="the same")


def whole_number(text: str) -> int:
    """argparse type of a whole number."""
    from hud_tui.parameters import LARGEST  # few commands have numbers

    try:
        number = int(text) if len(text) <= LONGEST else None
    except ValueError:
        number = None
    if number is None or abs(number) > LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {short_text(text)}")
    return number


def finite_number(text: str) -> float:
    """argparse type of a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number, found {short_text(text)}")
    return number


def short_text(text: str) -> str:
    return repr(one_line(text, 40))


def consent(
    parser: Parser,
    protected: str = "model",
    changes: Callable[[argparse.Namespace], bool] = lambda args: True,
) -> None:
    """The flags of a command that changes something.

    Args:
        protected: What may be protected from it; empty: nothing.
        changes: Whether these flags change something; ``args.changes`` has it.
    """
    parser.set_defaults(changes=changes)
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; required without a terminal"
    )
    if protected:
        about = f"name of a protected {protected}, to change it anyway"
        parser.add_argument("--confirm", metavar="NAME", help=about)
