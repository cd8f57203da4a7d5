"""Settings of a run: its parameters with their defaults and display names, read, sent and shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from hud_tui.errors import BEYOND, HudUsage
from hud_tui.parameters import (
    RECORDED_PARAMETERS,
    RUN_PARAMETERS,
    TRAIN,
    USUAL,
    Parameter,
    taken_by,
)
from hud_tui.rl.text import one_line, write_loss_config
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters

Value = int | float | str | dict[str, float] | None
DEFAULT = "default"
"""Of reasoning_effort: the service decides."""
NO, YES = "no", "yes"
HUD_EFFORT = "medium"
"""Default of ``hud rl run`` (hud 0.5); HUD publishes no default of its own."""
LOSS = "loss_fn"
"""The parameter whose values the service lists."""
START = "start"
"""The setting of what a run starts from, which is no parameter."""


def setting_label(key: str) -> str:
    """Display name of a run's setting, e.g. ``learning rate``, ``loss config beta``."""
    name, _, of_loss = key.partition(".")
    if name in RECORDED_PARAMETERS:
        label = RECORDED_PARAMETERS[name].title
    else:
        label = "from" if name == START else one_line(name, 40).replace("_", " ")
    return f"{label} {one_line(of_loss, 40)}" if of_loss else label


def short_label(key: str) -> str:
    """As `setting_label`, in a few letters where there is such a name: ``lr``."""
    short = RECORDED_PARAMETERS[key].short if key in RECORDED_PARAMETERS else ""
    return short or setting_label(key)


def is_picked(row: Parameter) -> bool:
    """Whether its value is chosen from some, and not typed."""
    return row.kind in ("choice", "switch") or row.name == LOSS


FIELDS = tuple(sorted((row for row in RUN_PARAMETERS if row.in_form), key=is_picked))
"""The parameters in the form: first those that are typed."""
FOLDED: Mapping[str, Value] = {
    row.name: False if row.kind == "switch" else None for row in FIELDS if row.in_form == "folded"
}
"""The parameters behind the fold, with what leaves them to the service."""


def defaults(model: Model) -> dict[str, Value]:
    """Default parameters of a run on this model, as far as the client chooses them."""
    if model.training_defaults is None:
        return {"reasoning_effort": HUD_EFFORT}
    usual, in_sight = _usual(model), [row for row in FIELDS if row.name not in FOLDED]
    return {row.name: usual[row.name] if row.in_form == "filled" else None for row in in_sight}


def _usual(model: Model | None) -> dict[str, Any]:
    """Defaults of the embedded service; with the model's own, if they are known."""
    own = None if model is None else model.training_defaults
    if own is None:
        return dict(USUAL)
    return {**USUAL, **own.model_dump(), "reasoning_effort": DEFAULT}


@dataclass(frozen=True)
class Setting:
    """One parameter of a run, as displayed."""

    label: str
    text: str
    """Its value; ``–`` if there is none."""
    usual: bool
    """Whether it has its default value."""


def settings(
    model: Model | None, values: Mapping[str, object], managed: bool = True
) -> list[Setting]:
    """Every parameter of a run, in the wire's order; unknown ones last.

    Args:
        model: The trained model, whose own defaults count; None if unknown.
        values: Parameters by wire name, as reported by the service or as sent.
        managed: Whether the service takes its steps.
    """
    of_all = [row.name for row in taken_by(TRAIN, RUN_PARAMETERS)]
    keys = list(JobParameters.model_fields) if managed else of_all
    usual = _usual(model)
    extra = [key for key in values if key not in keys]
    return [_setting(key, values, usual) for key in (*keys, *extra)]


def _setting(key: str, values: Mapping[str, object], usual: Mapping[str, object]) -> Setting:
    value = values.get(key)
    value = usual.get(key) if value is None else value
    is_usual = values.get(key) is None or value == usual.get(key)
    is_told = isinstance(value, bool | int | float | str | dict)
    text = write(value) if is_told else ""  # type: ignore[arg-type]
    shown = "–" if value in (None, {}, DEFAULT) else one_line(text, 200)
    return Setting(setting_label(key), shown, is_usual)


def form_values(model: Model) -> dict[str, Value]:
    """The fields of the form for a run on this model, with their initial values. A server samples
    and trains at the same time, so there one batch is proposed to be sampled ahead."""
    usual = defaults(model)
    if model.training_defaults is None:
        return usual
    is_apart = model.engine is not None and model.engine.server is not None
    return {**usual, **FOLDED, "max_staleness": 1 if is_apart else None}


def without_field(model: Model, values: Mapping[str, Value]) -> dict[str, Value]:
    """Parameters from the command line that have no field in the form."""
    names = JobParameters.model_fields.keys() - form_values(model).keys()
    return {key: value for key, value in values.items() if key in names}


def completed(model: Model, asked: JobParameters) -> JobParameters:
    """The parameters as sent: HUD gets a reasoning effort, as its own CLI sends one."""
    if model.training_defaults is not None or asked.reasoning_effort is not None:
        return asked
    return asked.model_copy(update={"reasoning_effort": HUD_EFFORT})


def parameters(values: Mapping[str, Value]) -> JobParameters:
    """The request's parameters from the form's values."""
    chosen = {key: value for key, value in values.items() if value is not False}  # but keep 0
    sent = {key: value for key, value in chosen.items() if value not in (None, DEFAULT)}
    return JobParameters.model_validate(sent)


def max_tokens(model: Model, values: Mapping[str, Value]) -> int | None:
    """Maximum tokens of one answer; None if the service decides, e.g. from a reasoning effort."""
    typed = values.get("max_tokens")
    if isinstance(typed, int):
        return typed
    own = model.training_defaults
    decided = values.get("reasoning_effort") not in (None, DEFAULT)
    return None if own is None or decided else own.max_tokens


def write(value: Value) -> str:
    """A value as displayed in its field, e.g. ``0.0003``, ``1e-8``."""
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    if isinstance(value, dict):
        return write_loss_config(value)
    return "" if value is None else str(value)


BOUNDS = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}
"""Pydantic's names of the kinds of bounds."""


def wrong_value(error: ValidationError) -> HudUsage:
    """What is wrong with the first invalid parameter, by its flag, with what is valid. An error of
    a parameter's own check has the parameter's name as its type, and names the value."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    row = RECORDED_PARAMETERS.get(name)
    bound = BOUNDS.get(first["type"], "")
    value = first["input"]
    shown = f"{value:g}" if isinstance(value, float) else one_line(value, 60)
    if bound:
        limit = first.get("ctx", {}).get(bound)
        limit = f"{limit:g}" if isinstance(limit, float) else limit
        what = f"{shown} {BEYOND[bound]} {limit}"
    elif first["type"] == name:
        what = one_line(first["msg"])
    else:
        what = f"{shown}: {one_line(first['msg'])}"
    if row is None:
        return HudUsage(what)
    hint = f"write e.g. {row.example}" if row.example else ""
    if row.choices:
        hint = f"choose from {', '.join(row.choices)}"
    return HudUsage(f"{row.flag}: {what}", hint)
