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
    file = paths.service_file
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as out:
        out.write(ready.model_dump_json() + "\n")
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def offer(paths: Paths, ready: ServiceReady) -> None:
    """`register`, unless another service that runs is registered."""
    known = read_ready(paths)
    if known is None or not alive(known.pid):
        register(paths, ready)


def forget(paths: Paths, pid: int | None = None) -> None:
    """Remove service.json; with `pid`, only where it names that process."""
    ready = read_ready(paths)
    if pid is None or (ready is not None and ready.pid == pid):
        paths.service_file.unlink(missing_ok=True)


def read_ready(paths: Paths) -> ServiceReady | None:
    """What service.json says; None where there is none or it is not whole."""
    try:
        return ServiceReady.model_validate_json(paths.service_file.read_bytes())
    except (OSError, ValidationError):
        return None


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
