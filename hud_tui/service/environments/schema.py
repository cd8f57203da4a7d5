"""JSON Schema, as much of it as a scenario's args need: flat objects of integers and strings."""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def integer(low: int = -999_999_999, high: int = 999_999_999) -> Schema:
    """An integer within [low, high]."""
    return {"type": "integer", "minimum": low, "maximum": high}


def string(shortest: int = 1, longest: int = 64) -> Schema:
    """A string of `shortest` to `longest` characters."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def arguments(**properties: Schema) -> Schema:
    """An object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def check_args(schema: Schema, args: Mapping[str, Any]) -> dict[str, Any]:
    """The args as a new dict, once they fit the schema made by `arguments`.

    A whole number is an integer however it is written, as JSON Schema has it: 3.0 becomes 3.

    Raises:
        ValueError: A field is missing, unknown, of the wrong type or out of bounds.
    """
    properties: dict[str, Schema] = schema["properties"]
    for name in args:
        if name not in properties:
            raise ValueError(f"args.{name} is not known here; expected {', '.join(properties)}")
    checked = {}
    for name, wanted in properties.items():
        if name not in args:
            raise ValueError(f"args.{name} is missing")
        value = args[name]
        if isinstance(value, float) and value.is_integer() and wanted["type"] == "integer":
            value = int(value)
        _check_value(name, wanted, value)
        checked[name] = value
    return checked


def _check_value(name: str, wanted: Schema, value: Any) -> None:
    kind = wanted["type"]
    if kind == "integer":
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"args.{name} must be an integer")
        size, low, high, unit = value, wanted["minimum"], wanted["maximum"], ""
    else:
        if not isinstance(value, str):
            raise ValueError(f"args.{name} must be a string")
        size, low, high = len(value), wanted["minLength"], wanted["maxLength"]
        unit = " characters"
    if not low <= size <= high:
        raise ValueError(f"args.{name} must be {low} to {high}{unit}, not {size}")
