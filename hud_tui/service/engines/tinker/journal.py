"""Journal of steps that were meant to be taken: what a crash leaves on the server is found by it.

A line is on disk before the server is asked. A step counts once a checkpoint here points to
it; names that none points to are deleted from the server at the next start, for what is
stored there costs money.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hud_tui.regular_file import open_or_make, read_regular

MOST_BYTES = 1 << 26
"""Of the largest file that is read: some 500 000 steps."""


@dataclass(frozen=True)
class Intent:
    """A step that was about to be taken and saved."""

    run: str
    """The server's name of the training run."""
    name: str
    """What the state and the sampler weights were to be saved as; never used twice."""


class Journal:
    def __init__(self, path: Path) -> None:
        """Takes over what an earlier process left in the file."""
        self._path = path
        self.left = _read(path)
        """Intents of earlier processes."""

    def intend(self, intent: Intent) -> None:
        """Write it down, fsynced. Raises OSError."""
        with open(open_or_make(self._path, os.O_APPEND), "a") as file:
            file.write(json.dumps(asdict(intent)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def settle(self, settled: Sequence[Intent]) -> None:
        """These need not be remembered any more."""
        done = {intent.name for intent in settled}
        kept = [intent for intent in _read(self._path) if intent.name not in done]
        draft = self._path.with_suffix(".tmp")
        draft.write_text("".join(json.dumps(asdict(intent)) + "\n" for intent in kept))
        draft.replace(self._path)


def _read(path: Path) -> list[Intent]:
    """The whole lines; a crash may have cut the last one."""
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    intents = []
    for line in lines:
        try:
            intents.append(Intent(**json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            continue
    return intents
