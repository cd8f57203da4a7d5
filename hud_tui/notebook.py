"""What this machine stores about a service, for the user and for the next session.

- `Notebook`: the notes on one model's checkpoints, and the moves of its head that were seen where
  the service keeps none, one JSON file per model. It is read and rewritten under a lock, so that
  two apps do not overwrite each other's changes. It is never sent to a service.
- `LastKnown`: the last known state of a service, for when it does not answer. One file per account,
  named by `scope_of`, readable by its owner only, and without the key. A file that is unreadable,
  of another format or incomplete counts as missing.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.events import HeadMoved
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.history import merged
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_private, read_regular, write_atomic
from hud_tui.wire import Checkpoint, Model, WorkState

MOVES_MOST = 500
"""Maximum number of moves stored."""
NOTE_MOST = 400
"""Maximum characters of a note."""
MOST_BYTES = 32_000_000
"""Maximum bytes of a file; larger ones are neither written nor read."""
RUNS = "runs"
"""Used in place of a model's id for the notebook of runs."""
_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")


class Notebook:
    """Notes and seen moves; without a file they last for the session only."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.notes: dict[str, str] = {}
        """By id of the checkpoint or run."""
        self.moves: tuple[HeadMoved, ...] = ()
        """Moves of the head that were seen, oldest first; not who made them."""
        with suppress(OSError):
            self._read()

    def keep(self, checkpoint_id: str, note: str) -> str:
        """As `write`; returns what to tell the user if it could not be written, else nothing."""
        try:
            self.write(checkpoint_id, note)
        except OSError as error:
            return f"The note is kept for this session only: {one_line(error, 80)}"
        return ""

    def write(self, checkpoint_id: str, note: str) -> None:
        """Store a note; an empty one deletes it. Raises OSError: the file cannot be written; the
        note lasts for the session."""

        def change() -> None:
            self.notes.pop(checkpoint_id, None)
            if note.strip():
                self.notes[checkpoint_id] = note.strip()[:NOTE_MOST]

        self._change(change)

    def add(self, move: HeadMoved) -> None:
        """Store a move of the head, once for all apps that saw it. Raises OSError: the file cannot
        be written; the move lasts for the session."""

        def change() -> None:
            self.moves = merged([*self.moves, move])[-MOVES_MOST:]

        self._change(change)

    def _change(self, change: Callable[[], None]) -> None:
        made = False

        def changed() -> str:
            nonlocal made
            self._read()
            change()
            made = True
            moves = [[m.previous, m.checkpoint_id, m.at] for m in self.moves]
            return json.dumps({"notes": self.notes, "moves": moves})

        if self._file is None:
            change()
            return
        try:
            change_atomic(self._file, changed)
        except OSError:
            if not made:  # apply the change for this session anyway
                change()
            raise

    def _read(self) -> None:
        """Read the file; an invalid one is renamed, not overwritten. Raises OSError: it exists, but
        cannot be read."""
        if self._file is None:
            return
        try:
            body = json.loads(read_regular(self._file, MOST_BYTES))
            notes = {str(id_): str(text) for id_, text in body["notes"].items()}
            moves = tuple(
                HeadMoved(at=at, checkpoint_id=after, previous=before, cause="set")
                for before, after, *_, at in body["moves"]
            )
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            self._file.replace(self._file.with_suffix(".unreadable"))
        else:
            self.notes, self.moves = notes, moves


def notebook_file(state: Path, model_id: str) -> Path:
    """Path of a model's notebook; the id comes from the service, so it is hashed."""
    plain = _PLAIN.fullmatch(model_id) is not None
    name = model_id if plain else sha256(model_id.encode("utf-8", "replace")).hexdigest()
    return state / "models" / f"{name}.json"


def run_notes(state: Path) -> Notebook:
    """The notes on runs, by run id: one notebook for all models."""
    return Notebook(notebook_file(state, RUNS))


# The last known state of a service.


FORMAT = 1
MOST_NODES = 5000
"""Maximum number of checkpoints stored; the newest are."""
MOST_GROUPED = 50
"""Number of newest checkpoints that are stored with the rewards of their groups."""
MOST_MODELS = 1000
MOST_FILES = 8
"""Maximum number of accounts stored."""


@dataclass(frozen=True)
class LastKnown:
    at: float
    """Unix seconds of its last response."""
    models: tuple[Model, ...]
    model: Model
    """The followed model."""
    tree: Tree
    """Its newest MOST_NODES checkpoints are stored."""
    job: WorkState | None = None


