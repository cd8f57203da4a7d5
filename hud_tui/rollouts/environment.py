"""A user's environment before training: its import, its tasks, and their checks."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.client.preflight import load_source
from hud_tui.errors import HudUsage
from hud_tui.rl.findings import Finding, failures_text
from hud_tui.rl.tasks.checks import (
    by_environment,
    check_args,
    check_group_size,
    check_model,
    check_rows,
    check_scenarios,
    check_slugs,
    check_tokens,
    missing_environment,
)
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rollouts.process import (
    ANOTHER_PYTHON,
    EnvironmentFailed,
    OnRollout,
    Setting,
    WorkerProcess,
    find_interpreter,
    variables,
)
from hud_tui.rollouts.run_files import Order, log_of_checks
from hud_tui.settings import Settings
from hud_tui.wire import Model

LOAD_S = 120.0
"""Longest import of the environment, seconds."""
CALLS_TOOLS = "tiny/tools-1M"
"""The embedded service's tiny base that calls tools of any names."""
TAUGHT_TOOLS = (CALLS_TOOLS, "tiny/agent-1M")
"""Its tiny bases that were taught to call tools."""


@dataclass(frozen=True)
class Loaded:
    """Content of an environment's files."""

    environments: Sequence[Mapping[str, Any]]
    """Name and templates of each; a template has id, description, and args (a JSON Schema)."""
    tasks: Sequence[Task]
    origin: str
    unknown: Sequence[str] = ()
    """Slugs to leave out that no task has."""


def check_source(text: str) -> Path:
    """The environment's file or directory. Raises HudUsage: there is none."""
    path = Path(text).expanduser().absolute()
    if not path.exists():
        hint = "give the file with your Environment, or make one: hud-tui init-env NAME"
        raise HudUsage(f"{one_line(text)}: no such file or directory", hint)
    if path.is_file() and path.suffix != ".py":
        raise HudUsage(f"{one_line(text)} is no Python file", "tasks go to --tasks")
    return path


def environment_at(text: str) -> Path | None:
    """The environment that a source names; None for a taskset, or a file of tasks."""
    path = Path(text).expanduser().absolute()
    return path if path.suffix == ".py" and path.is_file() else None


def setting_of(order: Order, settings: Settings, log: Path) -> Setting:
    """Settings of an order's worker. Raises HudUsage: an invalid interpreter or variable; or the
    runtime needs HUD, and this is the embedded service."""
    if order.runtime == "hud" and settings.embedded and "HUD_RUNTIME_URL" not in os.environ:
        hint = "set HUD_API_KEY, and leave out --local; or --runtime subprocess"
        raise HudUsage("--runtime hud needs a key of HUD's, and this is the embedded service", hint)
    source = Path(order.source)
    interpreter = find_interpreter(source, order.python, sys.executable)
    return Setting(
        interpreter=interpreter,
        variables=variables(settings, order.env, os.environ),
        directory=source if source.is_dir() else source.parent,
        log=log,
        at_once=order.at_once,
        memory_mb=order.memory_mb,
    )


@asynccontextmanager
async def started(
    client: HudClient, order: Order, state: Path, on_rollout: OnRollout = lambda event: None
) -> AsyncGenerator[WorkerProcess]:
    """An order's worker until the block ends; its environment prints to a log of checks in the
    state directory. Raises HudError: as `setting_of`, or it does not start."""
    setting = setting_of(order, client.settings, log_of_checks(state, order.source))
    worker = WorkerProcess(setting, on_rollout)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.close()


