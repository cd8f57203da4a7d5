"""Scope: a name for what belongs to one account of one service, that tells neither.

It is a keyed digest (HMAC-SHA-256, RFC 2104) of the service and the API key. The digest's own
secret is random, stays on this machine and is its owner's alone to read: who has only the name
cannot try keys against it.
"""

import os
from contextlib import suppress
from pathlib import Path

from hud_tui.storage import PRIVATE, change_atomic

SALT = "accounts.salt"
"""The file with the secret, in the state directory."""
BYTES = 32
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
    """
    import hmac  # with hashlib, once there is an account to name

    try:
        salt = _salt(state / SALT)
    except OSError:
        return None
    text = f"{service}\0{api_key}".encode("utf-8", "replace")
    return hmac.new(salt, text, "sha256").hexdigest()[:DIGITS]


def _salt(file: Path) -> bytes:
    """The secret; made where there is none, and anew where it is not whole."""
    with suppress(FileNotFoundError):
        found = _read(file)
        if len(found) == BYTES:
            return found
    change_atomic(file, lambda: None if _is_whole(file) else os.urandom(BYTES))
    return _read(file)


def _is_whole(file: Path) -> bool:
    """Whether another program was quicker; then its secret is taken."""
    try:
        return len(_read(file)) == BYTES
    except FileNotFoundError:
        return False


def _read(file: Path) -> bytes:
    """
    Raises:
        OSError: It cannot be read, or is a link to somewhere else.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, PRIVATE)
        return opened.read(BYTES + 1)
