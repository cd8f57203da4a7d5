"""Notebook: the user's notes on one model's checkpoints, and the moves of its head.

One JSON file per model in the state directory; nothing is sent to a service. The file is read
and rewritten under a lock, so that two apps do not overwrite each other's changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from hud_tui.rl.head import Move
from hud_tui.storage import change_atomic, read_regular

MOVES_MOST = 500
"""Maximum moves kept."""
NOTE_MOST = 400
"""Maximum length of a note."""
MOST_BYTES = 32_000_000
"""Maximum size of the file, bytes."""
RUNS = "runs"
"""Where a model's id stands otherwise."""
_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")


class Notebook:
    """Without a file it lasts for the session only."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._notes: dict[str, str] = {}
        self._moves: list[Move] = []
        with suppress(OSError):
            self._read()

    @property
    def notes(self) -> Mapping[str, str]:
        """By the checkpoint's id, or the run's."""
        return self._notes

    @property
    def moves(self) -> list[Move]:
        """Moves of the head, oldest first."""
        return self._moves

    def write(self, checkpoint_id: str, note: str) -> None:
        """Store a note; an empty one deletes it.

        Raises:
            OSError: The file cannot be written; the note lasts for the session.
        """

        def change() -> None:
            self._notes.pop(checkpoint_id, None)
            if note.strip():
                self._notes[checkpoint_id] = note.strip()[:NOTE_MOST]

        self._change(change)

    def add(self, move: Move) -> None:
        """Store a move of the head.

        Raises:
            OSError: The file cannot be written; the move lasts for the session.
        """

        def change() -> None:
            self._moves = [*self._moves[1 - MOVES_MOST :], move]

        self._change(change)

    def _change(self, change: Callable[[], None]) -> None:
        made = False

        def changed() -> str:
            nonlocal made
            self._read()
            change()
            made = True
            moves = [[m.before, m.after, m.ours, m.at] for m in self._moves]
            return json.dumps({"notes": self._notes, "moves": moves})

        if self._file is None:
            change()
            return
        try:
            change_atomic(self._file, changed)
        except OSError:
            if not made:  # kept for the session anyway
                change()
            raise

    def _read(self) -> None:
        """Read the file; an invalid one is renamed, not overwritten.

        Raises:
            OSError: It exists, but cannot be read.
        """
        if self._file is None:
            return
        try:
            body = json.loads(read_regular(self._file, MOST_BYTES))
            notes = {str(id_): str(text) for id_, text in body["notes"].items()}
            moves = [_move(row) for row in body["moves"]]
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            self._file.replace(self._file.with_suffix(".unreadable"))
        else:
            self._notes, self._moves = notes, moves


def notebook_file(state: Path, model_id: str) -> Path:
    """Path of a model's notebook; the id comes from the service, so it is hashed."""
    plain = _PLAIN.fullmatch(model_id) is not None
    name = model_id if plain else sha256(model_id.encode("utf-8", "replace")).hexdigest()
    return state / "models" / f"{name}.json"


def run_notes(state: Path) -> Notebook:
    """What was written of runs, by their ids: one notebook for those of all models."""
    return Notebook(notebook_file(state, RUNS))


def _move(row: list[Any]) -> Move:
    before, after, ours, at = row
    return Move(None if before is None else str(before), str(after), bool(ours), float(at))
