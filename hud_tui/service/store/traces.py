"""Traces: one rollout each, reported by a client or made by the service."""

import json
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from hud_tui.events import RolloutDone
from hud_tui.rl.text import with_text
from hud_tui.service.caller import SERVICE
from hud_tui.service.http import damaged_row, now
from hud_tui.service.store import access, checkpoints, events
from hud_tui.service.store.db import Db, fetched, first, insert_all, value, without_damaged
from hud_tui.service.store.seals import intact
from hud_tui.wire_rollouts import TraceEnter, TraceExit
from hud_tui.wire_training import Sample, content_text

# Turns: prompt and answer of a policy, token by token.


_WITH_TRACE = f"""SELECT turn.id, turn.temperature, turn.trace_id, turn.sample, turn.digest,
    turn.sampled_from, trace.task_slug, trace.reward, trace.status, trace.checkpoint_id,
    {intact("turn")},
    {intact("trace")} FROM turn LEFT JOIN trace ON trace.id = turn.trace_id"""

SIBLINGS = 256
"""Most turns compared to find an identical one."""


class TurnRow(NamedTuple):
    """One answer of a policy, with everything that training on it needs."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float]
    base: str
    temperature: float
    prompt_text: str
    completion: str
    started_at: float
    ended_at: float
    sampled_from: str
    """Id of the checkpoint whose weights answered, or `BASE`."""


def digest(
    prompt: Iterable[int], output: Iterable[int] = (), logprobs: Iterable[float] = ()
) -> str:
    """Identifies a turn by its tokens and its logprobs in 32 bits, as many clients store them.

    Equal tokens alone do not identify a turn: they may have been sampled at another temperature.
    """
    return _digest(_joined(prompt), output, logprobs)


def _joined(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _digest(prompt: str, output: Iterable[int], logprobs: Iterable[float]) -> str:
    values = array("f", [value + 0.0 for value in logprobs])  # −0.0 becomes 0.0
    named = f"{prompt}|{_joined(output)}".encode() + values.tobytes()
    return blake2b(named, digest_size=16).hexdigest()


def add_turns(db: Db, turns: Iterable[tuple[str, TurnRow]]) -> None:
    """Store turns, each with its trace's id; the same prompt again replaces its answer."""
    prompts: dict[tuple[int, ...], tuple[str, str]] = {}  # a group's turns have one prompt
    turn_rows = []
    for trace_id, row in turns:
        prompt = tuple(row.prompt)
        if prompt not in prompts:
            prompts[prompt] = _joined(prompt), digest(prompt)
        joined, prompt_digest = prompts[prompt]
        sample = {
            "prompt_token_ids": prompt,
            "output_token_ids": row.output,
            "output_logprobs": row.logprobs,
        }
        turn_row = {
            "trace_id": trace_id,
            "prompt_digest": prompt_digest,
            "digest": _digest(joined, row.output, row.logprobs),
            "base": row.base,
            "temperature": row.temperature,
            "prompt": row.prompt_text,
            "completion": row.completion,
            "sample": orjson.dumps(sample).decode(),
            "started_at": row.started_at,
            "ended_at": row.ended_at,
            "sampled_from": row.sampled_from,
        }
        turn_rows.append(turn_row)
    insert_all(db, "turn", turn_rows, "INSERT OR REPLACE")


def sample_of(turn: sqlite3.Row) -> Sample:
    """The tokens and logprobs of a turn. Raises Refused, 500: they are not as they were written."""
    try:
        sample = Sample.model_validate_json(turn["sample"])
    except ValidationError as error:
        raise damaged_row(f"a turn of trace {turn['trace_id']}") from error
    prompt = sample.prompt_token_ids or ()
    if digest(prompt, sample.output_token_ids, sample.output_logprobs) != turn["digest"]:
        raise damaged_row(f"a turn of trace {turn['trace_id']}")
    return sample


def turns_of(db: Db, trace_id: str) -> list[sqlite3.Row]:
    """The turns of a trace that the service sampled, oldest first."""
    query = f"SELECT *, {intact('turn')} FROM turn WHERE trace_id = ? ORDER BY id"
    return db.execute(query, (trace_id,)).fetchall()


def same(db: Db, sample: Sample) -> list[sqlite3.Row]:
    """The turns with these tokens and logprobs, newest first, with the state of their traces."""
    prompt, output = sample.prompt_token_ids or (), sample.output_token_ids
    named = digest(prompt, output, sample.output_logprobs)
    query = f"{_WITH_TRACE} WHERE digest = ? ORDER BY turn.id DESC LIMIT ?"
    return db.execute(query, (named, SIBLINGS)).fetchall()


