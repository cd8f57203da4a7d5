"""The machines that are known here: one folder each in the state directory, and which is used.

``remotes/NAME/machine.json`` says what it is and how far its set-up is; ``key`` is the key of its
server, for its owner only; ``setup.log`` what its set-up printed; ``line.json`` what the process
that keeps its tunnel found last.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.remote.facts import Facts, facts_of
from hud_tui.remote.ssh import Address, Ssh
from hud_tui.rl.text import one_line
from hud_tui.service_file import KEY, LINE, REMOTES, Used, line_of, use_machine, used_machine
from hud_tui.storage import open_or_make, read_private, read_regular, write_atomic

MACHINE, LOG = "machine.json", "setup.log"
MOST_BYTES = 4_000_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Machine:
    """One machine, and how far its set-up is."""

    name: str
    address: Address
    engine: str
    """One of `engines.ENGINES`."""
    model: str = ""
    """A model's name on the Hub, or a folder of the machine's."""
    root: str = ""
    """Our folder there."""
    env: str = ""
    """A Python environment there that has the engine already; empty: one is made."""
    port: int = 0
    """Of the server, on the loopback there."""
    local_port: int = 0
    """Of the tunnel, on the loopback here: it stays, as checkpoints are known by it."""
    supervisor: str = ""
    """What keeps the server running there: ``tmux``, ``systemd`` or ``nohup``."""
    secrets: tuple[str, ...] = ()
    """Names of variables that were sent there."""
    done: tuple[str, ...] = ()
    """Names of the steps that are done."""
    job: Mapping[str, str] = field(default_factory=dict)
    """The job that runs there for a step, by the step's name."""
    facts: Facts = field(default_factory=Facts)
    added_at: float = 0.0
    pod: str = ""
    """Prime's id where it is rented."""

    @property
    def ready(self) -> bool:
        """Whether its set-up is complete."""
        return "server" in self.done and "health" in self.done

    @property
    def url(self) -> str:
        """Of its server, through the tunnel."""
        return f"http://127.0.0.1:{self.local_port}"

    @property
    def label(self) -> str:
        """E.g. ``gpubox · 2×H100``."""
        return f"{self.name} · {self.facts.gpu_label}"

    def with_done(self, step: str, **more: Any) -> "Machine":
        """With one step more done."""
        return replace(self, done=tuple(dict.fromkeys((*self.done, step))), **more)


