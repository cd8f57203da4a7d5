"""What is logged to Weights & Biases, in the state directory: begun by whoever begins a run, and
begun again by whoever comes by after its process was killed.

``sinks/ID/order.json`` says what is logged; beside it are the SDK's files and the process's log.
``sinks/open/ID`` is there until everything is written; it contains a new token each time that the
work is begun or resumed.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import distributions
from netrc import NetrcParseError, netrc
from pathlib import Path
from time import time
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import ValidationError

from hud_tui.audit_log import AuditEntry
from hud_tui.client.transport import origin_of
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.wandb_file import LoggedRun, read_logged_run
from hud_tui.service_file import ServicePlace, daemon
from hud_tui.settings import Paths, read_variables
from hud_tui.storage import is_held, read_regular, write_atomic

FOLDER, OPEN = "sinks", "open"
MODULE = "hud_tui.sinks.wandb_sink"
PACKAGE = "wandb"
INSTALL = "pip install 'hud-tui[wandb]'"
KEY, BASE_URL = "WANDB_API_KEY", "WANDB_BASE_URL"
HOST = "https://api.wandb.ai"
SYNC_AGAIN_S = 600.0
"""Seconds before files that could not be synced are tried again."""
MOST_BYTES = 1 << 30
"""Maximum size of a ``.wandb`` file that is read."""


class SinkOrder(ServicePlace):
    """What is logged, and where the service is."""

    work_id: str
    """Id of the run or the evaluation."""
    model_id: str
    project: str
    """``PROJECT`` or ``ENTITY/PROJECT``."""
    ended: bool = False
    """Whether its end is written, so that only a sync is left."""
    sync_tried_at: float = 0.0
    """Unix seconds."""


class SinkFolder:
    def __init__(self, state: Path, work_id: str) -> None:
        self.path = state / FOLDER / work_id
        self._open = state / FOLDER / OPEN / work_id
        self.log = self.path / "sink.log"
        self.lock = self.path / "sink.lock"
        """Held by the process that writes."""
        self.writers = self.path / "writers"
        """The SDK's own processes, which end a little after the one that started them."""

    def order(self) -> SinkOrder | None:
        """None if there is none, or it cannot be read."""
        try:
            body = read_regular(self.path / "order.json", 100_000)
            return SinkOrder.model_validate_json(body)
        except (OSError, ValidationError):
            return None

    def save(self, order: SinkOrder) -> None:
        write_atomic(self.path / "order.json", order.model_dump_json(indent=1))

    def open(self) -> None:
        write_atomic(self._open, uuid4().hex)

    @property
    def token(self) -> str:
        """As of when it was opened last; empty if it is closed."""
        try:
            return read_regular(self._open, 100).decode("ascii", "replace")
        except OSError:
            return ""

    def close(self) -> None:
        self._open.unlink(missing_ok=True)

    @property
    def runs(self) -> list[Path]:
        """The folders that the SDK wrote, oldest first: one for each start of the process."""
        return sorted((self.path / PACKAGE).glob("offline-run-*"))

    def logged(self) -> Iterator[LoggedRun]:
        """What is on disk, oldest first; files that cannot be read are left out."""
        for folder in self.runs:
            for file in folder.glob("*.wandb"):
                with suppress(OSError, ValueError):
                    yield read_logged_run(read_regular(file, MOST_BYTES))


def version() -> str | None:
    """The SDK's version; None if it is not installed."""
    return next((found.version for found in distributions(name=PACKAGE)), None)


def require_sdk() -> None:
    """Raises HudUsage: the SDK is not installed."""
    if version() is None:
        raise HudUsage("the SDK of Weights & Biases is not installed", INSTALL)


def host(variables: Mapping[str, str]) -> str:
    """Where files are synced to."""
    return (variables.get(BASE_URL) or HOST).rstrip("/")


def key_origin(variables: Mapping[str, str]) -> str:
    """Where a key of Weights & Biases is found: a variable, or what ``wandb login`` wrote; empty if
    there is none."""
    if variables.get(KEY):
        return KEY
    file = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    with suppress(OSError, NetrcParseError):
        if netrc(str(file)).authenticators(urlsplit(host(variables)).hostname or ""):
            return str(file)
    return ""


def begin_sink(paths: Paths, change: AuditEntry, project: str) -> None:
    """Log a run or an evaluation that was begun, or resumed if it is logged already.

    Args:
        change: The change that began it.
        project: Of a new one; empty: it is not logged.

    Raises:
        HudUsage: The SDK is not installed.
        OSError: Nothing can be written.
    """
    work_id = change.subject if change.verb == "resume" else change.after
    if not work_id or not all(letter.isalnum() or letter == "-" for letter in work_id):
        return
    folder = SinkFolder(paths.state, work_id)
    order = folder.order()
    if order is None:
        if not project or change.verb == "resume":
            return
        order = SinkOrder(
            work_id=work_id,
            model_id=change.model,
            project=project,
            mode="local" if change.local else "host" if change.host else "hud",
            data_dir=str(paths.data) if change.local else "",
            host=change.host,
            service="" if change.local else origin_of(change.url),
        )
    require_sdk()
    folder.save(order.model_copy(update={"ended": False, "sync_tried_at": 0.0}))
    folder.open()
    start(paths.state, folder, order)


def start(state: Path, folder: SinkFolder, order: SinkOrder) -> None:
    """Start the process; one that finds another at work ends."""
    variables = {}
    with suppress(HudError):  # an invalid line is reported by whoever connects
        variables = read_variables()
    if order.mode != "hud":
        variables = {name: value for name, value in variables.items() if name == KEY}
    daemon(folder.log, [MODULE, str(state), order.work_id], variables).wait()


def unfinished(state: Path) -> list[str]:
    """Ids of what is not written, or not synced, to its end."""
    try:
        return [file.name for file in (state / FOLDER / OPEN).iterdir()]
    except OSError:
        return []


def restart_sinks(state: Path) -> None:
    """Start what was killed before everything was written."""
    for work_id in unfinished(state):
        sink = SinkFolder(state, work_id)
        order = sink.order()
        with suppress(OSError):
            if order is not None and not _waits(order) and not is_held(sink.lock):
                start(state, sink, order)


def _waits(order: SinkOrder) -> bool:
    """Whether only a sync is left that failed a short while ago."""
    return order.ended and 0 <= time() - order.sync_tried_at < SYNC_AGAIN_S
