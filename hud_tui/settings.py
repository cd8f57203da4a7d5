"""Settings: URLs of services, API key, this program's directories.

Source: variables and defaults are those of the ``hud`` SDK 0.6.21; an argument takes precedence
over them.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import EFBIG
from ipaddress import ip_address
from os.path import expanduser
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from hud_tui.errors import HudError, HudInsecure, HudNoKey, HudUsage
from hud_tui.rl.text import command_line, one_line
from hud_tui.storage import NotRegular, read_regular

# HUD's variables, the places where they are set, and their precedence.
#
# Source: the variables and their precedence (process environment, ``.env`` in the working
# directory, ``~/.hud/.env``) are the ``hud`` SDK's, 0.6.21; ``hud set`` writes the last one.


PROCESS = "process environment"
OTHERS = ("WANDB_API_KEY", "PRIME_API_KEY")
"""Keys of other services that HUD reads from the same places."""
MAX_ENV = 1 << 20
"""Maximum size of a .env file, bytes."""


@dataclass(frozen=True)
class VariableSource:
    """A place where variables are set."""

    origin: str
    """`PROCESS`, or the path of a file."""
    variables: Mapping[str, str] = field(repr=False)
    problems: tuple[HudUsage, ...] = ()
    """Invalid lines that set HUD variables, with file and line."""
    file: Path | None = None


def read_sources(environ: Mapping[str, str] = os.environ) -> list[VariableSource]:
    """All places, highest precedence first."""
    process = {name: value for name, value in environ.items() if is_ours(name)}
    files = (Path(".env"), Path.home() / ".hud" / ".env")
    return [VariableSource(PROCESS, process), *map(_read_env, files)]


def read_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The effective value of every HUD variable. Raises HudUsage: an invalid line of a HUD variable
    in a .env file."""
    variables: dict[str, str] = {}
    for source in reversed(read_sources(environ)):
        for problem in source.problems:
            raise problem
        variables |= source.variables
    return variables


def every_variable(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All variables, with the same precedence, because a task row may use any of them.

    Invalid lines are ignored.
    """
    named: dict[str, str] = {}
    for file in (Path.home() / ".hud" / ".env", Path(".env")):
        with suppress(OSError):  # `read_variables` reports it
            assigned = (_assignment(line) for line in _lines(file) if line[:1] != "#")
            named |= dict(filter(None, assigned))
    return named | dict(environ)


def set_variables(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Names of the non-empty variables."""
    return {name for name, value in every_variable(environ).items() if value}


def is_ours(name: str) -> bool:
    """Whether HUD reads a variable of this name."""
    return name.startswith("HUD_") or name in OTHERS


def _read_env(file: Path) -> VariableSource:
    """HUD's variables in a .env file; other lines are ignored."""
    values: dict[str, str] = {}
    try:
        lines = _lines(file)
    except OSError as error:
        message = f"{one_line(file)}: {error.strerror}"
        problem = HudUsage(message, "replace it with a file of NAME=VALUE lines, or remove it")
        return VariableSource(str(file), {}, (problem,), file)
    problems = []
    for number, line in enumerate(lines, 1):
        if not line.startswith(("HUD_", *OTHERS)):
            continue
        assigned = _assignment(line)
        if assigned is None:
            message = f"{one_line(file)} line {number}: expected NAME=VALUE"
            problems.append(HudUsage(message, "fix or remove that line"))
        elif is_ours(assigned[0]):
            values[assigned[0]] = assigned[1]
    return VariableSource(str(file), values, tuple(problems), file)


def _lines(file: Path) -> list[str]:
    """The lines of a file, without ``export``; empty if it does not exist or cannot be read. Raises
    OSError: it is not a regular file, or too large; see ``strerror``."""
    try:
        body = read_regular(file, MAX_ENV)
    except OSError as error:
        if isinstance(error, NotRegular) or error.errno == EFBIG:
            raise
        return []
    lines = body.decode("utf-8-sig", errors="replace").splitlines()
    return [line.strip().removeprefix("export ").lstrip() for line in lines]


def _assignment(line: str) -> tuple[str, str] | None:
    name, equals, value = line.partition("=")
    value = value.strip()
    quote = value[:1]
    if quote and quote in "'\"":
        end = value.find(quote, 1)
        if end < 0:
            return None
        value = value[1:end]
    else:
        value = value.split(" #")[0].rstrip()
    return (name.strip(), value) if equals else None


DEFAULTS = {
    "HUD_API_URL": "https://api.hud.ai",
    "HUD_RL_URL": "https://rl.hud.ai",
    "HUD_GATEWAY_URL": "https://inference.hud.ai",
    "HUD_TELEMETRY_URL": "https://telemetry.hud.ai/v3/api",
    "HUD_WEB_URL": "https://hud.ai",
}
TELEMETRY = "/telemetry/v3/api"
"""Path under which a hud-tui service receives telemetry."""
_UNITS = ("", "K", "M", "G", "T")
_SIZE = r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?)B?"
NO_KEY = HudNoKey(
    "no API key", "set HUD_API_KEY, or use --local for the embedded service, which needs none"
)


