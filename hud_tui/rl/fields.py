"""One row's fields, read with every misfit noted, so that a file's errors come all at once.

No message repeats a value: a row may hold a key.
"""

from typing import Any, NoReturn

from hud_tui.errors import HudBadTasks, Problem
from hud_tui.rl.text import has_surrogate, one_line

HINT = 'a row is {"env": NAME, "id": SCENARIO, "args": {…}, "slug": NAME}'


class Fields:
    """Reads an object; what does not fit goes to `problems`, and a neutral value comes back."""

    def __init__(self, row: dict[str, Any], where: str, problems: list[Problem]) -> None:
        self.row = row
        self.where = where
        self.problems = problems

    def wrong(self, field: str, message: str) -> None:
        self.problems.append(Problem(self.where, one_line(field, 120), message))

    def expected(self, field: str, wanted: str, value: object) -> None:
        self.wrong(field, f"expected {wanted}, found {kind_of(value)}")

    def text(self, key: str, wanted: str = "text") -> str:
        """A field that must be text, and not empty."""
        value = self.row.get(key)
        if isinstance(value, str) and value.strip():
            return value
        found = "empty text" if isinstance(value, str) else kind_of(value)
        self.wrong(key, f"expected {wanted}, found {found}")
        return ""

    def maybe_text(self, key: str) -> str:
        """A field that may be absent or null; empty then."""
        value = self.row.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self.expected(key, "text", value)
        return ""

    def mapping(self, key: str) -> dict[str, Any]:
        """An object; empty where it is absent or null."""
        value = self.row.get(key)
        if value is None or isinstance(value, dict):
            return value or {}
        self.expected(key, "an object", value)
        return {}

    def sequence(self, key: str) -> list[Any]:
        """A list; empty where it is absent or null."""
        value = self.row.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self.expected(key, "a list", value)
        return []

    def check_text(self) -> None:
        """Refuse half of a surrogate pair anywhere: JSON can spell it, no request can carry it."""
        waiting: list[tuple[str, object]] = list(self.row.items())
        waiting += [("", key) for key in self.row]
        while waiting:
            place, value = waiting.pop()
            if isinstance(value, str) and has_surrogate(value):
                self.wrong(place, "half of a surrogate pair: it is not text")
            elif isinstance(value, dict):
                waiting += [(f"{place}.{key}", part) for key, part in value.items()]
                waiting += [(place, key) for key in value]
            elif isinstance(value, list):
                waiting += [(f"{place}[{index}]", part) for index, part in enumerate(value)]


def refuse(problems: list[Problem], hint: str = HINT) -> NoReturn:
    """Raises HudBadTasks, in the order of the file."""
    raise HudBadTasks(problems, hint)


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")