def within(db: Db, trace_id: str, sample: Sample) -> sqlite3.Row | None:
    """The turn of a trace with these tokens, whatever its logprobs."""
    query = f"{_WITH_TRACE} WHERE trace_id = ? AND prompt_digest = ?"
    row = first(db, query, (trace_id, digest(sample.prompt_token_ids or ())))
    is_same = row is not None and sample_of(row).output_token_ids == sample.output_token_ids
    return row if is_same else None


SELECT = f"""SELECT *, {intact("trace")}, (SELECT sampled_from FROM turn
    WHERE trace_id = trace.id ORDER BY turn.id LIMIT 1) AS sampled_from FROM trace"""
_OPEN = "status IN ('running', 'queued')"
COMPLETION_SHOWN = 200
"""Characters of the last answer kept on the trace's row."""


def record_turn(db: Db, trace_id: str, turn: TurnRow) -> None:
    """Store a turn that the gateway sampled for a client's rollout. Raises Refused, 403: it is a
    rollout of somebody else's job; 507: the caller may store no more."""
    refuse_of_others(db, trace_id)
    access.refuse_more_disk(db)
    _begin(db, trace_id, turn.started_at)
    add_turns(db, [(trace_id, turn)])
    db.execute(
        "UPDATE trace SET completion = ?, num_tokens = coalesce(num_tokens, 0) + ? WHERE id = ?",
        (turn.completion[:COMPLETION_SHOWN], len(turn.output), trace_id),
    )


def enter(
    db: Db, trace_id: str, job_id: str | None, body: TraceEnter, status: str = "running"
) -> None:
    """Begin a rollout, a client's, or with status ``queued`` one that the service will make;
    repeating it changes nothing."""
    _begin(db, trace_id, now(), status)
    told = (job_id, body.task_slug, body.group_id, body.model, body.parent_trace_id)
    db.execute(
        "UPDATE trace SET job_id = coalesce(?, job_id), task_slug = coalesce(?, task_slug),"
        " group_id = coalesce(?, group_id), model = coalesce(?, model),"
        " parent_trace_id = coalesce(?, parent_trace_id), played = max(?, coalesce(played, 0))"
        " WHERE id = ?",
        (*told, body.played, trace_id),
    )
    db.execute(  # in a run that a client drives, it belongs to a step: the next one unless it says
        "UPDATE trace SET (step, attempt) ="
        " (SELECT coalesce(:step, step + 1), coalesce(:attempt, attempt) FROM work WHERE id = :job)"
        " WHERE id = :id AND step IS NULL"
        " AND EXISTS (SELECT 1 FROM work WHERE id = :job AND kind = 'training'"
        " AND driver IS NOT NULL)",
        {"job": job_id, "id": trace_id, "step": body.step, "attempt": body.attempt},
    )


def leave(db: Db, trace_id: str, body: TraceExit) -> bool:
    """End a client's rollout; returns True the first time."""
    query = f"SELECT ended_at, {intact('trace')} FROM trace WHERE id = ?"
    row = db.execute(query, (trace_id,)).fetchone()
    _begin(db, trace_id, now())
    result = None if body.evaluation_result is None else json.dumps(body.evaluation_result)
    db.execute(
        "UPDATE trace SET status = :status, reward = :reward, error = :error,"
        " evaluation_result = :result, stop_reason = :stop_reason,"
        " ended_at = coalesce(ended_at, :now) WHERE id = :id",
        {**vars(body), "result": result, "now": now(), "id": trace_id},
    )
    return row is None or row["ended_at"] is None


def _begin(db: Db, trace_id: str, stamp: float, status: str = "running") -> None:
    """Create the trace's row if there is none."""
    query = "INSERT OR IGNORE INTO trace (id, status, created_at) VALUES (?, ?, ?)"
    if db.execute(query, (trace_id, status, stamp)).rowcount:
        _answer(db, trace_id, sum(map(_sampled_tokens, spans_of(db, trace_id))))


def get(db: Db, trace_id: str) -> sqlite3.Row:
    """One trace. Raises Refused, 404."""
    return fetched(db, "trace", trace_id, f"{SELECT} WHERE id = ?", (trace_id,))


def job_id_of(db: Db, trace_id: str) -> str | None:
    """Id of the job that it is a rollout of; None without one, and if there is no such trace."""
    return value(db, f"SELECT job_id, {intact('trace')} FROM trace WHERE id = ?", (trace_id,))


def refuse_of_others(
    db: Db, trace_id: str, job_id: str | None = None, what: str = "report rollouts of"
) -> None:
    """Raises Refused, 403: it is a rollout of somebody else's job, or would become one. `job_id`:
    where it is to belong."""
    db.owner = SERVICE.name
    for id_ in filter(None, (job_id, job_id_of(db, trace_id))):
        access.refuse_others(db, id_, what)