class Machines:
    """All machines of a state directory."""

    def __init__(self, state: Path, ssh_config: Path | None = None) -> None:
        """`ssh_config`: another than the user's (HUD_TUI_SSH_CONFIG)."""
        self.state, self.folder, self._ssh_config = state, state / REMOTES, ssh_config

    def names(self) -> list[str]:
        """In the order of the alphabet."""
        return sorted(one.parent.name for one in self.folder.glob(f"*/{MACHINE}"))

    def all(self) -> list[Machine]:
        """Raises HudUsage: as `get`."""
        return [self.get(name) for name in self.names()]

    def get(self, name: str) -> Machine:
        """One machine.

        Raises:
            HudUsage: There is none of this name, or its file is unreadable.
        """
        file = self.place(name) / MACHINE
        try:
            return _read(json.loads(read_regular(file, MOST_BYTES)))
        except (FileNotFoundError, NotADirectoryError):
            known = ", ".join(self.names()[:10]) or "none; hud-tui remote add HOST"
            raise HudUsage(f"no machine named {one_line(name, 80)}", f"known: {known}") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            what = f"{one_line(file, 300)} is not what hud-tui wrote"
            raise HudUsage(what, "fix it, or remove it and add the machine again") from error

    def place(self, name: str) -> Path:
        """Its folder. Raises HudUsage: not a name."""
        if not NAME.fullmatch(name):
            hint = "letters, digits, dots, dashes; 63 at most"
            raise HudUsage(f"not a machine's name: {one_line(name, 80)}", hint)
        return self.folder / name

    def write(self, machine: Machine) -> Machine:
        """Keep what is known of it."""
        file = self.place(machine.name) / MACHINE
        write_atomic(file, json.dumps({"version": 1, **asdict(machine)}, indent=1) + "\n")
        return machine

    def forget(self, name: str) -> None:
        """Everything that is kept of it here."""
        if self.used() == name:
            self.use(None)
        shutil.rmtree(self.place(name), ignore_errors=True)

    def key(self, name: str, prefix: str = "tml-") -> str:
        """The key of its server, made at first, with this beginning.

        Raises:
            HudUsage: Others can read it.
        """
        file = self.place(name) / KEY
        try:
            return read_private(file, 4096).decode("ascii", "replace").strip()
        except FileNotFoundError:
            write_atomic(file, f"{prefix}{secrets.token_urlsafe(24)}")
            return self.key(name)
        except OSError as error:
            what = f"{one_line(file, 300)}: {error.strerror}"
            raise HudUsage(what, "chmod 600 it, or remove the machine and add it again") from error

    def set_key(self, name: str, key: str) -> None:
        """Take over the key of a server that runs already."""
        write_atomic(self.place(name) / KEY, key)

    def ssh(self, machine: Machine) -> Ssh:
        return self.ssh_to(machine.address)

    def ssh_to(self, address: Address) -> Ssh:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Ssh(address, self.folder / "known_hosts", self._ssh_config)

    def files(self, name: str) -> Path:
        """Where the small files of its model are here."""
        return self.place(name) / "models"

    def used(self) -> str | None:
        """The name of the machine that is used; None: this one."""
        with suppress(HudUsage):
            used = used_machine(self.state)
            return used.name if used is not None else None
        return None

    def use(self, machine: Machine | None, speaks: str = "") -> None:
        """Use a machine from now on; None: this one.

        Args:
            machine: One that is set up.
            speaks: As its engine's.
        """
        if machine is None:
            use_machine(self.state, None)
            return
        files = str(self.files(machine.name))
        use_machine(self.state, Used(machine.name, machine.label, machine.url, speaks, files))

    def line(self, name: str) -> dict[str, Any]:
        """What the process that keeps the tunnel found last; empty if it never ran."""
        return line_of(self.state, name)

    def set_line(self, name: str, found: Mapping[str, Any]) -> None:
        with suppress(OSError):
            if self.place(name).is_dir():
                write_atomic(self.place(name) / LINE, json.dumps(found))

    @contextmanager
    def alone(self, name: str, what: str = "setup") -> Iterator[None]:
        """Hold a lock of a machine's, so that no two programs do the same to it.

        Raises:
            HudUsage: Another program does.
        """
        self.place(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        with held(self.place(name) / f"{what}.lock") as ours:
            if not ours:
                raise HudUsage(f"another hud-tui is at work on {name}", "wait for it")
            yield

    def busy(self, name: str, what: str = "setup") -> bool:
        """Whether another program holds that lock."""
        file = self.place(name) / f"{what}.lock"
        if not file.exists():
            return False
        with held(file) as ours:
            return not ours


@contextmanager
def held(file: Path) -> Iterator[bool]:
    """Hold a lock, which ends with this program at the latest; whether it is held."""
    lock = open_or_make(file)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _read(found: dict[str, Any]) -> Machine:
    """A machine as it was written. Raises ValueError, TypeError or KeyError."""
    if found.pop("version") != 1:
        raise ValueError("of another version")
    address, facts = Address(**found.pop("address")), facts_of(found.pop("facts"))
    found |= {name: tuple(found[name]) for name in ("secrets", "done")}
    return Machine(**found, address=address, facts=facts)


def machines_in(state: Path) -> Machines:
    """The machines of a state directory, by the ssh_config that HUD_TUI_SSH_CONFIG names."""
    config = os.environ.get("HUD_TUI_SSH_CONFIG")
    return Machines(state, Path(config).expanduser() if config else None)
