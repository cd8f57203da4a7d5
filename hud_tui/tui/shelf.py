"""Shelf: small JSON files of what the user chose, kept from one session to the next.

Each has a ``version``. A file that cannot be read, or that a newer hud-tui wrote, may be worth
mending: it is left as it is, the defaults hold, and a line says what to do about it.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hud_tui.regular_file import read_regular
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic

VERSION = 1
MOST = 4_000_000
"""Bytes of the largest file that is read."""


class Shelf:
    """Files in one directory, looked up when first needed; without one nothing is kept.

    What cannot be written is lost: it is not worth stopping for.
    """

    def __init__(self, find: Callable[[], Path] | None = None) -> None:
        """`find` says which directory."""
        self._find = find
        self.later: Callable[[], object] | None = None
        """Has `flush` called soon; None has everything written at once."""
        self.noticed: Callable[[], object] | None = None
        """Called when there is something new in `problems`."""
        self._waiting: dict[str, dict[str, Any]] = {}
        self._left: dict[str, str] = {}
        """What is wrong with files that are left as they are, by name."""
        self._untold: list[str] = []
        self._said: set[str] = set()

    @cached_property
    def directory(self) -> Path | None:
        return None if self._find is None else self._find()

    def problems(self) -> list[str]:
        """A line for each file that is left as it is; each is given once."""
        untold, self._untold = self._untold, []
        return untold

    def read(self, name: str) -> dict[str, Any]:
        """What was last written under this name."""
        return {**self._load(name), **self._waiting.get(name, {})}

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Keep these values; others in the file, be they another program's, stay there."""
        if self.directory is None:
            return
        idle = not self._waiting
        as_read = json.loads(json.dumps(values))  # whoever reads them meanwhile finds no tuples
        self._waiting[name] = {**self._waiting.get(name, {}), **as_read}
        if self.later is None:
            self.flush()
        elif idle:
            self.later()

    def flush(self) -> None:
        """Write what waits, a file at a time, so that a crash leaves the old file or the new."""
        waiting, self._waiting = self._waiting, {}
        for name, values in waiting.items():
            if self.directory is not None:
                with suppress(OSError):
                    change_atomic(self._file(name), partial(self._changed, name, values))

    def leave(self, name: str, what: str, cure: str = "correct it, or remove it") -> None:
        """Touch this file no more, and have it said what is wrong with it.

        Args:
            name: The file's.
            what: Where it is wrong and how, e.g. ``theme: expected one of …``.
            cure: What to do.
        """
        if name not in self._left:
            file = one_line(self._file(name), 300)
            self.say(f"{file}: {what}. It is not used, and left as it is: {cure}.")
        self._left[name] = what

    def say(self, line: str) -> None:
        """Have a line told, once a session."""
        if line not in self._said:
            self._said.add(line)
            self._untold.append(line)
            if self.noticed is not None:
                self.noticed()

    def _file(self, name: str) -> Path:
        return (self.directory or Path()) / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        """A file's values, without its version; none where it is left as it is."""
        if self.directory is None:
            return {}
        try:
            found = self._parsed(self._file(name))
        except (FileNotFoundError, NotADirectoryError):
            self._left.pop(name, None)
        except json.JSONDecodeError as error:
            self.leave(name, f"line {error.lineno}, column {error.colno}: {error.msg}")
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            self.leave(name, one_line(why or "this is no JSON", 100))
        else:
            if not isinstance(found, dict):
                self.leave(name, "expected an object, {…}")
            elif (version := found.pop("version", VERSION)) == VERSION:
                return found
            elif type(version) is int and version > VERSION:
                what = f"version: {version}, and this hud-tui knows {VERSION} only"
                self.leave(name, what, "update hud-tui, or remove it")
            else:
                self.leave(name, f"version: expected {VERSION}")
        return {}

    def _parsed(self, file: Path) -> Any:
        return json.loads(read_regular(file, MOST))

    def _changed(self, name: str, values: dict[str, Any]) -> str | None:
        """The file with these values; None where it has them, or is left as it is."""
        found = self._load(name)
        if name in self._left or {**found, **values} == found:
            return None
        return json.dumps({"version": VERSION, **found, **values})
