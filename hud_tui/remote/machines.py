"""The known machines: one folder each in the state directory, and which one is in use.

``remotes/NAME/machine.json`` describes the machine and the progress of its set-up; ``key`` is the
key of its server, private to the user; ``setup.log`` is the output of its set-up; ``line.json`` is
the state of its tunnel.
"""

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

from pydantic import ValidationError
from pydantic_core import from_json

from hud_tui.errors import HudUsage
from hud_tui.remote.facts import Facts
from hud_tui.remote.jobs import JOB_ID
from hud_tui.remote.ssh import KNOWN_HOSTS, Address, Ssh
from hud_tui.rl.text import one_line
from hud_tui.service_file import KEY, Used, line_of, use_machine, used_machine, write_line
from hud_tui.settings import REMOTES
from hud_tui.storage import held, is_held, read_private, read_regular, write_atomic
from hud_tui.wire import adapter

MACHINE, LOG = "machine.json", "setup.log"
MOST_BYTES = 4_000_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Machine:
    name: str
    address: Address
    engine: str
    """One of `engines.ENGINES`."""
    model: str = ""
    """A model's name on the Hub, or a folder of the machine's."""
    root: str = ""
    """Our folder there."""
    env: str = ""
    """An existing Python environment there with the engine; empty to create one."""
    port: int = 0
    """Port of the server, on the loopback there."""
    local_port: int = 0
    """Port of the tunnel, on the loopback here. It never changes, since checkpoints refer to it."""
    supervisor: str = ""
    """What keeps the server running there: ``tmux``, ``systemd`` or ``nohup``."""
    secrets: tuple[str, ...] = ()
    """Names of the variables sent there."""
    done: tuple[str, ...] = ()
    """Names of the finished steps."""
    job: Mapping[str, str] = field(default_factory=dict)
    """Id of the job of each running step, by the step's name."""
    facts: Facts = field(default_factory=Facts)
    added_at: float = 0.0
    pod: str = ""
    """Prime's id if it is rented."""
    ssh_config: str = ""
    """The ssh_config by which it was added, in place of the user's; empty for the user's."""

    @property
    def ready(self) -> bool:
        """Whether its set-up is complete: its server answers, and the tokenizer of a model that it
        was given is here."""
        needed = {"server", "health"} | ({"tokenizer"} if self.model else set())
        return needed <= {*self.done}

    @property
    def url(self) -> str:
        """URL of its server, through the tunnel."""
        return f"http://127.0.0.1:{self.local_port}"

    @property
    def label(self) -> str:
        """E.g. ``gpubox · 2×H100``."""
        return f"{self.name} · {self.facts.gpu_label}"

    def with_done(self, step: str, **more: Any) -> "Machine":
        """The machine with one more finished step."""
        return replace(self, done=tuple(dict.fromkeys((*self.done, step))), **more)


