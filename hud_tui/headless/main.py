"""One command against a service, from connecting to the exit code."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.headless.consent import changes
from hud_tui.headless.output import emit_error, tell
from hud_tui.rl.text import one_line

Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable[HudClient]]
"""(mode, key, progress) → client, as `hud_tui.cli.Connector`."""
Command = Callable[[HudClient, argparse.Namespace], Awaitable[int]]


def run(args: argparse.Namespace, connect: Connect) -> int:
    """Run a command and print its documents; returns the exit code."""
    try:
        return asyncio.run(_run(args, connect))
    except HudError as error:
        return emit_error(error)
    except KeyboardInterrupt:
        tell("interrupted")
        return 130


async def _run(args: argparse.Namespace, connect: Connect) -> int:
    command = _command(args.command)
    client = await connect("local" if args.local else "hud", None, _progress())
    try:
        return await command(client, args)
    except HudError as error:
        if error.outcome is None and changes(args):
            error.outcome = "not_done"
        raise
    finally:
        await client.aclose()


def _command(name: str) -> Command:
    """The command's coroutine; only its own module is loaded."""
    match name:
        case "status":
            from hud_tui.headless.status import status as command
        case "models":
            from hud_tui.headless.models import models as command
        case "fork":
            from hud_tui.headless.models import fork as command
        case "checkpoints":
            from hud_tui.headless.checkpoints import checkpoints as command
        case "head":
            from hud_tui.headless.checkpoints import head as command
        case "preflight":
            from hud_tui.headless.runs import preflight as command
        case "run":
            from hud_tui.headless.runs import run as command
        case "watch":
            from hud_tui.headless.watch import watch as command
        case "jobs":
            from hud_tui.headless.jobs import jobs as command
        case "traces":
            from hud_tui.headless.traces import traces as command
        case _:
            raise AssertionError(name)
    return command


def _progress() -> Callable[[str], None]:
    """Tells progress on a terminal's one line; elsewhere only its beginning."""
    said = False

    def progress(text: str) -> None:
        nonlocal said
        if sys.stderr.isatty():
            print(f"\r\x1b[K{one_line(text)}", end="", file=sys.stderr, flush=True)
        elif not said:
            tell(text)
        said = True

    return progress
