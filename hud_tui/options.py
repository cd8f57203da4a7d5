"""Tuning: typed numbers of a detector, checked where they are made and where they are read.

Plain dataclasses: a command that asks once need not wait for pydantic to build models.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from math import inf
from sys import float_info
from typing import Any, TypeVar

T = TypeVar("T", bound="Tuning")
MOST_STEPS = 1_000_000
LARGEST = float_info.max


class BadTuning(ValueError):
    """A value that cannot be used: which one, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}" if name else why)
        self.name, self.why = name, why


def count(default: int, least: int = 1) -> Any:
    """A dataclass field of whole steps."""
    return field(default=default, metadata={"least": least, "most": MOST_STEPS})


def positive(default: Any = MISSING, most: float = inf) -> Any:
    """A dataclass field of a finite number above 0."""
    return field(default=default, metadata={"above": 0.0, "most": most})


def share(default: float) -> Any:
    """A dataclass field of a number above 0, at most 1."""
    return positive(default, 1.0)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What every detector has. Steps are those at which its metric came."""

    enabled: bool = True
    warmup: int = count(10, least=0)
    """Steps in which it says nothing."""
    hold: int = count(5)
    """Steps in a row that a level must be reached before it is said."""
    release: int = count(5)
    """Steps in a row clearly below the limit before it is over."""
    cooldown: int = count(20, least=0)
    """Steps after its end in which it is not raised again, unless it is worse."""

    def __post_init__(self) -> None:
        for one in fields(self):
            why = misfit(one, getattr(self, one.name))
            if why:
                raise BadTuning(one.name, why)


def changed(tuning: T, given: Mapping[str, object]) -> T:
    """The tuning with the values given, under its fields' names.

    Raises:
        BadTuning: A name that it does not have, or a value that it cannot.
    """
    known = {one.name for one in fields(tuning)}
    for name in given:
        if name not in known:
            raise BadTuning(name, f"not known; there are {', '.join(sorted(known))}")
    return replace(tuning, **given)  # type: ignore[arg-type]  # __post_init__ checks them


def misfit(one: "Field[Any]", value: object) -> str:
    """What is wrong with a field's value; empty where nothing is."""
    if not one.metadata:
        return "" if isinstance(value, bool) else "expected true or false"
    if value is None and one.default is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "expected a number"
    if "least" in one.metadata and not isinstance(value, int):
        return "expected a whole number"
    return _out_of_bounds(one.metadata, value)


def _out_of_bounds(bounds: Mapping[str, Any], value: float) -> str:
    if not abs(value) <= LARGEST:  # NaN neither; isfinite() raises for an int of 400 digits
        return "expected a finite number"
    if "above" in bounds and not value > bounds["above"]:
        return f"expected more than {bounds['above']:g}"
    if value < bounds.get("least", -inf):
        return f"expected {bounds['least']} or more"
    return f"expected at most {bounds['most']:g}" if value > bounds["most"] else ""
