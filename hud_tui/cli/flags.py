"""Flags of parameters, made from their rows (`hud_tui.parameters`), and what was given of them."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hud_tui.cli.parser import finite_number, short_text, whole_number
from hud_tui.parameters import RUN, RUN_PARAMETERS, Parameter, taken_by
from hud_tui.rl.text import read_loss_config

Taker = argparse.ArgumentParser | argparse._ArgumentGroup
"""What flags are added to; a group has no public name."""


def add_flags(parser: Taker, command: str, rows: Iterable[Parameter]) -> None:
    """Add the flags that a command has for these parameters; those of ``run`` take several
    values, which make a sweep."""
    for row in taken_by(command, rows):
        add_flag(parser, row, row.help, command)


def add_flag(parser: Taker, row: Parameter, about: str, command: str = "") -> None:
    """Add the flag of one parameter. `command`: as of `add_flags`."""
    if row.kind == "switch":
        parser.add_argument(row.flag, action=argparse.BooleanOptionalAction, help=about)
    elif row.kind == "words":
        parser.add_argument(row.flag, action="append", metavar=row.metavar, help=about)
    else:
        names = [row.flag, row.alias] if row.alias else [row.flag]
        reader = _reader(row, command)
        parser.add_argument(*names, type=reader, metavar=row.metavar, help=about)


def _reader(row: Parameter, command: str) -> Callable[[str], Any]:
    """Reads a value; its bounds are checked later, where all values are known."""
    match row.kind:
        case "config":
            return _config
        case "whole":
            reader: Callable[[str], Any] = whole_number
        case "number":
            reader = finite_number
        case "choice":
            reader = _one_of(row.choices)
        case _:
            reader = str
    if row not in RUN_PARAMETERS:
        return reader
    return several(reader) if command == RUN else single(reader)


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            what = f"{short_text(text)}: choose from {', '.join(choices)}"
            raise argparse.ArgumentTypeError(what)
        return text

    return read


def _config(text: str) -> dict[str, float]:
    try:
        return read_loss_config(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


T = TypeVar("T")


def several(reader: Callable[[str], T]) -> Callable[[str], T | tuple[T, ...]]:
    """Type of a flag that takes one value, or several comma-separated ones."""

    def read(text: str) -> T | tuple[T, ...]:
        values = tuple(reader(word.strip()) for word in text.split(","))
        return values if len(values) > 1 else values[0]

    return read


def single(reader: Callable[[str], T]) -> Callable[[str], T]:
    """Type of a flag of one run, which takes no comma-separated values."""

    def read(text: str) -> T:
        if "," in text:
            what = f"expected one value, found {short_text(text)}: sweeps are of hud-tui run"
            raise argparse.ArgumentTypeError(what)
        return reader(text)

    return read


def given(args: argparse.Namespace, rows: Iterable[Parameter]) -> dict[str, Any]:
    """The values of these parameters on the command line, by wire name."""
    flags = vars(args)
    return {row.name: flags[row.name] for row in rows if flags.get(row.name) is not None}


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Run parameters given on the command line, by wire name; of several values the first."""
    values = given(args, RUN_PARAMETERS).items()
    return {key: value[0] if isinstance(value, tuple) else value for key, value in values}


def swept(args: argparse.Namespace) -> dict[str, tuple[Any, ...]]:
    """The parameters with several values, by their wire names."""
    values = given(args, RUN_PARAMETERS).items()
    return {key: value for key, value in values if isinstance(value, tuple)}