def index_in_group(db: Db, trace: sqlite3.Row) -> int | None:
    """Its index in its group, from 0; None without a group."""
    if trace["group_id"] is None or trace["job_id"] is None:
        return None
    query = """SELECT count(*) FROM trace WHERE job_id = ? AND group_id = ? AND rowid <
        (SELECT rowid FROM trace WHERE id = ?)"""
    return value(db, query, (trace["job_id"], trace["group_id"], trace["id"]))


def status(db: Db, trace_id: str) -> str | None:
    """A trace's status; None if nothing has been told of it."""
    return value(db, f"SELECT status, {intact('trace')} FROM trace WHERE id = ?", (trace_id,))


def is_played(db: Db, trace_id: str) -> bool:
    """Whether a person was the policy of a turn; of an unknown trace False."""
    query = f"SELECT played, {intact('trace')} FROM trace WHERE id = ?"
    return bool(value(db, query, (trace_id,)))


def of_job(
    db: Db, job_id: str, limit: int, offset: int, step: int | None = None
) -> tuple[list[sqlite3.Row], int]:
    """One page of a job's traces in chronological order, and the total."""
    where, args = "job_id = ?", [job_id]
    if step is not None:
        where, args = "job_id = ? AND step = ?", [job_id, step]  # type: ignore[list-item]
    query = f"{SELECT} WHERE {where} ORDER BY rowid LIMIT ? OFFSET ?"
    rows = db.execute(query, (*args, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM trace WHERE {where}", args).fetchone()
    return rows, int(total)


def of_checkpoint(
    db: Db, model_id: str, checkpoint_id: str, limit: int, offset: int
) -> list[sqlite3.Row]:
    """The traces that one step was trained on, in the order they were sampled. Raises Refused,
    404."""
    node = checkpoints.find(db, model_id, checkpoint_id)
    query = f"{SELECT} WHERE checkpoint_id = ? ORDER BY rowid LIMIT ? OFFSET ?"
    return db.execute(query, (node.id, limit, offset)).fetchall()


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
    """Mark a job's unfinished traces as cancelled; returns their ids."""
    query = f"UPDATE trace SET status = 'cancelled', ended_at = ? WHERE job_id = ? AND {_OPEN}"
    stopped = db.execute(f"{query} RETURNING id", (now(), job_id)).fetchall()
    return [row["id"] for row in stopped]


def end_queued(db: Db) -> None:
    """End the queued rollouts of the service, e.g. after a restart."""
    error = "the service was stopped before the rollout was made"
    change = "UPDATE trace SET status = 'error', error = ?, ended_at = ? WHERE rowid = ?"
    queued = db.execute("SELECT rowid FROM trace WHERE status = 'queued'").fetchall()
    for [rowid] in queued:
        with without_damaged(db, "a queued rollout"):
            db.execute(change, (error, now(), rowid))


def cancel(db: Db, trace_id: str) -> str:
    """Mark one unfinished trace as cancelled; returns its status. Raises Refused, 404; 403: it is a
    rollout of somebody else's job."""
    refuse_of_others(db, trace_id, what="cancel rollouts of")
    get(db, trace_id)
    db.execute(
        f"UPDATE trace SET status = 'cancelled', ended_at = ? WHERE id = ? AND {_OPEN}",
        (now(), trace_id),
    )
    return str(get(db, trace_id)["status"])


# Finished rollouts of managed runs, stored as traces like any other.


class TraceRow(NamedTuple):
    """A finished rollout of a managed run: columns of its trace, and its one turn."""

    id: str
    job_id: str
    model: str
    task_slug: str
    group_id: str
    step: int
    """Of the run, from 1."""
    attempt: int | None
    """Attempt at that step, from 1; None if it evaluates a checkpoint."""
    rollout: int
    reward: float
    stop_reason: str
    heldout: bool
    evaluates: str | None
    """Id of the checkpoint that it evaluates."""
    turn: TurnRow


def add_rollouts(db: Db, model_id: str, rows: Sequence[TraceRow], step: int | None = None) -> None:
    """Store finished rollouts of a managed run, and log them. If an iteration is repeated after a
    failure, its rollouts replace the earlier ones. `step`: of the tree; None for the next one."""
    stamp, step = now(), step or checkpoints.next_step(db, model_id)
    keep_rollouts(db, rows, stamp)
    events.append(db, model_id, [_done(row, stamp, step) for row in rows])


def keep_rollouts(db: Db, rows: Sequence[TraceRow], stamp: float) -> None:
    """`add_rollouts` without events."""
    insert_all(db, "trace", [_finished(row, stamp) for row in rows], "INSERT OR REPLACE")
    add_turns(db, ((row.id, row.turn) for row in rows))


def _finished(row: TraceRow, stamp: float) -> dict[str, object]:
    columns = row._asdict()
    del columns["turn"]
    return columns | {
        "status": "completed",
        "created_at": row.turn.started_at,
        "ended_at": stamp,
        "completion": row.turn.completion[:COMPLETION_SHOWN],
        "num_tokens": len(row.turn.output),
    }


def _done(row: TraceRow, stamp: float, step: int) -> RolloutDone:
    return RolloutDone(
        at=stamp,
        job_id=row.job_id,
        trace_id=row.id,
        step=step,
        task_slug=row.task_slug,
        rollout=row.rollout,
        attempt=row.attempt,
        reward=row.reward,
        heldout=row.heldout,
        num_tokens=len(row.turn.output),
    )


# Spans: a client's uploads about its rollouts, stored unchanged.


def add_spans(db: Db, trace_id: str, spans: Iterable[dict[str, Any]]) -> None:
    """Store uploaded spans; a repeated one replaces itself. The trace has the last answer in them,
    for the lists of rollouts. The spans that were there before are not read again."""
    stored = f"SELECT body, {intact('span')} FROM span WHERE trace_id = ? AND span_id = ?"
    rows: dict[str, dict[str, Any]] = {}
    more = 0
    for span in spans:
        body = json.dumps(span)
        id_ = str(span.get("span_id") or blake2b(body.encode(), digest_size=16).hexdigest())
        before = rows.pop(id_, None) or first(db, stored, (trace_id, id_))
        more += _sampled_tokens(span)
        if before is not None:
            more -= _sampled_tokens(json.loads(before["body"]))
        at = str(span.get("start_time") or "") if _answer_in(span) else None
        rows[id_] = {"trace_id": trace_id, "span_id": id_, "body": body, "answered_at": at}
    insert_all(db, "span", list(rows.values()), "INSERT OR REPLACE")
    _answer(db, trace_id, more)


def _answer(db: Db, trace_id: str, more: int) -> None:
    """Keep the last answer that a client reports on the trace's row, and count so many tokens more,
    unless the service sampled it."""
    query = f"""SELECT body, {intact("span")} FROM span
        WHERE trace_id = ? AND answered_at IS NOT NULL
        ORDER BY answered_at DESC, rowid DESC LIMIT 1"""
    body = value(db, query, (trace_id,))
    text = None if body is None else _answer_in(json.loads(body))[:COMPLETION_SHOWN]
    db.execute(
        "UPDATE trace SET completion = coalesce(?, completion),"
        " num_tokens = nullif(coalesce(num_tokens, 0) + ?, 0)"
        " WHERE id = ? AND NOT EXISTS (SELECT 1 FROM turn WHERE trace_id = trace.id)",
        (text, more, trace_id),
    )


def _answer_in(span: dict[str, Any]) -> str:
    """What an agent says in a span; empty if nothing."""
    is_answer = str(span.get("name") or "").removeprefix("step.") == "agent"
    return content_text(payload(span).get("content")) if is_answer else ""


def _sampled_tokens(span: dict[str, Any]) -> int:
    sample = _sample(payload(span).get("sample"))
    return 0 if sample is None else len(sample.output_token_ids)


def spans_of(db: Db, trace_id: str) -> list[dict[str, Any]]:
    """The uploaded spans of a trace, by start time."""
    query = f"SELECT body, {intact('span')} FROM span WHERE trace_id = ? ORDER BY rowid"
    spans = [json.loads(row["body"]) for row in db.execute(query, (trace_id,))]
    return sorted(spans, key=lambda span: str(span.get("start_time") or ""))


def samples(db: Db, trace_id: str) -> list[Sample]:
    """The turns whose tokens are in a trace's spans, in order."""
    read = [_sample(payload(span).get("sample")) for span in spans_of(db, trace_id)]
    return [sample for sample in read if sample is not None and sample.output_token_ids]


def _sample(value: object) -> Sample | None:
    if not isinstance(value, dict):
        return None
    fields = {key: value[key] for key in Sample.model_fields if value.get(key) is not None}
    try:
        return Sample.model_validate(fields)
    except ValidationError:
        return None


def payload(span: dict[str, Any]) -> dict[str, Any]:
    """A span's ``hud.payload``; empty if it has none that can be parsed."""
    attributes = span.get("attributes")
    content = attributes.get("hud.payload") if isinstance(attributes, dict) else None
    if isinstance(content, str):
        try:
            content = with_text(json.loads(content))
        except (ValueError, RecursionError):
            return {}
    return content if isinstance(content, dict) else {}
