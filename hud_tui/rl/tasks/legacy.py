"""Task rows of v1 to v4: tool calls in every historical spelling, MCP servers, variables.

A call is ``{"name", "arguments"}``, ``{tool: {args}}``, nested ``{"setup": {"navigate": {…}}}``, a
list of those, or a JSON string of any of them. Before hud 0.4 a call was a function:
``"chrome.maximize"``, ``"goto https://…"``, ``["goto", "https://…"]``, or ``{"function", "args"}``.

Source: the ``hud`` SDK 0.4 (``setup_tool``, ``evaluate_tool``) and 0.1 to 0.3 (``setup``,
``evaluate``); data sets on Hugging Face, which contain these values as JSON strings.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hud_tui.rl.json_tree import parse
from hud_tui.rl.tasks.task import Fields, Form, Task, digest, kind_of
from hud_tui.rl.text import one_line

Call = dict[str, Any]
"""``{"name": …, "arguments": {…}}``."""
NO_CALL = ("", "{}", "null")
HUBS = ("setup", "evaluate")
"""Hub tools: their arguments name another tool."""
CALL = 'a call: {"name": TOOL, "arguments": {…}}, {TOOL: {…}}, a list of calls, or JSON of those'
FUNCTION = 'a function: "NAME ARGS", {"function": NAME, "args": […]}, or a list of those'


def read_calls(fields: Fields, key: str) -> list[Call]:
    """Calls of a v4 field; empty if absent, or ``{}`` as written by ``hud hf``."""
    value = fields.row.get(key)
    if value is None or value == {} or (isinstance(value, str) and value.strip() in NO_CALL):
        return []
    return list(_calls(fields, key, value))


def _calls(fields: Fields, field: str, value: object, quoted: bool = True) -> Iterator[Call]:
    if isinstance(value, str) and quoted:
        parsed = parse(value)
        if parsed.fault:
            fields.wrong(field, f"expected {CALL}; this text is not JSON: {parsed.fault}")
        else:
            yield from _calls(fields, field, parsed.value, quoted=False)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _calls(fields, f"{field}[{index}]", part)
    elif not isinstance(value, dict) or not value:
        what = "an empty object" if value == {} else kind_of(value)
        fields.wrong(field, f"expected {CALL}, found {what}")
    elif "name" in value:
        yield from _named(fields, field, value)
    else:
        yield from _keyed(fields, field, value)


def _named(fields: Fields, field: str, call: dict[str, Any]) -> Iterator[Call]:
    name, arguments = call["name"], call.get("arguments", call.get("args"))
    if isinstance(arguments, str):
        parsed = parse(arguments or "{}")
        if parsed.fault:
            fields.wrong(f"{field}.arguments", f"this text is not JSON: {parsed.fault}")
            return
        arguments = parsed.value
    if not isinstance(name, str) or not name:
        fields.wrong(f"{field}.name", f"expected the tool's name, found {kind_of(name)}")
    elif arguments is not None and not isinstance(arguments, dict):
        fields.expected(f"{field}.arguments", "an object", arguments)
    else:
        yield {"name": name, "arguments": arguments or {}}


def _keyed(fields: Fields, field: str, calls: dict[str, Any]) -> Iterator[Call]:
    """Calls in the form ``{tool: {args}}``, one per key; for a hub tool, the tool that it calls."""
    for tool, arguments in calls.items():
        if arguments is not None and not isinstance(arguments, dict):
            fields.expected(f"{field}.{one_line(tool, 40)}", "the call's arguments", arguments)
            continue
        inner = list((arguments or {}).items())
        if tool in HUBS and len(inner) == 1 and isinstance(inner[0][1], dict):
            arguments = {"name": inner[0][0], "arguments": inner[0][1]}
        yield {"name": tool, "arguments": arguments or {}}


def read_functions(fields: Fields, key: str) -> list[Call]:
    """The functions of a v1–v3 field, as calls with their arguments under ``args``."""
    value = fields.row.get(key)
    if value is None or value == "":
        return []
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        parsed = parse(value)
        value = value if parsed.fault else parsed.value
    several = isinstance(value, list) and not _is_tuple(value)
    parts = [(f"{key}[{i}]", part) for i, part in enumerate(value)] if several else [(key, value)]
    return [call for path, part in parts if (call := _function(fields, path, part))]


def _is_tuple(value: list[Any]) -> bool:
    """Whether a list is one function with arguments, e.g. ``["goto", "https://…"]``. A list
    in which every item names a function is a list of functions."""
    return bool(value) and isinstance(value[0], str) and not all(map(_is_function, value))


def _is_function(value: object) -> bool:
    if isinstance(value, str):
        name = value.split(maxsplit=1)[0] if value.split() else ""
        return name.replace(".", "_").isidentifier()
    return isinstance(value, (dict, list))


def _function(fields: Fields, field: str, value: object) -> Call | None:
    if isinstance(value, str) and value.strip():
        name, *rest = value.split(maxsplit=1)
        return {"name": name, "arguments": {"args": rest}}
    if isinstance(value, list) and value and isinstance(value[0], str):
        return {"name": value[0], "arguments": {"args": value[1:]}}
    if isinstance(value, dict) and isinstance(value.get("function"), str):
        args = value.get("args")
        return {"name": value["function"], "arguments": {"args": [] if args is None else args}}
    what = "empty text" if isinstance(value, str) else kind_of(value)
    fields.wrong(field, f"expected {FUNCTION}; found {what}")
    return None


# Rows up to v4: prompt, MCP servers or gym, setup and evaluate calls.


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
"""Maximum length of a JSON string whose parsed value is cached, and size of that cache."""


def read_v4(fields: Fields) -> Task:
    """A row with a prompt and MCP servers. Calls and objects may be JSON strings."""
    prompt = fields.text("prompt", "the instruction")
    servers = _servers(fields)
    calls = {key: read_calls(fields, key) for key in CALLS}
    objects = {key: _object(fields, key) for key in OBJECTS}
    tools = _tools(fields)
    name, system = fields.maybe_text("id"), fields.maybe_text("system_prompt")
    row = {"id": name, "prompt": prompt, "mcp_config": servers, **calls, **objects}
    row |= {"agent_tools": tools, "system_prompt": system}
    slug = fields.maybe_text("slug") or name
    return _task(fields, "v4", "+".join(servers), calls["evaluate_tool"], slug, row)


def read_v3(fields: Fields) -> Task:
    """A row with a gym (v1 to v3)."""
    prompt, gym = fields.text("prompt", "the instruction"), _gym(fields)
    setup, evaluate = read_functions(fields, "setup"), read_functions(fields, "evaluate")
    named = {"prompt": prompt, "setup": setup, "evaluate": evaluate, "gym": fields.row.get("gym")}
    objects = {key: _object(fields, key) for key in ("config", "metadata", "columns")}
    texts = {key: fields.maybe_text(key) for key in ("id", "description", "system_prompt")}
    extras = {key: fields.row.get(key) for key in ("choices", "target", "files", "sensitive_data")}
    row = {**named, **objects, **texts, **extras}
    return _task(fields, "v3", gym, evaluate, texts["id"], row)


def _task(
    fields: Fields, form: Form, env: str, grading: list[Call], slug: str, row: dict[str, Any]
) -> Task:
    """The task, with the non-empty fields of its row."""
    row = {key: value for key, value in row.items() if value not in (None, "", [], {})}
    scenario = grading[0]["name"] if grading else ""
    unknown = tuple(sorted(fields.row.keys() - (KNOWN_V4 if form == "v4" else KNOWN_V3)))
    slug = slug or f"{scenario or 'task'}-{digest(row)[:8]}"
    columns = row.get("columns", {})
    return Task(env, scenario, {}, slug, columns, fields.where, form, row, unknown)


def _servers(fields: Fields) -> dict[str, Any]:
    """The MCP servers by name; each needs a URL, or a command that starts it."""
    servers = _object(fields, "mcp_config")
    for name, server in servers.items():
        where = f"mcp_config.{one_line(name, 40)}"
        if not isinstance(server, dict):
            fields.expected(where, "an object with url or command", server)
        elif not (server.get("url") or server.get("command")):
            fields.wrong(where, "expected url or command, found neither")
        else:
            key = "url" if server.get("url") else "command"
            if not isinstance(server[key], str):
                fields.expected(f"{where}.{key}", "text", server[key])
    if not servers and isinstance(fields.row["mcp_config"], dict):
        fields.wrong("mcp_config", "expected at least one MCP server, found an empty object")
    return servers


def _object(fields: Fields, key: str) -> dict[str, Any]:
    """An object, or a JSON string of one; empty if absent."""
    value = fields.row.get(key)
    if not isinstance(value, str):
        return fields.mapping(key)
    if not value.strip():
        return {}
    parsed = _again(value) if len(value) <= LONGEST_KEPT else parse(value)
    if isinstance(parsed.value, dict):
        return parsed.value
    what = f"text that is not JSON: {parsed.fault}" if parsed.fault else kind_of(parsed.value)
    fields.wrong(key, f"expected an object or JSON of one, found {what}")
    return {}


_again = lru_cache(MOST_KEPT)(parse)
"""Cached parsing: the rows of a file mostly share MCP servers and configuration. The values must
not be changed."""


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
    """Name of the gym; a custom gym is given as an object."""
    gym = fields.row["gym"]
    if isinstance(gym, str):
        return gym
    if not isinstance(gym, dict):
        fields.expected("gym", "its name, or {type, location, image_or_build_context}", gym)
        return ""
    if gym.get("location") not in (None, "local", "remote"):
        fields.wrong("gym.location", "expected local or remote")
    image = gym.get("image_or_build_context")
    if image is not None and not isinstance(image, str):
        fields.expected("gym.image_or_build_context", "text", image)
        return ""
    return image or str(gym.get("type") or "gym")


# Variables in the MCP servers of v4 rows: names, missing ones, substitution.
#
# ``${VAR}``, ``${VAR:default}`` and ``$VAR`` are substituted; ``$$`` is a dollar sign. Values
# are usually keys, so they leave this module only in substituted rows.
#
# Source: the ``hud`` SDK 0.4 substitutes them from the environment when it reads a row; its
# first releases used Python's `string.Template`, and their documentation writes ``$VAR``.


VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<braced>[^}:]+)(?::(?P<default>[^}]*))?\}"
    r"|(?P<plain>[_a-zA-Z][_a-zA-Z0-9]*))"
)


@dataclass(frozen=True)
class Variable:
    name: str
    missing: bool
    """Whether it is not set and at least one row has no default for it."""
    default: bool
    """Whether at least one row has a default."""
    tasks: int


def find_variables(tasks: Iterable[Task], names: Collection[str]) -> list[Variable]:
    """The variables that rows use, sorted by name.

    Args:
        tasks: Of any form; only v4 rows have variables.
    """
    holders: dict[str, list[bool]] = {}
    for task in tasks:
        asked: dict[str, bool] = {}
        for _, text in server_texts(task):
            for match in VARIABLE.finditer(text):
                if name := _name(match):
                    asked[name] = asked.get(name, True) and match["default"] is not None
        for name, default in asked.items():
            holders.setdefault(name, []).append(default)
    return [
        Variable(name, name not in names and not all(defaults), any(defaults), len(defaults))
        for name, defaults in sorted(holders.items())
    ]


def has_variable(text: str) -> bool:
    return any(_name(match) for match in VARIABLE.finditer(text))


def _name(match: re.Match[str]) -> str:
    """Name of the variable; empty for an escaped dollar sign."""
    return (match["braced"] or match["plain"] or "").strip()


def fill_rows(rows: Sequence[dict[str, Any]], values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows with the variables of their MCP servers substituted, ready to be sent.

    A variable that is neither set nor has a default stays as it is.
    """
    return [
        {**row, "mcp_config": _filled(row["mcp_config"], values)} if "mcp_config" in row else row
        for row in rows
    ]


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: _value(match, values), value)
    if isinstance(value, dict):
        return {key: _filled(part, values) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    return value


def _value(match: re.Match[str], values: Mapping[str, str]) -> str:
    if match["dollar"]:
        return "$"
    default = match[0] if match["default"] is None else match["default"]
    return values.get(_name(match)) or default


def server_texts(task: Task) -> Iterator[tuple[str, str]]:
    """Every text in the MCP servers of a v4 row, with its place; none for other rows."""
    return _texts(task.more.get("mcp_config") if task.form == "v4" else None)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, f"{path}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, path)
