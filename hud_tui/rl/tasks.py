"""Tasks: what a taskset is made of, whatever form they were written in."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Literal

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