class Machines:
    """All machines of a state directory."""

    def __init__(self, state: Path, ssh_config: Path | None = None) -> None:
        """`ssh_config`: replaces the user's (HUD_TUI_SSH_CONFIG)."""
        self.state, self.folder, self._ssh_config = state, state / REMOTES, ssh_config

    def names(self) -> list[str]:
        """In alphabetical order."""
        return sorted(file.parent.name for file in self.folder.glob(f"*/{MACHINE}"))

    def all(self) -> list[Machine]:
        """Raises HudUsage: as `get`."""
        return [self.get(name) for name in self.names()]

    def get(self, name: str) -> Machine:
        """One machine. Raises HudUsage: there is none with this name, or its file cannot be
        read."""
        file = self.folder_of(name) / MACHINE
        try:
            return _read(read_regular(file, MOST_BYTES), name)
        except (FileNotFoundError, NotADirectoryError):
            names = ", ".join(self.names()[:10]) or "none; hud-tui remote add HOST"
            raise HudUsage(f"no machine named {one_line(name, 80)}", f"known: {names}") from None
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            what = f"{one_line(file, 300)} is not what hud-tui wrote: {one_line(why, 120)}"
            raise HudUsage(what, "fix it, or remove it and add the machine again") from error

    def folder_of(self, name: str) -> Path:
        """Its folder. Raises HudUsage: not a valid name."""
        if not NAME.fullmatch(name):
            hint = "letters, digits, dots, dashes; 63 at most"
            raise HudUsage(f"not a machine's name: {one_line(name, 80)}", hint)
        return self.folder / name

    def write(self, machine: Machine) -> Machine:
        file = self.folder_of(machine.name) / MACHINE
        write_atomic(file, json.dumps({"version": 1, **asdict(machine)}, indent=1) + "\n")
        return machine

    def forget(self, name: str) -> None:
        """Delete everything that is stored of it here."""
        if self.used() == name:
            self.use(None)
        shutil.rmtree(self.folder_of(name), ignore_errors=True)

    def key(self, name: str, prefix: str = "tml-") -> str:
        """The key of its server, created on first use, with this prefix. Raises HudUsage: others
        can read the file."""
        file = self.folder_of(name) / KEY
        try:
            return read_private(file, 4096).decode("ascii", "replace").strip()
        except FileNotFoundError:
            write_atomic(file, f"{prefix}{secrets.token_urlsafe(24)}")
            return self.key(name)
        except OSError as error:
            what = f"{one_line(file, 300)}: {error.strerror}"
            raise HudUsage(what, "chmod 600 it, or remove the machine and add it again") from error

    def set_key(self, name: str, key: str) -> None:
        """Store the key of a server that runs already."""
        write_atomic(self.folder_of(name) / KEY, key)

    def ssh(self, machine: Machine, shared: bool = True) -> Ssh:
        """`shared`: as of `Ssh`."""
        return self.ssh_to(machine.address, self.config_of(machine), shared)

    def ssh_to(self, address: Address, config: str = "", shared: bool = True) -> Ssh:
        """`config`: the ssh_config of a machine, where this program was given none."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = Path(config) if config else self._ssh_config
        return Ssh(address, self.folder / KNOWN_HOSTS, file, shared)

    def config_of(self, machine: Machine | None) -> str:
        """The ssh_config for a machine: this program's, else the one by which it was added."""
        if self._ssh_config is not None:
            return str(self._ssh_config)
        return machine.ssh_config if machine is not None else ""

    def files(self, name: str) -> Path:
        """Folder of the model's small files here."""
        return self.folder_of(name) / "models"

    def used(self) -> str | None:
        """Name of the machine in use; None for this one."""
        with suppress(HudUsage):
            used = used_machine(self.state)
            return used.name if used is not None else None
        return None

    def use(self, machine: Machine | None, speaks: str = "") -> None:
        """Set the machine in use, with its engine's `speaks`; None for this one."""
        if machine is None:
            use_machine(self.state, None)
            return
        files = str(self.files(machine.name))
        use_machine(self.state, Used(machine.name, machine.label, machine.url, speaks, files))

    def line(self, name: str) -> dict[str, Any]:
        """The last state of the tunnel; empty if there was none."""
        return line_of(self.state, name)

    def set_line(self, name: str, line: Mapping[str, Any]) -> None:
        with suppress(OSError):
            if self.folder_of(name).is_dir():
                write_line(self.state, name, line)

    @contextmanager
    def alone(self, name: str, what: str = "setup") -> Iterator[None]:
        """Hold a lock of a machine, so that no two programs do the same with it. Raises HudUsage:
        another program holds it."""
        self.folder_of(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        with held(self.folder_of(name) / f"{what}.lock") as ours:
            if ours is None:
                raise HudUsage(f"another hud-tui is at work on {name}", "wait for it")
            yield

    def busy(self, name: str, what: str = "setup") -> bool:
        """Whether another program holds that lock."""
        return is_held(self.folder_of(name) / f"{what}.lock")


def _read(body: bytes, name: str) -> Machine:
    """Parse a stored machine. Raises ValueError: a field is missing, has another type or cannot be
    right; the message names it."""
    document = from_json(body)
    if not isinstance(document, dict) or document.pop("version", None) != 1:
        raise ValueError("version")
    try:
        machine: Machine = adapter(Machine).validate_python(document)
    except ValidationError as error:
        raise ValueError(".".join(map(str, error.errors()[0]["loc"]))) from error
    except HudUsage as error:
        raise ValueError(f"address: {error.message}") from error
    if machine.name != name:
        raise ValueError("name")
    if not all(JOB_ID.fullmatch(id_) for id_ in machine.job.values()):
        raise ValueError("job")
    return machine


def machines_in(state: Path) -> Machines:
    """The machines of a state directory, with the ssh_config in HUD_TUI_SSH_CONFIG."""
    config = os.environ.get("HUD_TUI_SSH_CONFIG")
    return Machines(state, Path(config).expanduser().absolute() if config else None)
