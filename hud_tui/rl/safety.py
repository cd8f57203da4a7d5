"""Safety: whether this program may change the service. The table ``[safety]`` of the config."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from hud_tui.rl.alarms.tuning import BadTuning

OFF = frozenset({"", "0", "false", "no", "off"})
"""Values of HUD_TUI_READ_ONLY that are none."""


@dataclass(frozen=True)
class Safety:
    """What is not to happen by mistake."""

    read_only: bool = False
    """Send nothing that changes the service or that it has to compute."""


@dataclass(frozen=True)
class ReadOnly:
    """Why nothing is sent but what reads."""

    why: str
    """E.g. ``started with --read-only``."""
    cure: str
    """What to do for changing something after all."""
    kind: str = "read-only"
    """What this is called."""


OFFLINE = "offline"
"""The kind that ends by itself."""
NO_ANSWER = ReadOnly(
    "the service does not answer, so nothing can be changed",
    "wait until it does, or press {app.reconnect} to connect anew",
    OFFLINE,
)


def read_safety(given: object) -> Safety:
    """The table as typed values; what it leaves out is as it comes.

    Raises:
        BadTuning: With the name of what cannot be used.
    """
    if not isinstance(given, Mapping):
        raise BadTuning("", "expected a table")
    known = {one.name for one in fields(Safety)}
    for name in given:
        if name not in known:
            raise BadTuning(str(name), f"not known; there are {', '.join(sorted(known))}")
    if not isinstance(given.get("read_only", False), bool):
        raise BadTuning("read_only", "expected true or false")
    return Safety(**given)


def why_read_only(flag: bool, environ: Mapping[str, str], safety: Safety) -> ReadOnly | None:
    """What says that nothing may be changed; None where nothing does.

    Args:
        flag: Whether ``--read-only`` was given.
        environ: The process environment.
        safety: The config file's.
    """
    if flag:
        return ReadOnly("started with --read-only", "start without it to change something")
    if environ.get("HUD_TUI_READ_ONLY", "").strip().lower() not in OFF:
        return ReadOnly("HUD_TUI_READ_ONLY is set", "unset it to change something")
    if safety.read_only:
        cure = "take that out to change something"
        return ReadOnly("config.toml says read_only in [safety]", cure)
    return None