@dataclass(frozen=True)
class Settings:
    """The service to use. URLs have no trailing slash."""

    api_url: str
    rl_url: str
    """Without ``/v1``, which is part of the paths."""
    gateway_url: str
    """As configured, with or without ``/v1``."""
    telemetry_url: str
    web_url: str
    api_key: str = field(repr=False)
    local: bool = False
    """Whether this is the embedded service of this machine."""
    name: str = ""
    """Display name for a custom host."""
    data_dir: str = ""
    """Data directory of the embedded service."""
    flags: str = ""
    """Flags by which this program found it, as words of a shell: ``--state-dir DIR`` …"""
    host: str = ""
    """URL of a hud-tui service elsewhere, which plays the part of every host; empty otherwise."""
    ca: str = ""
    """Path of the certificates that the hosts' own are verified by; empty: those that the system
    trusts."""
    insecure: bool = False
    """Whether the key may travel in clear text to another machine."""
    by: str = "python"
    """What this program is called: ``app``, ``headless``, ``python`` or ``driver``."""

    @property
    def label(self) -> str:
        return self.name or ("HUD local" if self.local else "HUD")

    @property
    def embedded(self) -> bool:
        """Whether this is a hud-tui service, here or elsewhere."""
        return self.local or bool(self.host)

    @property
    def program(self) -> str:
        """How a command of this program for the same service begins."""
        return program(self.local, self.flags, self.host)

    def command(self, *words: object) -> str:
        """A command of this program for the same service, to paste into a shell."""
        return command_line(self.program, *words)

    def check_clear_text(self) -> None:
        """Raises HudInsecure: the key would travel in clear text to another machine."""
        if self.insecure:
            return
        urls = {
            "HUD_API_URL": self.api_url,
            "HUD_RL_URL": self.rl_url,
            "HUD_GATEWAY_URL": self.gateway_url,
            "HUD_TELEMETRY_URL": self.telemetry_url,
        }
        for name, url in urls.items():
            if url and travels_clear(url):
                what = "the embedded service" if self.embedded else name
                host = one_line(urlsplit(url).hostname or "", 200)
                message = f"{what} is http: the key would travel in clear text to {host}"
                raise HudInsecure(message, "use https, or an ssh tunnel")


def program(local: bool, flags: str = "", host: str = "") -> str:
    """How a command for a service begins; `flags` and `host` as of `Settings`."""
    service = "--local" if local else f"--host {quote(host)}" if host else ""
    return " ".join(filter(None, ("hud-tui", service, flags)))


REMOTES = "remotes"
"""In the state directory: a folder with one folder per machine, and files about those in use and
rented."""


@dataclass(frozen=True)
class Paths:
    """Directories of this program; created by the first write."""

    config: Path
    state: Path
    data: Path

    @property
    def service_file(self) -> Path:
        """service.json of the background service, which contains its key."""
        return self.state / "service.json"

    @property
    def serving_file(self) -> Path:
        """service.json of the service of the data directory, which contains its key."""
        return self.data / "service.json"

    @property
    def service_log(self) -> Path:
        return self.state / "service.log"

    @property
    def has_machines(self) -> bool:
        """Whether another machine was ever used or rented; also if that cannot be seen."""
        try:
            (self.state / REMOTES).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # whoever reads the files says what is wrong
        return True


