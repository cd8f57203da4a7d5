"""What a service has for itself: its data directory, and the address that it listens on."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from hud_tui.regular_file import open_or_make
from hud_tui.service_file import LOCK, serving_pid


class CannotServe(Exception):
    """The service cannot start; the message says what to change."""


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory's lock; the kernel lets it go with the process. It says whose."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open_or_make(data_dir / LOCK)
    except OSError as error:
        place = error.filename or data_dir
        raise CannotServe(f"cannot use {place}: {error.strerror}") from error
    with open(lock, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = serving_pid(data_dir)
            raise CannotServe(
                f"{data_dir} is served by another process{f', {pid}' if pid else ''}: use that one"
                f" (hud-tui --local --data-dir {data_dir}), or --data-dir another"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield


@contextmanager
def bound_to(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address. Raises CannotServe: it is taken, or not this machine's."""
    if not 0 <= port < 2**16:  # getaddrinfo wraps it around
        raise CannotServe(f"cannot listen on {host}:{port}: a port is 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        bound = socket.socket(family, kind, proto)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotServe(
            f"cannot listen on {host}:{port}: {reason}; --port 0 takes a free one"
        ) from error
    with bound:
        yield bound


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
