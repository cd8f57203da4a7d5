"""The clock that budgets go by: Prime's, carried on by this machine's time since it booted.

This machine's wall clock may be set by hours or years, which is no time spent. Each answer of Prime
has a ``Date``; between answers, the boot clock counts, in sleep too. ``remotes/clock.json`` has the
last moment that is known in both.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from hud_tui.storage import change_atomic, read_regular

CLOCK = "remotes/clock.json"
"""File in the state directory."""
JUMP_S = 300.0
"""Seconds by which a clock may differ from what was counted; more is a jump."""
KEPT_S = 60.0
"""Seconds after which the moment is written again, so that little is unknown after a reboot."""


@lru_cache
def boot_id() -> str:
    """What differs with each boot of this machine; empty if the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, capture_output=True, timeout=5, text=True).stdout.strip()
    return ""


def wall() -> float:
    """Unix seconds by this machine's clock."""
    return time.time()


def up_s() -> float:
    """Seconds since this machine booted, sleep included."""
    # On macOS, CLOCK_MONOTONIC counts sleep too.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def prime_now(state: Path) -> float:
    """Unix seconds by Prime's clock; by this machine's if Prime was never asked."""
    return wall() - ahead_s(state)


def ahead_s(state: Path) -> float:
    """Seconds by which this machine's clock is ahead of Prime's, as far as that is known."""
    known = _read(state)
    return wall() - _now(known) if known else 0.0


def is_known(state: Path) -> bool:
    """Whether Prime has said what time it is, and no reboot has made that uncertain."""
    known = _read(state)
    return bool(known and known["sure"] and _same_boot(known))


def hear(state: Path, date: str) -> None:
    """Take notice of the ``Date`` of an answer; one that is none is ignored.

    A date that differs by more than JUMP_S from what was counted is believed as a second one
    agrees with it: a machine whose boot clock was stopped has missed time, a single answer errs.
    """
    try:
        at = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return
    with suppress(OSError):
        change_atomic(state / CLOCK, lambda: _heard(_read(state), at))


def keep(state: Path) -> None:
    """Write the moment again, if there is one: after a reboot the count goes on from there."""

    def again() -> str | None:
        known = _read(state)
        if not known or not known["sure"] or (_same_boot(known) and _age(known) < KEPT_S):
            return None
        return _written(_now(known), _same_boot(known), known.get("other"))

    with suppress(OSError):
        change_atomic(state / CLOCK, again)


def _heard(known: Mapping[str, Any], at: float) -> str | None:
    if not known:
        return _written(at, True, None)
    if abs(at - _now(known)) <= JUMP_S:
        fresh = known["sure"] and _same_boot(known) and _age(known) < KEPT_S
        return None if fresh and known.get("other") is None else _written(at, True, None)
    other = known.get("other")
    if isinstance(other, float) and abs(at - wall() - other) <= JUMP_S:
        return _written(at, True, None)
    # Relative to the wall clock of now: two answers of one minute are compared, not of years.
    return _written(_now(known), bool(known["sure"] and _same_boot(known)), at - wall())


def _written(at: float, sure: bool, other: float | None) -> str:
    moment = {"boot": boot_id(), "up": up_s(), "wall": wall(), "at": at, "sure": sure}
    return json.dumps({**moment, "other": other, "pid": os.getpid()})


def _read(state: Path) -> dict[str, Any]:
    """The last moment that is known; empty if there is none, or the file is unusable."""
    try:
        known = json.loads(read_regular(state / CLOCK, 4096))
        numbers = all(isinstance(known[name], float) for name in ("up", "wall", "at"))
        fits = numbers and isinstance(known["boot"], str) and isinstance(known["sure"], bool)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return known if fits else {}


def _same_boot(known: Mapping[str, Any]) -> bool:
    return bool(known["boot"] == boot_id() and up_s() >= known["up"])


def _age(known: Mapping[str, Any]) -> float:
    return up_s() - float(known["up"])


def _now(known: Mapping[str, Any]) -> float:
    """Time since the moment by the boot clock. Of the time that the machine was off, this machine's
    clock tells, which is believed up to JUMP_S."""
    at: float = known["at"]
    if _same_boot(known):
        return at + _age(known)
    off = wall() - up_s() - float(known["wall"])
    return at + up_s() + (off if 0 <= off <= JUMP_S else 0.0)
