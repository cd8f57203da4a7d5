"""Traces as the wire has them: a row, and the conversation as events."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from hud_tui.service.clock import iso
from hud_tui.service.engines.base import Tokenizer
from hud_tui.service.store.spans import payload


def trace_record(row: sqlite3.Row) -> dict[str, Any]:
    """One row of a job's traces."""
    heldout = row["heldout"]
    return {
        "id": row["id"],
        "job_id": row["job_id"],
        "status": row["status"],
        "created_at": iso(row["created_at"]),
        "start_time": iso(row["created_at"]),
        "ended_at": iso(row["ended_at"]) if row["ended_at"] else None,
        "task_slug": row["task_slug"],
        "reward": row["reward"],
        "stop_reason": row["stop_reason"],
        "error": row["error"],
        "group_id": row["group_id"],
        "step": row["step"],
        "attempt": row["attempt"],
        "rollout": row["rollout"],
        "completion": row["completion"],
        "num_tokens": row["num_tokens"],
        "heldout": None if heldout is None else bool(heldout),
        "evaluates": row["evaluates"],
        "checkpoint_id": row["checkpoint_id"],
        "model": row["model"],
    }


def whole_trace(row: sqlite3.Row) -> dict[str, Any]:
    """GET /v2/trace/{id}: the row, and how it was graded."""
    result = row["evaluation_result"]
    return trace_record(row) | {"evaluation_result": json.loads(result) if result else None}


def turn_events(turns: Sequence[sqlite3.Row], tokens: Tokenizer | None) -> list[dict[str, Any]]:
    """What was asked and answered, a user_message and an agent_message a turn.

    Args:
        turns: As the service sampled them.
        tokens: Of the base that was sampled; None where no engine here has it.
    """
    events: list[dict[str, Any]] = []
    for turn in turns:
        times = {"started_at": iso(turn["started_at"]), "ended_at": iso(turn["ended_at"])}
        sample = json.loads(turn["sample"])
        answer = {"kind": "agent_message", "text": turn["completion"], "sample": sample, **times}
        if tokens is not None:
            answer["tokens"] = tokens.pieces(sample["output_token_ids"])
        asked = {"kind": "user_message", "text": turn["prompt"], **times}
        events += [asked, answer]
    return numbered(events)


def span_events(spans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as a client's uploaded spans tell it."""
    events = []
    for span in spans:
        step = str(span.get("name") or "").removeprefix("step.")
        body = payload(span)
        event = _EVENTS[step](body) if step in _EVENTS else {"kind": "system", "text": step}
        event |= {"started_at": span.get("start_time"), "ended_at": span.get("end_time")}
        if body.get("error"):
            event["error"] = body["error"]
        events.append(event)
    return numbered(events)


def with_pieces(
    events: Sequence[dict[str, Any]], answered: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Events with the text of each token, where the service sampled the same ids itself.

    Args:
        events: As a client tells them: token ids whose tokenizer it does not name.
        answered: What `turn_events` makes of the same trace.
    """
    known = {
        tuple(event["sample"]["output_token_ids"]): event["tokens"]
        for event in answered
        if "tokens" in event
    }
    return [_with_pieces(event, known) for event in events]


def _with_pieces(
    event: dict[str, Any], known: Mapping[tuple[int, ...], list[str]]
) -> dict[str, Any]:
    sample = event.get("sample")
    ids = sample.get("output_token_ids") if isinstance(sample, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        return event
    pieces = known.get(tuple(ids))
    return event if pieces is None else event | {"tokens": pieces}


def numbered(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with their ids: their places in the conversation."""
    return [{"id": str(seq), "seq": seq, **event} for seq, event in enumerate(events)]


def _user(body: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "user_message", "text": _text(body.get("messages") or body.get("content"))}


def _agent(body: dict[str, Any]) -> dict[str, Any]:
    event = {"kind": "agent_message", "text": _text(body.get("content"))}
    keys = ("reasoning", "tool_calls", "sample")
    return event | {key: body[key] for key in keys if body.get(key)}


def _tool(body: dict[str, Any]) -> dict[str, Any]:
    call = body.get("call")
    call = call if isinstance(call, dict) else {}
    return {
        "kind": "tool_call",
        "tool_name": call.get("name"),
        "arguments": call.get("arguments"),
        "result_text": _text(body.get("result")),
    }


def _task(body: dict[str, Any]) -> dict[str, Any]:
    call = body.get("task_call")
    call = call if isinstance(call, dict) else {}
    return {"kind": "system", "text": f"{call.get('phase', 'task')} {call.get('name', '')}".strip()}


_EVENTS = {"user": _user, "agent": _agent, "tool": _tool, "task": _task}


def _text(value: Any) -> str:
    """The text in whatever shape a span has it: text, parts, messages, a tool's result."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        found = next((value[key] for key in ("text", "content") if value.get(key)), None)
        return _text(found) if found is not None else json.dumps(value)
    return str(value)
