"""Task rows up to v4: a prompt, where it runs, and the calls that set it up and grade it.

Source: the ``hud`` SDK 0.4 (``prompt``, ``mcp_config``, ``setup_tool``, ``evaluate_tool``)
and 0.1 to 0.3 (``gym``, ``setup``, ``evaluate``).
"""

from functools import lru_cache
from typing import Any

from hud_tui.rl.calls import Call, read_calls, read_functions
from hud_tui.rl.fields import Fields, kind_of
from hud_tui.rl.strict_json import parse
from hud_tui.rl.tasks import Form, Task, digest
from hud_tui.rl.text import one_line

HINT_V4 = 'a v4 row is {"prompt": TEXT, "mcp_config": {SERVER: {"url": …}}, "evaluate_tool": CALL}'
HINT_V3 = 'a row of v1 to v3 is {"prompt": TEXT, "gym": NAME, "evaluate": FUNCTION}'
CALLS = ("setup_tool", "evaluate_tool", "integration_test_tool")
OBJECTS = ("agent_config", "metadata", "columns")
KNOWN_V4 = frozenset(
    {"id", "prompt", "mcp_config", "agent_tools", "system_prompt", "slug", *CALLS, *OBJECTS}
)
KNOWN_V3 = frozenset(
    {"id", "prompt", "setup", "evaluate", "gym", "config", "metadata", "columns", "description"}
    | {"choices", "target", "files", "system_prompt", "sensitive_data"}
)
LONGEST_KEPT, MOST_KEPT = 10_000, 64
"""Characters of a JSON string whose value rows share, and how many such values are kept."""
LOCATIONS = ("local", "remote")


def read_v4(fields: Fields) -> Task:
    """A row with a prompt and MCP servers. Calls and objects may be JSON strings."""
    prompt = fields.text("prompt", "the instruction")
    servers = _servers(fields)
    calls = {key: read_calls(fields, key) for key in CALLS}
    objects = {key: _object(fields, key) for key in OBJECTS}
    tools = _tools(fields)
    name, system = fields.maybe_text("id"), fields.maybe_text("system_prompt")
    row = {
        "id": name,
        "prompt": prompt,
        "mcp_config": servers,
        **calls,
        **objects,
        "agent_tools": tools,
        "system_prompt": system,
    }
    slug = fields.maybe_text("slug") or name
    return _task(fields, "v4", "+".join(servers), calls["evaluate_tool"], slug, row)


def read_v3(fields: Fields) -> Task:
    """A row with a gym, from before there were MCP servers."""
    prompt, gym = fields.text("prompt", "the instruction"), _gym(fields)
    setup, evaluate = read_functions(fields, "setup"), read_functions(fields, "evaluate")
    known = {"prompt": prompt, "setup": setup, "evaluate": evaluate, "gym": fields.row.get("gym")}
    objects = {key: _object(fields, key) for key in ("config", "metadata", "columns")}
    texts = {key: fields.maybe_text(key) for key in ("id", "description", "system_prompt")}
    extras = {key: fields.row.get(key) for key in ("choices", "target", "files", "sensitive_data")}
    row = {**known, **objects, **texts, **extras}
    return _task(fields, "v3", gym, evaluate, texts["id"], row)


def _task(
    fields: Fields, form: Form, env: str, grading: list[Call], slug: str, row: dict[str, Any]
) -> Task:
    """Of the row's fields, those that say anything are kept."""
    row = {key: value for key, value in row.items() if value not in (None, "", [], {})}
    scenario = grading[0]["name"] if grading else ""
    unknown = tuple(sorted(fields.row.keys() - (KNOWN_V4 if form == "v4" else KNOWN_V3)))
    slug = slug or f"{scenario or 'task'}-{digest(row)[:8]}"
    columns = row.get("columns", {})
    return Task(env, scenario, {}, slug, columns, fields.where, form, row, unknown)


def _servers(fields: Fields) -> dict[str, Any]:
    """The MCP servers by name; each has a URL, or a command that starts it."""
    servers = _object(fields, "mcp_config")
    for name, server in servers.items():
        at = f"mcp_config.{one_line(name, 40)}"
        if not isinstance(server, dict):
            fields.expected(at, "an object with url or command", server)
        elif not (server.get("url") or server.get("command")):
            fields.wrong(at, "expected url or command, found neither")
        else:
            key = "url" if server.get("url") else "command"
            if not isinstance(server[key], str):
                fields.expected(f"{at}.{key}", "text", server[key])
    if not servers and isinstance(fields.row["mcp_config"], dict):
        fields.wrong("mcp_config", "expected at least one MCP server, found an empty object")
    return servers


def _object(fields: Fields, key: str) -> dict[str, Any]:
    """An object, or JSON of one; empty where it is absent."""
    value = fields.row.get(key)
    if not isinstance(value, str):
        return fields.mapping(key)
    if not value.strip():
        return {}
    parsed = _again(value) if len(value) <= LONGEST_KEPT else parse(value)
    if isinstance(parsed.value, dict):
        return parsed.value
    found = f"text that is not JSON: {parsed.fault}" if parsed.fault else kind_of(parsed.value)
    fields.wrong(key, f"expected an object or JSON of one, found {found}")
    return {}


_again = lru_cache(MOST_KEPT)(parse)
"""Rows of one file mostly have the same MCP servers and configuration, which nothing changes."""


def _tools(fields: Fields) -> list[Any]:
    value = fields.row.get("agent_tools")
    if isinstance(value, str):
        parsed = parse(value)
        value = parsed.value if isinstance(parsed.value, list) else value
    if value is None or (isinstance(value, list) and all(isinstance(t, str) for t in value)):
        return value or []
    fields.expected("agent_tools", "a list of tools' names", value)
    return []


def _gym(fields: Fields) -> str:
    """What the gym is called; a gym of one's own is an object."""
    gym = fields.row["gym"]
    if isinstance(gym, str):
        return gym
    if not isinstance(gym, dict):
        fields.expected("gym", "its name, or {type, location, image_or_build_context}", gym)
        return ""
    if gym.get("location") not in (None, *LOCATIONS):
        fields.wrong("gym.location", "expected local or remote")
    image = gym.get("image_or_build_context")
    if image is not None and not isinstance(image, str):
        fields.expected("gym.image_or_build_context", "text", image)
        return ""
    return image or str(gym.get("type") or "gym")
