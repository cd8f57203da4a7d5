"""This program's directories: whether they can be written to, and how much room there is."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from hud_tui.doctor.report import Directory, Finding
from hud_tui.errors import HudError
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths, read_max_disk

MOST_FILES = 100_000
"""Files of a directory that are counted."""
LITTLE, TOO_LITTLE = 2 * 10**9, 10**8
"""Free bytes below which a run may soon stop, or cannot start."""


def directories(paths: Paths) -> list[Directory]:
    """The three of them."""
    return [
        _directory("config", paths.config),
        _directory("state", paths.state),
        _directory("data", paths.data),
    ]


def check_directories(
    found: list[Directory], service_file: Path, environ: Mapping[str, str]
) -> list[Finding]:
    """Whether the embedded service can keep what it makes."""
    findings = [
        Finding(
            "directories",
            "failure",
            f"the {one.kind} directory {one.path} cannot be written to",
            f"correct its permissions, or set HUD_TUI_{one.kind.upper()}_DIR",
            code=2,
        )
        for one in found
        if not one.writable
    ]
    data = next(one for one in found if one.kind == "data")
    findings += _check_room(data, environ) + _check_private(service_file)
    return findings or [Finding("directories", "ok", "there is room, and it can be written to")]


def size_text(size: int | None) -> str:
    """E.g. ``2.1 GB``; decimal units."""
    if size is None:
        return "?"
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return (
        f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"
    )


def _check_room(data: Directory, environ: Mapping[str, str]) -> list[Finding]:
    try:
        limit = read_max_disk(environ=environ)
    except HudError as error:
        return [Finding("directories", "failure", error.message, error.hint, error.exit_code)]
    free = data.free_bytes
    fix = "free some, or point HUD_TUI_DATA_DIR at another disk"
    if free is not None and free < TOO_LITTLE:
        message = f"{size_text(free)} free for checkpoints"
        return [Finding("directories", "failure", message, fix, code=1)]
    if free is not None and free < min(LITTLE, limit):
        message = f"{size_text(free)} free for checkpoints, which may take {size_text(limit)}"
        return [Finding("directories", "warning", message, f"{fix}; or lower HUD_TUI_MAX_DISK")]
    return []


def _check_private(service_file: Path) -> list[Finding]:
    try:
        mode = service_file.stat().st_mode
    except OSError:
        return []
    if not mode & 0o077:
        return []
    name = one_line(service_file)
    message = f"{name} holds the service's key and is open to others"
    return [Finding("directories", "warning", message, f"chmod 600 {name}")]


def _directory(kind: Literal["config", "state", "data"], path: Path) -> Directory:
    exists = path.is_dir()
    nearest = _nearest(path)
    try:
        free = shutil.disk_usage(nearest).free
    except OSError:
        free = None
    return Directory(
        kind=kind,
        path=one_line(path, 400),
        exists=exists,
        writable=nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK),
        used_bytes=used(path) if exists else None,
        free_bytes=free,
    )


def _nearest(path: Path) -> Path:
    """The directory itself, or the nearest one above that exists."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def used(path: Path) -> int | None:
    """Bytes of its files; None where there are too many to count, or it cannot be read."""
    total, count = 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            count += 1
            if count > MOST_FILES:
                return None
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
