"""Turns: what a policy was asked and what it answered, token by token."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from hud_tui.service.store import Db, insert_all
from hud_tui.wire import Sample

SIBLINGS = 256
"""Most turns looked at for one that said the same."""


@dataclass(frozen=True)
class TurnRow:
    """One answer of a policy, with all that training on it needs."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float]
    base: str
    temperature: float
    prompt_text: str
    completion: str
    started_at: float
    ended_at: float


def digest(prompt: Iterable[int], output: Iterable[int]) -> str:
    """Names a turn by its exact tokens."""
    text = f"{','.join(map(str, prompt))}|{','.join(map(str, output))}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def add(db: Db, trace_id: str, rows: Iterable[TurnRow]) -> None:
    """Keep turns of a trace; the same prompt asked again replaces its answer."""
    turn_rows = [
        {
            "trace_id": trace_id,
            "prompt_digest": digest(row.prompt, ()),
            "digest": digest(row.prompt, row.output),
            "base": row.base,
            "temperature": row.temperature,
            "prompt": row.prompt_text,
            "completion": row.completion,
            "sample": _sample(row),
            "started_at": row.started_at,
            "ended_at": row.ended_at,
        }
        for row in rows
    ]
    insert_all(db, "turn", turn_rows, "INSERT OR REPLACE")


def of_trace(db: Db, trace_id: str) -> list[sqlite3.Row]:
    """The turns of a trace that the service sampled, oldest first."""
    return db.execute("SELECT * FROM turn WHERE trace_id = ? ORDER BY id", (trace_id,)).fetchall()


def same(db: Db, prompt: Sequence[int], output: Sequence[int]) -> list[sqlite3.Row]:
    """The turns of exactly these tokens, newest first, with what is known of their traces."""
    query = """SELECT turn.id, turn.temperature, turn.trace_id, trace.task_slug, trace.reward,
        trace.checkpoint_id FROM turn
        LEFT JOIN trace ON trace.id = turn.trace_id
        WHERE digest = ? ORDER BY turn.id DESC LIMIT ?"""
    return db.execute(query, (digest(prompt, output), SIBLINGS)).fetchall()


def _sample(turn: TurnRow) -> str:
    return Sample(
        prompt_token_ids=list(turn.prompt),
        output_token_ids=list(turn.output),
        output_logprobs=list(turn.logprobs),
    ).model_dump_json(exclude_none=True)
