"""Runs of other trainers that were imported, each in a file of the state directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import read_regular, stored_in, write_atomic

if TYPE_CHECKING:  # most users have no such runs
    from hud_tui.rl.imported import ImportedRun
    from hud_tui.rl.wandb_file import LoggedRun
    from hud_tui.rl.work import Work

FOLDER = "imported"
MOST_BYTES = 1 << 30
"""Maximum size of a file that is read."""
Stamp = tuple[int, int]


class ImportedFiles:
    def __init__(self, state: Path | None) -> None:
        """`state`: the directory that has them; None: there are none."""
        self._folder = None if state is None else state / FOLDER
        self._read: dict[str, tuple[Stamp, ImportedRun, Work]] = {}

    def works(self) -> dict[str, Work]:
        """Their rows, by id; files that cannot be read are left out. Only changed files are
        read."""
        read: dict[str, tuple[Stamp, ImportedRun, Work]] = {}
        for file in () if self._folder is None else self._folder.glob("*.json"):
            from hud_tui.rl.imported import ImportedRun

            with suppress(OSError, ValueError, ValidationError):
                status = file.stat()
                stamp = status.st_mtime_ns, status.st_size
                cached = self._read.get(file.stem)
                if cached is None or cached[0] != stamp:
                    run = ImportedRun.model_validate_json(read_regular(file, MOST_BYTES))
                    cached = stamp, run, run.work
                read[file.stem] = cached
        self._read = read
        return {run.id: work for _, run, work in read.values()}

    def get(self, run_id: str) -> ImportedRun | None:
        """A run that `works` has had."""
        return next((run for _, run, _ in self._read.values() if run.id == run_id), None)

    def keep(self, run: ImportedRun) -> ImportedRun:
        """Store a run, in place of what was imported of it before; returns it with the id that it
        has here. Raises HudUsage: it cannot be written."""
        if self._folder is None:
            raise HudUsage("nothing is kept of this session", "start it with a --state-dir")
        run = self._told_apart(run, self._folder)
        file = self._folder / f"{run.id}.json"
        with stored_in(file):
            write_atomic(file, run.model_dump_json())
        return run

    def _told_apart(self, run: ImportedRun, folder: Path) -> ImportedRun:
        """The run, with an id of its own if one of another project has its id."""
        from hud_tui.rl.imported import digest_of

        self.works()
        apart, of_id = digest_of(run.project, run.id), self.get(run.id)
        is_taken = of_id is not None and of_id.project != run.project
        if is_taken or (folder / f"{apart}.json").exists():
            return run.model_copy(update={"id": apart})
        return run

    def remove(self, run_id: str) -> None:
        """Forget a run; what it was imported from stays."""
        if self._folder is not None and run_id in self.works():
            (self._folder / f"{run_id}.json").unlink(missing_ok=True)


def read_folder(path: Path) -> tuple[list[ImportedRun], list[str]]:
    """The runs in a ``.wandb`` file, or in all below a folder; and why files were left out. Raises
    HudUsage: there are none."""
    from hud_tui.rl.imported import imported_runs

    if not path.exists():
        raise HudUsage(f"no file or folder named {one_line(path)}")
    skipped: list[str] = []
    runs = list(imported_runs(_logged(path, skipped)))
    if not runs and not skipped:
        raise HudUsage(f"{one_line(path)} has no .wandb file with a logged step")
    return runs, skipped


def _logged(path: Path, skipped: list[str]) -> Iterator[LoggedRun]:
    from hud_tui.rl.wandb_file import read_logged_run

    files = [path] if path.is_file() else sorted(path.rglob("*.wandb"))
    seen: set[Path] = set()
    for file in files:
        if (real := file.resolve()) in seen:  # latest-run is a link
            continue
        seen.add(real)
        try:
            yield read_logged_run(read_regular(file, MOST_BYTES))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            skipped.append(f"{one_line(file)}: {one_line(why, 200)}")
