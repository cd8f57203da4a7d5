"""Shelf: small JSON files of what the user chose, kept from one session to the next."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any


class Shelf:
    """Files in one directory, looked up when first needed; without one nothing is kept.

    What cannot be read, be it damaged or another program's, counts as nothing chosen; what
    cannot be written is lost. Neither is worth stopping for.
    """

    def __init__(self, find: Callable[[], Path] | None = None) -> None:
        """`find` says which directory."""
        self._find = find

    @cached_property
    def directory(self) -> Path | None:
        return None if self._find is None else self._find()

    def read(self, name: str) -> dict[str, Any]:
        """What was last written under this name."""
        if self.directory is None:
            return {}
        try:
            found = json.loads((self.directory / f"{name}.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Replace it whole, so that a crash leaves the old file or the new one."""
        if self.directory is None:
            return
        path = self.directory / f"{name}.json"
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(values), "utf-8")
            fresh.replace(path)
        except OSError:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
