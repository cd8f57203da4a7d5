"""Notebook: what the user wrote of one model's checkpoints, and where its head was set.

One JSON file a model, in the state directory of this machine: nothing of it goes to a
service. It is read again while nobody else writes it, so that two apps do not undo each other.
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
"""Moves of the head that are remembered."""
NOTE_MOST = 400
"""Characters of a note."""
MOST_BYTES = 32_000_000
"""Of the largest file that is read."""
RUNS = "runs"
"""Where a model's id stands otherwise."""
_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")


class Notebook:
    """Without a file it remembers for the session."""

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
        """Where the head was set, oldest first."""
        return self._moves

    def write(self, checkpoint_id: str, note: str) -> None:
        """Keep a note; an empty one is none.

        Raises:
            OSError: It cannot be written; it is there for the session.
        """

        def change() -> None:
            self._notes.pop(checkpoint_id, None)
            if note.strip():
                self._notes[checkpoint_id] = note.strip()[:NOTE_MOST]

        self._change(change)

    def add(self, move: Move) -> None:
        """Remember a move of the head.

        Raises:
            OSError: It cannot be written; it is there for the session.
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
            if not made:  # it is there for the session all the same
                change()
            raise

    def _read(self) -> None:
        """Take in the file; one that makes no sense is put aside, not overwritten.

        Raises:
            OSError: It is there, and cannot be read.
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
    """Where a model's notebook is. The id is the service's, so it names no path by itself."""
    plain = _PLAIN.fullmatch(model_id) is not None
    name = model_id if plain else sha256(model_id.encode("utf-8", "replace")).hexdigest()
    return state / "models" / f"{name}.json"


def run_notes(state: Path) -> Notebook:
    """What was written of runs, by their ids: one notebook for those of all models."""
    return Notebook(notebook_file(state, RUNS))


def _move(row: list[Any]) -> Move:
    before, after, ours, at = row
    return Move(None if before is None else str(before), str(after), bool(ours), float(at))
