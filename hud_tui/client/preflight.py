"""Preflight checks that need a service: they run concurrently, and findings are yielded as they
arrive. Loading tasks from files or from the service."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing
from os.path import expanduser
from pathlib import Path
from typing import Any, TypeVar

from hud_tui.change import TaskSource
from hud_tui.client.client import HudClient
from hud_tui.errors import (
    HudBadTasks,
    HudError,
    HudMalformed,
    HudNotFound,
    HudRefused,
    HudTasksChanged,
    HudUnauthorized,
    HudUsage,
    Problem,
)
from hud_tui.legacy.dataset import from_rows, parquet_files, read_parquet
from hud_tui.legacy.lock_file import Completion, find_lock, lock_findings
from hud_tui.rl.disk import check_room
from hud_tui.rl.findings import Finding
from hud_tui.rl.names import close_names
from hud_tui.rl.tasks.checks import (
    by_environment,
    check_args,
    check_fields,
    check_group_size,
    check_legacy,
    check_loss,
    check_model,
    check_parameters,
    check_ready,
    check_rows,
    check_scenarios,
    check_slugs,
    check_tokens,
    local_checks,
    missing_environment,
)
from hud_tui.rl.tasks.formats import MAX_BYTES, read_rows, try_file
from hud_tui.rl.tasks.task import Task, form_of, locations, rows_digest
from hud_tui.rl.text import command_line, one_line
from hud_tui.rl.work import ENDED
from hud_tui.settings import set_variables
from hud_tui.storage import open_regular
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters
from hud_tui.wire_tasks import RegistryItem, ScenarioRecord

# Whether the environments and scenarios of tasks exist, and accept their args.
#
# Source: ``hud rl run`` asks /environments/{name}/mcp-config (hud 0.5); ``hud`` 0.6 searches
# the registry, and compares names case-insensitively, with equal separators.


async def check_environment(client: HudClient, env: str, tasks: list[Task]) -> list[Finding]:
    """Findings on one environment. Raises HudError: the service does not answer."""
    config = await client.tasks.environment(env)
    if config is None:
        return await _of_registry(client, env, tasks)
    records = await _records(client, config.registry_id)
    scenarios = check_scenarios(env, config.scenarios, tasks)
    return [_exists(env), *scenarios, *await _args(env, records, tasks)]


async def _of_registry(client: HudClient, env: str, tasks: list[Task]) -> list[Finding]:
    """Findings from the registry, for an environment without mcp-config."""
    try:
        listed = await client.tasks.registry(env)
    except HudNotFound:
        listed = []
    matches = [item for item in listed if _normal(item.name) == _normal(env)]
    if len(matches) > 1:
        message = f"{len(matches)} environments are named {one_line(env)}"
        fix = "use the full name in env of those rows"
        return [Finding("environments", "failure", message, locations(tasks), fix)]
    if not matches:
        return [missing_environment(env, tasks, await _close(client, env, listed))]
    records = await _records(client, matches[0].id)
    names = None if records is None else [record.name for record in records]
    scenarios = check_scenarios(env, names, tasks)
    return [_exists(env), *scenarios, *await _args(env, records, tasks)]


async def _close(client: HudClient, env: str, listed: list[RegistryItem]) -> str:
    """A hint with similar names; empty if the service lists no environments."""
    listed = listed or await _optional(client.tasks.registry("")) or []
    return close_names(env, [item.name for item in listed]) if listed else ""


async def _records(client: HudClient, registry_id: str | None) -> list[ScenarioRecord] | None:
    """The scenarios of an environment; None if unavailable, they are optional."""
    return None if registry_id is None else await _optional(client.tasks.scenarios(registry_id))


T = TypeVar("T")


async def _optional(answer: Awaitable[T]) -> T | None:
    """The answer; None if it cannot be had, whatever the reason. Raises HudUnauthorized: the key is
    refused."""
    try:
        return await answer
    except HudUnauthorized:
        raise
    except HudError:
        return None


async def _args(env: str, records: list[ScenarioRecord] | None, tasks: list[Task]) -> list[Finding]:
    """Findings on args; empty if no schema is published."""
    scenarios = records or []
    schemas = {r.name.removeprefix(f"{env}:"): r.args_schema for r in scenarios if r.args_schema}
    return await asyncio.to_thread(check_args, env, schemas, tasks) if schemas else []


def _exists(env: str) -> Finding:
    return Finding("environments", "ok", f"{one_line(env)} exists", one_line(env))


def _normal(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


# Loading tasks: a file, a directory of files, or a taskset of the service.


SUFFIXES = (".json", ".jsonl")
MOST_FILES = 10_000
"""Maximum task files in one directory."""


async def load_source(client: HudClient, source: str) -> tuple[list[Task], dict[str, Any]]:
    """Load tasks from files or from a taskset of the service.

    Args:
        client: Used if the source is not a path.
        source: A file (JSON or Parquet) or directory that exists, or a path that ends in
            .json or .jsonl; else a taskset's name or id.

    Returns:
        The tasks, and their origin: ``source`` as given, ``name``, ``loaded_from`` (file,
        directory or taskset), ``format`` (the form of the rows), ``taskset_id`` of a taskset,
        and ``lock``: the hud.lock.yaml beside them or in the working directory, if there is one.

    Raises:
        HudBadTasks: Invalid rows, with all problems.
        HudUsage: No such file or taskset.
    """
    path = path_of(source, client.settings.program)
    if path is not None and source == path.name and path.is_dir():
        path = await _prefer_taskset(client, path)
    if path is not None:
        return await asyncio.to_thread(load_path, source, path)
    tasks, name, taskset_id = await _taskset(client, source)
    origin = _origin(source, name, "taskset", tasks, find_lock(Path()))
    return tasks, origin | {"taskset_id": taskset_id}


def load_path(source: str, path: Path) -> tuple[list[Task], dict[str, Any]]:
    """`load_source` for a file or directory as returned by `path_of`."""
    lock = find_lock(path if path.is_dir() else path.parent, Path())
    complete = Completion(lock)
    if path.is_dir():
        tasks, name, kind = _directory(path, complete), path.resolve().name, "directory"
    else:
        tasks, name, kind = _file(path, complete), path.stem or path.name, "file"
    return tasks, _origin(source, name, kind, tasks, lock)


def _origin(
    source: str, name: str, loaded_from: str, tasks: list[Task], lock: Path | None
) -> dict[str, Any]:
    origin = {"source": source, "name": name, "loaded_from": loaded_from}
    beside = {"lock": str(lock)} if lock else {}
    return origin | {"format": form_of(tasks)} | beside


def place_of(origin: Mapping[str, Any]) -> str:
    """The source of `load_source` in a form that is valid in any working directory."""
    source = str(origin["source"])
    return (
        source if origin["loaded_from"] == "taskset" else str(Path(expanduser(source)).absolute())
    )


def choose_tasks(
    tasks: Sequence[Task],
    origin: Mapping[str, Any],
    left_out: Sequence[str] = (),
    digest: str | None = None,
) -> tuple[list[Task], TaskSource]:
    """Select tasks of a source; also return the source in the form for the command log.

    Args:
        origin: Of the source, as returned by `load_source`.
        left_out: Slugs of tasks to leave out.
        digest: Digest that the selected tasks must have; None for any.

    Raises:
        HudUsage: The source has no task with such a slug, or none is left.
        HudTasksChanged: The selected tasks have another digest.
    """
    slugs = dict.fromkeys(task.slug for task in tasks)
    source = one_line(origin["source"], 300)
    for slug in left_out:
        if slug not in slugs:
            hint = close_names(slug, slugs)
            raise HudUsage(f"--leave-out {one_line(slug)}: no such task in {source}", hint)
    chosen = [task for task in tasks if task.slug not in left_out]
    if left_out and not chosen:
        raise HudUsage(f"--leave-out: no task of {source} is left")
    chosen_digest = rows_digest([task.row() for task in chosen])
    if digest is not None and chosen_digest != digest.strip().casefold():
        raise HudTasksChanged(source, chosen_digest, one_line(digest, 60))
    return chosen, TaskSource(place_of(origin), chosen_digest, tuple(left_out))


def path_of(source: str, program: str = "hud-tui") -> Path | None:
    """The file or directory that a source names; None if it is the name of a taskset. `program`:
    how commands for the service begin. Raises HudUsage: a Python file, which is not executed; or an
    invalid path."""
    try:
        path = Path(expanduser(source))
        suffix = path.suffix.lower()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(source, error) from error
    if suffix == ".py" and exists:
        name = one_line(source)
        train = command_line(program, "train", name, "-m", "MODEL")
        hint = f"train on it: {train}; or export its tasks:"
        hint += ' Taskset.from_file(…).to_file("tasks.jsonl")'
        raise HudUsage(f"{name} is Python, which this command does not execute", hint)
    return path if exists or suffix in SUFFIXES else None


def _file(path: Path, complete: Completion) -> list[Task]:
    if path.suffix.lower() == ".parquet":
        rows = from_rows(read_parquet(path))
        return read_rows(map(complete, rows), f"{one_line(path.name, 120)} row")
    source = try_file(path.stem + path.suffix.lower(), _bytes(path), complete)
    if source.problems:
        raise HudBadTasks(source.problems, source.hint)
    return source.tasks


def _bytes(path: Path) -> bytes:
    """A file's bytes, at most one more than the limit."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from error


