"""Preflight: what would spoil a run, found before anything is spent.

Each check is a function from what was looked up to findings; nothing is looked up here.

Source: the order and the rules of ``hud rl run`` (hud 0.5): rows load, a model that is
trainable and not shared, each environment exists, each scenario is among its own.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hud_tui.rl.args import judge_of
from hud_tui.rl.places import NAMED, places
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line

Check = Literal[
    "key",
    "rows",
    "train",
    "fields",
    "slugs",
    "duplicates",
    "count",
    "vision",
    "runtime",
    "lock",
    "signal",
    "model",
    "ready",
    "tokens",
    "group_size",
    "disk",
    "environments",
    "scenarios",
    "args",
    "graded",
    "variables",
    "remote",
]
DIGITS = re.compile(r"(\d+)")
Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: Check
    level: Level
    message: str
    where: str = ""
    """Rows or names concerned, e.g. ``tasks.jsonl line 3``."""
    fix: str = ""
    """What to do about it."""


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The same order whenever they came: of the checks, then of the places."""
    order = {check: number for number, check in enumerate(get_args(Check))}
    return sorted(
        findings, key=lambda one: (order[one.check], _counted(one.where), _counted(one.message))
    )


def _counted(text: str) -> list[tuple[int, str]]:
    """A key that sorts ``line 9`` before ``line 10``."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in DIGITS.split(text)]
    return [(len(part) * (number % 2), part) for number, part in enumerate(parts)]


def verdict(findings: Iterable[Finding]) -> Level:
    """The worst level of all."""
    levels = {finding.level for finding in findings}
    return "failure" if "failure" in levels else "warning" if "warning" in levels else "ok"


def check_rows(tasks: Sequence[Task]) -> list[Finding]:
    """Whether there is anything to train on: rows at all, and rows that are not held out."""
    if not tasks:
        fix = "add rows, or choose another taskset"
        return [Finding("rows", "failure", "the taskset is empty", fix=fix)]
    train = sum(not task.heldout for task in tasks)
    forms = Counter(task.form for task in tasks)
    mixed = ", ".join(f"{number} {form}" for form, number in sorted(forms.items()))
    said = mixed if len(forms) > 1 else next(iter(forms))
    fix = "write all of them in one form" if len(forms) > 1 else ""
    rows = Finding(
        "rows",
        "warning" if len(forms) > 1 else "ok",
        f"{count(len(tasks), 'task')}, {said}",
        fix=fix,
    )
    if not train:
        fix = 'remove "split": "heldout" from the columns of some tasks'
        return [rows, Finding("train", "failure", "every task is held out", fix=fix)]
    held = f", {len(tasks) - train} held out" if train < len(tasks) else ""
    return [rows, Finding("train", "ok", f"{count(train, 'task')} to train on{held}")]


def check_fields(tasks: Sequence[Task]) -> list[Finding]:
    """Whether rows have fields that nothing reads: mostly one that is misspelt."""
    holders: dict[str, list[Task]] = {}
    for task in tasks:
        for name in task.unknown:
            holders.setdefault(one_line(name, 40), []).append(task)
    fix = "remove it, or correct its name; what a task says beside its args goes into columns"
    return [
        Finding("fields", "warning", f"no form of task row has {name}", places(rows), fix)
        for name, rows in list(holders.items())[:NAMED]
    ]


def check_slugs(tasks: Sequence[Task]) -> list[Finding]:
    """Whether each task can be told from the others."""
    counts = Counter(task.slug for task in tasks)
    twice = {slug for slug, count in counts.items() if count > 1}
    if not twice:
        return [Finding("slugs", "ok", "every slug is used once")]
    where = places([task for task in tasks if task.slug in twice])
    message = f"used more than once: {names(sorted(twice))}"
    return [Finding("slugs", "failure", message, where, "give each task a slug of its own")]


def check_scenarios(env: str, offered: object, tasks: Sequence[Task]) -> list[Finding]:
    """Whether an environment has the scenarios that its tasks name.

    Args:
        env: The environment's name.
        offered: Its scenarios' names as the service lists them; not a list where it cannot.
        tasks: The tasks of this environment.
    """
    if not isinstance(offered, list):
        message = f"{one_line(env)} does not list its scenarios, so they are not checked"
        return [Finding("scenarios", "warning", message, one_line(env))]
    known = {str(name).removeprefix(f"{env}:") for name in offered}
    unknown = [task for task in tasks if task.scenario not in known]
    wanted = {task.scenario for task in tasks}
    if not unknown:
        message = f"{one_line(env)} has {count(len(wanted), 'scenario')} of {len(wanted)} asked for"
        return [Finding("scenarios", "ok", message, one_line(env))]
    message = f"{one_line(env)} has no {names(sorted(wanted - known))}"
    fix = f"it has {names(sorted(known))}" if known else "it has no scenarios at all"
    return [Finding("scenarios", "failure", message, places(unknown), fix)]


def missing_environment(env: str, tasks: Sequence[Task], close: str = "") -> Finding:
    """The failure for an environment that does not exist; `close` says what may be meant."""
    message = f"no environment is called {one_line(env)}"
    fix = close or "correct env in those rows, or deploy that environment"
    return Finding("environments", "failure", message, places(tasks), fix)


def check_args(
    env: str, schemas: Mapping[str, Mapping[str, Any]], tasks: Sequence[Task]
) -> list[Finding]:
    """Whether each task's args fit its scenario, where that publishes a schema.

    Args:
        env: The environment's name.
        schemas: JSON Schema of the args, by scenario.
        tasks: The tasks of this environment.
    """
    checked = [task for task in tasks if task.scenario in schemas]
    judges = {name: judge_of(schemas[name]) for name in {task.scenario for task in checked}}
    judged = [(task, judges[task.scenario](task.args)) for task in checked]
    wrong = [(task, problem) for task, problem in judged if problem]
    if not checked:
        return []
    if not wrong:
        return [Finding("args", "ok", f"args fit in {one_line(env)}", one_line(env))]
    first, problem = wrong[0]
    message = f"{count(len(wrong), 'task')} of {one_line(env)} cannot be asked: {problem}"
    fix = f"see what {one_line(first.scenario)} takes and correct those rows"
    return [Finding("args", "failure", message, places([task for task, _ in wrong]), fix)]


def by_environment(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Tasks by their environment's name, in the order of first mention; those up to v4, which
    name none, are left out."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if task.is_older:
            continue
        found.setdefault(task.env, []).append(task)
    return found


def names(found: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(one_line(name, 80) for name in found[:NAMED]) + more


def count(number: int, what: str) -> str:
    """E.g. ``1 task`` and ``2 tasks``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
