"""Whether the environments and scenarios that tasks name are there, and take their args.

Source: ``hud rl run`` asks /environments/{name}/mcp-config (hud 0.5); ``hud`` 0.6 searches
the registry, and compares names without case and with one spelling of the separators.
"""

import asyncio
import re
from typing import TYPE_CHECKING

from hud_tui.errors import HudError, HudNotFound, HudUnauthorized
from hud_tui.rl.names import close_names
from hud_tui.rl.places import places
from hud_tui.rl.preflight import (
    Finding,
    check_args,
    check_scenarios,
    missing_environment,
)
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.wire import RegistryItem, ScenarioRecord

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


async def check_environment(client: "HudClient", env: str, tasks: list[Task]) -> list[Finding]:
    """One environment's findings.

    Raises:
        HudError: The service cannot be asked.
    """
    config = await client.environment(env)
    if config is None:
        return await _of_registry(client, env, tasks)
    records = await _records(client, config.registry_id)
    scenarios = check_scenarios(env, config.scenarios, tasks)
    return [_exists(env), *scenarios, *await _args(env, records, tasks)]


async def _of_registry(client: "HudClient", env: str, tasks: list[Task]) -> list[Finding]:
    """By the registry, for an environment that has no mcp-config."""
    try:
        listed = await client.registry(env)
    except HudNotFound:
        listed = []
    found = [item for item in listed if _normal(item.name) == _normal(env)]
    if len(found) > 1:
        message = f"{len(found)} environments are called {one_line(env)}"
        fix = "say which in env of those rows, by its whole name"
        return [Finding("environments", "failure", message, places(tasks), fix)]
    if not found:
        return [missing_environment(env, tasks, await _close(client, env, listed))]
    records = await _records(client, found[0].id)
    names = None if records is None else [record.name for record in records]
    scenarios = check_scenarios(env, names, tasks)
    return [_exists(env), *scenarios, *await _args(env, records, tasks)]


async def _close(client: "HudClient", env: str, listed: list[RegistryItem]) -> str:
    """What was probably meant; empty where the service lists no environments."""
    try:
        listed = listed or await client.registry("")
    except HudUnauthorized:
        raise
    except HudError:
        return ""
    return close_names(env, [item.name for item in listed]) if listed else ""


async def _records(client: "HudClient", registry_id: str | None) -> list[ScenarioRecord] | None:
    """None where they are not to be had: they are an extra."""
    if registry_id is None:
        return None
    try:
        return await client.scenarios(registry_id)
    except HudUnauthorized:
        raise
    except HudError:
        return None


async def _args(env: str, records: list[ScenarioRecord] | None, tasks: list[Task]) -> list[Finding]:
    """Nothing where no schema is published."""
    known = records or []
    schemas = {r.name.removeprefix(f"{env}:"): r.args_schema for r in known if r.args_schema}
    return await asyncio.to_thread(check_args, env, schemas, tasks) if schemas else []


def _exists(env: str) -> Finding:
    return Finding("environments", "ok", f"{one_line(env)} exists", one_line(env))


def _normal(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()