def _directory(folder: Path, complete: Completion) -> list[Task]:
    """The tasks of all task files in a directory and below, except hidden ones; or those of the
    Parquet files of a data set."""
    tasks: list[Task] = []
    problems: list[Problem] = []
    size, count, hint = 0, 0, ""
    for path in _task_files(folder):
        body, count = _bytes(path), count + 1
        size += len(body)
        if size > MAX_BYTES or count > MOST_FILES:
            most = f"{MAX_BYTES // 2**20} MB or {MOST_FILES} files"
            raise HudUsage(f"{one_line(folder)}: more than {most} of tasks", "split the directory")
        source = try_file(str(path.relative_to(folder)), body, complete)
        tasks += source.tasks
        problems += source.problems
        hint = hint or (source.hint if source.problems else "")
    if problems:
        raise HudBadTasks(problems, hint)
    parquet = [] if count else parquet_files(folder)
    if not count and not parquet:
        raise HudUsage(f"{one_line(folder)}: no .json or .jsonl file in it", "check the path")
    tasks += [task for file in parquet for task in _file(file, complete)]
    return tasks


def _task_files(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise _unreadable(str(error.filename or folder), error) from error

    for directory, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(directory, name)
            if path.suffix.lower() in SUFFIXES and name[0] != ".":
                yield path


async def _prefer_taskset(client: HudClient, path: Path) -> Path | None:
    """None if the service has a taskset with the directory's bare name; ``./NAME`` means the
    directory."""
    try:
        await client.tasks.taskset(path.name)
    except HudNotFound:
        return path
    return None


async def _taskset(client: HudClient, source: str) -> tuple[list[Task], str, str | None]:
    try:
        export = await client.tasks.taskset(source)
    except HudNotFound as error:
        names = [taskset.name for taskset in await client.tasks.tasksets()]
        hint = close_names(source, names) if names else "or give a .json or .jsonl file"
        if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*(?<!\.py)", source):  # as the Hub's data sets
            fetch = f"hf download {one_line(source)} --repo-type dataset --local-dir DIR"
            hint += f"; a data set of the Hugging Face Hub: {fetch}, then give DIR"
        raise HudUsage(f"no file or taskset named {one_line(source)}", hint) from error
    rows = await asyncio.to_thread(read_rows, export.tasks, f"{one_line(export.name)} row")
    return rows, export.name, export.taskset_id


def _unreadable(source: str, error: Exception) -> HudUsage:
    reason = error.strerror if isinstance(error, OSError) else error
    return HudUsage(f"{one_line(source)}: {one_line(reason)}", "check the path, or name a taskset")


AT_ONCE = 8
"""Maximum number of environments checked at the same time."""


async def preflight(
    client: HudClient,
    source: str | list[Task],
    model: str | None = None,
    parameters: JobParameters | None = None,
    lock: str | None = None,
) -> AsyncIterator[Finding]:
    """Check a taskset, and the model that it is to train, against a service.

    Args:
        source: As for `load_source`, or loaded tasks.
        model: Any name of the model; None to skip its checks.
        parameters: Of the run; missing ones are the model's defaults.
        lock: The hud.lock.yaml of loaded tasks, as in the origin from `load_source`.

    Yields:
        Findings, as requests are answered.

    Raises:
        HudUnauthorized: The key is refused; a finding reports it.
        HudError: The source is unreadable, or the service does not answer.
    """
    if isinstance(source, str):
        tasks, origin = await load_source(client, source)
        lock = origin.get("lock")
    else:
        tasks = source
    at_once = [*check_fields(tasks), *check_slugs(tasks)] if tasks else []
    for finding in [*check_rows(tasks), *at_once]:
        yield finding
    gate = asyncio.Semaphore(AT_ONCE)

    async def of_environment(env: str, own: list[Task]) -> list[Finding]:
        async with gate:
            return await check_environment(client, env, own)

    lookups: list[Awaitable[list[Finding]]] = [_key(client)]
    if tasks:
        lookups.append(asyncio.to_thread(_local, tasks, client.settings.embedded))
    if lock is not None:
        lookups.append(asyncio.to_thread(lock_findings, Path(lock), tasks))
    lookups += [of_environment(env, own) for env, own in by_environment(tasks).items()]
    if model is not None:
        lookups.append(_model(client, model, tasks, parameters or JobParameters()))
    async with aclosing(_as_answered(lookups)) as findings:
        async for finding in findings:
            yield finding


async def _as_answered(
    lookups: Sequence[Awaitable[list[Finding]]],
) -> AsyncGenerator[Finding, None]:
    """Findings of concurrent checks; HudUnauthorized is raised after all others have finished."""
    running = [asyncio.ensure_future(lookup) for lookup in lookups]
    refused: HudUnauthorized | None = None
    try:
        for done in asyncio.as_completed(running):
            try:
                findings = await done
            except HudUnauthorized as error:  # the check of the key reports it as a finding
                refused = error
                continue
            for finding in findings:
                yield finding
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if refused is not None:
        raise refused


def _local(tasks: list[Task], embedded: bool) -> list[Finding]:
    """Findings on the rows that need no service; slow for many tasks."""
    return [*local_checks(tasks, embedded), *check_legacy(tasks, set_variables(), embedded)]


async def _key(client: HudClient) -> list[Finding]:
    try:
        who = await client.whoami()
    except HudUnauthorized as error:
        fix = error.hint or "set HUD_API_KEY to a valid key"
        return [Finding("key", "failure", f"the key is refused: {error.message}", fix=fix)]
    except HudRefused as error:
        message = f"the owner of the key is unknown: {error.message}"
        return [Finding("key", "warning", message)]
    return [Finding("key", "ok", f"the key is valid, of team {one_line(who.team_id[:8])}")]


async def _model(
    client: HudClient, name: str, tasks: Sequence[Task], asked: JobParameters
) -> list[Finding]:
    try:
        model = await client.model(name)
    except HudUsage as error:
        return [Finding("model", "failure", error.message, one_line(name), error.hint)]
    defaults = model.training_defaults
    group_size = asked.group_size or (defaults.group_size if defaults else None)
    per_step = asked.tasks_per_step or (defaults.tasks_per_step if defaults else None)
    findings = check_model(model, client.settings.program)
    if findings[0].level == "ok":
        findings += await readiness(client, model)
    sizes = check_group_size(tasks, group_size, per_step)
    findings += check_parameters(model, asked)
    findings += await check_update(client, model.id, asked.model_dump(exclude_none=True))
    return [*findings, *check_tokens(model), *sizes, *check_room(model, asked.steps)]


async def check_update(
    client: HudClient, model_id: str, parameters: Mapping[str, Any]
) -> list[Finding]:
    """Whether the service has the loss and its parameters; empty if it does not list its losses,
    or if none is given."""
    loss_fn, config = parameters.get("loss_fn"), parameters.get("loss_fn_config")
    if loss_fn is None and config is None:
        return []
    try:
        listed = await client.training.losses(model_id)
    except (HudRefused, HudMalformed):
        return []
    return check_loss(loss_fn, config, listed) if listed.losses else []


async def readiness(client: HudClient, model: Model) -> list[Finding]:
    """Whether a model can be trained now. Raises HudUnauthorized: the key is refused."""
    job = await _optional(client.known_job(model.id))
    running = job if job is not None and job.status not in ENDED else None
    return check_ready(model, running, client.settings.program)
