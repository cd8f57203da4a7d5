"""``init``: write a hud-vf-gym configuration for an environment, or show one."""

import argparse
import asyncio
from functools import partial
from os.path import expanduser
from pathlib import Path

from hud_tui.cli.connect import with_client
from hud_tui.cli.output import emit, print_notice, show
from hud_tui.cli.streams import changed
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.legacy.gym import (
    Described,
    GymConfig,
    described,
    gym_text,
    new_gym,
    read_gym,
    signature,
)
from hud_tui.legacy.image import ImageFacts, analyze_image, image_lines, is_image
from hud_tui.legacy.lock_file import LOCK_NAME, image_name, load_lock, read_bounded, replace_file
from hud_tui.legacy.yaml import MAX_BYTES
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.settings import every_variable


def init(args: argparse.Namespace) -> int:
    """Write or show a configuration; returns the exit code.

    Raises:
        HudError: An image cannot be looked into.
        HudUsage: Neither or both of ENV and ``--show``; no such environment; the file exists.
    """
    if (args.environment is None) == (args.show is None):
        raise HudUsage("give either ENV or --show FILE", "see hud-tui init --help")
    if args.show is not None:
        file = Path(args.show)
        config, warnings = read_gym(str(file), read_bounded(file))
        _report(config, file, warnings, args.headless, one_line(file))
        return 0
    if args.dry_run and not is_image(args.environment):
        raise HudUsage("--dry-run is of an image", "an image has a tag, e.g. text-2048:latest")
    env, image = _describe_any(args)
    if args.dry_run and image is not None:
        show(args, "image", image, *image_lines(image, signature))
        return 0
    config, warnings = new_gym(env)
    file = _target(args, env.name)
    text = gym_text(config, f"Made by hud-tui init for {one_line(env.name)}")
    if len(text.encode()) > MAX_BYTES:
        what = f"{one_line(env.name)} has too much to say: more than {MAX_BYTES >> 10} kB"
        raise HudUsage(what, "write a configuration of the tools that are needed")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{one_line(file.parent)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "-o names another directory") from error
    replace_file(file, text.encode())
    changed(f"write {one_line(file)}")
    if image is not None and not args.headless:
        print("\n".join(image_lines(image, signature)))
    _report(config, file, warnings, args.headless, f"wrote {one_line(file)}", image)
    return 0


def _describe_any(args: argparse.Namespace) -> tuple[Described, ImageFacts | None]:
    """The environment on disk, in an image, or of the service; and what the image has.

    Raises:
        HudError: There is no such environment, or its image cannot be looked into.
        HudUsage: The file to be written exists.
    """
    name = args.environment
    env = None if is_image(name) and not Path(expanduser(name)).exists() else _on_disk(name)
    if env is not None:
        return env, None
    if not is_image(name):
        return asyncio.run(with_client(args, partial(_describe, name=name)))[0], None
    if not args.dry_run:
        _target(args, image_name(name))
    known = every_variable()
    absent = [variable for variable in args.env if not known.get(variable)]
    if absent:
        raise HudUsage(f"--env {one_line(absent[0], 60)}: not set here", f"export {absent[0]}=…")
    variables = {variable: known[variable] for variable in args.env}
    facts = asyncio.run(analyze_image(name, variables, print_notice))
    return Described(image_name(name), facts.tools, image=name), facts


def _target(args: argparse.Namespace, name: str) -> Path:
    """The file to be written. Raises HudUsage: it exists."""
    file = Path(args.output or Path("configs") / f"{_file_name(name)}.yaml")
    if file.exists() and not args.force:
        raise HudUsage(f"{one_line(file)} exists", "--force overwrites it, -o names another")
    return file


def _report(
    config: GymConfig,
    file: Path,
    warnings: list[str],
    document: bool,
    title: str,
    image: ImageFacts | None = None,
) -> None:
    for warning in warnings if document else ():
        print_notice(warning)
    if document:
        facts = {"file": str(file), "actions": list(config.action_mappings), "warnings": warnings}
        transforms = list(config.transforms())
        more = {"transforms": transforms, "config": config.plain(), "image": image}
        emit("gym_config", {**facts, **more})
        return
    print(f"{title}: {counted(len(config.action_mappings), 'action')}")
    for name, action in config.action_mappings.items():
        brackets = ", ".join(one_line(arg, 60) for arg in action.parser.positional)
        print(f"  {one_line(name, 60)}({brackets}) → {one_line(action.tool or 'the end', 60)}")
    for transform in config.transforms():
        where = one_line(f"{transform.action}.{transform.argument}", 120)
        print(f"  transform of {where}, Python that is not run here: {clean(transform.text, 500)}")
    for warning in warnings:
        print(f"  ! {warning}")


def _on_disk(env: str) -> Described | None:
    """The environment of a directory with a lock file, or of a lock file; None if neither. Raises
    HudUsage: no lock file in the directory, or it is invalid; or there is no such path."""
    path = Path(expanduser(env))
    is_path = env.startswith((".", "/", "~")) or path.name == LOCK_NAME
    if is_path and not path.exists():
        hint = f"give a directory with {LOCK_NAME}, or that file"
        raise HudUsage(f"{one_line(env)}: no such file or directory", hint)
    if path.is_dir() and not (path / LOCK_NAME).is_file() and "/" in env:
        raise HudUsage(f"{one_line(env)} has no {LOCK_NAME}", "build the environment: hud build")
    if path.is_dir() and (path / LOCK_NAME).is_file():
        path = path / LOCK_NAME
    return described(load_lock(path)) if path.is_file() else None


async def _describe(client: HudClient, name: str) -> Described:
    """An environment as the service describes it: scenarios, no tools."""
    config = await client.tasks.environment(name)
    if config is None:
        hint = f"give a directory with {LOCK_NAME}, that file, or the name of an environment; "
        hint += f"or an image with its tag: {one_line(name)}:latest"
        raise HudUsage(f"no environment named {one_line(name)}", hint)
    if config.registry_id is None:
        offered = config.scenarios if isinstance(config.scenarios, list) else []
        return Described(name, scenarios=[(str(scenario), "") for scenario in offered])
    records = await client.tasks.scenarios(config.registry_id)
    return Described(
        name, scenarios=[(record.name, record.description or "") for record in records]
    )


def _file_name(name: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name[:80])
    return safe.strip(".") or "environment"
