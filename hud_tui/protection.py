"""Protection: models that are changed only by who types their name; kept on this machine.

One JSON file in the state directory. It is read whenever it matters, so that what one
program protects is protected in all of them at once.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

NAME = "protected.json"


class Protection:
    def __init__(self, find: Callable[[], Path] | None = None) -> None:
        """`find` says which directory; None remembers for the session."""
        self._find = find
        self._models: dict[str, str] = {}

    @cached_property
    def _file(self) -> Path | None:
        return None if self._find is None else self._find() / NAME

    @property
    def models(self) -> Mapping[str, str]:
        """What each protected model was called when it was protected, by its id.

        Raises:
            HudUsage: The file cannot be read, so that nobody knows which are.
        """
        if self._file is None:
            return self._models
        try:
            found = json.loads(self._file.read_text("utf-8"))["models"]
            return {str(id_): str(name) for id_, name in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{one_line(self._file, 300)} does not say which models are protected"
            raise HudUsage(what, "correct it, or remove it to protect none") from error

    def protect(self, model_id: str, name: str, on: bool) -> None:
        """Protect a model, or no longer.

        Raises:
            HudUsage: The file cannot be read, or cannot be written.
        """
        models = {**self.models}
        models.pop(model_id, None)
        if on:
            models[model_id] = name
        if self._file is None:
            self._models = models
            return
        try:
            self._write(self._file, json.dumps({"models": models}))
        except OSError as error:
            what = f"{one_line(self._file, 300)} cannot be written: {one_line(error, 200)}"
            raise HudUsage(what, "make room there, or give another --state-dir") from error

    def _write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.touch(0o600)
        fresh.write_text(text, "utf-8")
        fresh.replace(file)
