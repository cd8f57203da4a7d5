"""Which form a task row has, and what it says.

Source: the ``hud`` SDK 0.6.21 (v6 rows, upload and export forms), 0.5 (v5 rows); for those
before, `hud_tui.rl.tasks.legacy`.
"""

from collections.abc import Iterable
from typing import Any

from hud_tui.errors import Problem
from hud_tui.rl.tasks.legacy import HINT_V3, HINT_V4, read_v3, read_v4
from hud_tui.rl.tasks.task import HINT, Fields, Form, Task, default_slug, kind_of, refuse

CARRIED = ("validation", "agent_config", "runtime_config", "verifier")
"""Fields of a row that are sent as they are."""
COMMON = frozenset({"env", "args", "slug", "name", "columns", *CARRIED})
PLATFORM = frozenset({"id", "external_id", "metadata", "description", "system_prompt"})
KNOWN: dict[Form, frozenset[str]] = {
    "v6": COMMON | {"id"},
    "v5": COMMON | PLATFORM | {"scenario"},
    "upload": COMMON | PLATFORM | {"task_id", "scenario", "scenario_id", "registry_id"},
    "export": COMMON | PLATFORM | {"scenario", "task_version_id"},
}
V4_ONLY = ("mcp_config", "setup_tool", "evaluate_tool", "integration_test_tool", "agent_tools")
SCENARIO: dict[Form, str] = {"v6": "id", "v5": "scenario", "upload": "task_id"}
MAX_VALUES = 100_000
"""Of one row, those within others counted too. Real ones have some hundred."""
MOST_PROBLEMS = 1000
"""After so many the rest of a file is not read."""


def detect(row: dict[str, Any]) -> Form | None:
    """The form of a row, by the fields that it has; None where they are of no form."""
    has = {key for key in _TELLING if row.get(key) not in (None, "")}
    if {"mcp_config", "prompt"} <= has:
        return "v4"
    if {"env", "scenario"} <= has:
        return "export" if "name" in has and not has & {"slug", "id"} else "v5"
    if {"env", "task_id"} <= has:
        return "upload"
    if {"env", "id"} <= has:
        return "v6"
    return "v3" if "gym" in has else None


_TELLING = ("mcp_config", "prompt", "env", "scenario", "name", "slug", "id", "task_id", "gym")


def read_row(row: object, where: str = "row", check: bool = True) -> Task:
    """Read one row of any form.

    Args:
        row: As it was parsed.
        where: Its place, for messages.
        check: Whether to look for text that no request can carry.

    Raises:
        HudBadTasks: Not a task row; the message names the place and every wrong field.
    """
    problems: list[Problem] = []
    task = try_row(row, where, problems, check)
    if task is None:
        refuse(problems, hint_for(row))
    return task


def read_rows(rows: Iterable[object], name: str = "row", first: int = 1) -> list[Task]:
    """Read rows numbered from `first`, e.g. ``row 3``.

    Raises:
        HudBadTasks: Rows that are none; all of them are named.
    """
    problems: list[Problem] = []
    tasks, hint = [], ""
    for number, row in enumerate(rows, first):
        task = try_row(row, f"{name} {number}", problems)
        if task is not None:
            tasks.append(task)
        hint = hint or (hint_for(row) if problems else "")
        if len(problems) > MOST_PROBLEMS:
            break
    if problems:
        refuse(problems, hint)
    return tasks


def try_row(row: object, where: str, problems: list[Problem], check: bool = True) -> Task | None:
    """One row's task; None, with what is wrong added to `problems`, where it is none."""
    if not isinstance(row, dict):
        problems.append(Problem(where, "", f"expected a task object, found {kind_of(row)}"))
        return None
    if _has_too_many(row):
        problems.append(Problem(where, "", f"more than {MAX_VALUES} values in one row"))
        return None
    before = len(problems)
    fields = Fields(row, where, problems)
    if check:
        fields.check_text()
    form = detect(row)
    if form == "v4":
        task = read_v4(fields)
    elif form == "v3":
        task = read_v3(fields)
    elif form is None:
        _formless(fields)
    else:
        task = _read(fields, form)
    return task if len(problems) == before else None


