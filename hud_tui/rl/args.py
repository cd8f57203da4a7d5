"""Whether a value fits a JSON Schema: args and a scenario's, runtime_config and HUD's.

Schemas come from a server. Nothing that they refer to is fetched, and one that makes no
sense refuses nothing: the service that published it will say so better.

Source: JSON Schema 2020-12, by the ``jsonschema`` package.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

BOUNDS = {
    "minimum": "below",
    "maximum": "above",
    "exclusiveMinimum": "not above",
    "exclusiveMaximum": "not below",
    "minLength": "below",
    "maxLength": "above",
    "minItems": "below",
    "maxItems": "above",
}
"""What a value is to the bound that it breaks."""
Judge = Callable[[object], str]
"""A value → the first thing wrong with it, empty if none."""


def misfit(schema: Mapping[str, Any], value: object, at: str = "args") -> str:
    """The first thing wrong with a value, e.g. ``args.a: expected integer``; empty if none."""
    return judge_of(schema, at)(value)


def judge_of(schema: Mapping[str, Any], at: str = "args") -> Judge:
    """A judge for many values of one schema."""
    from jsonschema import Draft202012Validator  # 90 ms, which only a schema need cost
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return lambda value: ""
    validator = Draft202012Validator(schema, registry=Registry())  # without one it would fetch

    def judge(value: object) -> str:
        try:
            if validator.is_valid(value):
                return ""
            errors = sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path)))
        except (Unresolvable, RecursionError):
            return ""
        return _said(errors[0], at) if errors else ""

    return judge


def _said(error: "ValidationError", at: str) -> str:
    place = at + "".join(_step(part) for part in error.absolute_path)
    value, wanted, rule = error.instance, error.validator_value, str(error.validator)
    if rule == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        return f"{place}: expected {' or '.join(one_line(kind, 20) for kind in kinds)}"
    if rule == "enum":
        return f"{place}: expected one of {one_line(wanted, 80)}"
    if rule == "required":
        missing = [one_line(name, 40) for name in wanted if name not in value]
        several = f": {', '.join(missing)} are missing"
        return place + (several if len(missing) > 1 else f".{missing[0]}: missing")
    if rule == "additionalProperties" and wanted is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        name = next((name for name in value if name not in known), "")
        return f"{place}.{one_line(name, 40)}: not known"
    if rule in BOUNDS:
        size = len(value) if isinstance(value, (str, list)) else value
        return f"{place}: {size} is {BOUNDS[rule]} {wanted}"
    return f"{place}: does not fit {one_line(rule, 40)} {one_line(wanted, 80)}"


def _step(part: str | int) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{one_line(part, 40)}"
