"""service.json: which embedded service runs, and the key to it; for its owner only.

Every service writes one into its data directory while it serves that, so that whoever asks for
the directory finds it. The one in the state directory names the service that runs in the
background, or was started without --data-dir; where the two directories are one, they are one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths
from hud_tui.storage import (
    NotPrivate,
    change_atomic,
    locked,
    read_private,
    read_regular,
    write_atomic,
)
from hud_tui.wire import ServiceReady

LOCK = "service.lock"
"""In the data directory: held while it is served; says by which process."""
MOST_BYTES = 1 << 16
"""Of the largest service.json that is read."""


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
            "choose writable directories: --state-dir, --data-dir",
        ) from error


def register(file: Path, ready: ServiceReady) -> None:
    """Name this service in a service.json."""
    write_atomic(file, _line(ready))


def offer(file: Path, ready: ServiceReady) -> None:
    """`register`, unless a service of another data directory that runs is named there.

    Raises:
        HudUsage: As `read_ready`.
    """

    def change() -> str | None:
        known = read_ready(file)
        if known is None or not alive(known.pid) or same_directory(known, Path(ready.data_dir)):
            return _line(ready)
        return None

    change_atomic(file, change)


def forget(file: Path, pid: int) -> None:
    """Remove a service.json that names this process; what cannot be read stays."""
    if not file.exists():
        return
    with locked(file.parent), suppress(HudUsage):
        ready = read_ready(file)
        if ready is not None and ready.pid == pid:
            file.unlink(missing_ok=True)


def read_ready(file: Path) -> ServiceReady | None:
    """What a service.json says; None if there is none.

    Raises:
        HudUsage: It is not what a service wrote, or not its owner's alone: it has a key.
    """
    try:
        ready = ServiceReady.model_validate_json(read_private(file, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HudUsage(f"{one_line(file)}: {error.strerror or error}", _fix(file, error)) from error
    except ValidationError:
        ready = None
    if ready is None or not _is_whole(ready):
        hint = "remove it; a running service must then be restarted to be found"
        raise HudUsage(f"{one_line(file)}: not written by a hud-tui service", hint) from None
    return ready


def serving_pid(data: Path) -> int | None:
    """The process that holds a data directory's lock, or held it last; None: nobody did."""
    try:
        return int(read_regular(data / LOCK, 32))
    except (OSError, ValueError):
        return None


def same_directory(ready: ServiceReady, data: Path) -> bool:
    """Whether a service serves this data directory."""
    return Path(ready.data_dir).resolve() == data.resolve()


def named(paths: Paths) -> list[tuple[Path, ServiceReady]]:
    """Each service.json with what it says, those of the data directory's own service first.

    Raises:
        HudUsage: As `read_ready`.
    """
    files = dict.fromkeys((paths.service_file, paths.serving_file))
    found = [(file, ready) for file in files if (ready := read_ready(file)) is not None]
    return sorted(found, key=lambda one: not same_directory(one[1], paths.data))


def _is_whole(ready: ServiceReady) -> bool:
    """Whether it can be called, and be the work of a process."""
    try:
        parts = [urlsplit(url) for url in (ready.url, ready.telemetry_url)]
        urls = all(one.scheme == "http" and one.hostname and one.port != 0 for one in parts)
    except ValueError:
        urls = False
    key = ready.api_key
    return urls and 0 < ready.pid < 2**31 and key.isascii() and key.isprintable()


def _line(ready: ServiceReady) -> str:
    return ready.model_dump_json() + "\n"


def _fix(file: Path, error: OSError) -> str:
    if isinstance(error, NotPrivate) and not file.is_symlink():
        return f"chmod 600 {one_line(file)}; whoever read it has the service's key: service.key"
    if isinstance(error, PermissionError):
        return "it belongs to another user: use your own directories, --state-dir and --data-dir"
    return "remove it, or use other directories: --state-dir, --data-dir"


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
