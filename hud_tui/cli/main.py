"""``hud-tui``: parse the command line and run the command, headless or in the app.

Imports that only some commands need are made when they run, so ``--help`` is fast.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any, NoReturn

from hud_tui.cli.commands import COMMANDS, Command, build_parser
from hud_tui.cli.hud_words import translated
from hud_tui.cli.streams import (
    INTERRUPTED,
    TERMINATED,
    StdoutFailed,
    failure_of,
    report,
    streams,
    write_nowhere,
)
from hud_tui.errors import HudError, HudInternal, HudUsage
from hud_tui.rl.text import clean, has_surrogate, one_line
from hud_tui.settings import INSECURE, has_key, read_max_disk, read_paths

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.service_file import ServiceReady
    from hud_tui.tui.start import Start


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A closed stdout (``| head``) is not an error."""
    code = 0
    with streams() as results:
        try:
            try:
                code = _main(sys.argv[1:] if argv is None else argv)
            finally:
                results.flush()  # at exit its error could not be caught
        except StdoutFailed as failure:
            untold = not code or (code == INTERRUPTED and results.unprinted)
            if untold or failure.reader_left:
                code = report(failure, results.unprinted)
            write_nowhere()
    return TERMINATED if code == INTERRUPTED and results.terminated else code


def _main(argv: Sequence[str]) -> int:
    headless = "--headless" in argv or "--json" in argv
    args = argparse.Namespace(state_dir=None, data_dir=None, service_url=None)
    try:
        _check_text(argv)
        argv = translated(argv)
        args = build_parser(argv).parse_args(argv)
        if args.version:
            _print_version(headless)
            return 0
        choose_host(args)
        if args.insecure:
            os.environ[INSECURE] = "1"  # also for the processes that this one starts
        command = COMMANDS[args.command]
        is_rented = args.command == "run" and vars(args).get("gpus") is not None
        if args.command == "run":
            from hud_tui.cli.run_flags import check_run

            check_run(args)
        if not command.view or is_rented:
            return _without_view(command.load(args if is_rented else None), args)
        if needs_no_app(args):
            return _without_app(command, args)
        _fill_in(args)
        return _app(args)
    except HudError as error:
        return _fail(error, args, headless)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # headless always ends with a document
        if (failure := failure_of(error)) is not None:
            raise failure from error
        if not headless:
            raise
        print(clean("".join(format_exception(error))), file=sys.stderr)
        what = f"{type(error).__name__}: {error}"
        return _fail(HudInternal(what, "a bug of hud-tui; see the traceback on stderr"), args, True)


HERE = ("serve", "stop", "login", "logout")
"""Commands for which no service elsewhere is chosen."""


def choose_host(args: argparse.Namespace) -> None:
    """Set `args.service_url` by the flag or the variable; None: none is chosen. Raises HudUsage: it
    makes no sense."""
    is_rented = bool(vars(args).get("gpus")) and args.command == "run"
    if args.command in HERE or is_rented:
        if args.service_url is not None and args.command not in ("login", "logout"):
            what = "run --gpus" if is_rented else args.command
            raise HudUsage(f"--host URL does not apply: {what} is about this machine", "remove it")
        if is_rented:
            args.service_url = None
        return
    if args.service_url is None and "HUD_TUI_HOST" not in os.environ:
        return
    from hud_tui.hosts import chosen_host

    args.service_url = chosen_host(args.service_url, args.local) or None


def script() -> NoReturn:
    """`main` as a process. Headless skips the interpreter's clean-up, a fifth of its time."""
    code = main()
    if "--headless" in sys.argv:
        os._exit(code)
    sys.exit(code)


def start_of(args: argparse.Namespace) -> "Start":
    """What the app opens with."""
    from hud_tui.cli.flags import given, parameters, swept
    from hud_tui.parameters import EVALUATION_PARAMETERS, ROLLOUT_OPTIONS
    from hud_tui.tui.start import Start

    flags, is_play = vars(args), args.command == "play"
    return Start(
        command=args.command,
        view=COMMANDS[args.command].view,
        again=args.again,
        model=flags.get("model"),
        source=flags.get("source"),
        ref=flags.get("ref") or flags.get("job"),
        parameters=parameters(args),
        swept=swept(args),
        at_once=flags.get("at_once"),
        task=flags.get("task"),
        rollout=flags.get("rollout"),
        replay=flags.get("replay") or 0,
        keep=flags.get("keep"),
        options=given(args, (*ROLLOUT_OPTIONS, *EVALUATION_PARAMETERS)) if is_play else {},
        sample=flags.get("sample"),
        verbose=flags.get("verbose", False),
    )


