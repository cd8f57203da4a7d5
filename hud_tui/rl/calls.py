"""Tool calls, in every spelling that task files have had, read as name and arguments.

A call is ``{"name", "arguments"}``, ``{tool: {args}}``, nested ``{"setup": {"navigate":
{…}}}``, a list of those, or a JSON string of any of them. Before hud 0.4 a call was a
function: ``"chrome.maximize"``, ``"goto https://…"``, ``["goto", "https://…"]``, or
``{"function", "args"}``.

Source: the ``hud`` SDK 0.4 (``setup_tool``, ``evaluate_tool``) and 0.1 to 0.3 (``setup``,
``evaluate``); data sets on Hugging Face, which hold all of it as JSON strings.
"""

from collections.abc import Iterator
from typing import Any

from hud_tui.rl.fields import Fields, kind_of
from hud_tui.rl.strict_json import parse
from hud_tui.rl.text import one_line

Call = dict[str, Any]
"""``{"name": …, "arguments": {…}}``."""
NO_CALL = ("", "{}", "null")
HUBS = ("setup", "evaluate")
"""Tools that hold others: what they are called with names one of them."""
CALL = 'a call: {"name": TOOL, "arguments": {…}}, {TOOL: {…}}, a list of calls, or JSON of those'
FUNCTION = 'a function: "NAME ARGS", {"function": NAME, "args": […]}, or a list of those'


def read_calls(fields: Fields, key: str) -> list[Call]:
    """The calls of a v4 field; empty where it is absent, or as ``hud hf`` wrote that: ``{}``."""
    value = fields.row.get(key)
    if value is None or value == {} or (isinstance(value, str) and value.strip() in NO_CALL):
        return []
    return list(_calls(fields, key, value))


def _calls(fields: Fields, at: str, value: object, quoted: bool = True) -> Iterator[Call]:
    if isinstance(value, str) and quoted:
        parsed = parse(value)
        if parsed.fault:
            fields.wrong(at, f"expected {CALL}; this text is not JSON: {parsed.fault}")
        else:
            yield from _calls(fields, at, parsed.value, quoted=False)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _calls(fields, f"{at}[{index}]", part)
    elif not isinstance(value, dict) or not value:
        found = "an empty object" if value == {} else kind_of(value)
        fields.wrong(at, f"expected {CALL}, found {found}")
    elif "name" in value:
        yield from _named(fields, at, value)
    else:
        yield from _keyed(fields, at, value)


def _named(fields: Fields, at: str, call: dict[str, Any]) -> Iterator[Call]:
    name, arguments = call["name"], call.get("arguments", call.get("args"))
    if isinstance(arguments, str):
        parsed = parse(arguments or "{}")
        if parsed.fault:
            fields.wrong(f"{at}.arguments", f"this text is not JSON: {parsed.fault}")
            return
        arguments = parsed.value
    if not isinstance(name, str) or not name:
        fields.wrong(f"{at}.name", f"expected the tool's name, found {kind_of(name)}")
    elif arguments is not None and not isinstance(arguments, dict):
        fields.expected(f"{at}.arguments", "an object", arguments)
    else:
        yield {"name": name, "arguments": arguments or {}}


def _keyed(fields: Fields, at: str, calls: dict[str, Any]) -> Iterator[Call]:
    """``{tool: {args}}``, one call a key; inside a hub's, the tool that it is to call."""
    for tool, arguments in calls.items():
        if arguments is not None and not isinstance(arguments, dict):
            fields.expected(f"{at}.{one_line(tool, 40)}", "the call's arguments", arguments)
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
    if isinstance(value, list) and not _is_tuple(value):
        found = (_function(fields, f"{key}[{i}]", part) for i, part in enumerate(value))
        return [call for call in found if call]
    return [call for call in (_function(fields, key, value),) if call]


def _is_tuple(value: list[Any]) -> bool:
    """Whether a list is one function and its arguments, e.g. ``["goto", "https://…"]``: JSON
    has no tuples. A list whose every part names a function is one of functions."""
    return bool(value) and isinstance(value[0], str) and not all(map(_is_function, value))


def _is_function(value: object) -> bool:
    if isinstance(value, str):
        name = value.split(maxsplit=1)[0] if value.split() else ""
        return name.replace(".", "_").isidentifier()
    return isinstance(value, (dict, list))


def _function(fields: Fields, at: str, value: object) -> Call | None:
    if isinstance(value, str) and value.strip():
        name, *rest = value.split(maxsplit=1)
        return {"name": name, "arguments": {"args": rest}}
    if isinstance(value, list) and value and isinstance(value[0], str):
        return {"name": value[0], "arguments": {"args": value[1:]}}
    if isinstance(value, dict) and isinstance(value.get("function"), str):
        args = value.get("args")
        return {"name": value["function"], "arguments": {"args": [] if args is None else args}}
    found = "empty text" if isinstance(value, str) else kind_of(value)
    fields.wrong(at, f"expected {FUNCTION}; found {found}")
    return None
