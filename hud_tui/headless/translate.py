"""``translate``: an RL configuration of hud 0.4 as today's run parameters."""

import argparse
from pathlib import Path
from typing import Any

from hud_tui.headless.output import emit, tell
from hud_tui.older.lock_file import read_bounded
from hud_tui.older.rl_config import MAX_BYTES, read_rl_config
from hud_tui.older.translate import Dropped, Translation, flags, translate
from hud_tui.rl.text import clean, one_line


def show(args: argparse.Namespace) -> int:
    """Print what it becomes; returns the exit code."""
    found = load(args.config_file)
    command = f"hud-tui run SOURCE {flags(found.parameters)}"
    if args.headless:
        for warning in found.warnings:
            tell(warning)
        emit("translation", {"file": args.config_file, **vars(found), "command": command})
    else:
        _print(args.config_file, found, command)
    return 0


def load(file: str) -> Translation:
    """A file's translation.

    Raises:
        HudUsage: It cannot be read, or is no such configuration.
    """
    path = Path(file).expanduser()
    return translate(read_rl_config(file, read_bounded(path, MAX_BYTES)))


def parameters_of(file: str) -> dict[str, Any]:
    """The run parameters of a configuration; what is lost is said on stderr."""
    found = load(file)
    for warning in found.warnings:
        tell(warning)
    lost = ", ".join(one.field for one in found.dropped if one.set)
    if lost:
        tell(f"{one_line(file)}: no equivalent for {lost}: see hud-tui translate")
    return found.parameters


def _print(file: str, found: Translation, command: str) -> None:
    print(f"{one_line(file)}: trained from {one_line(found.model)}; fork a base like it")
    fields = [one.field for one in found.translated] + [one.field for one in found.dropped]
    width = max(map(len, fields))
    for one in found.translated:
        if one.parameter != "model":
            became = f"--{one.parameter.replace('_', '-')} {one.becomes}" if one.parameter else ""
            note = "; ".join(part for part in (became, one.note) if part)
            print(f"  {one.field:{width}}  {_value(one.value, one.set)} → {note}")
    print("no equivalent:")
    for lost in found.dropped:
        print(f"  {lost.field:{width}}  {_lost(lost)}{lost.why}")
    print(f"\n{command}")


def _lost(lost: Dropped) -> str:
    return f"{_value(lost.value, lost.set)}: " if lost.value is not None else ""


def _value(value: object, is_set: bool) -> str:
    text = f"{value:g}" if isinstance(value, float) else clean(value, 60).replace("\n", "⏎")
    return text if is_set else f"{text} (default)"
