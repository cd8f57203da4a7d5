"""``init``: a hud-vf-gym configuration for an environment, written; or one that exists, shown."""

import argparse
import asyncio
from os.path import expanduser
from pathlib import Path
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.headless.main import Connect
from hud_tui.headless.output import emit, tell
from hud_tui.older.gym import GymConfig, read_gym
from hud_tui.older.gym_new import Described, described, new_gym
from hud_tui.older.gym_text import gym_text
from hud_tui.older.lock import NAME
from hud_tui.older.lock_file import load_lock, read_bounded, replace_file
from hud_tui.rl.preflight import count
from hud_tui.rl.text import clean, one_line

KIND = "gym_config"


def init(args: argparse.Namespace, connect: Connect) -> int:
    """Write or show a configuration; returns the exit code.

    Raises:
        HudUsage: Neither or both of ENV and ``--show``; no such environment; the file exists.
    """
    if (args.environment is None) == (args.show is None):
        raise HudUsage("give either ENV or --show FILE", "see hud-tui init --help")
    if args.show is not None:
        return _show(Path(args.show), args.headless)
    env = _on_disk(args.environment) or asyncio.run(_of_service(args, connect))
    config, warnings = new_gym(env)
    file = Path(args.output or Path("configs") / f"{_file_name(env.name)}.yaml")
    _write(file, gym_text(config, f"Made by hud-tui init for {one_line(env.name)}"), args.force)
    _report(config, file, warnings, args.headless, f"wrote {one_line(file)}")
    return 0


def _show(file: Path, document: bool) -> int:
    config, warnings = read_gym(str(file), read_bounded(file))
    _report(config, file, warnings, document, one_line(file))
    return 0


def _report(config: GymConfig, file: Path, warnings: list[str], document: bool, title: str) -> None:
    for warning in warnings if document else ():
        tell(warning)
    if document:
        emit(KIND, _document(config, file, warnings))
        return
    print(f"{title}: {count(len(config.action_mappings), 'action')}")
    for name, action in config.action_mappings.items():
        brackets = ", ".join(one_line(arg, 60) for arg in action.parser.positional)
        print(f"  {one_line(name, 60)}({brackets}) → {one_line(action.tool or 'the end', 60)}")
    for transform in config.transforms():
        where = one_line(f"{transform.action}.{transform.argument}", 120)
        print(f"  transform of {where}, Python that is not run here: {clean(transform.text, 500)}")
    for warning in warnings:
        print(f"  ! {warning}")


def _document(config: GymConfig, file: Path, warnings: list[str]) -> dict[str, Any]:
    return {
        "file": str(file),
        "actions": list(config.action_mappings),
        "transforms": list(config.transforms()),
        "warnings": warnings,
        "config": config.plain(),
    }


def _on_disk(env: str) -> Described | None:
    """Of a directory with a lock file, or of the file; None where the name is neither.

    Raises:
        HudUsage: A directory without one, or the file is none.
    """
    path = Path(expanduser(env))
    if path.is_dir() and not (path / NAME).is_file() and "/" in env:
        raise HudUsage(f"{one_line(env)} has no {NAME}", "build the environment: hud build")
    if path.is_dir() and (path / NAME).is_file():
        path = path / NAME
    return described(load_lock(path)) if path.is_file() else None


async def _of_service(args: argparse.Namespace, connect: Connect) -> Described:
    client = await connect("local" if args.local else "hud", None, tell)
    try:
        return await _ask(client, args.environment)
    finally:
        await client.aclose()


async def _ask(client: HudClient, name: str) -> Described:
    """What the service says of an environment: its scenarios. It lists no tools."""
    config = await client.environment(name)
    if config is None:
        hint = f"give a directory with {NAME}, that file, or the name of an environment"
        raise HudUsage(f"no environment is called {one_line(name)}", hint)
    if config.registry_id is None:
        offered = config.scenarios if isinstance(config.scenarios, list) else []
        return Described(name, scenarios=[(str(scenario), "") for scenario in offered])
    records = await client.scenarios(config.registry_id)
    return Described(name, scenarios=[(row.name, row.description or "") for row in records])


def _write(file: Path, text: str, force: bool) -> None:
    if file.exists() and not force:
        raise HudUsage(f"{one_line(file)} exists", "--force writes it anew, -o names another")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{one_line(file.parent)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "-o names another place") from error
    replace_file(file, text.encode())


def _file_name(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name[:80])
    return kept.strip(".") or "environment"
