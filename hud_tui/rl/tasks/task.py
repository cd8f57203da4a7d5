"""Whether a value fits a JSON Schema: args and a scenario's, runtime_config and HUD's.

Schemas come from a server. Nothing that they refer to is fetched, and one that makes no
sense refuses nothing: the service that published it will say so better.

Source: JSON Schema 2020-12, by the ``jsonschema`` package.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import groupby
from typing import Any, Literal, NoReturn

from hud_tui.errors import HudBadTasks, Problem
from hud_tui.rl.text import has_surrogate, one_line

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
"""What a value is to the bound that it breaks."""
Judge = Callable[[object], str]
"""A value → the first thing wrong with it, empty if none."""


def misfit(schema: Mapping[str, Any], value: object, at: str = "args") -> str:
    """The first thing wrong with a value, e.g. ``args.a: expected integer``; empty if none."""
    return judge_of(schema, at)(value)


def judge_of(schema: Mapping[str, Any], at: str = "args") -> Judge:
    """A judge for many values of one schema."""
    import jsonschema  # 90 ms, which only a schema need cost
    import referencing.exceptions

    kind = jsonschema.Draft202012Validator
    try:
        kind.check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError):
        return lambda value: ""
    validator = kind(schema, registry=referencing.Registry())  # without one it would fetch

    def judge(value: object) -> str:
        try:
            if validator.is_valid(value):
                return ""
            errors = sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path)))
        except (referencing.exceptions.Unresolvable, RecursionError):
            return ""
        return _said(errors[0], at) if errors else ""

    return judge


def _said(error: Any, at: str) -> str:
    place = at + "".join(_step(part) for part in error.absolute_path)
    value, wanted, rule = error.instance, error.validator_value, str(error.validator)
    if rule == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        return f"{place}: expected {' or '.join(one_line(kind, 20) for kind in kinds)}"
    if rule == "enum":
        return f"{place}: expected one of {one_line(wanted, 80)}"
    if rule == "required":
        missing = [one_line(name, 40) for name in wanted if name not in value]
        several = f": {', '.join(missing)} are missing"
        return place + (several if len(missing) > 1 else f".{missing[0]}: missing")
    if rule == "additionalProperties" and wanted is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        name = next((name for name in value if name not in known), "")
        return f"{place}.{one_line(name, 40)}: not known"
    if rule in BOUNDS:
        size = len(value) if isinstance(value, (str, list)) else value
        return f"{place}: {size} is {BOUNDS[rule]} {wanted}"
    return f"{place}: does not fit {one_line(rule, 40)} {one_line(wanted, 80)}"


def _step(part: str | int) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{one_line(part, 40)}"


# One row's fields, read with every misfit noted, so that a file's errors come all at once.
#
# No message repeats a value: a row may hold a key.


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


# Tasks: what a taskset is made of, whatever form they were written in.


Form = Literal["v3", "v4", "v5", "v6", "upload", "export"]
"""How a row was written; ``v3`` stands for v1 to v3."""
HELD_OUT = "heldout"
"""A row whose ``columns.split`` is this is sampled to measure, never trained on."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: a scenario of an environment with its args.

    Rows up to v4 name no environment. There `env` is what they run in (the gym, or the MCP
    servers' names) and `scenario` what grades them, to be shown only.
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
    """Its other fields, which are sent along; of a row up to v4 all of them, calls and
    configurations as objects."""
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Fields that its form does not have; they are left out."""

    @property
    def heldout(self) -> bool:
        return self.columns.get("split") == HELD_OUT

    @property
    def is_older(self) -> bool:
        """Whether it names tools or a gym, and no environment with scenarios."""
        return self.form in ("v3", "v4")

    def row(self) -> dict[str, Any]:
        """As it is submitted: a v6 row, or one of its own form up to v4."""
        if self.is_older:
            return dict(self.more)
        again = f"{self.env}:"  # reading takes this off, once
        row: dict[str, Any] = {
            "env": self.env,
            "id": self.scenario if not self.scenario.startswith(again) else again + self.scenario,
            "args": self.args,
            "slug": self.slug,
        }
        return row | self.more | ({"columns": self.columns} if self.columns else {})


def default_slug(scenario: str, args: dict[str, Any]) -> str:
    """The slug of a row that names none: the scenario, and with args 8 hex digits of them."""
    return f"{scenario}-{digest(args)[:8]}" if args else scenario


def digest(value: object) -> str:
    """40 hex digits that are the same for equal JSON values."""
    return sha1(json.dumps(value, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def form_of(tasks: Iterable[Task]) -> str | None:
    """The form that all of them were written in; ``mixed`` for several, None for no task."""
    forms = {task.form for task in tasks}
    return forms.pop() if len(forms) == 1 else "mixed" if forms else None


# Where tasks are, in few words: ``t.jsonl lines 1-3, 7 and 12 more``.


NAMED = 5
"""Places that one finding names; the others are counted."""
NUMBERED = re.compile(r"(.+) (row|line|item) (\d+)", re.DOTALL)


@dataclass
class _Stretch:
    """Tasks that follow one another in a file; or one task that has no number."""

    name: str
    unit: str
    first: int
    last: int
    tasks: int = 1

    def takes(self, name: str, unit: str, number: int) -> bool:
        """Whether a task is the next one, or in the same line; then it is in here."""
        follows = (name, unit) == (self.name, self.unit) and number in (self.last, self.last + 1)
        if follows and unit:
            self.last, self.tasks = number, self.tasks + 1
        return follows and bool(unit)

    def numbers(self) -> str:
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)


def places(tasks: Sequence[Task]) -> str:
    """Where these tasks are: the first few stretches by name, the other tasks as a number."""
    stretches: list[_Stretch] = []
    for task in tasks:
        found = NUMBERED.fullmatch(task.where)
        at = (found[1], found[2], int(found[3])) if found else (task.where or task.slug, "", 0)
        if stretches and stretches[-1].takes(*at):
            continue
        if len(stretches) == NAMED:
            break
        stretches.append(_Stretch(*at, at[2]))
    left = len(tasks) - sum(stretch.tasks for stretch in stretches)
    return ", ".join(_joined(stretches)) + (f" and {left} more" if left else "")


def _joined(stretches: Sequence[_Stretch]) -> Iterator[str]:
    """Each file with its stretches; a task that has no number by itself."""
    for (name, unit), group in groupby(stretches, lambda one: (one.name, one.unit)):
        numbers = [one.numbers() for one in group]
        many = "s" if len(numbers) > 1 or "-" in numbers[0] else ""
        said = one_line(name, 80)
        yield (
            f"{said} {unit}{many} {', '.join(numbers)}"
            if unit
            else ", ".join([said] * len(numbers))
        )
