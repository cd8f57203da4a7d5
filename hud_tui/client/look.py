"""One look at a service elsewhere: its certificate, its clock, and whose key this is."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import perf_counter, time
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.settings import Settings
from hud_tui.wire import Identity


@dataclass(frozen=True)
class Certificate:
    """What a verified certificate says."""

    names: tuple[str, ...]
    """Names and addresses that it is for."""
    issuer: str
    ends_at: float
    """When it expires, Unix seconds."""
    protocol: str
    """E.g. ``TLSv1.3``."""


@dataclass(frozen=True)
class HostLook:
    """What a service answers."""

    seconds: float
    """Of the whole answer, with the connection."""
    identity: Identity
    certificate: Certificate | None
    """None over http."""
    ahead_s: float | None
    """Seconds by which its clock is ahead of this machine's, to within a second and the answer's
    time; None if it does not tell."""


async def look_at_host(settings: Settings) -> HostLook:
    """Raises HudError: it does not answer, its certificate is not accepted, or the key is not."""
    client = HudClient(settings)
    try:
        began = perf_counter()
        url = client.wire.api("/v2/auth/me")
        async with client.wire.stream(url, {}, 30.0) as answer:
            seconds, here = perf_counter() - began, time()
            certificate = _certificate(answer.extensions.get("network_stream"))
            date = answer.headers.get("date", "")
        return HostLook(seconds, await client.whoami(), certificate, _ahead_s(date, here))
    finally:
        await client.aclose()


def _ahead_s(date: str, here: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - here
    except (ValueError, TypeError, OverflowError):
        return None


def _certificate(stream: Any) -> Certificate | None:
    shown = None if stream is None else stream.get_extra_info("ssl_object")
    if shown is None or not (fields := shown.getpeercert()):
        return None
    issuer = {name: value for part in fields.get("issuer", ()) for name, value in part}
    by = issuer.get("organizationName") or issuer.get("commonName") or ""
    common = issuer.get("commonName") or ""
    return Certificate(
        tuple(name for _, name in fields.get("subjectAltName", ())),
        f"{by} ({common})" if by and common and by != common else by,
        float(ssl.cert_time_to_seconds(fields["notAfter"])),
        shown.version() or "",
    )
