"""Offer: what a server had when it last answered, so that trees can be read while it is away."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hud_tui.regular_file import read_regular

MOST_BYTES = 1 << 24
"""Of the largest file that is read."""


class Offer:
    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url

    def write(self, contexts: Mapping[str, int | None]) -> None:
        """Remember model names and contexts; where that cannot be written, it is not."""
        draft = self._path.with_suffix(".tmp")
        with suppress(OSError):
            draft.write_text(json.dumps({"url": self._url, "models": dict(contexts)}))
            draft.replace(self._path)

    def read(self) -> dict[str, int | None]:
        """What this very server offered; empty where that is not known."""
        try:
            found = json.loads(read_regular(self._path, MOST_BYTES))
            models = found["models"] if found["url"] == self._url else {}
            return {str(name): context for name, context in models.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
