"""A program on a pseudo-terminal of its own, as a person would have it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory

CHUNK = 65_536
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Terminal:
    """The other side: what is typed, and what is drawn."""

    fd: int
    process: subprocess.Popen[bytes]

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def read(self, wait_s: float = PATIENCE_S) -> bytes:
        """What is drawn next; empty where nothing is for so long, or the program has ended."""
        ready, _, _ = select.select([self.fd], [], [], wait_s)
        try:
            return os.read(self.fd, CHUNK) if ready else b""
        except OSError:  # as Linux says that nobody is there any more
            return b""

    def read_until(self, mark: bytes) -> bytes:
        got = b""
        while mark not in got:
            more = self.read()
            assert more, f"the program did not draw {mark!r}, but {got[-2000:]!r}"
            got += more
        return got


@contextmanager
def program(
    arguments: Sequence[str],
    environ: dict[str, str] | None = None,
    size: tuple[int, int] = (120, 40),
    pass_fds: Sequence[int] = (),
) -> Iterator[Terminal]:
    """Python with these arguments, in directories of its own; killed at the end of the block.

    Args:
        environ: Variables beside those of this process.
        size: Columns and rows.
        pass_fds: Open files that it inherits.
    """
    terminal, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HUD_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled
    with TemporaryDirectory() as home:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=child, stdout=child, stderr=child, pass_fds=pass_fds, start_new_session=True,
            env={**kept, "TERM": "xterm-256color", **places(home), **(environ or {})},
        )  # fmt: skip
        os.close(child)
        try:
            yield Terminal(terminal, process)
        finally:
            process.kill()
            process.wait()
            os.close(terminal)


def places(home: str) -> dict[str, str]:
    """Variables that keep the program's files in one directory."""
    return {f"HUD_TUI_{kind}_DIR": f"{home}/{kind.lower()}" for kind in ("CONFIG", "STATE", "DATA")}
