"""Tasks and the fields of their rows: JSON Schema checks, typed reading, places for messages.

Schemas come from a server. References are not fetched, and an invalid schema accepts everything:
reporting it is up to the service that published it.

Source: JSON Schema 2020-12, by the ``jsonschema`` package.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import groupby
from typing import Any, Literal, NoReturn, TypeVar

from hud_tui.errors import HudBadTasks, Problem
from hud_tui.rl.text import counted, has_surrogate, one_line

T = TypeVar("T", str, dict[str, Any], list[Any])

BOUNDS = {
    "minimum": "below",
    "maximum": "above",
    "exclusiveMinimum": "not above",
    "exclusiveMaximum": "not below",
    "minLength": "below",
    "maxLength": "above",
    "minItems": "below",
    "maxItems": "above",
}
"""How a value violates a bound, in words."""
Validator = Callable[[object], list[str]]
"""Maps a value to its errors, each named once, by their place; empty if it is valid."""


def validator(schema: Mapping[str, Any], root: str = "args") -> Validator:
    """A validator of one schema, for many values."""
    import jsonschema  # takes 90 ms, and most tasksets have no schema
    import referencing.exceptions

    kind = jsonschema.Draft202012Validator
    try:
        kind.check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError):
        return lambda value: []
    checker = kind(schema, registry=referencing.Registry())  # the default fetches references

    def validate(value: object) -> list[str]:
        try:
            if checker.is_valid(value):
                return []
            errors = sorted(checker.iter_errors(value), key=lambda e: list(map(str, e.path)))
        except (referencing.exceptions.Unresolvable, RecursionError):
            return []
        return list(dict.fromkeys(_error_text(error, root) for error in errors))

    return validate


def _error_text(error: Any, root: str) -> str:
    where = root + "".join(_step(part) for part in error.absolute_path)
    value, expected, rule = error.instance, error.validator_value, str(error.validator)
    if rule == "type":
        kinds = expected if isinstance(expected, list) else [expected]
        return f"{where}: expected {' or '.join(one_line(kind, 20) for kind in kinds)}"
    if rule == "enum":
        return f"{where}: expected one of {one_line(expected, 80)}"
    if rule == "required":
        missing = [one_line(name, 40) for name in expected if name not in value]
        several = f": {', '.join(missing)} are missing"
        return where + (several if len(missing) > 1 else f".{missing[0]}: missing")
    if rule == "additionalProperties" and expected is False:
        return f"{where}.{one_line(_unknown(value, error.schema), 40)}: not known"
    if rule in BOUNDS:
        size = len(value) if isinstance(value, (str, list)) else value
        return f"{where}: {size} is {BOUNDS[rule]} {expected}"
    return f"{where}: does not fit {one_line(rule, 40)} {one_line(expected, 80)}"


def _unknown(value: Iterable[str], schema: Any) -> str:
    """The first field that a schema does not have."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return next((name for name in value if name not in properties), "")


def _step(part: str | int) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{one_line(part, 40)}"


# Reading the fields of a row. Errors are collected, so that all errors of a file are reported at
# once. Messages never contain values, because a row may contain a key.


HINT = 'a row is {"env": NAME, "id": SCENARIO, "args": {…}, "slug": NAME}'


class Fields:
    """Reads the fields of an object; an invalid one adds to `problems` and gives a neutral
    value."""

    def __init__(self, row: dict[str, Any], where: str, problems: list[Problem]) -> None:
        self.row = row
        self.where = where
        self.problems = problems

    def wrong(self, field: str, message: str) -> None:
        self.problems.append(Problem(self.where, one_line(field, 120), message))

    def expected(self, field: str, kind: str, value: object) -> None:
        self.wrong(field, f"expected {kind}, found {kind_of(value)}")

    def text(self, key: str, kind: str = "text") -> str:
        """A required text that is not empty."""
        value = self.row.get(key)
        if isinstance(value, str) and value.strip():
            return value
        what = "empty text" if isinstance(value, str) else kind_of(value)
        self.wrong(key, f"expected {kind}, found {what}")
        return ""

    def maybe_text(self, key: str) -> str:
        return self._optional(key, str, "text")

    def mapping(self, key: str) -> dict[str, Any]:
        return self._optional(key, dict, "an object")

    def sequence(self, key: str) -> list[Any]:
        return self._optional(key, list, "a list")

    def _optional(self, key: str, kind: type[T], name: str) -> T:
        """A value of this kind; an empty one if it is absent or null."""
        value = self.row.get(key)
        if isinstance(value, kind):
            return value
        if value is not None:
            self.expected(key, name, value)
        return kind()

    def check_text(self) -> None:
        """Reject lone surrogates, which JSON can escape but UTF-8 cannot encode."""
        waiting: list[tuple[str, object]] = list(self.row.items())
        waiting += [("", key) for key in self.row]
        while waiting:
            path, value = waiting.pop()
            if isinstance(value, str) and has_surrogate(value):
                self.wrong(path, "lone surrogate: not valid text")
            elif isinstance(value, dict):
                waiting += [(f"{path}.{key}", part) for key, part in value.items()]
                waiting += [(path, key) for key in value]
            elif isinstance(value, list):
                waiting += [(f"{path}[{index}]", part) for index, part in enumerate(value)]


def refuse(problems: list[Problem], hint: str = HINT) -> NoReturn:
    raise HudBadTasks(problems, hint)


