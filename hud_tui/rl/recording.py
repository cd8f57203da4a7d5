"""Recordings of a session: its events with their times, as JSON lines.

The first line identifies the file. Models, in the order of their selection, and events follow:

    {"schema": "hud-tui-record/1", "kind": "session", "version": "0.1.0", "at": 1780000000.0}
    {"kind": "model", "at": 0.0, "data": {"id": "…", "model_name": "…", …}}
    {"kind": "event", "at": 1.25, "data": {"type": "checkpoint", …}}

`at` of the first line is Unix seconds; of the others, seconds since then.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from hud_tui.errors import HudUsage
from hud_tui.events import Event
from hud_tui.rl.text import one_line
from hud_tui.wire import Model, adapter

SCHEMA = "hud-tui-record/1"
MOST_LINES, MOST_LINE = 2_000_000, 64 * 1024 * 1024
"""Maximum lines of a recording, and characters per line."""
LATEST = 4e9
"""Latest plausible start of a session, Unix seconds."""
LONGEST_S = 1e9
"""Longest plausible recording, seconds."""


@dataclass(frozen=True)
class Moment:
    """An event with its time."""

    at: float
    """Seconds since the recording began."""
    model_id: str
    event: Event


@dataclass(frozen=True)
class Recording:
    """A whole session."""

    models: tuple[Model, ...]
    moments: tuple[Moment, ...]
    """In chronological order."""
    began: float | None = None
    """Unix seconds; None if unknown."""

    @property
    def seconds(self) -> float:
        return self.moments[-1].at if self.moments else 0.0


def to_line(kind: str, stamp: float, data: Model | Event) -> str:
    """A line of the file, except the first, with its line end. NaN is written as Python does."""
    return json.dumps({"kind": kind, "at": round(stamp, 4), "data": data.model_dump()}) + "\n"


def first_line(version: str, stamp: float) -> str:
    first = {"schema": SCHEMA, "kind": "session", "version": version, "at": stamp}
    return json.dumps(first) + "\n"


def read_recording(lines: Iterable[str], name: str) -> Recording:
    """Read a recording.

    Raises:
        HudUsage: Not a recording; the message names the line.
    """
    numbered = _parsed(lines, name)
    first = next(numbered, (1, {}))[1]
    if first.get("schema") != SCHEMA:
        expected = f"expected schema {SCHEMA}, found {one_line(first.get('schema', 'none'), 60)}"
        raise _bad(name, 1, expected)
    models: dict[str, Model] = {}
    moments: list[Moment] = []
    now, last = 0.0, ""
    for number, line in numbered:
        now = _time(line, now, name, number)
        try:
            if line.get("kind") == "model":
                model = Model.model_validate(line.get("data"))
                models[model.id] = model
                last = model.id
            elif line.get("kind") == "event":
                event: Event = adapter(Event).validate_python(_event(line.get("data")))
                moments.append(Moment(now, last, event))
        except ValidationError as error:
            raise _bad(name, number, _first(error)) from error
        if moments and not last:
            raise _bad(name, number, "an event before any model")
    if not models:
        raise _bad(name, 1, "no model in this recording")
    began = first.get("at")
    if not isinstance(began, float | int) or began is True or not 0 < began <= LATEST:
        began = None
    return Recording(tuple(models.values()), tuple(moments), began)


def _event(data: Any) -> Any:
    """An event as it is now: the first recordings have one of runs and another of evaluations."""
    kinds = {"job": "training", "evaluation": "evaluation"}
    for type_, kind in kinds.items():
        if isinstance(data, dict) and data.get("type") == type_:
            work = data.get(type_)
            if isinstance(work, dict):
                work = {**work, "kind": kind}
            return {"type": "work", "at": data.get("at", 0.0), "work": work}
    return data


def _parsed(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line; an incomplete last line is skipped."""
    cut = ""
    for number, text in enumerate(lines, 1):
        if cut:
            raise _bad(name, number - 1, cut)
        if number > MOST_LINES or len(text) > MOST_LINE:
            raise _bad(name, number, "too long for a recording")
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            cut = "not JSON"
            if number == 1 or text.endswith("\n"):
                raise _bad(name, number, cut) from None
            continue
        if not isinstance(line, dict):
            raise _bad(name, number, "expected an object")
        yield number, line


def _time(line: dict[str, Any], now: float, name: str, number: int) -> float:
    """Time of a line, at least that of the line before."""
    stamp = line.get("at")
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or stamp != stamp:
        raise _bad(name, number, "field at: expected a number of seconds")
    if not -LONGEST_S <= stamp <= LONGEST_S:  # before float(), which raises for 400 digits
        raise _bad(name, number, "field at: too early or too late for one session")
    return max(now, float(stamp))


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(one_line(part, 40) for part in problem["loc"])
    return f"field data.{field}: {one_line(problem['msg'], 200)}"


def _bad(name: str, number: int, what: str) -> HudUsage:
    hint = "record one with hud-tui --record FILE"
    return HudUsage(f"{one_line(name, 300)} line {number}: {what}", hint)
