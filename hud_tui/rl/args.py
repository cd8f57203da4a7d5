"""Whether a task's args fit a scenario's JSON Schema, as far as scenarios use that.

Source: JSON Schema 2020-12, sections 6.1 to 6.5: type, enum, bounds, lengths, required,
properties and additionalProperties. Other keywords are not judged.
"""

from collections.abc import Mapping
from typing import Any

from hud_tui.rl.text import one_line

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def misfit(schema: Mapping[str, Any], value: Any, at: str = "args") -> str:
    """The first thing wrong with a value, e.g. ``args.a: expected integer``; empty if none."""
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and not any(_is(value, kind) for kind in kinds):
        return f"{at}: expected {' or '.join(one_line(kind, 20) for kind in kinds)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{at}: expected one of {one_line(choices, 80)}"
    return _out_of_bounds(schema, value, at) or _wrong_field(schema, value, at)


def _is(value: Any, kind: object) -> bool:
    types = _TYPES.get(str(kind))
    if types is None:
        return True
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types) or (kind == "integer" and _whole(value))


def _whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _out_of_bounds(schema: Mapping[str, Any], value: Any, at: str) -> str:
    size: float
    if isinstance(value, (str, list)):
        size, unit = len(value), "Length" if isinstance(value, str) else "Items"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        size, unit = value, "imum"
    else:
        return ""
    low, high = schema.get(f"min{unit}"), schema.get(f"max{unit}")
    if isinstance(low, (int, float)) and size < low:
        return f"{at}: {size} is below {low}"
    if isinstance(high, (int, float)) and size > high:
        return f"{at}: {size} is above {high}"
    return ""


def _wrong_field(schema: Mapping[str, Any], value: Any, at: str) -> str:
    if not isinstance(value, dict):
        return ""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else []:
        if name not in value:
            return f"{at}.{one_line(name, 40)}: missing"
    if schema.get("additionalProperties") is False:
        for name in value:
            if name not in properties:
                return f"{at}.{one_line(name, 40)}: not known"
    problems = (
        misfit(properties[name], field, f"{at}.{one_line(name, 40)}")
        for name, field in value.items()
        if isinstance(properties.get(name), dict)
    )
    return next((problem for problem in problems if problem), "")
