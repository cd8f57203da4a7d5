"""``doctor --host URL``: what a service elsewhere answers."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from time import time
from typing import Any

from hud_tui.client.look import Certificate, HostLook, look_at_host
from hud_tui.errors import HudError
from hud_tui.hosts import host_settings
from hud_tui.rl.findings import Finding
from hud_tui.rl.text import counted, duration, one_line
from hud_tui.settings import Paths

DAY_S = 86400.0
SOON_DAYS = 14
"""Days before its end from which on a certificate is warned of."""
MOST_AHEAD_S = 30.0
"""Difference of clocks that is warned of."""


def examine_host(url: str, paths: Paths) -> tuple[dict[str, Any], list[Finding]]:
    """What it answers, for the document, and the findings."""
    facts: dict[str, Any] = {"url": url, "reachable": False}
    try:
        host_look = asyncio.run(look_at_host(host_settings(url, paths.state)))
    except HudError as error:
        failed = Finding("hosts", "failure", error.message, fix=error.hint, code=error.exit_code)
        return facts | {"reachable": bool(error.status)}, [failed]
    identity = host_look.identity
    facts |= {
        "reachable": True,
        "seconds": round(host_look.seconds, 3),
        "version": identity.version,
        "key": identity.key,
        "role": identity.role,
        "certificate": host_look.certificate and asdict(host_look.certificate),
        "clock_ahead_s": host_look.ahead_s and round(host_look.ahead_s, 1),
    }
    return facts, list(_findings(url, host_look))


def _findings(url: str, host_look: HostLook) -> Iterator[Finding]:
    yield Finding("hosts", "ok", f"{one_line(url, 200)} answers in {host_look.seconds:.2f} s")
    if host_look.certificate is not None:
        yield _of_certificate(host_look.certificate)
    ahead_s, identity = host_look.ahead_s, host_look.identity
    if ahead_s is not None and abs(ahead_s) > MOST_AHEAD_S:
        which = "ahead of" if ahead_s > 0 else "behind"
        message = f"its clock is {duration(abs(ahead_s))} {which} this machine's"
        yield Finding("hosts", "warning", message, fix="set the wrong one, e.g. by NTP")
    elif ahead_s is not None:
        yield Finding("hosts", "ok", "its clock and this machine's agree")
    who = f" as {identity.key}, role {identity.role}" if identity.key else ""
    if identity.expires_at is not None:
        days = int((identity.expires_at - time()) // DAY_S)
        who += f", for {counted(days, 'day')} more"
    yield Finding("hosts", "ok", f"the key is accepted{who}")


def _of_certificate(shown: Certificate) -> Finding:
    days = int((shown.ends_at - time()) // DAY_S)
    text = f"its certificate ({shown.protocol}) is by {one_line(shown.issuer, 100)}, for"
    text += f" {one_line(', '.join(shown.names), 200)}, and valid for {counted(days, 'day')}"
    if days < SOON_DAYS:
        return Finding("hosts", "warning", text, fix="have it renewed there")
    return Finding("hosts", "ok", text)
