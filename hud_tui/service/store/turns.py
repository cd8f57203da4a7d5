"""Turns: what a policy was asked and what it answered, token by token."""

import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from hud_tui.service.store import Db, insert_all
from hud_tui.wire import Sample

_WITH_TRACE = """SELECT turn.id, turn.temperature, turn.trace_id, turn.sample, trace.task_slug,
    trace.reward, trace.status, trace.checkpoint_id
    FROM turn LEFT JOIN trace ON trace.id = turn.trace_id"""

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


def digest(
    prompt: Iterable[int], output: Iterable[int] = (), logprobs: Iterable[float] = ()
) -> str:
    """Names a turn by its exact tokens and its logprobs in 32 bits, as many clients hold them.

    Equal tokens alone are not the same turn: another temperature may have said them too.
    """
    ids = f"{','.join(map(str, prompt))}|{','.join(map(str, output))}"
    values = array("f", [value + 0.0 for value in logprobs])  # -0.0 is 0.0
    return blake2b(ids.encode() + values.tobytes(), digest_size=16).hexdigest()


def add(db: Db, trace_id: str, rows: Iterable[TurnRow]) -> None:
    """Keep turns of a trace; the same prompt asked again replaces its answer."""
    turn_rows = [
        {
            "trace_id": trace_id,
            "prompt_digest": digest(row.prompt),
            "digest": digest(row.prompt, row.output, row.logprobs),
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


def same(db: Db, sample: Sample) -> list[sqlite3.Row]:
    """The turns of these tokens and logprobs, newest first, with what is known of their traces."""
    prompt, output = sample.prompt_token_ids or (), sample.output_token_ids
    named = digest(prompt, output, sample.output_logprobs)
    query = f"{_WITH_TRACE} WHERE digest = ? ORDER BY turn.id DESC LIMIT ?"
    return db.execute(query, (named, SIBLINGS)).fetchall()


def within(db: Db, trace_id: str, sample: Sample) -> sqlite3.Row | None:
    """A trace's turn of these tokens, whatever its logprobs."""
    query = f"{_WITH_TRACE} WHERE trace_id = ? AND prompt_digest = ?"
    row: sqlite3.Row | None = db.execute(
        query, (trace_id, digest(sample.prompt_token_ids or ()))
    ).fetchone()
    if row is None:
        return None
    kept = Sample.model_validate_json(row["sample"])
    return row if kept.output_token_ids == sample.output_token_ids else None


def _sample(turn: TurnRow) -> str:
    return Sample(
        prompt_token_ids=list(turn.prompt),
        output_token_ids=list(turn.output),
        output_logprobs=list(turn.logprobs),
    ).model_dump_json(exclude_none=True)
