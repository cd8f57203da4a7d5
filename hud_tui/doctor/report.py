"""What ``hud-tui doctor`` reports: facts in sections, and a finding for each problem."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One problem, or one thing that is well."""

    check: Literal[
        "settings", "hosts", "versions", "terminal", "directories", "service", "tinker", "config"
    ]
    level: Level
    message: str
    fix: str = ""
    """What to do about it."""
    code: int = 0
    """Of a failure: the exit code, as the README lists them."""


@dataclass(frozen=True)
class Setting:
    """One variable. Its value is not part of a report."""

    name: str
    set: bool
    origin: str
    """Where the value in use is from; ``default`` or ``not set`` where nothing sets it."""
    hidden: Sequence[str] = ()
    """Places that set it too, and lose."""


@dataclass(frozen=True)
class Host:
    """One host and its answer."""

    names: tuple[str, ...]
    """Which of HUD's hosts this is: api, rl, gateway, telemetry, web."""
    url: str
    """What was asked, without credentials and query."""
    reachable: bool
    status: int | None = None
    seconds: float | None = None
    """From sending to the answer's head."""
    detail: str = ""
    """Why no answer came, or what the server says is wrong."""


@dataclass(frozen=True)
class Terminal:
    """What the terminal can do, as far as can be told without asking it."""

    is_terminal: bool
    term: str
    columns: int | None
    rows: int | None
    colors: Literal["none", "16", "256", "truecolor"]
    unicode: bool
    clipboard: Literal["likely", "unlikely", "unknown"]
    """Whether text copied by OSC 52 reaches the clipboard."""
    multiplexer: str
    """``tmux``, ``screen`` or empty."""


@dataclass(frozen=True)
class Directory:
    """One of this program's directories."""

    kind: Literal["config", "state", "data"]
    path: str
    exists: bool
    writable: bool
    """Or can be made, where it does not exist."""
    used_bytes: int | None
    """None where it does not exist, or holds more files than are counted."""
    free_bytes: int | None


@dataclass(frozen=True)
class Service:
    """The embedded service of this machine."""

    running: bool
    pid: int | None = None
    url: str = ""


@dataclass(frozen=True)
class Report:
    """All of it."""

    settings: Sequence[Setting]
    hosts: Sequence[Host]
    versions: Mapping[str, str | None]
    """By distribution; None where it is not installed."""
    terminal: Terminal
    directories: Sequence[Directory]
    service: Service
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def verdict(self) -> Level:
        """The worst level of all."""
        levels = {finding.level for finding in self.findings}
        return "failure" if "failure" in levels else "warning" if "warning" in levels else "ok"


def exit_code(findings: Iterable[Finding], fail_on: Level = "failure") -> int:
    """The largest code of all failures; 0 without one, or 1 where warnings count too."""
    findings = list(findings)
    codes = [finding.code for finding in findings if finding.level == "failure"]
    warned = fail_on == "warning" and any(f.level == "warning" for f in findings)
    return max([*codes, 1 if warned else 0])
