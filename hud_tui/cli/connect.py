"""The client for the command line's flags, guarded and with a command log; and running commands
with it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from hud_tui.cli.output import (
    changes,
    emit_error,
    flags_of,
    print_notice,
    service_flags,
    show,
    with_flags,
)
from hud_tui.cli.streams import IN_LOG, INTERRUPTED, changed, tell
from hud_tui.client.guard import Guard, Protection
from hud_tui.errors import UNLOGGED, HudError
from hud_tui.rl.text import command_line, one_line
from hud_tui.settings import Paths, Settings, has_key, program, read_paths, read_settings

# What only `--local`, a rented or another machine, or a change needs is imported where it is used,
# and so is the client: some commands ask no service.

if TYPE_CHECKING:
    from hud_tui.audit_log import AuditEntry
    from hud_tui.client.client import HudClient
    from hud_tui.config import ReadOnly

T = TypeVar("T")
Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local``, ``host`` or ``hud``, a typed key or None, progress) → the client."""


BEGINNINGS = frozenset({"submit", "train", "evaluate", "resume"})
"""Changes that begin a run or an evaluation, or go on with one."""


class Connector:
    """Builds the client once the service is chosen."""

    def __init__(
        self,
        paths: Callable[[], Paths],
        guard: Callable[[], Guard],
        observe: Callable[[AuditEntry], object],
        flags: str = "",
        by: str = "headless",
        host: str = "",
    ) -> None:
        """`host`: as of `Settings`, for mode ``host``."""
        self._host = host
        self._paths, self._guard, self._observe = paths, guard, observe
        self._flags, self._by = flags, by

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        """A client of the service.

        Args:
            mode: ``local``: the embedded service, started if none runs; ``host``: a service
                elsewhere; ``hud``: HUD.
            key: For HUD, a typed key; None uses the configured one.
            progress: Called with what is being waited for.
        """
        if mode == "local":
            from hud_tui import local_service

            client = await local_service.connect_local(
                self._paths(), progress, self._guard(), self._observe, self._flags, self._by
            )
        else:
            from hud_tui.client.client import HudClient

            settings = self._elsewhere() if mode == "host" else read_settings(key)
            settings = replace(settings, flags=self._flags, by=self._by)
            client = HudClient(settings, None, self._guard(), self._observe)
        client.on_names = self._keep_names
        if (sinks := self._paths().state / "sinks").is_dir():
            from hud_tui.sinks.orders import restart_sinks

            restart_sinks(sinks.parent)
        return client

    def _elsewhere(self) -> Settings:
        from hud_tui.hosts import host_settings

        return host_settings(self._host, self._paths().state)

    def _keep_names(self, kind: str, names: Sequence[str]) -> None:
        from hud_tui.known_names import keep

        keep(self._paths().state, kind, names)


def connector_of(args: argparse.Namespace, by: str = "headless") -> Connector:
    """The connector for the command line's flags; `by`: as of `Settings`."""
    paths = partial(paths_of, args)
    if vars(args).get("wandb"):
        from hud_tui.cli.sinks import require_project

        require_project(args.wandb)

    def observe(written: AuditEntry) -> str:
        trouble = write_down(paths().state, by, written)
        if written.verb in BEGINNINGS and written.outcome == "done":
            from hud_tui.cli.sinks import log_work

            log_work(paths(), written, vars(args).get("wandb"))
        return trouble

    guard, host = partial(guard_of, args), args.service_url or ""
    return Connector(paths, guard, observe, flags_of(args), by, host)


def mode_of(args: argparse.Namespace) -> str:
    """Which service the flags choose, as `Connect` takes it."""
    return "host" if args.service_url else "local" if args.local else "hud"


def command_of(args: argparse.Namespace, *words: object) -> str:
    """A command for the service that the flags choose, to paste into a shell; one about machines
    needs no service."""
    needs_service = words[0] not in ("remote", "pods")
    host = args.service_url if needs_service else ""
    local = needs_service and not host and (args.local or not has_key())
    return command_line(program(local, flags_of(args), host or ""), *words)


def paths_of(args: argparse.Namespace) -> Paths:
    """This program's directories by flags, environment and the machine in use."""
    paths = read_paths(args.state_dir, args.data_dir)
    if not paths.has_machines:
        return paths
    from hud_tui.service_file import with_machine

    return with_machine(paths)


