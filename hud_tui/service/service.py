"""Service: its parts, started and stopped in order."""

import asyncio
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType

from hud_tui.rl.formats import read_row
from hud_tui.service.engines.base import Engine
from hud_tui.service.hosted import Hosted
from hud_tui.service.ids import canonical
from hud_tui.service.parts import Parts
from hud_tui.service.retention import DEFAULT_BYTES
from hud_tui.service.runner import Runner
from hud_tui.service.store import Db, models, retention, runs, tasksets, traces
from hud_tui.service.tasksets import TASKSETS


class Service:
    """The embedded service over one data directory. Use it as an async context."""

    def __init__(self, data_dir: Path, engine: Engine, max_disk: int = DEFAULT_BYTES) -> None:
        """
        Args:
            data_dir: Made when missing, for the user alone.
            engine: Started and stopped with the service.
            max_disk: Bytes that all checkpoints' files may have together.
        """
        self.data_dir = data_dir.resolve()
        self.parts: Parts
        self.runner: Runner
        self.hosted: Hosted
        self.api_key = ""
        self._engine = engine
        self._max_disk = max_disk

    async def __aenter__(self) -> "Service":
        await asyncio.to_thread(self._prepare)
        self.parts = Parts(self.data_dir, self._engine, self._max_disk)
        self.runner = Runner(self.parts)
        self.hosted = Hosted(self.parts)
        try:
            await self.parts.store.open()
            await self._engine.start()
            names = [base.name for base in self._engine.bases()]
            kept = await self.parts.store.write(_recover, names)
        except BaseException:
            await self._close()
            raise
        await asyncio.to_thread(sweep, self.data_dir / "checkpoints", kept)
        self.parts.retention.wake()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.hosted.close()
        await self.runner.close()
        self.parts.hub.close()
        await self.parts.retention.close()
        await self._close()

    async def _close(self) -> None:
        await self._engine.stop()
        await self.parts.store.close()

    def _prepare(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(self.data_dir)
        (self.data_dir / "checkpoints").mkdir(exist_ok=True, mode=0o700)
        self.api_key = load_key(self.data_dir / "service.key")
        _keep_private(self.data_dir / "service.db")


class Unusable(Exception):
    """The data directory cannot be served; the message says what to change."""


def refuse_foreign(data_dir: Path) -> None:
    """Raises Unusable: there are checkpoints, and no database that says they are ours."""
    directory = data_dir / "checkpoints"
    if (data_dir / "service.db").exists() or not directory.exists():
        return
    if not directory.is_dir() or any(directory.iterdir()):
        raise Unusable(
            f"{directory} is not this service's: there is no service.db beside it."
            " Serve another directory (--data-dir), or put service.db back"
        )


def load_key(path: Path) -> str:
    """The bearer key of a data directory, made when missing; only the user can read it.

    Raises:
        Unusable: The file holds something else.
    """
    try:
        key = path.read_text("ascii").strip()
    except FileNotFoundError:
        key = ""
    except UnicodeDecodeError as error:
        raise Unusable(f"{path.name} holds no key: remove it, and a new one is made") from error
    if key:
        return key
    key = f"hud-local-{secrets.token_urlsafe(24)}"
    unfinished = path.with_suffix(".tmp")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return key


def sweep(directory: Path, kept: set[str]) -> None:
    """Remove what steps that never finished have left: directories named as a step's are."""
    for path in directory.iterdir():
        ours = canonical(path.name) == path.name and path.is_dir() and not path.is_symlink()
        if ours and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _keep_private(database: Path) -> None:
    """Only the user can read it, nor the log beside it, which takes on its mode."""
    database.touch(mode=0o600)
    for path in database.parent.glob(f"{database.name}*"):
        path.chmod(0o600)


def _recover(db: Db, bases: list[str]) -> set[str]:
    """Catalog and tasksets in place, broken runs marked; the directories in use."""
    models.offer_bases(db, bases)
    for builtin in TASKSETS.values():
        rows = [(read_row(row).slug, row) for row in builtin.tasks]
        tasksets.offer(db, builtin.name, builtin.description, rows)
    runs.interrupt_all(db)
    traces.end_queued(db)
    return retention.kept(db)