def needs_no_app(args: argparse.Namespace) -> bool:
    """Whether a command is done on the terminal, not in the app: with ``--headless``; and without
    it if it changes something. A run is prepared in the app, unless ``-y`` says that it is not to
    be looked at first, or ``--dry-run`` that it is only to be looked at."""
    if args.command == "run":
        return bool(args.headless or args.yes or args.dry_run or args.config is not None)
    shown_here = vars(args).get("history") or vars(args).get("dry_run")
    return bool(args.headless or args.changes(args) or shown_here)


def _without_view(work: Callable[..., Any], args: argparse.Namespace) -> int:
    """Run a command in which the app has no part. Raises HudError: it failed."""
    if not iscoroutinefunction(work):
        code: int = work(args)
        return code
    import asyncio

    from hud_tui.cli.connect import connector_of, run_connected

    return asyncio.run(run_connected(work, args, connector_of(args)))


DEMO_SPEED = 20.0
"""Playback speed of demos, which have two seconds per step."""


def _without_app(command: Command, args: argparse.Namespace) -> int:
    for flag in ("record", "demo"):
        if getattr(args, flag) is not None:
            hint = "remove --headless" if args.headless else f"{args.command} does not open it"
            raise HudUsage(f"--{flag} needs the app", hint)
    if not command.function:
        raise HudUsage(f"{args.command} needs the app", "remove --headless")
    from hud_tui.cli.connect import connector_of, run_command

    _fill_in(args)

    return run_command(command.load(args), args, connector_of(args))


def _print_version(headless: bool) -> None:
    from hud_tui import __version__, build

    if headless:
        from hud_tui.cli.output import emit

        emit("version", {"version": __version__, "build": build.digest()})
    else:
        print(build.label())


def _app(args: argparse.Namespace) -> int:
    if args.demo == "":
        from hud_tui.rl.alarms.demos import demo_list

        print(demo_list())
        return 0
    from hud_tui.config import config_dir, read_config
    from hud_tui.tui.app import run
    from hud_tui.tui.start import Elsewhere, Start

    elsewhere = Elsewhere(args.service_url or "")

    async def connect(mode: str, key: str | None, progress: Callable[[str], None]) -> "HudClient":
        from hud_tui.cli.connect import connector_of  # after the first frame

        args.service_url = elsewhere.url or None
        return await connector_of(args, "app")(mode, key, progress)

    mode = "host" if args.service_url else "local" if args.local else "hud" if has_key() else None
    paths = partial(read_paths, args.state_dir, args.data_dir)
    config = read_config(config_dir(os.environ))
    open_app = partial(
        run, state=lambda: paths().state, config=config, record=args.record, elsewhere=elsewhere
    )
    if args.demo is None and args.command != "replay":
        return open_app(connect, mode, start_of(args))
    from hud_tui.client.replay import player  # reads the whole file before the app starts

    file = args.file if args.command == "replay" else None
    play = player(args.demo, file, args.speed if file else DEMO_SPEED)
    return open_app(play, "replay", Start(), clock=play.clock)


def serve(args: argparse.Namespace) -> int:
    """Serve the embedded service until it is stopped; returns the exit code."""
    from hud_tui.cores import read_cores
    from hud_tui.service.entrance import entrance_of
    from hud_tui.service.serving import serve as serve_app
    from hud_tui.service_file import forget, offer, usable_directories

    if args.read_only:
        raise HudUsage("--read-only does not apply to serve", "remove it")
    entrance, paths = entrance_of(args), read_paths(args.state_dir, args.data_dir)
    found_by_local = args.data_dir is None or args.state_dir is not None

    def on_ready(ready: "ServiceReady") -> None:
        if found_by_local:
            offer(paths.service_file, ready)

    try:
        max_disk, cores = read_max_disk(args.max_disk), read_cores(args.cores).count
        with usable_directories():
            return serve_app(entrance, paths.data, args.engine, max_disk, cores, on_ready)
    finally:
        forget(paths.service_file, os.getpid())


def _fill_in(args: argparse.Namespace) -> None:
    """For ``preflight`` and ``run`` without SOURCE, use the lock file's primary data set. Raises
    HudUsage: a file cannot be read; or, without the app, there is no SOURCE at all."""
    if vars(args).get("config") is not None:
        return  # the configuration may name the tasks
    if args.command in ("preflight", "run") and args.source is None:
        from hud_tui.legacy.lock_file import primary_source

        try:
            args.source = primary_source(Path())
        except HudUsage:
            if needs_no_app(args):
                raise  # the app offers a choice


def _check_text(argv: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: Python keeps invalid bytes as lone surrogates."""
    for number, word in enumerate(argv, 1):
        if has_surrogate(word):
            raise HudUsage(f"argument {number} is not UTF-8: {one_line(word)}")


def _fail(error: HudError, args: argparse.Namespace, headless: bool) -> int:
    from hud_tui.cli.output import emit_error, service_flags

    return emit_error(error, headless, service_flags(args))
