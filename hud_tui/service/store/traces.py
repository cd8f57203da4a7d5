"""Traces: one rollout each, as a client reports it or as the service makes it for one."""

import json
import sqlite3
from typing import Any

from hud_tui.service.clock import now
from hud_tui.service.refusals import not_found
from hud_tui.service.store import Db, turns
from hud_tui.service.store.turns import TurnRow
from hud_tui.wire import TraceEnter, TraceExit

_OPEN = "status IN ('running', 'queued')"
COMPLETION_SHOWN = 200
"""Characters of the last answer kept on the trace's row."""


def record_turn(db: Db, trace_id: str, turn: TurnRow) -> None:
    """Keep a turn that the gateway sampled for somebody's rollout."""
    _begin(db, trace_id, turn.started_at)
    turns.add(db, trace_id, [turn])
    db.execute(
        "UPDATE trace SET completion = ?, num_tokens = coalesce(num_tokens, 0) + ? WHERE id = ?",
        (turn.completion[:COMPLETION_SHOWN], len(turn.output), trace_id),
    )


def answered(db: Db, trace_id: str, completion: str | None, num_tokens: int | None) -> None:
    """Keep what a client says its rollout answered, where the service did not sample it itself."""
    db.execute(
        "UPDATE trace SET completion = ?, num_tokens = ? WHERE id = ?"
        " AND NOT EXISTS (SELECT 1 FROM turn WHERE trace_id = trace.id)",
        (None if completion is None else completion[:COMPLETION_SHOWN], num_tokens, trace_id),
    )


def enter(db: Db, trace_id: str, job_id: str | None, body: TraceEnter) -> None:
    """A client's rollout begins. Entering it again changes nothing that is known."""
    _begin(db, trace_id, now())
    db.execute(
        "UPDATE trace SET job_id = coalesce(?, job_id), task_slug = coalesce(?, task_slug),"
        " group_id = coalesce(?, group_id), model = coalesce(?, model),"
        " parent_trace_id = coalesce(?, parent_trace_id) WHERE id = ?",
        (job_id, body.task_slug, body.group_id, body.model, body.parent_trace_id, trace_id),
    )


def leave(db: Db, trace_id: str, body: TraceExit) -> bool:
    """A client's rollout ends; True the first time it says so."""
    query = "SELECT ended_at FROM trace WHERE id = ?"
    row = db.execute(query, (trace_id,)).fetchone()
    _begin(db, trace_id, now())
    db.execute(
        "UPDATE trace SET status = :status, reward = :reward, error = :error,"
        " evaluation_result = :result, stop_reason = :stop_reason,"
        " ended_at = coalesce(ended_at, :now) WHERE id = :id",
        {
            "status": body.status,
            "reward": body.reward,
            "error": body.error,
            "result": _dump(body.evaluation_result),
            "stop_reason": body.stop_reason,
            "now": now(),
            "id": trace_id,
        },
    )
    return row is None or row["ended_at"] is None


def _begin(db: Db, trace_id: str, at: float, status: str = "running") -> None:
    """Make the trace's row, where it has none."""
    query = "INSERT OR IGNORE INTO trace (id, status, created_at) VALUES (?, ?, ?)"
    db.execute(query, (trace_id, status, at))


def get(db: Db, trace_id: str) -> sqlite3.Row:
    """One trace.

    Raises:
        Refused: 404.
    """
    row = db.execute("SELECT * FROM trace WHERE id = ?", (trace_id,)).fetchone()
    if row is None:
        raise not_found("trace", trace_id)
    found: sqlite3.Row = row
    return found


def place(db: Db, trace: sqlite3.Row) -> int | None:
    """Which of its group's rollouts it is, from 0; None where it is in no group."""
    if trace["group_id"] is None or trace["job_id"] is None:
        return None
    query = """SELECT count(*) FROM trace WHERE job_id = ? AND group_id = ? AND rowid <
        (SELECT rowid FROM trace WHERE id = ?)"""
    [before] = db.execute(query, (trace["job_id"], trace["group_id"], trace["id"])).fetchone()
    return int(before)


def status(db: Db, trace_id: str) -> str | None:
    """A trace's status; None where it is unknown."""
    row = db.execute("SELECT status FROM trace WHERE id = ?", (trace_id,)).fetchone()
    return None if row is None else str(row["status"])


def of_job(
    db: Db, job_id: str, limit: int, offset: int, step: int | None = None
) -> tuple[list[sqlite3.Row], int]:
    """One page of a job's traces in the order they began, and the true total."""
    where, args = "job_id = ?", [job_id]
    if step is not None:
        where, args = "job_id = ? AND step = ?", [job_id, step]  # type: ignore[list-item]
    query = f"SELECT * FROM trace WHERE {where} ORDER BY rowid LIMIT ? OFFSET ?"
    rows = db.execute(query, (*args, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM trace WHERE {where}", args).fetchone()
    return rows, int(total)


def summary(db: Db, job_id: str) -> sqlite3.Row:
    """Counts of a job's traces by status, its tasks and its mean reward."""
    row: sqlite3.Row = db.execute(
        "SELECT count(*) AS total_traces, count(DISTINCT task_slug) AS total_tasks,"
        " coalesce(sum(status = 'completed'), 0) AS completed,"
        " coalesce(sum(status = 'running'), 0) AS running,"
        " coalesce(sum(status = 'queued'), 0) AS pending,"
        " coalesce(sum(status = 'error'), 0) AS error,"
        " coalesce(sum(status = 'cancelled'), 0) AS cancelled, avg(reward) AS avg_reward"
        " FROM trace WHERE job_id = ?",
        (job_id,),
    ).fetchone()
    return row


def cancel_running(db: Db, job_id: str) -> list[str]:
    """Mark a job's unfinished traces cancelled; their ids."""
    query = f"UPDATE trace SET status = 'cancelled', ended_at = ? WHERE job_id = ? AND {_OPEN}"
    found = db.execute(f"{query} RETURNING id", (now(), job_id)).fetchall()
    return [row["id"] for row in found]


def queue(db: Db, trace_id: str, job_id: str, body: TraceEnter) -> str:
    """A rollout that the service is to make begins; its status, which is another than
    ``queued`` where it has been asked for before and has ended."""
    _begin(db, trace_id, now(), "queued")
    enter(db, trace_id, job_id, body)
    return str(status(db, trace_id))


def end_queued(db: Db) -> None:
    """The rollouts that the service was to make, and no longer will."""
    said = "the service was stopped before the rollout was made"
    query = "UPDATE trace SET status = 'error', error = ?, ended_at = ? WHERE status = 'queued'"
    db.execute(query, (said, now()))


def cancel(db: Db, trace_id: str) -> str:
    """Mark one unfinished trace cancelled; its status by then. Raises Refused, 404."""
    get(db, trace_id)
    db.execute(
        f"UPDATE trace SET status = 'cancelled', ended_at = ? WHERE id = ? AND {_OPEN}",
        (now(), trace_id),
    )
    return str(get(db, trace_id)["status"])


def _dump(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
