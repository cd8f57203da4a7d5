"""How long ago something was, in at most five characters."""

from datetime import datetime

UNITS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
"""Seconds in each unit, longest first."""

STEP_S = 10


def coarse(now: float) -> float:
    """The moment that ages beside many rows are told of: all of them change together, and
    seldom, so that a terminal is sent next to nothing while nothing happens."""
    return now // STEP_S * STEP_S


def age(stamp: str | float | None, now: float) -> str:
    """Time since a moment, e.g. ``41 s`` or ``3 h``; ``–`` where it is unknown.

    Args:
        stamp: ISO 8601, or Unix seconds.
        now: Unix seconds. A moment that lies ahead, by another clock, is ``0 s`` ago.
    """
    then = seconds(stamp) if isinstance(stamp, str) else stamp
    if then is None:
        return "–"
    past = max(0, int(now - then))
    size, unit = next((each for each in UNITS if past >= each[0]), (1, "s"))
    return f"{past // size} {unit}"


def seconds(stamp: str | None) -> float | None:
    """An ISO 8601 time as Unix seconds; None where it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None