def kind_of(value: object) -> str:
    """The kind of a JSON value, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


# Tasks, independent of the form of their rows.


Form = Literal["v3", "v4", "v5", "v6", "upload", "export"]
"""Form of a row; ``v3`` stands for v1 to v3."""
HASHED = "-[0-9a-f]{8}"
"""What a slug ends with that was not given by a person."""
TITLE_MOST = 32
"""Most characters of the args in a task's title."""
HELD_OUT = "heldout"
"""Value of ``columns.split`` for tasks that are never trained on."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: a scenario of an environment, with its args.

    Rows up to v4 name no environment. For display, `env` is then the gym or the names of the MCP
    servers, and `scenario` the grading call.
    """

    env: str
    scenario: str
    args: dict[str, Any] = field(default_factory=dict)
    slug: str = ""
    columns: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    """Where it was read, e.g. ``tasks.jsonl line 3``."""
    form: Form = field(default="v6", compare=False)
    more: dict[str, Any] = field(default_factory=dict)
    """Other fields, which are sent along. For rows up to v4 all fields, with calls and
    configurations as objects."""
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Names of unknown fields, which are dropped."""

    @property
    def heldout(self) -> bool:
        return self.columns.get("split") == HELD_OUT

    @property
    def title(self) -> str:
        """Its slug; of a slug with a hash the scenario with the args instead, e.g.
        ``total(a=2, b=3)``."""
        if not self.args or not re.fullmatch(re.escape(self.scenario) + HASHED, self.slug):
            return self.slug
        args = ", ".join(f"{name}={json.dumps(value)}" for name, value in self.args.items())
        return f"{self.scenario}({one_line(args, TITLE_MOST)})"

    @property
    def is_legacy(self) -> bool:
        """Whether the row is of v4 or older: tools or a gym instead of an environment."""
        return self.form in ("v3", "v4")

    def row(self) -> dict[str, Any]:
        """The row as submitted: in v6 form; rows up to v4 in their own."""
        if self.is_legacy:
            return dict(self.more)
        again = f"{self.env}:"  # a reader removes this prefix once
        row: dict[str, Any] = {
            "env": self.env,
            "id": self.scenario if not self.scenario.startswith(again) else again + self.scenario,
            "args": self.args,
            "slug": self.slug,
        }
        return row | self.more | ({"columns": self.columns} if self.columns else {})


def default_slug(scenario: str, args: dict[str, Any]) -> str:
    """Slug of a row without one: the scenario, and a hash of the args if there are any."""
    return f"{scenario}-{digest(args)[:8]}" if args else scenario


def digest(value: object) -> str:
    """SHA-1 of a JSON value, 40 hex digits; keys are sorted, so equal values have equal hashes."""
    return sha1(json.dumps(value, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def rows_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Hash of tasks: 16 hex digits of the hash of their rows as sent, in this order."""
    return digest([dict(row) for row in rows])[:16]


def form_of(tasks: Iterable[Task]) -> str | None:
    """The common form of tasks; ``mixed`` for several, None without tasks."""
    forms = {task.form for task in tasks}
    return forms.pop() if len(forms) == 1 else "mixed" if forms else None


def split_text(tasks: Sequence[Task]) -> str:
    """E.g. ``96 training tasks, 36 held out``."""
    held = sum(task.heldout for task in tasks)
    train = counted(len(tasks) - held, "training task")
    return f"{train}, {held} held out" if held else train


# Places of tasks as text: ``t.jsonl lines 1-3, 7 and 12 more``.


NAMED = 5
"""Maximum number of places named in a finding; the others are only counted."""
NUMBERED = re.compile(r"(.+) (row|line|item) (\d+)", re.DOTALL)


@dataclass
class _Stretch:
    """Consecutive tasks of a file; or a single task without a number."""

    name: str
    unit: str
    first: int
    last: int
    tasks: int = 1

    def takes(self, name: str, unit: str, number: int) -> bool:
        """Add a task if it is the next one or on the same line; return whether it was added."""
        follows = (name, unit) == (self.name, self.unit) and number in (self.last, self.last + 1)
        if follows and unit:
            self.last, self.tasks = number, self.tasks + 1
        return follows and bool(unit)

    def numbers(self) -> str:
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)


def locations(tasks: Sequence[Task]) -> str:
    """Places of tasks as text: the first few by name, the others as a count."""
    stretches: list[_Stretch] = []
    for task in tasks:
        match = NUMBERED.fullmatch(task.where)
        spot = (match[1], match[2], int(match[3])) if match else (task.where or task.slug, "", 0)
        if stretches and stretches[-1].takes(*spot):
            continue
        if len(stretches) == NAMED:
            break
        stretches.append(_Stretch(*spot, spot[2]))
    left = len(tasks) - sum(stretch.tasks for stretch in stretches)
    return ", ".join(_joined(stretches)) + (f" and {left} more" if left else "")


def _joined(stretches: Sequence[_Stretch]) -> Iterator[str]:
    """Each file with its ranges of numbers; tasks without a number one by one."""
    for (name, unit), group in groupby(stretches, lambda stretch: (stretch.name, stretch.unit)):
        numbers = [stretch.numbers() for stretch in group]
        many = "s" if len(numbers) > 1 or "-" in numbers[0] else ""
        label = one_line(name, 80)
        yield (
            f"{label} {unit}{many} {', '.join(numbers)}"
            if unit
            else ", ".join([label] * len(numbers))
        )