def file_of(state: Path, scope: str) -> Path:
    """File with the last known state for one account."""
    return state / "offline" / f"{scope}.json"


def read_last_known(file: Path, url: str) -> LastKnown | None:
    """Read the last known state of a service; None if it is missing or invalid."""
    try:
        body: Any = json.loads(read_regular(file, MOST_BYTES))
        if body["format"] != FORMAT or body["service"] != url:
            return None
        return LastKnown(
            at=float(body["at"]),
            models=tuple(Model.model_validate(model) for model in body["models"]),
            model=Model.model_validate(body["model"]),
            tree=Tree.of(Checkpoint.model_validate(node) for node in body["tree"]),
            job=None if body["job"] is None else WorkState.model_validate(body["job"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def write_last_known(file: Path, url: str, last: LastKnown, secret: str) -> bool:
    """Store the last known state of a service, unless it is too large; False after a write error,
    which another try may not meet. `secret`: the API key, which is removed from the content."""
    pieces = _pieces(url, last)
    if secret:
        pieces = (piece.replace(json.dumps(secret)[1:-1], "***") for piece in pieces)
    try:
        write_atomic(file, _limited(pieces))
    except _TooLarge:
        return True
    except OSError:
        return False
    with suppress(OSError):
        files = sorted(file.parent.glob("*.json"), key=lambda stored: stored.stat().st_mtime)
        for oldest in files[:-MOST_FILES]:
            oldest.unlink(missing_ok=True)
    return True


class _TooLarge(Exception):
    """The content is larger than MOST_BYTES."""


def _limited(pieces: Iterable[str]) -> Iterator[str]:
    written = 0
    for piece in pieces:
        written += len(piece)
        if written > MOST_BYTES:
            raise _TooLarge
        yield piece


def _pieces(url: str, last: LastKnown) -> Iterator[str]:
    """The content of the file, one checkpoint at a time: other threads can run in between, and no
    second copy of the tree is held."""
    head = {"format": FORMAT, "service": url, "at": last.at}
    yield json.dumps(head)[:-1]
    yield ', "model": ' + last.model.model_dump_json()
    yield ', "job": ' + ("null" if last.job is None else last.job.model_dump_json())
    yield ', "models": ['
    yield ",".join(model.model_dump_json() for model in last.models[:MOST_MODELS])
    yield '], "tree": [\n'
    tree = last.tree
    first = max(0, len(tree) - MOST_NODES)
    for position, node in enumerate(tree.checkpoints(first), first):
        left = len(tree) - position
        without = {"groups"} if left > MOST_GROUPED and not node.is_active else None
        yield node.model_dump_json(exclude=without) + (",\n" if left > 1 else "\n")
    yield "]}\n"


# An opaque name for one account of one service.
#
# It is a keyed digest (HMAC-SHA-256, RFC 2104) of the service and the API key. The digest's
# secret is random, stays on this machine and is readable by its owner only, so the name alone
# does not allow guessing API keys.


SALT = "accounts.salt"
"""Name of the file with the secret, in the state directory."""
BYTES = 32
FIX = "remove it: a new one is created, and the stored state of each account is lost"
DIGITS = 24
"""Hex digits of the digest that are used: 96 bits, which makes collisions impossible in
practice."""


def scope_of(state: Path, service: str, api_key: str) -> str | None:
    """Name of an account's files, DIGITS hex digits.

    Args:
        state: The state directory, where the secret is created when it is first needed.
        service: URL of the service, or another text that identifies it.

    Returns:
        The name; None if there is no secret and none can be created. Then nothing is stored.

    Raises:
        HudUsage: The secret's file was changed, or others can read it. Then nothing is stored.
    """
    file = state / SALT
    try:
        if not file.exists():
            change_atomic(file, lambda: None if file.exists() else os.urandom(BYTES))
        salt = _read(file)
    except OSError:
        return None
    text = f"{service}\0{api_key}".encode("utf-8", "replace")
    return hmac.new(salt, text, "sha256").hexdigest()[:DIGITS]


def _read(file: Path) -> bytes:
    """
    Raises:
        FileNotFoundError: There is none.
        HudUsage: It is not private, or not as this program wrote it.
    """
    try:
        salt = read_private(file, BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise HudUsage(f"{one_line(file, 300)}: {error.strerror or error}", FIX) from error
    if len(salt) != BYTES:
        raise HudUsage(f"{one_line(file, 300)}: not {BYTES} bytes, as hud-tui made it", FIX)
    return salt
