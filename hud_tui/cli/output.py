"""Documents: one JSON object per line on stdout, nothing else.

Non-ASCII is escaped, so text from a server or model cannot act on a terminal.
"""

import argparse
import json
import math
import re
import shlex
import sys
from collections.abc import Container, Sequence
from dataclasses import fields, is_dataclass
from os.path import abspath
from typing import TYPE_CHECKING, Any, TextIO

from hud_tui.cli.commands import COMMANDS
from hud_tui.cli.streams import StdoutFailed
from hud_tui.errors import HudBadTasks, HudError, HudUsage
from hud_tui.rl.text import one_line

if TYPE_CHECKING:  # some commands ask no service
    from hud_tui.client.client import HudClient

SCHEMA = "hud-tui/1"


def emit(kind: str, data: object) -> None:
    """Print one document.

    Args:
        kind: What `data` is, e.g. ``models``.
        data: Wire models, dataclasses and plain values, nested as they come.
    """
    _print({"schema": SCHEMA, "kind": kind, "data": data})


def show(args: argparse.Namespace, kind: str, data: object, *lines: str) -> None:
    """Print a result: with ``--headless`` as a document, else as lines of text."""
    if args.headless:
        emit(kind, data)
        return
    for line in lines:
        print(one_line(line, 400), flush=True)


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = (), most: int = 60) -> list[str]:
    """Lines of a table in columns of equal width, each cell cut at `most` characters; `right`:
    numbers of the columns that are aligned to the right."""
    table = [[one_line(cell, most) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for cells_of in table:
        cells = enumerate(zip(cells_of, widths, strict=True))
        padded = (c.rjust(width) if n in right else c.ljust(width) for n, (c, width) in cells)
        lines.append("  ".join(padded).rstrip())
    return lines


def flags_of(args: argparse.Namespace) -> str:
    """The flags for directories, as words of a shell."""
    directories = {"--state-dir": args.state_dir, "--data-dir": args.data_dir}
    words = [word for name, path in directories.items() if path for word in (name, abspath(path))]
    return shlex.join(words)


def service_flags(args: argparse.Namespace) -> str:
    """`flags_of`, with the service elsewhere if one is chosen."""
    host = vars(args).get("service_url")
    return " ".join(filter(None, (shlex.join(["--host", host]) if host else "", flags_of(args))))


_BEGINNING = rf"\bhud-tui (?=--headless |--local\b|(?:{'|'.join(COMMANDS)})\b)"
_WORD_END = r"""(?=[;,.:)`'"]*(?:\s|$))"""


def with_flags(text: str, flags: str) -> str:
    """A text each of whose commands has these flags, added to those that have not."""
    if not flags:
        return text
    given = re.compile(rf"(?:--local |--headless )*{re.escape(flags)}{_WORD_END}")
    of_here = re.compile(
        r"(?:--headless )*(?:--local|login|logout|serve|stop|remote|pods|doctor --local)\b"
    )

    def whole(command: re.Match[str]) -> str:
        if flags.startswith("--host") and of_here.match(text, command.end()):
            return command[0]
        return command[0] if given.match(text, command.end()) else f"{command[0]}{flags} "

    return re.sub(_BEGINNING, whole, text)


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns for people; columns without any value are left out."""
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    print("\n".join(aligned([*zip(*columns, strict=True)])))


def emit_error(error: HudError, document: bool, flags: str = "") -> int:
    """Report an error on stdout (document) and stderr (one line); returns the exit code. `flags`:
    of the commands in its hint."""
    error.hint = with_flags(error.hint, flags)
    if document:
        failure: dict[str, Any] = {
            "type": error.kind,
            "message": one_line(error.message, 2000),
            "hint": error.hint,
            "status": error.status,
            "outcome": error.outcome,
        }
        if isinstance(error, HudBadTasks):
            failure["problems"] = plain(error.problems)
        failure |= plain(error.details)
        try:
            _print({"schema": SCHEMA, "kind": "error", "error": failure})
        except StdoutFailed as unprinted:
            if unprinted.reader_left and error.outcome is None:
                raise
    print_notice(error.in_one)
    return error.exit_code


def print_notice(text: str, out: TextIO | None = None) -> None:
    """Print one line of escaped text on stderr, or on `out`."""
    print(f"hud-tui: {one_line(text, 3000)}", file=out or sys.stderr, flush=True)


def plain(value: object) -> Any:
    """A value as plain JSON; NaN and infinities become null."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "model_dump") or is_dataclass(value):
        return plain(_fields(value))
    return value


def _fields(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} is not JSON")


def _print(document: dict[str, Any]) -> None:
    try:
        text = json.dumps(document, default=_fields, allow_nan=False)
    except ValueError:  # NaN or an infinity
        text = json.dumps(plain(document), allow_nan=False)
    print(text, flush=True)


# Consent to a write: ``-y``, or confirmed at a terminal.


def require_consent(args: argparse.Namespace, client: "HudClient | None" = None) -> None:
    """Refuse a write early if it is not allowed or cannot be confirmed.

    Args:
        client: The client that would send it, if any.

    Raises:
        HudReadOnly: Read-only mode.
        HudUsage: Neither ``-y`` nor a terminal.
    """
    if client is not None:
        client.wire.guard.check(args.command)
    if not args.yes and not sys.stdin.isatty():
        what = " ".join(filter(None, (args.command, vars(args).get("action"))))
        raise HudUsage(f"{what} needs confirmation, and this is no terminal", "add -y")


def changes(args: argparse.Namespace) -> bool:
    """Whether a command changes something."""
    return bool(args.changes(args))


async def confirm(args: argparse.Namespace, question: str) -> None:
    """Ask on stderr, unless ``-y`` was given. Raises HudUsage: the answer was not yes."""
    if args.yes:
        return
    if (await ask(f"{one_line(question, 500)} [y/N] ")).lower() not in ("y", "yes"):
        raise HudUsage("not confirmed, nothing was sent", "answer y, or add -y")


async def ask(question: str) -> str:
    """The stripped answer typed at the terminal."""
    print(question, end="", file=sys.stderr, flush=True)
    return (await _line()).strip()


def bar(done: int, total: int, width: int = 24) -> str:
    """A bar of progress with its numbers, e.g. ``██░░ 12/24``."""
    filled = round(width * done / total) if total else width
    return f"{'█' * filled}{'░' * (width - filled)} {done}/{total}"


async def _line() -> str:
    """A line of stdin; can be interrupted, unlike a blocking read."""
    import asyncio

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
