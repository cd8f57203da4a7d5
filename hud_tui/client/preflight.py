"""Preflight against a service: the look-ups run together, findings come as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from hud_tui.client.environment_checks import check_environment
from hud_tui.client.sources import load_source
from hud_tui.errors import HudError, HudRefused, HudUnauthorized, HudUsage
from hud_tui.older.lock_check import lock_findings
from hud_tui.rl.disk import check_room
from hud_tui.rl.job_words import ENDED
from hud_tui.rl.model_checks import check_model, check_parameters, check_ready, check_tokens
from hud_tui.rl.older_checks import check_older
from hud_tui.rl.preflight import (
    Finding,
    by_environment,
    check_fields,
    check_rows,
    check_slugs,
)
from hud_tui.rl.row_checks import check_group_size, local_checks
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.variables import set_variables
from hud_tui.wire import JobParameters, JobStatus, Model

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

__all__ = ["load_source", "preflight"]
AT_ONCE = 8
"""Environments that are asked for together."""


async def preflight(
    client: "HudClient",
    source: str | list[Task],
    model: str | None = None,
    parameters: JobParameters | None = None,
    lock: str | None = None,
) -> AsyncIterator[Finding]:
    """Check a taskset, and the model that it is to train, against a service.

    Args:
        client: The service.
        source: As for `load_source`, or tasks that are loaded already.
        model: Any name of the model; None leaves it unchecked.
        parameters: What the run is asked for; the model's own defaults where it says nothing.
        lock: The hud.lock.yaml of loaded tasks, as `load_source` names it.

    Yields:
        Findings, as their look-ups are answered.

    Raises:
        HudUnauthorized: The key is refused; a finding has said so.
        HudError: The source cannot be read, or the service cannot be asked.
    """
    if isinstance(source, str):
        tasks, origin = await load_source(client, source)
        lock = origin.get("lock")
    else:
        tasks = source
    for finding in _rows(tasks):
        yield finding
    lookups = [_key(client), *_lookups(client, tasks, lock)]
    if model is not None:
        lookups.append(_model(client, model, tasks, parameters or JobParameters()))
    async with aclosing(_as_answered(lookups)) as findings:
        async for finding in findings:
            yield finding


def _lookups(
    client: "HudClient", tasks: list[Task], lock: str | None
) -> list[Awaitable[list[Finding]]]:
    """All that is looked up about the tasks themselves."""
    gate = asyncio.Semaphore(AT_ONCE)
    lookups: list[Awaitable[list[Finding]]] = []
    if tasks:
        lookups.append(asyncio.to_thread(_local, tasks, client.settings.local))
    if lock is not None:
        lookups.append(asyncio.to_thread(lock_findings, Path(lock), tasks))
    lookups += [_gated(gate, client, env, rows) for env, rows in by_environment(tasks).items()]
    return lookups


async def _as_answered(
    lookups: Sequence[Awaitable[list[Finding]]],
) -> AsyncGenerator[Finding, None]:
    """The findings of all look-ups, which run together; a refused key is raised at the end."""
    running = [asyncio.ensure_future(lookup) for lookup in lookups]
    refused: HudUnauthorized | None = None
    try:
        for done in asyncio.as_completed(running):
            try:
                findings = await done
            except HudUnauthorized as error:  # the check of the key says it as a finding
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


def _rows(tasks: list[Task]) -> list[Finding]:
    """What is said at once."""
    rows = check_rows(tasks)
    return [*rows, *check_fields(tasks), *check_slugs(tasks)] if tasks else rows


def _local(tasks: list[Task], embedded: bool) -> list[Finding]:
    """What needs no service, and takes a while for many tasks."""
    return [*local_checks(tasks, embedded), *check_older(tasks, set_variables(), embedded)]


async def _gated(
    gate: asyncio.Semaphore, client: "HudClient", env: str, tasks: list[Task]
) -> list[Finding]:
    async with gate:
        return await check_environment(client, env, tasks)


async def _key(client: "HudClient") -> list[Finding]:
    try:
        who = await client.whoami()
    except HudUnauthorized as error:
        fix = error.hint or "set HUD_API_KEY to a key that is valid"
        return [Finding("key", "failure", f"the key is refused: {error.message}", fix=fix)]
    except HudRefused as error:
        message = f"the service does not say whose key this is: {error.message}"
        return [Finding("key", "warning", message)]
    return [Finding("key", "ok", f"the key is valid, of team {one_line(who.team_id[:8])}")]


async def _model(
    client: "HudClient", name: str, tasks: Sequence[Task], asked: JobParameters
) -> list[Finding]:
    try:
        model = await client.model(name)
    except HudUsage as error:
        return [Finding("model", "failure", error.message, one_line(name), error.hint)]
    defaults = model.training_defaults
    group_size = asked.group_size or (defaults.group_size if defaults else None)
    per_step = asked.tasks_per_step or (defaults.tasks_per_step if defaults else None)
    found = check_model(model)
    if found[0].level == "ok":
        found += check_ready(model, await _running(client, model))
    sizes = check_group_size(tasks, group_size, per_step)
    found += check_parameters(model, asked)
    return [*found, *check_tokens(model), *sizes, *check_room(model, asked.steps)]


async def _running(client: "HudClient", model: Model) -> JobStatus | None:
    """The run that trains it now; None where there is none, or the service does not say."""
    try:
        job = await client.known_job(model.id)
    except HudUnauthorized:
        raise
    except HudError:
        return None
    return job if job is not None and job.status not in ENDED else None
