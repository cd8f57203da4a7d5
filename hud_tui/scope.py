"""Scope: a name for what belongs to one account of one service, that tells neither.

It is a keyed digest (HMAC-SHA-256, RFC 2104) of the service and the API key. The digest's own
secret is random, stays on this machine and is its owner's alone to read: who has only the name
cannot try keys against it.
"""

import os
from contextlib import suppress
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.regular_file import read_private
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic

SALT = "accounts.salt"
"""The file with the secret, in the state directory."""
BYTES = 32
FIX = "remove it: a new one is made, and what was kept of each account is not found any more"
DIGITS = 24
"""Of the digest: 96 bits, so that no two are ever the same."""


def scope_of(state: Path, service: str, api_key: str) -> str | None:
    """Name of an account's files, `DIGITS` hex digits.

    Args:
        state: The state directory, where the secret is made when it is first needed.
        service: The service's URL, or what else tells it from others.
        api_key: The account's key.

    Returns:
        The name; None where there is no secret and none can be made: then nothing is kept.

    Raises:
        HudUsage: The secret is not what was made, or not its owner's alone: nothing is kept.
    """
    import hmac  # with hashlib, once there is an account to name

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