def write_down(state: Path, by: str, written: AuditEntry) -> str:
    """Append a change to the command log, and tell of it; returns why it could not be appended."""
    from hud_tui.audit_log import CommandLog, change_text

    trouble = CommandLog(state, by).add(written)
    if written.outcome == "done":
        what = f"{written.verb} {change_text(written)}".rstrip()
        changed(what, "" if trouble else IN_LOG)
        if trouble:
            tell(f"{UNLOGGED}{what}: {trouble}")
    return trouble


def guard_of(args: argparse.Namespace) -> Guard:
    """The guard for the flags, environment and config file."""
    protection = Protection(lambda: paths_of(args).state)
    return Guard(partial(_why_read_only, args), protection, vars(args).get("confirm"))


def _why_read_only(args: argparse.Namespace) -> ReadOnly | None:
    from hud_tui.config import config_dir, read_config, why_read_only

    return why_read_only(args.read_only, os.environ, read_config(config_dir(os.environ)).safety)


async def client_of(args: argparse.Namespace) -> HudClient:
    """The client of the service that the flags choose; progress is printed line by line."""
    return await connector_of(args)(mode_of(args), None, print_notice)


async def with_client(
    args: argparse.Namespace, read: Callable[[HudClient], Awaitable[T]]
) -> tuple[T, str]:
    """Read with a client of the service; also returns the service's label."""
    async with aclosing(await client_of(args)) as client:
        return await read(client), client.settings.label


# One command against a service, from connecting to the exit code.


Run = Callable[["HudClient", argparse.Namespace], Awaitable[int]]
"""What a command does with its client; returns the exit code."""


def run_command(run: Run, args: argparse.Namespace, connect: Connect) -> int:
    """Run a command and print its result; returns the exit code."""
    import asyncio

    print_costs(args)
    try:
        return asyncio.run(run_connected(run, args, connect))
    except HudError as error:
        return emit_error(error, args.headless, service_flags(args))
    except KeyboardInterrupt:
        print_notice("interrupted")
        return INTERRUPTED


def print_costs(args: argparse.Namespace) -> None:
    """Print on stderr what is rented, if anything, and ensure that its budget is watched."""
    try:
        paths = paths_of(args)
        message = _costs(paths) if paths.has_machines else ""
    except HudError as error:
        message = error.message
    for line in message.splitlines():
        print_notice(with_flags(line, flags_of(args)))


def _costs(paths: Paths) -> str:
    from hud_tui.remote.clock import ahead_s, prime_now
    from hud_tui.service_file import costs_text, keep_budgets

    now = prime_now(paths.state)
    text = costs_text(paths.state, now, ahead_s(paths.state))
    keep_budgets(paths, now)
    return text


async def run_connected(run: Run, args: argparse.Namespace, connect: Connect) -> int:
    """Connect, run, and close; returns the exit code. Raises HudError: the command failed;
    `outcome` says of a write whether it was done."""
    client = await connect(mode_of(args), None, progress())
    try:
        return await run(client, args)
    except HudError as error:
        if error.outcome is None and changes(args):
            error.outcome = "not_done"
        raise
    finally:
        await client.aclose()


def progress(each: bool = False, beside: Callable[[], str] = str) -> Callable[[str], None]:
    """Prints progress on one line of a terminal, with the text of `beside` at its end; elsewhere
    only the first report, or with `each` every report that differs from the last one."""
    shown, began = "", monotonic()

    def progress(text: str) -> None:
        nonlocal shown, began
        if text != shown:
            began = monotonic() if each else began
        if sys.stderr.isatty():
            end = f", {monotonic() - began:.0f} s" if each else ""
            end += beside()
            room = get_terminal_size().columns - len(end) - 2
            line = one_line(text, max(10, room)) + end
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif not shown or (each and text != shown):
            print_notice(text)
        shown = text

    return progress


def stop(args: argparse.Namespace) -> int:
    """Stop the embedded service, and print its process id; returns the exit code."""
    import asyncio

    from hud_tui import local_service
    from hud_tui.service_file import machine_of

    guard_of(args).check("stop the embedded service")
    paths = paths_of(args)
    anywhere = args.data_dir is None and machine_of(paths) is None
    pid = asyncio.run(local_service.stop(paths, anywhere))
    stopped = f"stopped the service, process {pid}"
    none = "no embedded service is running"
    show(args, "stop", {"stopped": pid is not None, "pid": pid}, none if pid is None else stopped)
    return 0