async def load(worker: WorkerProcess, client: HudClient, order: Order) -> Loaded:
    """Import the environment in its own interpreter, with its tasks or the named ones.

    Raises:
        EnvironmentFailed: An error in the user's code.
        HudUsage: No environment or no task, or the tasks cannot be read.
    """
    is_python = order.tasks is not None and Path(order.tasks).suffix == ".py"
    try:
        loaded = await worker.call(
            "load",
            source=order.source,
            tasks=os.path.abspath(order.tasks or "") if is_python else None,  # noqa: ASYNC240
            at_once=order.at_once,
            memory_mb=order.memory_mb,
            log=str(worker.setting.log),
            timeout=LOAD_S,
        )
    except EnvironmentFailed as error:
        if error.failure.get("type") == "ModuleNotFoundError":
            python = worker.setting.interpreter.python
            error.hint = f"install it for {python}, or {ANOTHER_PYTHON}"
        raise
    environments = loaded["environments"]
    if not environments:
        hint = "it needs: env = Environment(name=…), and @env.template() functions"
        raise HudUsage(f"{one_line(order.source)} has no hud Environment", hint)
    if order.tasks is not None and not is_python:
        tasks, about = await load_source(client, order.tasks)
        origin = about["source"]
    else:
        tasks, origin = _own_tasks(loaded, order.source), order.tasks or order.source
    chosen = [task for task in tasks if task.slug not in order.left_out]
    unknown = set(order.left_out) - {task.slug for task in tasks}
    return Loaded(environments, chosen, origin, sorted(unknown))


def _own_tasks(loaded: Mapping[str, Any], source: str) -> list[Task]:
    """The tasks in a source, else one for each template without required args. Raises HudUsage:
    there is none."""
    rows = loaded["tasks"] or [
        {"env": env["name"], "id": template["id"], "args": {}}
        for env in loaded["environments"]
        for template in env["templates"]
        if not template["args"].get("required")
    ]
    if not rows:
        hint = "add them, e.g. tasks = [add(a=1, b=2)]; or name a file of rows: --tasks"
        raise HudUsage(f"{one_line(source)} has templates, but no tasks", hint)
    return read_rows(rows, "task")


def check(
    loaded: Loaded, model: Model, parameters: Mapping[str, Any], program: str
) -> list[Finding]:
    """All checks of tasks and model that need no rollout. `program`: how commands for this service
    begin."""
    sizes = (parameters.get("group_size"), parameters.get("tasks_per_step"))
    of_model = [*check_model(model, program), *check_tokens(model)]
    unknown = [
        Finding("rows", "failure", "no task has this slug, which is left out", one_line(slug))
        for slug in loaded.unknown
    ]
    return [*unknown, *check_tasks(loaded), *of_model, *check_group_size(loaded.tasks, *sizes)]


def check_tasks(loaded: Loaded) -> list[Finding]:
    """Whether the environments have the tasks' templates, and whether args fit."""
    tasks = list(loaded.tasks)
    findings = [*check_rows(tasks), *check_slugs(tasks)]
    templates = {
        str(env["name"]): {template["id"]: template["args"] for template in env["templates"]}
        for env in loaded.environments
    }
    for env, rows in by_environment(tasks).items():
        schemas = templates.get(env)
        if schemas is None:
            names = ", ".join(templates)
            findings.append(missing_environment(env, rows, f"the source has {names}"))
            continue
        findings += check_scenarios(env, list(schemas), rows)
        findings += check_args(env, schemas, [row for row in rows if row.scenario in schemas])
    return findings


def digest_of(source: str) -> str:
    path, digest = Path(source), sha256()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        if ".venv" in file.parts or "site-packages" in file.parts:
            continue
        digest.update(str(file).encode() + b"\0")
        try:
            digest.update(file.read_bytes())
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()[:16]


def rollout_of(order: Order, job_id: str, task: Task, group: int) -> dict[str, Any]:
    """Fields of a request for rollouts of a task."""
    return {
        "job_id": job_id.replace("-", ""),
        "task": task.row(),
        "group": group,
        "model": order.model,
        "max_steps": order.turns,
        "max_tokens": order.parameters.get("max_tokens"),
        "temperature": order.parameters.get("temperature"),
        "timeout": order.rollout_timeout,
        "runtime": order.runtime,
    }


async def tasks_of(client: HudClient, order: Order, state: Path) -> Loaded:
    """The tasks of an environment, which were checked. Raises HudError: it cannot be imported, or a
    task does not fit it."""
    async with started(client, order, state) as worker:
        loaded = await load(worker, client, order)
    # Nothing is trained on.
    findings = [finding for finding in check_tasks(loaded) if finding.check != "train"]
    if message := failures_text(findings):
        fixes = (finding.fix for finding in findings if finding.level == "failure" and finding.fix)
        raise HudUsage(message, next(fixes, ""))
    return loaded
