"""What a reward is made of, as an evaluation's result says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subscore:
    """One part of a reward."""

    name: str
    value: float
    weight: float | None = None


def subscores(result: object) -> list[Subscore]:
    """The parts of an evaluation's result, be they a list or a mapping; empty where it has none.

    Source: the ``hud`` SDK's EvaluationResult (``subscores``: name, value, weight), and
    servers that send a mapping from name to number.
    """
    found = result.get("subscores") if isinstance(result, Mapping) else None
    if isinstance(found, Mapping):
        return [Subscore(str(name), float(v)) for name, v in found.items() if _number(v)]
    if isinstance(found, list):
        return [part for row in found if (part := _part(row)) is not None]
    return []


def _part(row: Any) -> Subscore | None:
    if not isinstance(row, Mapping):
        return None
    value: Any = row.get("value", row.get("score"))
    weight: Any = row.get("weight")
    if not _number(value):
        return None
    return Subscore(
        str(row.get("name") or "?"), float(value), float(weight) if _number(weight) else None
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
