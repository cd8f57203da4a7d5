"""Protection: models that are changed only by who types their name; kept on this machine.

One JSON file in the state directory. It is read whenever it matters, so that what one
program protects is protected in all of them at once.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_regular

NAME = "protected.json"
MOST_BYTES = 4_000_000
"""Of the largest file that is read."""


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
            found = json.loads(read_regular(self._file, MOST_BYTES))["models"]
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

        def changed() -> dict[str, str]:
            others = {id_: known for id_, known in self.models.items() if id_ != model_id}
            return {**others, model_id: name} if on else others

        if self._file is None:
            self._models = changed()
            return
        try:
            change_atomic(self._file, lambda: json.dumps({"models": changed()}))
        except OSError as error:
            what = f"{one_line(self._file, 300)} cannot be written: {one_line(error, 200)}"
            raise HudUsage(what, "make room there, or give another --state-dir") from error
