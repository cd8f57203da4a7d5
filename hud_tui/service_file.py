"""service.json: which embedded service runs on this machine, and the key to it.

It is written whole and readable by its owner only.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths
from hud_tui.storage import change_atomic, locked, write_atomic
from hud_tui.wire import ServiceReady


@contextmanager
def usable_directories() -> Iterator[None]:
    """Say of a file or directory inside that cannot be used which it is.

    Raises:
        HudUsage: Instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or "a file"
        raise HudUsage(
            f"{one_line(place)}: {one_line(error.strerror or error)}",
            "give directories that can be written to: --state-dir, --data-dir",
        ) from error


def register(paths: Paths, ready: ServiceReady) -> None:
    """Make this service the one that ``--local`` finds."""
    write_atomic(paths.service_file, _line(ready))


def offer(paths: Paths, ready: ServiceReady) -> None:
    """`register`, unless another service that runs is registered."""

    def change() -> str | None:
        known = read_ready(paths)
        return _line(ready) if known is None or not alive(known.pid) else None

    change_atomic(paths.service_file, change)


def forget(paths: Paths, pid: int | None = None) -> None:
    """Remove service.json; with `pid`, only where it names that process."""
    if not paths.service_file.exists():
        return
    with locked(paths.service_file.parent):
        ready = read_ready(paths)
        if pid is None or (ready is not None and ready.pid == pid):
            paths.service_file.unlink(missing_ok=True)


def read_ready(paths: Paths) -> ServiceReady | None:
    """What service.json says; None where there is none or it is not whole."""
    try:
        return ServiceReady.model_validate_json(paths.service_file.read_bytes())
    except (OSError, ValidationError):
        return None


def _line(ready: ServiceReady) -> str:
    return ready.model_dump_json() + "\n"


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked about does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2]
    except OSError:
        return True
    return not state.lstrip().startswith("Z")
