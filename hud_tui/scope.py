"""Scope: a name for what belongs to one account of one service, that tells neither.

It is a keyed digest (HMAC-SHA-256, RFC 2104) of the service and the API key. The digest's own
secret is random, stays on this machine and is its owner's alone to read: who has only the name
cannot try keys against it.
"""

import os
from contextlib import suppress
from pathlib import Path

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
        file.unlink(missing_ok=True)
    _make(file)
    return _read(file)


def _read(file: Path) -> bytes:
    """
    Raises:
        OSError: It cannot be read, or is a link to somewhere else.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return opened.read(BYTES + 1)


def _make(file: Path) -> None:
    """Put a new secret there, whole; where another program was quicker, its own is taken."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = file.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as out:
            out.write(os.urandom(BYTES))
        with suppress(FileExistsError):
            _claim(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)


def _claim(fresh: Path, file: Path) -> None:
    try:
        os.link(fresh, file)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        fresh.replace(file)
