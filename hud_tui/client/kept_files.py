"""What is kept on this machine, a JSON file each in a folder of the state directory."""

from pathlib import Path
from typing import Generic, TypeVar

from hud_tui.errors import HudUsage
from hud_tui.storage import read_regular
from hud_tui.wire import Body

B = TypeVar("B", bound=Body)
MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is read."""


class KeptFiles(Generic[B]):
    """The files of one folder, all of one kind."""

    def __init__(self, folder: Path | None, kind: type[B]) -> None:
        """`folder`: where they are; None: nothing is kept."""
        self._folder, self._kind = folder, kind

    def all(self) -> list[B]:
        """What is in them; invalid files are skipped."""
        files = () if self._folder is None else sorted(self._folder.glob("*.json"))
        return [kept for file in files if (kept := self._read(file)) is not None]

    def _read(self, file: Path) -> B | None:
        """What is in a file; None if there is none, or it is invalid."""
        try:
            return self._kind.model_validate_json(read_regular(file, MOST_BYTES))
        except (OSError, ValueError):
            return None

    def _file(self, id_: str) -> Path:
        """Raises HudUsage: nothing is kept."""
        if self._folder is None:
            raise HudUsage("nothing is kept of this session", "start it with a --state-dir")
        return self._folder / f"{id_}.json"
