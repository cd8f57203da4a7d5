"""``login`` and ``logout``: the keys of services elsewhere."""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing
from getpass import getpass
from pathlib import Path

from hud_tui.cli.connect import paths_of
from hud_tui.cli.output import show
from hud_tui.client.client import HudClient
from hud_tui.client.trust import context_of
from hud_tui.errors import HudNoKey, HudNotFound, HudUsage
from hud_tui.hosts import HOST, forget_login, read_logins, settings_with, usable_host, write_login
from hud_tui.rl.text import command_line, one_line
from hud_tui.service_file import usable_directories
from hud_tui.settings import Settings, usable_key
from hud_tui.storage import read_regular
from hud_tui.wire import Identity

MOST_KEY, MOST_CA = 1000, 1 << 20


def login(args: argparse.Namespace) -> int:
    """Store the key of a service, after it was accepted there; returns the exit code. Raises
    HudError: it was not accepted; nothing is stored."""
    url = _url(args)
    ca = "" if args.ca is None else str(Path(args.ca).expanduser().absolute())
    certificates = b""
    if ca:
        context_of(ca)
        certificates = read_regular(Path(ca), MOST_CA)
    settings = settings_with(url, "", ca)
    settings.check_clear_text()
    typed = _read_key(url)
    if not typed.strip():
        raise HudNoKey("no key was given", "type it, or have it in stdin: an admin makes one")
    key = usable_key(typed, "the key")
    identity = asyncio.run(_identity(settings_with(url, key, ca)))
    with usable_directories():
        write_login(paths_of(args).state, url, key, certificates)
    who = f" as {identity.key}, role {identity.role}" if identity.key else ""
    data = {"url": url, "key": identity.key, "role": identity.role, "ca": bool(ca)}
    use = command_line("hud-tui", "--host", url)
    show(args, "login", data, f"logged in to {url}{who}", f"use it: {use}, or {HOST}={url}")
    return 0


async def _identity(settings: Settings) -> Identity:
    """Whose key it is. Raises HudError: it is not accepted, or that is no hud-tui service."""
    async with aclosing(HudClient(settings)) as client:
        try:
            identity = await client.whoami()
        except HudNotFound as error:
            raise _no_service(settings.host) from error
    if not identity.data_id:
        raise _no_service(settings.host)
    return identity


def _no_service(url: str) -> HudUsage:
    hint = "give the URL of hud-tui serve; HUD's own key is set as HUD_API_KEY"
    return HudUsage(f"{one_line(url, 200)} is no hud-tui service", hint)


def _read_key(url: str) -> str:
    """From a terminal without echo, else the first line of stdin; never from an argument, which
    other users can see."""
    if sys.stdin is not None and sys.stdin.isatty():
        return getpass(f"key for {one_line(url, 200)}: ")
    return sys.stdin.readline(MOST_KEY) if sys.stdin is not None else ""


def logout(args: argparse.Namespace) -> int:
    """Forget the key of a service; returns the exit code."""
    url, state = _url(args), paths_of(args).state
    with usable_directories():
        was_known = forget_login(state, url)
    text = f"forgot the key for {url}" if was_known else f"no key for {url} is stored"
    others = sorted(read_logins(state))
    show(args, "logout", {"url": url, "forgotten": was_known, "others": others}, text)
    return 0


def _url(args: argparse.Namespace) -> str:
    url = args.url or args.service_url or os.environ.get(HOST, "")
    if not url:
        example = "hud-tui login https://gpu.example.com:8443"
        raise HudUsage(f"{args.command} needs the URL of a service", f"e.g. {example}")
    return usable_host(url, "URL")
