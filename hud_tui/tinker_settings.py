"""Tinker's settings: which server the tinker engine talks to, and how it trains and saves there.

TINKER_API_KEY and TINKER_BASE_URL are the SDK's own. A server on this machine needs no key
that means anything, so one is made up where none is set.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

CLOUD = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Where the SDK goes when it is told nothing."""
LOCAL_KEY = "tml-local"
CREDENTIALS = ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")
RANK = 32
SECONDS = {"h": 3600, "d": 86_400}
_TTL = re.compile(r"(\d{1,5}) ?([hd])")
_LONGEST = 10 * 365 * SECONDS["d"]
"""Tinker keeps a checkpoint an hour at least and ten years at most."""


class BadOption(ValueError):
    """A variable cannot be used; the message names it."""


@dataclass(frozen=True)
class Options:
    url: str
    has_key: bool
    rank: int = RANK
    """Of the LoRA adapters of new runs; a server that takes less gets less."""
    ttl_s: int | None = None
    """How long the server is told to keep checkpoints; None: until they are deleted."""

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def keeps_samplers(self) -> bool:
        """Whether a sampler path stays what it was saved as. Tinker's cloud documents so;
        elsewhere a path may name the run's live weights (seen with SkyRL 0.4, JAX)."""
        return self.url == CLOUD

    def environment(self) -> dict[str, str]:
        """What the SDK's process gets beside this one's environment."""
        local = {} if self.has_key else {"TINKER_API_KEY": LOCAL_KEY}
        quiet = {"TINKER_TELEMETRY": "0"} if self.is_loopback else {}
        return {**local, **quiet, "TINKER_BASE_URL": self.url}


def read_options(environ: Mapping[str, str] | None = None) -> Options:
    """The environment's. Raises BadOption, saying what to change."""
    environ = os.environ if environ is None else environ
    url = (environ.get("TINKER_BASE_URL") or CLOUD).strip().rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadOption("TINKER_BASE_URL is not an http or https URL")
    if "@" in parts.netloc:
        raise BadOption("TINKER_BASE_URL carries a password, which logs would show: use a key")
    options = Options(
        url,
        has_key=any(environ.get(name) for name in CREDENTIALS),
        rank=_rank(environ.get("HUD_TUI_TINKER_RANK")),
        ttl_s=_ttl(environ.get("HUD_TUI_TINKER_TTL")),
    )
    if not (options.has_key or options.is_loopback or _signed_in()):
        raise BadOption(
            f"no key for {url}: set TINKER_API_KEY, or TINKER_BASE_URL to a server of your own"
        )
    return options


def is_set_up(environ: Mapping[str, str] | None = None) -> bool:
    """Whether anything says that a Tinker server is to be used."""
    environ = os.environ if environ is None else environ
    return _signed_in() or any(environ.get(name) for name in (*CREDENTIALS, "TINKER_BASE_URL"))


def _signed_in() -> bool:
    """Whether ``tinker auth login`` has been here."""
    return os.path.exists(os.path.expanduser("~/.tinker/credentials.json"))


def _rank(given: str | None) -> int:
    if not given:
        return RANK
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:6]) <= 1024:
        raise BadOption("HUD_TUI_TINKER_RANK is a whole number from 1 to 1024")
    return int(given)


def _ttl(given: str | None) -> int | None:
    if not given:
        return None
    found = _TTL.fullmatch(given.strip())
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not SECONDS["h"] <= seconds <= _LONGEST:
        raise BadOption("HUD_TUI_TINKER_TTL is 1h to 3650d, e.g. 36h or 7d")
    return seconds