def _has_too_many(row: dict[str, Any]) -> bool:
    """Whether it has more than `MAX_VALUES`; no more of it than that is looked at."""
    waiting: list[Any] = [row]
    held = 0
    while waiting:
        node = waiting.pop()
        held += len(node)
        if held > MAX_VALUES:
            return True
        parts = node.values() if isinstance(node, dict) else node
        waiting += [part for part in parts if isinstance(part, (dict, list))]
    return False


def hint_for(row: object) -> str:
    """What a row of this form looks like."""
    if not isinstance(row, dict):
        return HINT
    if row.get("gym") and detect(row) == "v3":
        return HINT_V3
    return HINT_V4 if row.get("mcp_config") or row.get("prompt") else HINT


def _read(fields: Fields, form: Form) -> Task:
    row = fields.row
    env, more = _environment(fields)
    scenario = fields.text(SCENARIO.get(form, "scenario"), "the scenario's name")
    args, columns = fields.mapping("args"), fields.mapping("columns")
    slug = fields.maybe_text("slug") or fields.maybe_text("external_id")
    if not slug and form != "v6":
        slug = fields.maybe_text("name")
    if form == "v5":
        for key in V4_ONLY:
            if row.get(key) is not None:
                fields.wrong(key, "expected no such field: it is of v4, which has no scenario")
    fields.sequence("validation")
    fields.mapping("agent_config")
    fields.mapping("runtime_config")
    _check_verifier(fields)
    more |= {key: row[key] for key in CARRIED if row.get(key) is not None}
    if scenario == f"{env}:":
        fields.wrong(SCENARIO.get(form, "scenario"), "expected the scenario's name after env:")
    scenario = scenario.removeprefix(f"{env}:")
    unknown = tuple(sorted(row.keys() - KNOWN[form]))
    slug = slug or default_slug(scenario, args)
    return Task(env, scenario, args, slug, columns, fields.where, form, more, unknown)


def _environment(fields: Fields) -> tuple[str, dict[str, Any]]:
    """Its name; and where only some of its tools are wanted, the whole object."""
    env = fields.row.get("env")
    if not isinstance(env, dict):
        return fields.text("env", "the environment's name"), {}
    name = env.get("name")
    if not isinstance(name, str) or not name.strip():
        fields.wrong("env.name", f"expected the environment's name, found {kind_of(name)}")
        return "", {}
    chosen = {key: env[key] for key in ("include", "exclude") if env.get(key)}
    return name, {"env": {"name": name, **chosen}} if chosen else {}


def _check_verifier(fields: Fields) -> None:
    """A verifier is a task row too, and has none of its own."""
    verifier = fields.mapping("verifier")
    if not verifier:
        return
    if verifier.get("verifier"):
        fields.wrong("verifier.verifier", "expected no verifier of a verifier")
    inner: list[Problem] = []
    try_row({key: verifier[key] for key in verifier if key != "verifier"}, "", inner, check=False)
    for problem in inner:
        fields.wrong(f"verifier.{problem.field}".rstrip("."), problem.message)


def _formless(fields: Fields) -> None:
    """Say what is missing to the form that the row is nearest to."""
    row = fields.row
    if row.get("mcp_config") or row.get("evaluate_tool") or row.get("setup_tool"):
        for key, wanted in (("prompt", "the instruction"), ("mcp_config", "the MCP servers")):
            if not row.get(key):
                fields.wrong(key, f"expected {wanted}, found {kind_of(row.get(key))}")
    elif row.get("prompt"):
        wanted = "expected mcp_config (v4) or gym (v1 to v3) beside prompt, found neither"
        fields.wrong("mcp_config", wanted)
    else:
        _read(fields, "upload" if row.get("task_id") else "v5" if row.get("scenario") else "v6")
