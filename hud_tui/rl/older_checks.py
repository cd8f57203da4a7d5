"""What preflight asks of rows up to v4: that something grades them, and that they can be run.

Source: the ``hud`` SDK 0.4, whose remote training wanted MCP servers with remote URLs.
"""

from collections.abc import Collection, Iterator, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from hud_tui.rl.places import places
from hud_tui.rl.preflight import Finding, count, names
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.variables import VARIABLE, bare_keys, find_variables, has_variable

PRIVATE = ("localhost", ".local", ".internal", ".localhost")
"""Ends of host names that only this machine or its network knows."""


def check_older(tasks: Sequence[Task], known: Collection[str], embedded: bool) -> list[Finding]:
    """All checks of rows up to v4; empty where there is none.

    Args:
        tasks: Of any form.
        known: Names of the variables that are set here.
        embedded: Whether the embedded service is to run them.
    """
    older = [task for task in tasks if task.is_older]
    if not older:
        return []
    findings = [*graded(older), *_variables(older, known), *_keys(older)]
    return findings + (_embedded(older) if embedded else [*_gyms(older), *_remote(older)])


def _embedded(tasks: Sequence[Task]) -> list[Finding]:
    message = (
        f"{count(len(tasks), 'task')} in the form of hud 0.4 or before; the embedded service runs"
        " environments with scenarios only"
    )
    fix = "write them as rows of an environment, or run them on HUD"
    return [Finding("environments", "failure", message, places(tasks), fix)]


def graded(tasks: Sequence[Task]) -> list[Finding]:
    """Whether something grades every task; of rows up to v4."""
    blind = [task for task in tasks if not task.scenario]
    if not blind:
        return [Finding("graded", "ok", "every task says what grades it")]
    message = f"nothing grades {count(len(blind), 'task')}: their rewards would all be equal"
    fix = "name a call in evaluate_tool (v4) or evaluate (v1 to v3)"
    return [Finding("graded", "failure", message, places(blind), fix)]


def _gyms(tasks: Sequence[Task]) -> list[Finding]:
    gyms = [task for task in tasks if task.form == "v3"]
    if not gyms:
        return []
    message = f"{count(len(gyms), 'task')} in a gym of hud 0.3 or before, which nothing runs now"
    fix = "write them as rows of an environment"
    return [Finding("environments", "failure", message, places(gyms), fix)]


def _variables(tasks: Sequence[Task], known: Collection[str]) -> list[Finding]:
    asked = find_variables(tasks, known)
    missing = [variable.name for variable in asked if variable.missing]
    if not asked:
        return []
    if not missing:
        message = f"{count(len(asked), 'variable')} of the MCP servers set, or with a default"
        return [Finding("variables", "ok", message, names([v.name for v in asked]))]
    message = f"not set here and without a default: {names(missing)}"
    fix = f"export {one_line(missing[0], 60)}=…, or put it into .env; $$ is a dollar sign"
    return [Finding("variables", "failure", message, names(missing), fix)]


def _keys(tasks: Sequence[Task]) -> list[Finding]:
    """A key in a task file is soon one in a repository."""
    return [
        Finding(
            "variables",
            "warning",
            f"what looks like a key stands in the clear in {count(len(holders), 'task')}",
            place,
            "write ${NAME} there, and set NAME in the environment or in .env",
        )
        for place, holders in bare_keys(tasks).items()
    ]


def _remote(tasks: Sequence[Task]) -> list[Finding]:
    """Whether the platform, which is another machine, can reach every MCP server."""
    near: dict[str, list[Task]] = {}
    for task in tasks:
        for name, why in _near(task.more.get("mcp_config", {})):
            near.setdefault(f"{one_line(name, 40)} {why}", []).append(task)
    found = [
        Finding(
            "remote",
            "failure",
            f"the MCP server {server}, where no remote run reaches it",
            places(holders),
            "give it a URL that the platform can reach, e.g. https://mcp.hud.ai/v3/mcp",
        )
        for server, holders in near.items()
    ]
    servers = any(task.form == "v4" for task in tasks)
    return found or [Finding("remote", "ok", "every MCP server has a remote URL")] * servers


def _near(servers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, server in servers.items():
        if not server.get("url"):
            yield name, "is started on this machine"
        elif not _is_http(str(server["url"])):
            yield name, "has a URL that is neither http nor https"
        elif _is_near(str(server["url"])):
            yield name, "has a URL of this machine or its network"


def _is_http(url: str) -> bool:
    """Whether it is a URL of the web; one that begins with a variable is taken to be."""
    return VARIABLE.match(url) is not None or url.lower().startswith(("http://", "https://"))


def _is_near(url: str) -> bool:
    """Whether a URL's host is not public; one with a variable in it is taken to be."""
    if has_variable(url):
        return False
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "" or host.endswith(PRIVATE) or "." not in host
