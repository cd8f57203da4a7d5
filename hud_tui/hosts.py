"""Services elsewhere: what `hud-tui --host URL` calls, and the keys that `hud-tui login` stored.

A key belongs to one URL and is sent to no other. HUD's own key, HUD_API_KEY, is never used here.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from hud_tui.errors import HudNoKey, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.settings import TELEMETRY, Settings, allows_clear_text, is_web, usable_key
from hud_tui.storage import NotPrivate, change_atomic, read_private, read_regular, write_atomic

HOST, KEY = "HUD_TUI_HOST", "HUD_TUI_KEY"
"""Variables: the URL, as `--host`, and its key. They count in the process environment alone: a .env
file comes with the folder that it lies in."""
LOGINS, TRUST = "logins.json", "trust"
"""In the state directory: a file with the keys, and a folder with authorities' certificates."""
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Login:
    """What is stored of a service elsewhere."""

    key: str = field(repr=False)
    ca: str = ""
    """Path of the certificates that its own is verified by; empty: those that the system trusts."""


def usable_host(text: str, name: str = "--host") -> str:
    """The URL of a service, without trailing slash; https where no scheme is given, as in
    ``gpu.example.com``. `name`: where it comes from. Raises HudUsage: not an http or https URL, or
    one with more than a host and a path."""
    url = text.strip()
    url = (url if "://" in url else f"https://{url}").rstrip("/")
    hint = "e.g. https://gpu.example.com:8443"
    if not is_web(url):
        raise HudUsage(f"{name} {one_line(text, 200)} is not an http or https URL", hint)
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise HudUsage(f"{name}: a URL of a host, without user, query and fragment", hint)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path}"


def chosen_host(flag: str | None, local: bool, environ: Mapping[str, str] = os.environ) -> str:
    """The URL of the service elsewhere that is to be used; empty: another service is. Raises
    HudUsage: it is not a URL, or `--local` says otherwise."""
    if flag is not None and local:
        raise HudUsage("--local is the service of this machine, --host one elsewhere", "remove one")
    if flag is not None:
        return usable_host(flag)
    named = environ.get(HOST, "").strip()
    return usable_host(named, HOST) if named and not local else ""


def host_settings(url: str, state: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings for a service elsewhere, which plays the part of every host.

    Args:
        url: As of `usable_host`.
        state: Has the stored keys.

    Raises:
        HudNoKey: No key for it is set or stored.
        HudUsage: The stored ones cannot be read, or the key cannot be sent.
    """
    login, named = read_logins(state).get(url), environ.get(HOST, "").strip()
    key = environ.get(KEY, "") if not named or usable_host(named, HOST) == url else ""
    key = key or ("" if login is None else login.key)
    if not key:
        raise HudNoKey(f"no key for {one_line(url, 200)}", f"hud-tui login {one_line(url, 200)}")
    ca = "" if login is None else login.ca
    return settings_with(url, usable_key(key, KEY), ca, environ)


def settings_with(
    url: str, key: str, ca: str = "", environ: Mapping[str, str] = os.environ
) -> Settings:
    """`host_settings` with this key and these certificates."""
    return Settings(
        *(url, url, url, url + TELEMETRY, url, key),
        host=url,
        name=urlsplit(url).netloc,
        ca=ca,
        insecure=allows_clear_text(environ),
    )


# What `login` stores.


def read_logins(state: Path) -> dict[str, Login]:
    """The stored keys by the URL that each belongs to. Raises HudUsage: they cannot be read, or
    others can read them."""
    file = state / LOGINS
    try:
        return {
            url: Login(**row) for url, row in json.loads(read_private(file, MOST_BYTES)).items()
        }
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except NotPrivate as error:
        hint = f"chmod 600 {one_line(file)}; whoever read it has the keys: have them revoked"
        raise HudUsage(f"{one_line(file)}: {error.strerror}", hint) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        why = getattr(error, "strerror", None) or "not as hud-tui login writes it"
        raise HudUsage(f"{one_line(file)}: {why}", "remove it, then hud-tui login URL") from error


def write_login(state: Path, url: str, key: str, ca: bytes = b"") -> None:
    """Store the key of a service, and the certificates to verify it by."""
    path = ""
    if ca:
        file = _trusted(state, url)
        write_atomic(file, ca)
        path = str(file)
    _change(state, url, Login(key, path))


def forget_login(state: Path, url: str) -> bool:
    """Remove what is stored of a service; whether there was anything."""
    is_known = url in read_logins(state)
    if is_known:
        _change(state, url, None)
    for file in (_trusted(state, url), _trusted(state, url).with_suffix(".all.pem")):
        file.unlink(missing_ok=True)
    return is_known


def _change(state: Path, url: str, login: Login | None) -> None:
    def changed() -> str:
        logins = read_logins(state)
        logins.pop(url, None)
        if login is not None:
            logins[url] = login
        return json.dumps({known: asdict(row) for known, row in logins.items()}, indent=1)

    change_atomic(state / LOGINS, changed)


def _trusted(state: Path, url: str) -> Path:
    return state / TRUST / f"{sha256(url.encode()).hexdigest()[:16]}.pem"


def trusted_too(ca: str, environ: Mapping[str, str] = os.environ) -> str:
    """A file with stored certificates and all that is trusted without them, for programs that call
    other hosts, too. Raises HudUsage: they cannot be read."""
    import certifi  # what httpx trusts

    usual = Path(environ.get("SSL_CERT_FILE") or certifi.where())
    file = Path(ca).with_suffix(".all.pem")
    try:
        content = b"\n".join(read_regular(path, MOST_BYTES) for path in (usual, Path(ca)))
        if not file.exists() or read_regular(file, 2 * MOST_BYTES) != content:
            write_atomic(file, content)
    except OSError as error:
        raise HudUsage(
            f"{one_line(error.filename)}: {error.strerror}", "hud-tui login again"
        ) from error
    return str(file)
