"""The clock that budgets go by: Prime's, carried on by this machine's time since it booted.

This machine's wall clock may be set by hours or years, which is no time spent. Each answer of Prime
has a ``Date``; between answers, the boot clock counts, in sleep too. ``remotes/clock.json`` has the
last moment that is known in both.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from hud_tui.processes import boot_id, boot_s
from hud_tui.storage import change_atomic, read_object

CLOCK = "remotes/clock.json"
"""File in the state directory."""
JUMP_S = 300.0
"""Seconds by which a clock may differ from what was counted; more is a jump."""
KEPT_S = 60.0
"""Seconds after which the moment is written again, so that little is unknown after a reboot."""


def wall() -> float:
    """Unix seconds by this machine's clock."""
    return time.time()


def prime_now(state: Path) -> float:
    """Unix seconds by Prime's clock; by this machine's if Prime was never asked."""
    return wall() - ahead_s(state)


def ahead_s(state: Path) -> float:
    """Seconds by which this machine's clock is ahead of Prime's, as far as that is known."""
    moment = _read(state)
    return wall() - _now(moment) if moment else 0.0


def is_known(state: Path) -> bool:
    """Whether Prime has said what time it is, and no reboot has made that uncertain."""
    moment = _read(state)
    return bool(moment and moment["sure"] and _same_boot(moment))


def hear(state: Path, date: str) -> None:
    """Take notice of the ``Date`` of an answer; one that is none is ignored.

    A date that differs by more than JUMP_S from what was counted is believed as a second one
    agrees with it: a machine whose boot clock was stopped has missed time, a single answer errs.
    """
    try:
        stamp = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return
    with suppress(OSError):
        change_atomic(state / CLOCK, lambda: _heard(_read(state), stamp))


def keep(state: Path) -> None:
    """Write the moment again, if there is one: after a reboot the count goes on from there."""

    def again() -> str | None:
        moment = _read(state)
        if not moment or not moment["sure"] or (_same_boot(moment) and _age(moment) < KEPT_S):
            return None
        return _written(_now(moment), _same_boot(moment), moment.get("other"))

    with suppress(OSError):
        change_atomic(state / CLOCK, again)


def _heard(moment: Mapping[str, Any], stamp: float) -> str | None:
    if not moment:
        return _written(stamp, True, None)
    if abs(stamp - _now(moment)) <= JUMP_S:
        fresh = moment["sure"] and _same_boot(moment) and _age(moment) < KEPT_S
        return None if fresh and moment.get("other") is None else _written(stamp, True, None)
    other = moment.get("other")
    if isinstance(other, float) and abs(stamp - wall() - other) <= JUMP_S:
        return _written(stamp, True, None)
    # Relative to the wall clock of now: two answers of one minute are compared, not of years.
    return _written(_now(moment), bool(moment["sure"] and _same_boot(moment)), stamp - wall())


def _written(stamp: float, sure: bool, other: float | None) -> str:
    moment = {"boot": boot_id(), "up": boot_s(), "wall": wall(), "at": stamp, "sure": sure}
    return json.dumps({**moment, "other": other, "pid": os.getpid()})


def _read(state: Path) -> dict[str, Any]:
    """The last moment that is known; empty if there is none, or the file is unusable."""
    moment = read_object(state / CLOCK)
    numbers = all(isinstance(moment.get(name), float) for name in ("up", "wall", "at"))
    fits = numbers and isinstance(moment.get("boot"), str) and isinstance(moment.get("sure"), bool)
    return moment if fits else {}


def _same_boot(moment: Mapping[str, Any]) -> bool:
    return bool(moment["boot"] == boot_id() and boot_s() >= moment["up"])


def _age(moment: Mapping[str, Any]) -> float:
    return boot_s() - float(moment["up"])


def _now(moment: Mapping[str, Any]) -> float:
    """Time since the moment by the boot clock. Of the time that the machine was off, this machine's
    clock tells, which is believed up to JUMP_S."""
    stamp: float = moment["at"]
    if _same_boot(moment):
        return stamp + _age(moment)
    off = wall() - boot_s() - float(moment["wall"])
    return stamp + boot_s() + (off if 0 <= off <= JUMP_S else 0.0)