def read_settings(api_key: str | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """HUD's settings, with HUD's own precedence.

    Raises:
        HudNoKey: No key in any place.
        HudUsage: An invalid value; the message names its place.
    """
    settings, problems = usable_settings(read_sources(environ), api_key)
    for problem in problems:
        raise problem
    return settings


def usable_settings(
    sources: Sequence[VariableSource], api_key: str | None = None, needs_key: bool = True
) -> tuple[Settings, list[HudError]]:
    """The settings of all places, and all errors in them.

    An invalid URL is replaced by its default; an invalid key, and one that would travel in clear
    text, by an empty one.
    """
    values = {name: value for p in reversed(sources) for name, value in p.variables.items()}
    problems: list[HudError] = [e for p in reversed(sources) for e in p.problems]

    def attempt(usable: Callable[..., str], *raw_key: str, otherwise: str) -> str:
        try:
            return usable(*raw_key)
        except HudError as error:
            problems.append(error)
            return otherwise

    raw_key = api_key or values.get("HUD_API_KEY", "")
    key = attempt(usable_key, raw_key, otherwise="") if needs_key else ""
    urls = {
        name: attempt(usable_url, name, values.get(name) or url, otherwise=url)
        for name, url in DEFAULTS.items()
    }
    process = next((source.variables for source in sources if source.origin == PROCESS), {})
    settings = Settings(
        api_url=urls["HUD_API_URL"],
        rl_url=urls["HUD_RL_URL"].removesuffix("/v1"),
        gateway_url=urls["HUD_GATEWAY_URL"],
        telemetry_url=urls["HUD_TELEMETRY_URL"],
        web_url=urls["HUD_WEB_URL"],
        api_key=key,
        insecure=allows_clear_text(process),
    )
    return encrypted(settings, problems), problems


def encrypted(settings: Settings, problems: list[HudError]) -> Settings:
    """The settings; without their key, and with the problem added, if it would travel in clear text
    to another machine."""
    try:
        if settings.api_key:
            settings.check_clear_text()
    except HudInsecure as problem:
        problems.append(problem)
        return replace(settings, api_key="")
    return settings


def local_settings(url: str, api_key: str, telemetry_url: str, data_dir: str = "") -> Settings:
    """Settings for the embedded service, which plays the part of every host."""
    insecure = allows_clear_text(os.environ)
    return Settings(
        *(url, url, url, telemetry_url, url, api_key),
        local=True,
        data_dir=data_dir,
        insecure=insecure,
    )


def has_key(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(read_variables(environ).get("HUD_API_KEY"))


def read_paths(
    state_dir: str | None = None,
    data_dir: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Paths:
    """Directories from flags, else HUD_TUI_…_DIR, else the platform's default."""
    directories = {
        "config": environ.get("HUD_TUI_CONFIG_DIR"),
        "state": state_dir or environ.get("HUD_TUI_STATE_DIR"),
        "data": data_dir or environ.get("HUD_TUI_DATA_DIR"),
    }
    return Paths(*(directory(kind, value, environ) for kind, value in directories.items()))


def read_max_disk(flag: str | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Disk limit of the embedded service in bytes: flag, else HUD_TUI_MAX_DISK. Raises HudUsage:
    not a size."""
    text = flag or environ.get("HUD_TUI_MAX_DISK") or "10GB"
    return read_size(text, "--max-disk" if flag else "HUD_TUI_MAX_DISK")


def read_size(text: str, name: str) -> int:
    """A size in bytes, e.g. ``20GB``. `name`: of the flag or variable. Raises HudUsage: it is
    none."""
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise HudUsage(f"{name} is not a size: {text[:40]!r}", "e.g. 20GB, 500MB or 1.5TB")
    number, unit = match.groups()
    return int(float(number) * 1000 ** _UNITS.index(unit.upper()))


XDG = {
    "config": ("XDG_CONFIG_HOME", "~/.config"),
    "state": ("XDG_STATE_HOME", "~/.local/state"),
    "data": ("XDG_DATA_HOME", "~/.local/share"),
}
"""Where Linux has such directories: a variable, and its default."""


def directory(kind: str, value: str | None, environ: Mapping[str, str]) -> Path:
    """This program's directory of a kind: the given one, else the platform's default."""
    if value:
        return Path(expanduser(value)).absolute()
    if sys.platform == "linux":  # as platformdirs does, which takes 10 ms to load
        variable, usual = XDG[kind]
        return Path(expanduser(environ.get(variable, "").strip() or usual)) / "hud-tui"
    from platformdirs import PlatformDirs

    return Path(getattr(PlatformDirs("hud-tui", appauthor=False), f"user_{kind}_path"))


def usable_key(key: str, name: str = "HUD_API_KEY") -> str:
    """The key without surrounding white space. `name`: where it comes from.

    Raises:
        HudNoKey: It is empty.
        HudUsage: It cannot be sent in a header; the message does not contain it.
    """
    key = key.strip()
    if not key:
        raise HudNoKey(NO_KEY.message, NO_KEY.hint)
    if not (key.isascii() and key.isprintable()):
        raise HudUsage(f"{name} has invalid characters", "copy the key again")
    return key


def usable_url(name: str, value: str) -> str:
    """The URL of a variable, without trailing slash. Raises HudUsage: not an http or https URL."""
    value = value.strip().rstrip("/")
    if not is_web(value):
        raise HudUsage(f"{name} is not an http or https URL", f"e.g. {name}={DEFAULTS[name]}")
    return value


def is_web(url: str) -> bool:
    """Whether it is an http or https URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine."""
    try:
        return is_loopback_host(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    """Whether only this machine reaches an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


OFF = frozenset({"", "0", "false", "no", "off"})
"""Values of HUD_TUI_READ_ONLY and HUD_TUI_INSECURE that mean off."""
INSECURE = "HUD_TUI_INSECURE"
"""The variable of ``--insecure``. It counts in the process environment alone: a .env file comes
with the folder that it lies in."""


def allows_clear_text(environ: Mapping[str, str]) -> bool:
    """Whether keys may travel in clear text to other machines."""
    return environ.get(INSECURE, "").strip().lower() not in OFF


def travels_clear(url: str) -> bool:
    """Whether what is sent to a URL travels in clear text to another machine."""
    return urlsplit(url).scheme != "https" and not is_loopback(url)
