"""HUD's variables: in which places each is set, and which of them wins.

Source: the variables and their precedence (process environment, ``.env`` here,
``~/.hud/.env``) are the ``hud`` SDK's, 0.6.21; ``hud set`` writes the last.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EFBIG
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.regular_file import NotRegular, read_regular
from hud_tui.rl.text import one_line

PROCESS = "process environment"
OTHERS = ("WANDB_API_KEY", "PRIME_API_KEY")
"""Keys of other services that HUD reads from the same places."""
MAX_ENV = 1 << 20
"""Bytes of the largest .env file that is read."""


@dataclass(frozen=True)
class Place:
    """One place where variables are set."""

    origin: str
    """`PROCESS`, or the file's path."""
    variables: Mapping[str, str] = field(repr=False)
    problems: tuple[HudUsage, ...] = ()
    """Lines of ours that say nothing; each names its file and line."""
    file: Path | None = None


def read_places(environ: Mapping[str, str] | None = None) -> list[Place]:
    """All places, the one that wins first."""
    environ = os.environ if environ is None else environ
    process = {name: value for name, value in environ.items() if is_ours(name)}
    files = (Path(".env"), Path.home() / ".hud" / ".env")
    return [Place(PROCESS, process), *map(_read_env, files)]


def read_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every variable's winning value.

    Raises:
        HudUsage: A line of ours in a .env file that is no assignment.
    """
    found: dict[str, str] = {}
    for place in reversed(read_places(environ)):
        for problem in place.problems:
            raise problem
        found |= place.variables
    return found


def every_variable(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of any program, by the same precedence: a task row may ask for each.

    Lines that are no assignment are other programs' business here.
    """
    found: dict[str, str] = {}
    for file in (Path.home() / ".hud" / ".env", Path(".env")):
        with suppress(OSError):  # `read_variables` says so
            lines = (line.strip().removeprefix("export ").lstrip() for line in _lines(file))
            found |= dict(filter(None, (_assignment(line) for line in lines if line[:1] != "#")))
    return found | dict(os.environ if environ is None else environ)


def set_variables(environ: Mapping[str, str] | None = None) -> set[str]:
    """Names of the variables that can be filled in: one that is empty fills nothing in."""
    return {name for name, value in every_variable(environ).items() if value}


def is_ours(name: str) -> bool:
    """Whether HUD reads a variable of this name."""
    return name.startswith("HUD_") or name in OTHERS


def _read_env(file: Path) -> Place:
    """The lines of a .env file that are HUD's. Other lines are other programs' business."""
    found: dict[str, str] = {}
    try:
        lines = _lines(file)
    except OSError as error:
        message = f"{one_line(file)}: {error.strerror}"
        problem = HudUsage(message, "write a file of NAME=VALUE lines there, or remove it")
        return Place(str(file), {}, (problem,), file)
    problems = []
    for number, line in enumerate(lines, 1):
        line = line.strip().removeprefix("export ").lstrip()
        if not line.startswith(("HUD_", *OTHERS)):
            continue
        assigned = _assignment(line)
        if assigned is None:
            message = f"{one_line(file)} line {number}: expected NAME=VALUE"
            problems.append(HudUsage(message, "correct or remove that line"))
        elif is_ours(assigned[0]):
            found[assigned[0]] = assigned[1]
    return Place(str(file), found, tuple(problems), file)


def _lines(file: Path) -> list[str]:
    """The file's lines; none where there is no such file, or only others may read it.

    Raises:
        OSError: It is no regular file, or too large; ``strerror`` says which.
    """
    try:
        body = read_regular(file, MAX_ENV)
    except NotRegular:
        raise
    except OSError as error:
        if error.errno == EFBIG:
            raise
        return []
    return body.decode("utf-8-sig", errors="replace").splitlines()


def _assignment(line: str) -> tuple[str, str] | None:
    name, equals, value = line.partition("=")
    value = value.strip()
    quote = value[:1]
    if quote and quote in "'\"":
        end = value.find(quote, 1)
        if end < 0:
            return None
        value = value[1:end]
    else:
        value = value.split(" #")[0].rstrip()
    return (name.strip(), value) if equals else None
