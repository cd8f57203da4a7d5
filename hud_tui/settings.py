"""Which service to call, with which key, and where this program's files are.

Source: the variables and their defaults are the ``hud`` SDK's, 0.6.21; an argument wins
over the places that `hud_tui.variables` reads.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from urllib.parse import urlsplit

from hud_tui.errors import HudNoKey, HudUsage
from hud_tui.variables import read_variables

DEFAULTS = {
    "HUD_API_URL": "https://api.hud.ai",
    "HUD_RL_URL": "https://rl.hud.ai",
    "HUD_GATEWAY_URL": "https://inference.hud.ai",
    "HUD_TELEMETRY_URL": "https://telemetry.hud.ai/v3/api",
    "HUD_WEB_URL": "https://hud.ai",
}
_UNITS = ("", "K", "M", "G", "T")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?)B?", re.IGNORECASE)
NO_KEY = HudNoKey(
    "no API key", "set HUD_API_KEY, or use --local for the embedded service, which needs none"
)


@dataclass(frozen=True)
class Settings:
    """The service to talk to. URLs carry no slash at their end."""

    api_url: str
    rl_url: str
    """Without ``/v1``; the paths carry it."""
    gateway_url: str
    """As configured, with or without ``/v1``."""
    telemetry_url: str
    web_url: str
    api_key: str = field(repr=False)
    local: bool = False
    """Whether this is the embedded service of this machine."""
    name: str = ""
    """What it is called where it is neither that nor HUD."""

    @property
    def label(self) -> str:
        return self.name or ("HUD local" if self.local else "HUD")


@dataclass(frozen=True)
class Paths:
    """Directories of this program; made when first written to."""

    config: Path
    state: Path
    data: Path

    @property
    def service_file(self) -> Path:
        """Names the embedded service that ``stop`` ends, and its key."""
        return self.state / "service.json"

    @property
    def serving_file(self) -> Path:
        """Names the service that serves the data directory, and its key."""
        return self.data / "service.json"

    @property
    def service_log(self) -> Path:
        return self.state / "service.log"


def read_settings(api_key: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """HUD's settings, by HUD's own precedence.

    Raises:
        HudNoKey: No key anywhere.
        HudUsage: A value that cannot be used; the message names where it stands.
    """
    found = read_variables(environ)
    key = usable_key(api_key or found.get("HUD_API_KEY", ""))
    urls = {name: usable_url(name, found.get(name) or url) for name, url in DEFAULTS.items()}
    return Settings(
        api_url=urls["HUD_API_URL"],
        rl_url=urls["HUD_RL_URL"].removesuffix("/v1"),
        gateway_url=urls["HUD_GATEWAY_URL"],
        telemetry_url=urls["HUD_TELEMETRY_URL"],
        web_url=urls["HUD_WEB_URL"],
        api_key=key,
    )


def local_settings(url: str, api_key: str, telemetry_url: str) -> Settings:
    """Settings for the embedded service, which is every host at once."""
    return Settings(url, url, url, telemetry_url, url, api_key, local=True)


def has_key(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a key for HUD is configured anywhere."""
    return bool(read_variables(environ).get("HUD_API_KEY"))


def read_paths(
    state_dir: str | None = None,
    data_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Paths:
    """Flag, then HUD_TUI_…_DIR, then the platform's own place for such files."""
    environ = os.environ if environ is None else environ
    given = {
        "config": environ.get("HUD_TUI_CONFIG_DIR"),
        "state": state_dir or environ.get("HUD_TUI_STATE_DIR"),
        "data": data_dir or environ.get("HUD_TUI_DATA_DIR"),
    }
    return Paths(*(_directory(kind, value) for kind, value in given.items()))


def read_max_disk(flag: str | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Bytes that the embedded service's checkpoints may take: flag, then HUD_TUI_MAX_DISK.

    Raises:
        HudUsage: It is no size.
    """
    environ = os.environ if environ is None else environ
    given = flag or environ.get("HUD_TUI_MAX_DISK") or "10GB"
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        name = "--max-disk" if flag else "HUD_TUI_MAX_DISK"
        raise HudUsage(f"{name} is not a size: {given[:40]!r}", "e.g. 20GB, 500MB or 1.5TB")
    number, unit = found.groups()
    return int(float(number) * 1000 ** _UNITS.index(unit.upper()))


def _directory(kind: str, value: str | None) -> Path:
    if value:
        return Path(expanduser(value)).absolute()
    from platformdirs import PlatformDirs  # 10 ms that a command against HUD need not pay

    return Path(getattr(PlatformDirs("hud-tui", appauthor=False), f"user_{kind}_path"))


def usable_key(key: str) -> str:
    """A key without the white space around it.

    Raises:
        HudNoKey: There is none.
        HudUsage: No header can carry it; the message does not show it.
    """
    key = key.strip()
    if not key:
        raise HudNoKey(NO_KEY.message, NO_KEY.hint)
    if not (key.isascii() and key.isprintable()):
        raise HudUsage("HUD_API_KEY has characters that no key has", "copy the key again")
    return key


def usable_url(name: str, value: str) -> str:
    """A variable's URL without the slash at its end.

    Raises:
        HudUsage: It is no http or https URL.
    """
    value = value.strip().rstrip("/")
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise HudUsage(f"{name} is not an http or https URL", f"e.g. {name}={DEFAULTS[name]}")
    return value
