"""The last known state of a service, kept on this machine for when it does not answer.

One file an account of a service in the state directory, named by `hud_tui.last_known`, readable
by its owner only, and without the key. A file that cannot be read, is older or is not whole
counts as none.
"""

import hmac
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_private, read_regular, write_atomic
from hud_tui.wire import Checkpoint, JobStatus, Model

FORMAT = 1
MOST_NODES = 5000
"""Checkpoints that are kept, the newest."""
MOST_GROUPED = 50
"""Of those, how many keep the rewards of their groups."""
MOST_MODELS = 1000
MOST_BYTES = 32_000_000
"""A file that would be larger is not written, and none is read."""
MOST_FILES = 8
"""Accounts that are remembered."""


@dataclass(frozen=True)
class LastKnown:
    """Last known state of a service."""

    at: float
    """Unix seconds of its last response."""
    models: tuple[Model, ...]
    model: Model
    """The followed model."""
    tree: tuple[Checkpoint, ...]
    """Oldest first, shape (N,), N ≤ MOST_NODES."""
    job: JobStatus | None = None


def file_of(state: Path, scope: str) -> Path:
    """Where what one account knows of its service is."""
    return state / "offline" / f"{scope}.json"


def read_last_known(file: Path, url: str) -> LastKnown | None:
    """Read the last known state of a service; None if missing or unreadable."""
    try:
        body: Any = json.loads(read_regular(file, MOST_BYTES))
        if body["format"] != FORMAT or body["service"] != url:
            return None
        return LastKnown(
            at=float(body["at"]),
            models=tuple(Model.model_validate(one) for one in body["models"]),
            model=Model.model_validate(body["model"]),
            tree=tuple(Checkpoint.model_validate(one) for one in body["tree"]),
            job=None if body["job"] is None else JobStatus.model_validate(body["job"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def write_last_known(file: Path, url: str, known: LastKnown, secret: str) -> None:
    """Replace what is known of a service; what cannot be written is lost.

    Args:
        file: Where, by `file_of`.
        url: The service's.
        known: The current state.
        secret: The API key, which is removed from the content.
    """
    text = "".join(_pieces(url, known))
    if secret:
        text = text.replace(json.dumps(secret)[1:-1], "***")
    if len(text) > MOST_BYTES:
        return
    with suppress(OSError):
        write_atomic(file, text)
        _forget_oldest(file.parent)


def _pieces(url: str, known: LastKnown) -> Iterator[str]:
    """The file, a checkpoint at a time, so that other threads get their turn."""
    head = {"format": FORMAT, "service": url, "at": known.at}
    yield json.dumps(head)[:-1]
    yield ', "model": ' + known.model.model_dump_json()
    yield ', "job": ' + ("null" if known.job is None else known.job.model_dump_json())
    yield ', "models": ['
    yield ",".join(model.model_dump_json() for model in known.models[:MOST_MODELS])
    yield '], "tree": [\n'
    tree: Sequence[Checkpoint] = known.tree[-MOST_NODES:]
    for left, node in zip(range(len(tree), 0, -1), tree, strict=True):
        without = {"groups"} if left > MOST_GROUPED and not node.is_active else None
        yield node.model_dump_json(exclude=without) + (",\n" if left > 1 else "\n")
    yield "]}\n"


def _forget_oldest(directory: Path) -> None:
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)


# Scope: an opaque name for one account of one service.
#
# It is a keyed digest (HMAC-SHA-256, RFC 2104) of the service and the API key. The digest's own
# secret is random, stays on this machine and is its owner's alone to read: who has only the name
# cannot try keys against it.


SALT = "accounts.salt"
"""The file with the secret, in the state directory."""
BYTES = 32
FIX = "remove it: a new one is created, and the stored state of each account is lost"
DIGITS = 24
"""Of the digest: 96 bits, so that no two are ever the same."""


def scope_of(state: Path, service: str, api_key: str) -> str | None:
    """Name of an account's files, `DIGITS` hex digits.

    Args:
        state: The state directory, where the secret is made when it is first needed.
        service: The service's URL, or what else tells it from others.
        api_key: The account's key.

    Returns:
        The name; None if there is no secret and none can be made: then nothing is kept.

    Raises:
        HudUsage: The secret is not what was made, or not its owner's alone: nothing is kept.
    """
    try:
        salt = _salt(state / SALT)
    except OSError:
        return None
    text = f"{service}\0{api_key}".encode("utf-8", "replace")
    return hmac.new(salt, text, "sha256").hexdigest()[:DIGITS]


def _salt(file: Path) -> bytes:
    """The secret; made where there is none."""
    with suppress(FileNotFoundError):
        return _read(file)
    change_atomic(file, lambda: None if file.exists() else os.urandom(BYTES))
    return _read(file)


def _read(file: Path) -> bytes:
    """
    Raises:
        FileNotFoundError: There is none.
        HudUsage: It is not ours.
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
