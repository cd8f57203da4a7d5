"""Options of the tinker engine: server, LoRA rank, lifetime of checkpoints.

TINKER_API_KEY and TINKER_BASE_URL are the SDK's own. A server on this machine ignores the key, so a
placeholder is used if none is set.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hud_tui.errors import ALL_THE_SAME
from hud_tui.rl.text import one_line
from hud_tui.settings import allows_clear_text, is_loopback, is_web, travels_clear

CLOUD = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Default URL of the SDK."""
LOCAL_KEY = "tml-local"
CREDENTIALS = ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")
RANK = 32
SECONDS = {"h": 3600, "d": 86_400}
_TTL = re.compile(r"(\d{1,5}) ?([hd])")
PRICED = ("prompt", "sampled", "trained")
"""Tokens that a server charges for."""
_PRICE = re.compile(r"\d{1,4}(\.\d{1,6})?|\.\d{1,6}", re.ASCII)
_LONGEST = 10 * 365 * SECONDS["d"]
"""Maximum lifetime of a checkpoint on Tinker, seconds; the minimum is an hour."""


class BadOption(ValueError):
    """An invalid variable; the message names it."""


@dataclass(frozen=True)
class Options:
    url: str
    has_key: bool
    rank: int = RANK
    """LoRA rank of new runs; reduced to the server's maximum."""
    place: str = ""
    """Display name of the server, e.g. ``gpubox · 2×H100``; empty: its URL is displayed."""
    ttl_s: int | None = None
    """Lifetime of checkpoints on the server, seconds; None: until deleted."""
    prices: Mapping[str, float] | None = None
    """What the server charges by `PRICED`, US dollars per million tokens; None if not given."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.url)

    @property
    def keeps_samplers(self) -> bool:
        """Whether a saved sampler path is immutable. Documented for Tinker's cloud; elsewhere a
        path may refer to the run's live weights (seen with SkyRL 0.4, JAX)."""
        return self.url == CLOUD

    def environment(self) -> dict[str, str]:
        """Additional environment of the SDK's process."""
        local = {} if self.has_key else {"TINKER_API_KEY": LOCAL_KEY}
        quiet = {"TINKER_TELEMETRY": "0"} if self.is_loopback else {}
        return {**local, **quiet, "TINKER_BASE_URL": self.url}


def read_options(environ: Mapping[str, str] = os.environ) -> Options:
    """Options from the environment. Raises BadOption with a fix."""
    url = (environ.get("TINKER_BASE_URL") or CLOUD).strip().rstrip("/")
    if not is_web(url):
        raise BadOption("TINKER_BASE_URL is not an http or https URL")
    if "@" in urlsplit(url).netloc:
        raise BadOption("TINKER_BASE_URL contains a password, which would show in logs: use a key")
    if travels_clear(url) and not allows_clear_text(environ):
        raise BadOption(
            "TINKER_BASE_URL is http: the key would travel in clear text: use https, or an ssh"
            f" tunnel; {ALL_THE_SAME}"
        )
    options = Options(
        url,
        has_key=any(environ.get(name) for name in CREDENTIALS),
        rank=_rank(environ.get("HUD_TUI_TINKER_RANK")),
        place=one_line(environ.get("HUD_TUI_TINKER_PLACE", ""), 80),
        ttl_s=_ttl(environ.get("HUD_TUI_TINKER_TTL")),
        prices=_prices(environ.get("HUD_TUI_TINKER_PRICES")),
    )
    if not (options.has_key or options.is_loopback or _signed_in()):
        raise BadOption(
            f"no key for {url}: set TINKER_API_KEY, or TINKER_BASE_URL to a server of your own"
        )
    return options


def model_files(folder: Path, model: str) -> Path:
    """Folder of the small files of a server's model, within `folder`."""
    return folder / model.strip("/").replace("/", "--")


def is_set_up(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a Tinker server is configured."""
    return _signed_in() or any(environ.get(name) for name in (*CREDENTIALS, "TINKER_BASE_URL"))


def _signed_in() -> bool:
    """Whether ``tinker auth login`` stored credentials."""
    return os.path.exists(os.path.expanduser("~/.tinker/credentials.json"))


def _rank(text: str | None) -> int:
    if not text:
        return RANK
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 1024:
        raise BadOption("HUD_TUI_TINKER_RANK is a whole number from 1 to 1024")
    return int(text)


def _ttl(text: str | None) -> int | None:
    if not text:
        return None
    match = _TTL.fullmatch(text.strip())
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if not SECONDS["h"] <= seconds <= _LONGEST:
        raise BadOption("HUD_TUI_TINKER_TTL is 1h to 3650d, e.g. 36h or 7d")
    return seconds


def _prices(text: str | None) -> dict[str, float] | None:
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(PRICED) or not all(_PRICE.fullmatch(part) for part in parts):
        what = "dollars per million tokens of prompts, samples and training"
        raise BadOption(f"HUD_TUI_TINKER_PRICES is {what}, e.g. 0.13,0.40,0.40")
    return dict(zip(PRICED, map(float, parts), strict=True))
