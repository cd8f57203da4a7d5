"""What an RL configuration of hud 0.4 is today: a run's parameters, and what it cannot be.

Fields that it leaves out are taken with the defaults that hud 0.4 gave them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hud_tui.older.rl_config import RlConfig
from hud_tui.older.rl_fields import FIELDS, Path
from hud_tui.rl.run_form import NUMBERS
from hud_tui.rl.text import one_line
from hud_tui.wire import COOLEST

LIMITS = {field.key: field for field in NUMBERS if field.key != "seed"}
"""Of the form; a seed may be any number that the file may have."""


@dataclass(frozen=True)
class Translated:
    """A field that has an equivalent."""

    field: str
    value: Any
    set: bool
    """Whether the file sets it; else it is hud 0.4's default."""
    parameter: str
    """The run parameter; ``model``; or empty where runs are so anyway."""
    becomes: Any
    note: str = ""


@dataclass(frozen=True)
class Dropped:
    """A field that has none."""

    field: str
    value: Any
    """None where it is a secret, or of a field that hud 0.4 had not."""
    set: bool
    why: str


@dataclass(frozen=True)
class Translation:
    """All of it."""

    model: str
    """The base that it was trained from; a fork of one like it is trained now."""
    parameters: dict[str, Any]
    """By the wire's names, within their limits."""
    translated: list[Translated]
    dropped: list[Dropped]
    warnings: list[str]


def translate(config: RlConfig) -> Translation:
    """Every field's fate; none is passed over in silence."""
    warnings: list[str] = []
    translated = [*_parameters(config, warnings), *_same(config)]
    return Translation(
        model=str(config.get("model", "base_model")),
        parameters={t.parameter: t.becomes for t in translated if t.parameter not in ("", "model")},
        translated=translated,
        dropped=[*_dropped(config), *_unknown(config)],
        warnings=warnings,
    )


def flags(parameters: dict[str, Any]) -> str:
    """The flags of ``hud-tui run`` that say the same, e.g. ``--steps 100``."""
    return " ".join(f"--{name.replace('_', '-')} {_shown(v)}" for name, v in parameters.items())


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parameters(config: RlConfig, warnings: list[str]) -> Iterator[Translated]:
    for path, spec in FIELDS.items():
        if not spec.to:
            continue
        value = config.get(*path)
        becomes, note = _becomes(config, spec.to, value)
        if becomes is None:
            continue
        held = _within(spec.to, becomes)
        if held != becomes:
            note = f"{_shown(becomes)} is out of {LIMITS[spec.to].limits}"
        if note:
            warnings.append(f"{_name(path)}: {note}")
        yield Translated(_name(path), value, config.is_set(*path), spec.to, held, note)


def _becomes(config: RlConfig, parameter: str, value: Any) -> tuple[Any, str]:
    """The parameter's value, and what is to be said of it; None where it has no equivalent."""
    if parameter == "tasks_per_step":
        group = int(config.get("training", "group_size"))
        tasks, rest = divmod(int(value), group)
        if not rest and tasks:
            return tasks, ""
        tasks = max(tasks, 1)
        return (
            tasks,
            f"{value} is no multiple of group_size {group}: {tasks * group} rollouts a step",
        )
    if parameter == "loss_fn":
        return ("ppo", "") if value == "per_token" else (None, "")
    if parameter == "temperature" and value < COOLEST:
        return COOLEST, f"{_shown(value)} cannot be trained at: {COOLEST} is the coolest"
    if parameter == "learning_rate" and value == 0:
        return None, ""
    whole = parameter in ("steps", "group_size", "max_tokens", "seed")
    return (int(value) if whole else value), ""


def _within(parameter: str, value: Any) -> Any:
    """The nearest value that a run may have."""
    limits = LIMITS.get(parameter)
    if limits is None:
        return value
    low, high = limits.low, limits.high
    held = min(max(value, low), high)
    return int(held) if limits.whole else held


def _same(config: RlConfig) -> Iterator[Translated]:
    """Fields whose value runs have anyway."""
    for path, spec in FIELDS.items():
        if config.is_set(*path) and spec.same is not None and config.get(*path) == spec.same:
            yield Translated(_name(path), config.get(*path), True, "", spec.same, "runs are so now")


def _dropped(config: RlConfig) -> Iterator[Dropped]:
    for path, spec in FIELDS.items():
        value, is_set = config.get(*path), config.is_set(*path)
        lost = spec.to and path not in _kept(config)
        if spec.to and not lost:
            continue
        if not spec.to and not (is_set or spec.changes):
            continue
        if spec.same is not None and value == spec.same:
            continue
        why = spec.why or "runs have no such loss: ratios are of tokens"
        if spec.to == "learning_rate":
            why = "a run must learn: choose a rate above 0"
        yield Dropped(_name(path), None if spec.secret else value, is_set, why)


def _kept(config: RlConfig) -> set[Path]:
    """Fields with an equivalent in this configuration."""
    return {
        path
        for path, spec in FIELDS.items()
        if spec.to and _becomes(config, spec.to, config.get(*path))[0] is not None
    }


def _unknown(config: RlConfig) -> Iterator[Dropped]:
    for name, why in config.unknown.items():
        yield Dropped(one_line(name, 120), None, True, why)


def _name(path: Path) -> str:
    return ".".join(path)
