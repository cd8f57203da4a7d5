"""The sweeps that were started on this machine, one file each."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hud_tui.client.kept_files import MOST_BYTES, KeptFiles
from hud_tui.errors import HudNotStored, HudUsage
from hud_tui.rl.sweep import Sweep
from hud_tui.rl.text import command_line, one_line
from hud_tui.settings import program
from hud_tui.storage import change_atomic, lock_of, read_regular


class SweepFiles(KeptFiles[Sweep]):
    def __init__(self, state: Path | None) -> None:
        """`state`: the directory that has them; None: nothing is kept."""
        super().__init__(None if state is None else state / "sweeps", Sweep)

    def all(self) -> list[Sweep]:
        """All sweeps, newest first; invalid files are skipped."""
        return sorted(super().all(), key=lambda sweep: -sweep.created_at)

    def find(self, ref: str) -> Sweep:
        """A sweep by its name, its id or a prefix of its id. Raises HudUsage: there is none; the
        hint lists the known ones."""
        sweeps = self.all()
        folded = ref.strip().casefold()
        exact = [s for s in sweeps if folded in (s.id, s.name.casefold())]
        matches = exact or [s for s in sweeps if len(folded) >= 4 and s.id.startswith(folded)]
        if matches:
            return matches[0]
        names = ", ".join(sweep.name for sweep in sweeps[:5]) or "none was started on this machine"
        raise HudUsage(f"no sweep named {one_line(ref, 60)}", f"known: {names}")

    def stored(self, sweep: Sweep) -> Sweep:
        """The sweep as it is stored now; as given if it is not, or the file is invalid."""
        return self._read(self._file(sweep.id)) or sweep

    def cancel(self, sweep: Sweep) -> Sweep:
        """Store that a sweep is cancelled, and nothing else; returns it as it is stored. Raises
        HudNotStored: as `keep`."""
        return self._change(
            sweep, lambda: self.stored(sweep).model_copy(update={"cancelled": True})
        )

    def keep(self, sweep: Sweep, cancelled: bool | None = None) -> Sweep:
        """Store a sweep that is new, or that the caller drives. `cancelled` in the file wins, so
        that any process can cancel a sweep.

        Args:
            cancelled: New value of its flag; None keeps the file's.

        Returns:
            The sweep as stored.

        Raises:
            HudNotStored: It cannot be written.
        """
        file = self._file(sweep.id)

        def flagged() -> Sweep:
            flag = self._cancelled(file) if cancelled is None else cancelled
            return sweep.model_copy(update={"cancelled": flag})

        return self._change(sweep, flagged)

    def _change(self, sweep: Sweep, change: Callable[[], Sweep]) -> Sweep:
        """Store what `change` returns of a sweep, which may read the file."""
        file, stored = self._file(sweep.id), sweep

        def written() -> str:
            nonlocal stored
            stored = change()
            return stored.model_dump_json()

        try:
            change_atomic(file, written)
        except OSError as error:
            local = not sweep.service.startswith("http")
            resume = command_line(program(local), "sweep", sweep.name, "--resume", "-y")
            raise HudNotStored(
                f"{file} cannot be written: {error.strerror or error}. {sweep.made_text}",
                "make room, then "
                + (f"continue it: {resume}" if file.exists() else "submit it again"),
            ) from error
        return stored

    def names(self) -> Mapping[str, str]:
        """Names of sweeps by the ids of their jobs."""
        return {m.job_id: s.name for s in self.all() for m in s.members if m.job_id}

    @contextmanager
    def driving(self, sweep: Sweep, cancel: str) -> Iterator[Sweep]:
        """Hold the sweep's lock, which allows one process to drive it; yields it as the one before
        has left it. `cancel` is the command that cancels it. Raises HudUsage: another process holds
        the lock, or it cannot be locked."""
        with lock_of(self._file(sweep.id).with_suffix(".lock"), sweep.name) as is_ours:
            if not is_ours:
                hint = f"wait for it, or end it: {cancel}"
                raise HudUsage(f"another process drives {sweep.name}", hint)
            yield self.stored(sweep)

    def _file(self, id_: str) -> Path:
        plain = id_ if id_.isalnum() else sha256(id_.encode()).hexdigest()
        return super()._file(plain[:64])

    def _cancelled(self, file: Path) -> bool:
        try:
            return bool(json.loads(read_regular(file, MOST_BYTES)).get("cancelled"))
        except (OSError, ValueError, AttributeError):
            return False
