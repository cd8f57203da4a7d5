"""Connector: the client that the command line asks for, guarded, with its writes logged."""

import argparse
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from hud_tui.settings import Paths, read_paths, read_settings

if TYPE_CHECKING:
    from hud_tui.audit_log import Written
    from hud_tui.client.client import HudClient
    from hud_tui.client.guard import Guard
    from hud_tui.config import ReadOnly


Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local`` or ``hud``, a key that was typed or None, progress) → the client."""


class Connector:
    """Makes the client, once the face knows which service is wanted."""

    def __init__(
        self,
        paths: Callable[[], Paths],
        guard: Callable[[], "Guard"],
        observe: "Callable[[Written], None]",
    ) -> None:
        """`guard` makes what every client lets its writes through, `observe` is told of them."""
        self._paths, self._guard, self._observe = paths, guard, observe

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> "HudClient":
        """A client of the service.

        Args:
            mode: ``local`` starts the embedded service where none runs; ``hud`` is HUD.
            key: For HUD, a key that was typed; None takes the configured one.
            progress: Told what is being waited for.
        """
        if mode == "local":
            from hud_tui.local_service import connect_local

            client = await connect_local(self._paths(), progress)
        else:
            from hud_tui.client.client import HudClient

            client = HudClient(read_settings(key))
        client.wire.guard = self._guard()
        client.wire.writing.observe = self._observe
        return client


def connector_of(args: argparse.Namespace) -> Connector:
    """What makes a client as the flags say."""
    paths = partial(read_paths, args.state_dir, args.data_dir)
    return Connector(paths, partial(guard_of, args), partial(_write_down, args, paths))


def _write_down(args: argparse.Namespace, paths: Callable[[], Paths], written: "Written") -> None:
    """Keep what was changed, for ``hud-tui log``."""
    from hud_tui.audit_log import CommandLog

    by = "headless" if args.headless else "app"
    CommandLog(paths().state, by).add(written)


def guard_of(args: argparse.Namespace) -> "Guard":
    """What the flags, the environment and the config file let through."""
    from hud_tui.client.guard import Guard, Protection

    kept = Protection(lambda: read_paths(args.state_dir, args.data_dir).state)
    return Guard(partial(_why_read_only, args), kept, vars(args).get("confirm"))


def _why_read_only(args: argparse.Namespace) -> "ReadOnly | None":
    from hud_tui.config import (  # only a write need wait for it
        config_dir,
        read_config,
        why_read_only,
    )

    return why_read_only(args.read_only, os.environ, read_config(config_dir(os.environ)).safety)
