"""A far machine for tests: OpenSSH's own daemon on the loopback, with a home of its own.

`Far` is the daemon; `Cut` a line to it that breaks where a test says so.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hud_tui.remote.engines import free_port
from tests.service.proxy import all_accepted

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
HAS_SSHD = os.access(SSHD, os.X_OK) and shutil.which("ssh") is not None
WHY_NOT = "no sshd here: install openssh-server to test machines over ssh"


@dataclass
class Far:
    """One machine that answers to ssh."""

    place: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def config(self) -> Path:
        """The ssh_config by which ``far`` is this machine."""
        return self.place / "ssh_config"

    def tool(self, name: str, script: str) -> None:
        """Put a program of this name before all others there."""
        file = self.home / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def lead_to(self, port: int) -> None:
        """Have ``far`` reached at another port: a line that a test can break."""
        _write_config(self.place, port)

    def new_host_key(self) -> None:
        """Make the machine another: its host key is new."""
        self.stop()
        _keygen(self.place / "host_key")
        self.start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def start(self) -> None:
        self.process = _start(self.place)
        wait_for(self.port)


def make_far(place: Path) -> Far:
    """Start a machine whose files are in this folder."""
    for name in ("home", "home/bin", "near"):
        (place / name).mkdir(parents=True)
    for key in ("host_key", "near/id"):
        _write_key(place / key, *_key(key))
    shutil.copy(place / "near/id.pub", place / "authorized_keys")
    port = free_port()
    path = f"{place}/home/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    lines = [
        f"ListenAddress 127.0.0.1:{port}",
        f"HostKey {place}/host_key",
        f"PidFile {place}/sshd.pid",
        f"AuthorizedKeysFile {place}/authorized_keys",
        *("UsePAM no", "StrictModes no", "PasswordAuthentication no", "MaxStartups 100"),
        *("KbdInteractiveAuthentication no", "PermitRootLogin yes", "MaxSessions 100"),
        "KexAlgorithms curve25519-sha256",  # the usual one takes 80 ms of both sides
        f"SetEnv HOME={place}/home PATH={path} PYTHONDONTWRITEBYTECODE=1 TMUX_TMPDIR={place}",
    ]
    (place / "sshd_config").write_text("\n".join(lines) + "\n")
    _write_config(place, port)
    far = Far(place, port, _start(place))
    # Whoever runs the tests keeps their own crontab, services and machine.
    far.tool("crontab", '[ "$1" = - ] && cat > "$HOME/crontab" || cat "$HOME/crontab"')
    far.tool("systemctl", "exit 1")
    for name in ("loginctl", "shutdown", "poweroff"):
        far.tool(name, "exit 0")
    wait_for(port)
    return far


def _write_config(place: Path, port: int) -> None:
    lines = [
        *("Host far", "  HostName 127.0.0.1", f"  Port {port}", f"  IdentityFile {place}/near/id"),
        *("  IdentitiesOnly yes", "  StrictHostKeyChecking accept-new"),
        *(f"  UserKnownHostsFile {place}/near/known_hosts", "  HostKeyAlias far"),
    ]
    (place / "ssh_config").write_text("\n".join(lines) + "\n")


@cache
def _key(name: str) -> tuple[bytes, bytes]:
    """A key of this name, one for all machines, and its public half."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        _keygen(file)
        return file.read_bytes(), file.with_suffix(".pub").read_bytes()


def _write_key(file: Path, key: bytes, public: bytes) -> None:
    file.touch(0o600)
    file.write_bytes(key)
    file.with_suffix(".pub").write_bytes(public)


def _keygen(file: Path) -> None:
    file.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    subprocess.run(command, check=True)


def _start(place: Path) -> subprocess.Popen[bytes]:
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    command = [SSHD, "-D", "-e", "-f", str(place / "sshd_config")]
    with (place / "sshd.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_for(port: int) -> None:
    """Return as soon as somebody listens."""
    for _ in range(1000):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        os.sched_yield()
        subprocess.run(["sleep", "0.01"], check=True)
    raise TimeoutError(port)


@contextmanager
def far_machine(place: Path) -> Iterator[Far]:
    """A machine, until the block ends; what was started there is ended with it."""
    far = make_far(place)
    try:
        yield far
    finally:
        far.stop()
        end_all_of(far.home)


def end_all_of(home: Path) -> None:
    """Kill what still runs there: processes whose environment has this home."""
    mark = f"HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


class Cut:
    """A line to a port, each of whose connections breaks after so many bytes of its answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.lengths: list[int] = []
        """Bytes until each of the next connections breaks; afterwards none does."""
        self.broken = 0
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        for one in [*self._open]:
            one.transport.abort()
            self.broken += 1

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        serving.add_done_callback(lambda ended: writer.transport.abort())

    async def close(self) -> None:
        await all_accepted()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.lengths.pop(0) if self.lengths else None
        there, to = await asyncio.open_connection("127.0.0.1", self._port)
        self._open.add(writer)
        going = asyncio.create_task(_copy(reader, to, None))
        try:
            await _copy(there, writer, left)
            self.broken += left is not None
        finally:
            going.cancel()
            self._open.discard(writer)
            to.transport.abort()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16 if left is None else max(1, min(left, 1 << 16))):
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    return
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def cut_line(port: int) -> AsyncIterator[Cut]:
    line = Cut(port)
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        await line.close()
