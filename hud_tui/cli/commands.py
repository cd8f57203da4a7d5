"""What ``preflight`` and ``run`` take from older files, where the command line does not say it."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from hud_tui.cli.connect import Connect
from hud_tui.cli.output import changes, emit, emit_error, tell
from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths


def fill_in(args: argparse.Namespace) -> None:
    """Take the lock file's primary data set where no SOURCE is given.

    Raises:
        HudUsage: A file cannot be read; or, headless, there is no SOURCE at all.
    """
    given = vars(args)
    if args.command in ("preflight", "run") and given.get("source") is None:
        from hud_tui.legacy.lock_file import primary_source

        try:
            args.source = primary_source(Path())
        except HudUsage:
            if args.headless:
                raise  # the app lets people choose


# One command against a service, from connecting to the exit code.


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
            from hud_tui.cli.models import status as command
        case "models":
            from hud_tui.cli.models import models as command
        case "fork":
            from hud_tui.cli.models import fork as command
        case "checkpoints":
            from hud_tui.cli.models import checkpoints as command
        case "head":
            from hud_tui.cli.models import head as command
        case "preflight":
            from hud_tui.cli.runs import preflight as command
        case "run":
            from hud_tui.cli.runs import run as command
        case "watch":
            from hud_tui.cli.watch import watch as command
        case "jobs":
            from hud_tui.cli.jobs import jobs as command
        case "traces":
            from hud_tui.cli.jobs import traces as command
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


# Commands that need no service, or only ask for it: they run the same with the app or without.


def run_offline(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Run one of `hud_tui.cli.parser.OFFLINE`; only its own modules are loaded."""
    match args.command:
        case "doctor":
            from hud_tui.cli.doctor import doctor

            return doctor(paths(), args.local, args.headless, args.fail_on == "warning")
        case "keys":
            from hud_tui.cli.files import keys

            return keys(args.view, args.headless)
        case "init":
            from hud_tui.cli.files import init

            return init(args, connect)
        case "convert":
            from hud_tui.cli.files import convert

            return convert(args)
        case "export":
            from hud_tui.cli.files import export

            return export(args, paths, connect)
        case "report":
            from hud_tui.cli.files import report

            return report(args, paths, connect)
        case "protect":
            from hud_tui.cli.models import protect

            return protect(args, paths, connect)
        case "log":
            from hud_tui.cli.files import log

            return log(args, paths())
        case _:
            raise AssertionError(args.command)


# ``stop``: end the embedded service that runs in the background.


Stop = Callable[[], Awaitable[int | None]]
"""Stops it and returns which process it was, as `hud_tui.local_service.stop`."""


def report(end: Stop, document: bool) -> int:
    """Stop it, and say which process it was."""
    pid = asyncio.run(_wait(end))
    if document:
        emit("stop", {"stopped": pid is not None, "pid": pid})
    else:
        print("no embedded service runs" if pid is None else f"stopped the service, process {pid}")
    return 0


async def _wait(end: Stop) -> int | None:
    return await end()
