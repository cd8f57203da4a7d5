"""Which variables are set, where, and what is wrong with them."""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from hud_tui.doctor.report import Finding, Setting
from hud_tui.errors import HudError, HudNoKey
from hud_tui.rl.text import one_line
from hud_tui.settings import DEFAULTS, Settings, local_settings, usable_key, usable_url
from hud_tui.variables import OTHERS, PROCESS, Place

UNUSED = ("HUD_RUNTIME_URL",)
"""HUD's too, with a default, but nothing here calls it."""
SHOWN = ("HUD_API_KEY", *OTHERS, *DEFAULTS, *UNUSED)
"""Variables that are listed whether they are set or not."""
KEYS = ("HUD_API_KEY", *OTHERS)


def settings_of(places: Sequence[Place]) -> list[Setting]:
    """Every variable that matters or is set, and where the value in use is from."""
    known = dict.fromkeys(SHOWN)
    known |= dict.fromkeys(sorted({name for place in places for name in place.variables}))
    return [_setting(name, places) for name in known]


def _setting(name: str, places: Sequence[Place]) -> Setting:
    origins = [one_line(place.origin) for place in places if name in place.variables]
    if origins:
        return Setting(one_line(name, 80), True, origins[0], tuple(origins[1:]))
    return Setting(name, False, "default" if name in (*DEFAULTS, *UNUSED) else "not set")


def usable_settings(
    places: Sequence[Place], needs_key: bool = True
) -> tuple[Settings, list[Finding]]:
    """The settings to probe with, and what is wrong with them.

    An unusable URL is replaced by its default, an unusable key by none.
    """
    found: dict[str, str] = {}
    for place in reversed(places):
        found |= place.variables
    wrong: list[Finding] = []
    urls = {name: _url(name, found.get(name), wrong) for name in DEFAULTS}
    key = _key(found.get("HUD_API_KEY", ""), wrong) if needs_key else ""
    base = local_settings(urls["HUD_API_URL"], key, urls["HUD_TELEMETRY_URL"])
    settings = replace(
        base,
        rl_url=urls["HUD_RL_URL"].removesuffix("/v1"),
        gateway_url=urls["HUD_GATEWAY_URL"],
        web_url=urls["HUD_WEB_URL"],
        local=False,
    )
    wrong += _malformed(places)
    wrong += _readable_by_others(places)
    wrong += [_unencrypted(name, url) for name, url in urls.items() if key and _is_open(url)]
    return settings, wrong


def _url(name: str, value: str | None, wrong: list[Finding]) -> str:
    try:
        return usable_url(name, value or DEFAULTS[name])
    except HudError as error:
        wrong.append(_failure(error))
        return DEFAULTS[name]


def _key(value: str, wrong: list[Finding]) -> str:
    try:
        key = usable_key(value)
    except HudNoKey as error:
        fix = "set HUD_API_KEY; or, for the embedded service alone: hud-tui doctor --local"
        wrong.append(Finding("settings", "failure", error.message, fix, error.exit_code))
        return ""
    except HudError as error:
        wrong.append(_failure(error))
        return ""
    wrong.append(Finding("settings", "ok", "an API key is set"))
    return key


def _failure(error: HudError) -> Finding:
    return Finding("settings", "failure", error.message, error.hint, error.exit_code)


def _malformed(places: Sequence[Place]) -> Iterator[Finding]:
    for place in places:
        yield from map(_failure, place.problems)


def _readable_by_others(places: Sequence[Place]) -> Iterator[Finding]:
    for place in places:
        if place.origin == PROCESS or place.file is None or not set(KEYS) & set(place.variables):
            continue
        try:
            mode = place.file.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            name = one_line(place.file)
            message = f"{name} holds a key and can be read by others"
            yield Finding("settings", "warning", message, f"chmod 600 {name}")


def _is_open(url: str) -> bool:
    """Whether a key sent there could be read on the way."""
    host = urlsplit(url).hostname or ""
    if not url.startswith("http:") or host == "localhost":
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def _unencrypted(name: str, url: str) -> Finding:
    message = (
        f"{name} is http, so the key travels unencrypted to {one_line(urlsplit(url).hostname)}"
    )
    return Finding("settings", "warning", message, "use https where that host speaks it")
