"""Spans: what a client uploads of its rollouts, kept as it came."""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from pydantic import ValidationError

from hud_tui.service.store import Db
from hud_tui.wire import Sample


def add(db: Db, trace_id: str, spans: Iterable[dict[str, Any]]) -> None:
    """Keep uploaded spans; one that comes again replaces itself."""
    insert = "INSERT OR REPLACE INTO span VALUES (?, ?, ?)"
    for span in spans:
        body = json.dumps(span)
        name = str(span.get("span_id") or blake2b(body.encode(), digest_size=16).hexdigest())
        db.execute(insert, (trace_id, name, body))


def of_trace(db: Db, trace_id: str) -> list[dict[str, Any]]:
    """The uploaded spans of a trace, by their start."""
    query = "SELECT body FROM span WHERE trace_id = ? ORDER BY rowid"
    found = [json.loads(row["body"]) for row in db.execute(query, (trace_id,))]
    return sorted(found, key=lambda span: str(span.get("start_time") or ""))


def samples(db: Db, trace_id: str) -> list[Sample]:
    """The turns that a trace's spans carry tokens of, in order."""
    found = [payload(span).get("sample") for span in of_trace(db, trace_id)]
    read = [_sample(value) for value in found if isinstance(value, dict)]
    return [sample for sample in read if sample is not None and sample.output_token_ids]


def _sample(value: dict[str, Any]) -> Sample | None:
    known = {key: value[key] for key in Sample.model_fields if value.get(key) is not None}
    try:
        return Sample.model_validate(known)
    except ValidationError:
        return None


def payload(span: dict[str, Any]) -> dict[str, Any]:
    """A span's ``hud.payload``; empty where it has none that can be read."""
    attributes = span.get("attributes")
    found = attributes.get("hud.payload") if isinstance(attributes, dict) else None
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except json.JSONDecodeError:
            return {}
    return found if isinstance(found, dict) else {}
