"""Where exported files go: the table ``[export]`` of the config."""

from collections.abc import Mapping
from dataclasses import dataclass

from hud_tui.rl.alarms.tuning import BadTuning


@dataclass(frozen=True)
class Export:
    """What the config file says of exports."""

    directory: str = ""
    """Where new files go, ``~`` is the home directory; empty for the current directory."""


def read_export(given: object) -> Export:
    """The table as typed values.

    Raises:
        BadTuning: With the name of what cannot be used.
    """
    if not isinstance(given, Mapping):
        raise BadTuning("", "expected a table")
    for name in given:
        if name != "directory":
            raise BadTuning(str(name), "not known; there is directory")
    directory = given.get("directory", "")
    if not isinstance(directory, str) or "\0" in directory:
        raise BadTuning("directory", "expected a path")
    return Export(directory)
