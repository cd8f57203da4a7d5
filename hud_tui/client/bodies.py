"""Bodies on the wire, to and from values. Whatever is wrong with one is a `HudMalformed`."""

import json
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from hud_tui.errors import HudMalformed
from hud_tui.rl.text import one_line

T = TypeVar("T")
DETAIL = 400
"""Characters of a server's explanation that are kept."""


@cache
def adapter(kind: Hashable) -> TypeAdapter[Any]:
    """The validator of a type, built when it is first needed."""
    return TypeAdapter(cast(Any, kind))


def parse(kind: type[T], body: bytes, what: str) -> T:
    """Validate a JSON body.

    Args:
        kind: A wire model, or a generic alias of one such as ``list[Checkpoint]``.
        what: The request, for the message, e.g. ``GET /v2/models``.

    Raises:
        HudMalformed: Not JSON, or not of that kind; the message names the place.
    """
    try:
        value: T = adapter(cast(Hashable, kind)).validate_json(body or b"{}")
    except ValidationError as error:
        raise malformed(what, error) from error
    return value


def malformed(what: str, error: ValidationError) -> HudMalformed:
    """A validation error in one clean line, without the input that caused it."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    problem = one_line(f"{place}: {first['msg']}" if place else first["msg"], DETAIL)
    return HudMalformed(
        f"{what}: the answer is not what the wire says: {problem}",
        "check that the URL belongs to a HUD service, and update hud-tui",
    )


def error_detail(body: bytes, reason: str) -> str:
    """What an error body says, in one clean line: ``detail`` of HUD, ``error`` of OpenAI."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = body.decode("utf-8", errors="replace").strip()
    if isinstance(document, dict):
        document = document.get("detail") or document.get("error") or document
    if isinstance(document, dict) and "message" in document:
        document = document["message"]
    if isinstance(document, list):
        document = "; ".join(_problem(entry) for entry in document[:5])
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    return one_line(text or reason or "no explanation", DETAIL)


def _problem(entry: object) -> str:
    """One row of a FastAPI-shaped validation list."""
    if not isinstance(entry, dict):
        return str(entry)
    location = entry.get("loc")
    place = ".".join(str(part) for part in location) if isinstance(location, list) else ""
    return f"{place}: {entry.get('msg', entry)}" if place else str(entry.get("msg", entry))
