"""Preflight against a service: the look-ups run together, findings come as they arrive."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from hud_tui.client.sources import load_source
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.older_checks import check_older
from hud_tui.rl.preflight import (
    Finding,
    by_environment,
    check_args,
    check_fields,
    check_model,
    check_rows,
    check_scenarios,
    check_slugs,
    missing_environment,
)
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.variables import every_variable

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

__all__ = ["load_source", "preflight"]


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
    for finding in _local(client, tasks):
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


def _local(client: "HudClient", tasks: list[Task]) -> list[Finding]:
    """What can be said without asking anybody."""
    if not tasks:
        return check_rows(tasks)
    older = check_older(tasks, every_variable().keys(), client.settings.local)
    return [*check_rows(tasks), *check_fields(tasks), *check_slugs(tasks), *older]


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
