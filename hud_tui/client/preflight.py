"""Preflight against a service: the look-ups run together, findings come as they arrive."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.rl.names import close_names
from hud_tui.rl.preflight import (
    Finding,
    by_environment,
    check_args,
    check_model,
    check_rows,
    check_scenarios,
    check_slugs,
    missing_environment,
)
from hud_tui.rl.tasks import MAX_BYTES, Task, read_file, read_rows
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

SUFFIXES = (".json", ".jsonl")


async def load_source(client: "HudClient", source: str) -> tuple[list[Task], dict[str, Any]]:
    """A taskset's tasks, from a file or from the service.

    Args:
        client: Asked where the source is not a file.
        source: A path that exists or ends in .json or .jsonl; else a taskset's name.

    Returns:
        The tasks, and where they are from: ``source`` as given, ``format`` (json, jsonl or
        taskset) and ``name``.

    Raises:
        HudUsage: No such file or taskset, or a row that is none; names line and column.
    """
    file = await asyncio.to_thread(_read, source)
    if file is not None:
        name, body = file
        stem, _, suffix = name.rpartition(".")
        form = suffix if f".{suffix}" in SUFFIXES else "json"
        return read_file(name, body), {"source": source, "format": form, "name": stem or name}
    try:
        export = await client.taskset(source)
    except HudNotFound as error:
        known = [taskset.name for taskset in await client.tasksets()]
        hint = close_names(source, known) if known else "or give a .json or .jsonl file"
        raise HudUsage(f"no file or taskset is called {one_line(source)}", hint) from error
    tasks = read_rows(export.tasks, f"{one_line(export.name)} row")
    return tasks, {"source": source, "format": "taskset", "name": export.name}


async def preflight(
    client: "HudClient", source: str | list[Task], model: str | None = None
) -> AsyncIterator[Finding]:
    """Check a taskset, and the model that it is to train, against a service.

    Args:
        client: The service.
        source: As for `load_source`, or tasks that are loaded already.
        model: Any name of the model; None leaves it unchecked.

    Yields:
        Findings, as their look-ups are answered.

    Raises:
        HudError: The source cannot be read, or the service cannot be asked.
    """
    tasks = (await load_source(client, source))[0] if isinstance(source, str) else source
    for finding in [*check_rows(tasks), *(check_slugs(tasks) if tasks else [])]:
        yield finding
    lookups: list[Awaitable[list[Finding]]] = [
        _environment(client, env, rows) for env, rows in by_environment(tasks).items()
    ]
    if model is not None:
        lookups.insert(0, _model(client, model))
    running = [asyncio.ensure_future(lookup) for lookup in lookups]
    try:
        for done in asyncio.as_completed(running):
            for finding in await done:
                yield finding
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _model(client: "HudClient", name: str) -> list[Finding]:
    try:
        return check_model(await client.model(name))
    except HudUsage as error:
        return [Finding("model", "failure", error.message, one_line(name), error.hint)]


async def _environment(client: "HudClient", env: str, tasks: list[Task]) -> list[Finding]:
    config = await client.environment(env)
    if config is None:
        return [missing_environment(env, tasks)]
    found = Finding("environments", "ok", f"{one_line(env)} exists", one_line(env))
    scenarios = check_scenarios(env, config.scenarios, tasks)
    args = await _args(client, env, config.registry_id, tasks)
    return [found, *scenarios, *args]


async def _args(
    client: "HudClient", env: str, registry_id: str | None, tasks: list[Task]
) -> list[Finding]:
    """Nothing where the schemas are not to be had: they are an extra."""
    if registry_id is None:
        return []
    try:
        records = await client.scenarios(registry_id)
    except HudError:
        return []
    schemas = {r.name.removeprefix(f"{env}:"): r.args_schema for r in records if r.args_schema}
    return check_args(env, schemas, tasks)


def _read(source: str) -> tuple[str, bytes] | None:
    """A file's name and bytes, at most one more than `read_file` takes; None if not a path."""
    try:
        path = Path(source).expanduser()
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES and not path.is_file():
            return None
        with path.open("rb") as file:
            return path.stem + suffix, file.read(MAX_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "check the path, or name a taskset"
        raise HudUsage(f"{one_line(source)}: {one_line(reason)}", hint) from error
