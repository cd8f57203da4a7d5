"""What would make a data set of tasks useless, or give a secret away."""

import re
from collections.abc import Iterator, Mapping, Sequence

from hud_tui.errors import HudUsage
from hud_tui.older.dataset_rows import Row
from hud_tui.rl.older_checks import graded
from hud_tui.rl.places import places
from hud_tui.rl.preflight import (
    Finding,
    check_fields,
    check_rows,
    check_slugs,
    count,
    names,
)
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.variables import SHORTEST_KEY, bare_keys

NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?", re.ASCII)
LONGEST = 96
LEAST = 10
"""Tasks that a managed run wants; the trainers of hud 0.4 wanted 4."""
SECRET = re.compile(r"_API_KEY$|_TOKEN$|_SECRET$|PASSWORD|SECRET_ACCESS_KEY$")


def check_name(name: str, push: bool) -> None:
    """
    Raises:
        HudUsage: The Hub takes no such name, or pushing needs an owner.
    """
    wrong = not NAME.fullmatch(name) or len(name) > LONGEST or name.endswith(".git")
    if wrong or "--" in name or ".." in name:
        hint = "letters, digits, -, _ and . only, e.g. my-org/my-tasks"
        raise HudUsage(f"--name {one_line(name, 100)}: not a data set's name", hint)
    if push and "/" not in name:
        hint = f"--name ORG/{name}; or --no-push to keep it on this machine"
        raise HudUsage(f"--name {name}: pushing needs its owner", hint)


def check_dataset(
    tasks: Sequence[Task], rows: Sequence[Row], values: Mapping[str, str]
) -> list[Finding]:
    """
    Args:
        tasks: What the rows were made of.
        rows: As they are written.
        values: Variables that are set here; those that hold secrets are looked for.
    """
    findings = check_rows(tasks)
    if not tasks:
        return findings
    findings += [*check_slugs(tasks), *check_fields(tasks)]
    older = [task for task in tasks if task.is_older]
    findings += graded(older) if older else []
    if len({task.form for task in tasks}) > 1:
        forms = names(sorted({task.form for task in tasks}))
        message = f"tasks of several forms ({forms}) have no columns in common"
        findings.append(Finding("rows", "failure", message, fix="convert each form by itself"))
    if len(tasks) < LEAST:
        message = f"{count(len(tasks), 'task')}: a managed run wants {LEAST}"
        findings.append(Finding("rows", "warning", message, fix="add tasks before you train on it"))
    return findings + list(_secrets(tasks, rows, values))


def _secrets(
    tasks: Sequence[Task], rows: Sequence[Row], values: Mapping[str, str]
) -> Iterator[Finding]:
    fix = "write ${NAME} there, and set NAME in the environment or in .env"
    for place, holders in bare_keys(tasks).items():
        message = f"what looks like a key stands in the clear in {place}"
        where = places(holders)
        yield Finding("variables", "failure", message, where, fix)
    for name, value in values.items():
        if not SECRET.search(name) or len(value) < SHORTEST_KEY:
            continue
        found = [task for task, row in zip(tasks, rows, strict=True) if _holds(row, value)]
        if found:
            message = f"the value of {one_line(name, 60)} stands in {count(len(found), 'task')}"
            yield Finding("variables", "failure", message, places(found), fix)


def _holds(row: Row, value: str) -> bool:
    return any(text is not None and value in text for text in row.values())
