"""The whole app on a pseudo-terminal, that says of every key which screen and field it came to.

``async with typed_app(arguments, environ) as app`` starts it in a process of its own;
``app.type(keys)`` types, in one write, and ``app.reports`` has what became of the keys.
"""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE_S, until
from tests.tui.reporting_app import STACKS_END

PING, PING_KEY = b"\x1b[24~", "f12"
"""A key that nothing is bound to: it says what the keys before it have come to."""
KEPT_BYTES = 200_000
"""Of what was drawn."""
CHUNK = 65_536
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Report:
    """What a key was given to."""

    key: str
    screen: str
    """Class of the screen on top."""
    focus: str
    """Id or class of what has the focus; empty for nothing."""
    value: str | None
    """What the field that has the focus holds, before the key; None where it is no field."""
    stack: int
    """Screens that lie on one another."""


@dataclass
class TypedApp:
    fd: int
    told: int
    process: subprocess.Popen[bytes]
    home: Path
    drawn: bytearray = field(default_factory=bytearray)
    """The end of what was written to the terminal."""
    reports: list[Report] = field(default_factory=list)
    ready: bool = False
    """Whether it takes keys."""
    _rest: bytes = b""

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def crash(self) -> str:
        """What a crash says; empty where there was none."""
        for file in self.home.rglob("crash-*.txt"):
            return file.read_text()
        if b"Traceback (most recent" in self.drawn or b"hud-tui crashed" in self.drawn:
            return self.drawn[-4000:].decode(errors="replace")
        if self.process.poll():
            end = self.drawn[-2000:].decode(errors="replace")
            return f"exit code {self.process.returncode}: {end}"
        return ""

    def type(self, keys: bytes) -> None:
        with suppress(OSError):  # it has ended
            os.write(self.fd, keys)

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        asyncio.get_running_loop().remove_reader(self.fd)
        os.close(self.fd)
        self.fd = -1

    async def ping(self, patience_s: float = PATIENCE_S) -> Report:
        """Where the app is once every key before this has been done.

        Args:
            patience_s: Seconds in which it does nothing at all with what was typed.

        Raises:
            TimeoutError: It did not answer.
        """
        known = len(self.reports)
        self.type(PING)
        answered = False
        while not (answered or self.ended):
            seen = len(self.reports)
            await until(lambda seen=seen: self.ended or len(self.reports) > seen, patience_s)
            answered = any(report.key == PING_KEY for report in self.reports[known:])
        return self.reports[-1] if self.reports else Report("", "", "", None, 0)

    async def until(self, condition: Callable[[Report], bool]) -> Report:
        """Where the app is once it is in such a place."""
        report = await self.ping()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition(report):
                    assert not self.ended, self.crash
                    await asyncio.sleep(0.05)
                    report = await self.ping()
        except TimeoutError as error:
            error.add_note(f"it is at {report}; {self.drawn[-3000:].decode(errors='replace')!r}")
            raise
        return report

    async def stacks(self) -> str:
        """What the app is doing: the stack of each of its tasks."""
        self.drawn.clear()
        self.process.send_signal(signal.SIGUSR1)
        with suppress(TimeoutError):
            await until(lambda: STACKS_END in self.drawn, 5)
        return self.drawn.decode(errors="replace").replace("\r\n", "\n")

    def _read_drawn(self) -> None:
        try:
            self.drawn += os.read(self.fd, CHUNK)
        except OSError:
            asyncio.get_running_loop().remove_reader(self.fd)
        del self.drawn[:-KEPT_BYTES]

    def _read_told(self) -> None:
        more = os.read(self.told, CHUNK)
        if not more:
            asyncio.get_running_loop().remove_reader(self.told)
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            self.ready = True
            if said:
                self.reports.append(Report(**said))


@asynccontextmanager
async def typed_app(
    arguments: Sequence[str],
    home: Path,
    size: tuple[int, int] = (120, 40),
    through: Sequence[str] = (),
    **environ: str,
) -> AsyncIterator[TypedApp]:
    """The app once it takes keys; killed at the end of the block.

    Args:
        arguments: Of the command line.
        home: Its directories are in here.
        size: Columns and rows.
        through: Words of a command that runs it.
        environ: Variables beside those of this process.
    """
    terminal, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    told, report = os.pipe()
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HUD_")}
    dirs = {f"HUD_TUI_{kind}_DIR": f"{home}/{kind.lower()}" for kind in ("CONFIG", "STATE", "DATA")}
    process = subprocess.Popen(  # noqa: ASYNC220 - its exit code is wanted without a wait
        [*through, sys.executable, "-m", "tests.tui.reporting_app",
         str(report), str(PATIENCE_S), *arguments],
        stdin=child, stdout=child, stderr=child, pass_fds=(report,), start_new_session=True,
        env={**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **dirs, **environ},
        cwd=home,
    )  # fmt: skip
    os.close(child)
    os.close(report)
    app = TypedApp(terminal, told, process, home)
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, app._read_drawn)
    loop.add_reader(told, app._read_told)
    try:
        await until(lambda: app.ready or app.ended)
        yield app
    finally:
        loop.remove_reader(told)
        process.kill()
        process.wait()
        if app.fd >= 0:
            app.hang_up()
        os.close(told)
