"""``completion``: a script that completes commands, flags and names in a shell; ``man``: the
manual page. Both come from the parser."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from shlex import quote
from typing import Any

import shtab

from hud_tui import __version__
from hud_tui.cli.commands import EXIT_CODES, build_parser
from hud_tui.cli.output import emit
from hud_tui.cli.parser import Parser
from hud_tui.known_names import file_of
from hud_tui.parameters import EVALUATION_PARAMETERS, ROLLOUT_OPTIONS, RUN_PARAMETERS
from hud_tui.rl.alarms.demos import HEALTHY, PATHOLOGIES
from hud_tui.rl.run_columns import COLUMNS
from hud_tui.service.engines import modules
from hud_tui.service.engines.base import LOSSES
from hud_tui.settings import Paths, read_paths

NAMED = {
    "MODEL": ("models",),
    "MODEL|JOB": ("models", "jobs"),
    "JOB": ("jobs", "models"),
    "REF": ("models", "jobs"),
}
"""What completes an argument, by its metavar."""
COLUMN_FLAGS = ("--columns", "--sort", "--group")
CHOICES: Mapping[str, Sequence[str]] = {
    **{
        row.flag: [choice for choice in row.choices if ":" not in choice]  # not stop:N
        for row in (*RUN_PARAMETERS, *EVALUATION_PARAMETERS, *ROLLOUT_OPTIONS)
    },
    **dict.fromkeys(COLUMN_FLAGS, tuple(COLUMNS)),
    "--loss-fn": LOSSES,
    "--until": ("done", "alarm"),
    "--demo": (HEALTHY.name, *PATHOLOGIES),
    "--engine": sorted(modules()),
}
"""Values of flags that take one of several words."""
FILES = ("FILE", "ENV", "PATH", "SOURCE", "TASKS")
FOLDERS = ("DIR",)
MAN_WIDTH = 78


def completion(args: argparse.Namespace) -> int:
    """Print the script of a shell; returns the exit code."""
    parser = whole_parser()
    paths = read_paths(args.state_dir, args.data_dir)
    _complete_values(parser, paths)
    for action in parsers_of(parser)["fork"]._actions:
        if action.dest == "source":
            _complete_by_name(action, ("models",), paths)
    script = shtab.complete(parser, args.shell)
    if args.headless:
        emit("completion", {"shell": args.shell, "script": script})
    else:
        print(script)
    return 0


def whole_parser() -> Parser:
    """The parser with the flags of all commands."""
    parser = build_parser()
    for command in parsers_of(parser).values():
        command.load()
        for part in parsers_of(command).values():
            part.load()
    return parser


def parsers_of(parser: Parser) -> dict[str, Parser]:
    """The parsers of a command's own commands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _complete_values(parser: Parser, paths: Paths) -> None:
    for action in parser._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if kinds := NAMED.get(metavar):
            _complete_by_name(action, kinds, paths)
        elif metavar in FILES:
            _set(action, shtab.FILE)
        elif metavar in FOLDERS:
            _set(action, shtab.DIRECTORY)
        elif words := next(filter(None, map(CHOICES.get, action.option_strings)), ()):
            _set(action, shtab.cmd(f"printf '%s\\n' {' '.join(words)}"))
    for command in parsers_of(parser).values():
        _complete_values(command, paths)


def _complete_by_name(action: argparse.Action, kinds: Sequence[str], paths: Paths) -> None:
    files = " ".join(quote(str(file_of(paths.state, kind))) for kind in kinds)
    _set(action, shtab.cmd(f"cat {files} 2>/dev/null"))


def _set(action: Any, completes: Any) -> None:
    action.complete = completes  # as shtab wants it


# The manual page, in the macros of man(7).


def man(args: argparse.Namespace) -> int:
    """Print the manual page; returns the exit code."""
    page = "\n".join(man_page(whole_parser())) + "\n"
    if args.headless:
        emit("man", {"page": page})
    else:
        print(page, end="")
    return 0


def man_page(parser: Parser) -> Iterator[str]:
    """The lines of the page."""
    yield f'.TH HUD-TUI 1 "" "hud-tui {__version__}" "User Commands"'
    yield ".SH NAME"
    yield "hud-tui \\- a terminal cockpit for reinforcement-learning post-training on HUD"
    yield ".SH SYNOPSIS"
    yield ".B hud-tui"
    yield r"[\fIFLAG\fR ...] [\fICOMMAND\fR [\fIARGUMENT\fR ...]]"
    yield ".SH DESCRIPTION"
    yield _text(parser.description or "")
    yield ".SH OPTIONS"
    yield from _flags(parser)
    yield ".SH COMMANDS"
    shared = {name for action in parser._actions for name in action.option_strings}
    for name, command in parsers_of(parser).items():
        yield f".SS {_text(name)}"
        yield from _command(command, shared)
        for part_name, part in parsers_of(command).items():
            yield f".SS {_text(f'{name} {part_name}')}"
            yield from _command(part, shared)
    yield ".SH EXIT STATUS"
    yield ".nf"
    yield _text(EXIT_CODES)
    yield ".fi"


def _command(parser: Parser, shared: set[str]) -> Iterator[str]:
    """What a command does, its arguments and flags without those that all have, and examples."""
    yield _text(parser.description or "")
    yield from _flags(parser, shared)
    if parser.epilog:
        yield ".PP"
        yield ".nf"
        yield _text(parser.epilog)
        yield ".fi"


def _flags(parser: Parser, without: Set[str] = frozenset()) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=MAN_WIDTH)
    for action in parser._actions:
        is_listed = action.help != argparse.SUPPRESS and not without & set(action.option_strings)
        if not is_listed or isinstance(action, argparse._SubParsersAction):
            continue
        yield ".TP"
        yield rf"\fB{_text(formatter._format_action_invocation(action))}\fR"
        yield _text(formatter._expand_help(action) if action.help else "the same")


def _text(text: str) -> str:
    """Text without the characters that mean something to troff."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)
