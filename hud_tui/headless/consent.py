"""Consent to a write: ``-y``, or a person at a terminal who says so."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


def require_consent(args: argparse.Namespace, client: "HudClient | None" = None) -> None:
    """Refuse early what may not be sent, and where nobody could be asked.

    Args:
        args: The command line.
        client: What would send it, where it goes to the service.

    Raises:
        HudReadOnly: Nothing but reads is sent.
        HudUsage: Neither ``-y`` nor a terminal.
    """
    if client is not None:
        client.wire.guard.check(args.command)
    if not args.yes and not sys.stdin.isatty():
        raise HudUsage(f"{args.command} changes something and nobody can be asked", "add -y")


def changes(args: argparse.Namespace) -> bool:
    """Whether a command asks for a change."""
    asked = vars(args)
    match args.command:
        case "head":
            return asked.get("checkpoint") is not None or asked.get("back") is not None
        case "jobs":
            return bool(asked.get("cancel") or asked.get("resume"))
    return args.command in ("fork", "run")


async def confirm(args: argparse.Namespace, question: str) -> None:
    """Ask on stderr, unless ``-y`` was given.

    Raises:
        HudUsage: The answer was not yes.
    """
    if args.yes:
        return
    if (await ask(f"{one_line(question, 500)} [y/N] ")).lower() not in ("y", "yes"):
        raise HudUsage("not confirmed, nothing was sent", "answer y, or add -y")


async def ask(question: str) -> str:
    """What somebody at the terminal answers, without the white space around it."""
    print(question, end="", file=sys.stderr, flush=True)
    return (await _line()).strip()


async def _line() -> str:
    """A line of stdin. The wait can be interrupted, which a blocking read could not."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
