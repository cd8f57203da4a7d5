"""Work: the table of runs, evaluations and jobs that clients report, and its changes of state."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from hud_tui.events import WorkChanged
from hud_tui.rl.progress import Progress, pace
from hud_tui.rl.work import EVALUATION, TRAINING, End, Work, stopped
from hud_tui.service.http import DamagedRow, Refused, canonical, now
from hud_tui.service.store import access, events
from hud_tui.service.store.db import Db, fetched, first, without_damaged
from hud_tui.service.store.seals import checksum, intact
from hud_tui.wire import Group, WorkState

STATUS = """CASE WHEN work.kind != 'reported' THEN work.status
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = work.id AND status IN ('running', 'queued'))
        THEN 'running'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = work.id AND status != 'error') THEN 'completed'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = work.id) THEN 'error'
    ELSE 'pending' END"""
"""SQL for a status. HUD has no "job exit": a reported job has ended when its traces have. It is an
error if none of its rollouts has a result."""
COLUMNS = f"""work.*, {access.author("work", "work.id")} AS by,
    {access.author("resumed", "work.id")} AS resumed_by,
    {STATUS} AS shown_status, model.slug, checkpoint.name AS checkpoint_name,
    coalesce(run.taskset, taskset.name, work.tasks_name) AS taskset_name, run.times,
    {intact("work")}, {intact("run")}, {intact("model")}, {intact("taskset")},
    {intact("checkpoint")}"""
FROM = """FROM work LEFT JOIN model ON model.id = work.model_id
    LEFT JOIN taskset ON taskset.id = work.taskset_id
    LEFT JOIN run ON run.id = work.id
    LEFT JOIN checkpoint ON checkpoint.id = work.checkpoint_id"""
SELECT = f"SELECT {COLUMNS} {FROM}"


def get(db: Db, ref: str) -> sqlite3.Row:
    """A run or an evaluation by either spelling of its id. Raises Refused, 404."""
    query = f"{SELECT} WHERE work.id = ? AND work.kind != 'reported'"
    return fetched(db, "run or evaluation", ref[:100], query, (canonical(ref),))


def tasks_columns(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns that hold the rows of tasks of a run or an evaluation."""
    text = json.dumps(tasks)
    return {"tasks": text, "tasks_crc": checksum(text)}


def tasks_of(row: sqlite3.Row) -> list[dict[str, Any]]:
    """The rows of tasks of a run or an evaluation. Raises DamagedRow: they are not as they were
    written."""
    text = row["tasks"] or "[]"
    if row["tasks"] is not None and checksum(text) != row["tasks_crc"]:
        raise DamagedRow(f"the tasks of {row['kind']} {row['id']}")
    tasks: list[dict[str, Any]] = json.loads(text)
    return tasks


def known_tasks(db: Db, work_id: str) -> list[dict[str, Any]]:
    """The rows of tasks of a run or an evaluation; none if it has none, or they cannot be read."""
    try:
        return tasks_of(get(db, work_id)) if work_id else []
    except (Refused, DamagedRow):
        return []


def active(db: Db, model_id: str) -> sqlite3.Row | None:
    """The run that is training a model."""
    query = f"""{SELECT} WHERE work.model_id = ? AND work.kind = 'training'
        AND work.status IN ('queued', 'running')"""
    return first(db, query, (model_id,))


def refuse_training(db: Db, model_id: str, driven_by: str | None = None) -> None:
    """Raises Refused, 409, while a run trains the model, unless it is `driven_by` the caller, the
    message names the run; 403, the model is protected, or that run is somebody else's."""
    access.refuse_protected(db, model_id, "train it")
    run = active(db, model_id)
    if run is None:
        return
    if run["driver"] and run["id"] == driven_by:
        access.refuse_others(db, run["id"], "take steps of")
        return
    raise Refused(
        409,
        f"job {run['id']} ({run['name']}) is training this model: wait for it, or cancel it first",
    )


def refuse_resuming(row: sqlite3.Row) -> None:
    """Raises Refused, 409, unless it ended before it was complete."""
    title = f"{'job' if row['kind'] == TRAINING else row['kind']} {row['id']}"
    work = Work(row["id"], row["kind"], title, row["status"])
    if why := work.why_no_resume:
        raise Refused(409, why)


def requeue(db: Db, ref: str) -> WorkState:
    """Queue a run again that ended before its last step, or an evaluation before its last rollout.
    Raises Refused, 404; 409, it did not end so, a client carries it out, or another run trains the
    model; 429, the caller has too much work under way."""
    row = get(db, ref)
    access.refuse_others(db, row["id"], "resume")
    if row["driver"] is not None:
        what = "run" if row["kind"] == TRAINING else "evaluation"
        why = f"this {what} is driven from {row['driver']}: resume it there: {resuming(row)}"
        raise Refused(409, why)
    refuse_resuming(row)
    if row["tasks"] is None:
        why = (
            "its rollouts are made by the program that began it, from files in its state directory:"
            " resume it there"
        )
        raise Refused(409, f"{row['kind']} {row['id']}: {why}")
    if row["kind"] == TRAINING:
        refuse_training(db, row["model_id"])
    access.take_over(db, row["id"])
    revive(db, row["id"], "queued")
    access.refuse_too_much_work(db)
    return changed(db, row["id"])


def resuming(row: sqlite3.Row) -> str:
    """The command that resumes driven work; an evaluation of a run is resumed by the run."""
    return f"hud-tui --headless --local jobs {row['run_id'] or row['id']} --resume"


def mark(db: Db, work_id: str, /, **columns: object) -> WorkState:
    """Store these of its columns, and tell its followers."""
    names = ", ".join(f"{name} = :{name}" for name in columns)
    db.execute(f"UPDATE work SET {names} WHERE id = :id", {**columns, "id": work_id})
    return changed(db, work_id)


def finish(db: Db, work_id: str, end: End) -> WorkState:
    """Store how it ended."""
    error = end.error.model_dump_json() if end.error else None
    told = {"status": end.status, "finished_at": now(), "error": error, "reason": end.reason}
    return mark(db, work_id, **told, waits=None, asked=None)


def interrupt_all(db: Db) -> None:
    """After a crash: what this service carried out is interrupted, and can be resumed. What a
    client carries out may go on: its driver has time to say so."""
    query = """SELECT id, kind FROM work WHERE status IN ('queued', 'running') AND driver IS NULL
        ORDER BY rowid"""
    for row in db.execute(query).fetchall():
        with without_damaged(db, f"{row['kind']} {row['id']}"):
            finish(db, row["id"], stopped(row["kind"], "interrupted"))


def changed(db: Db, work_id: str) -> WorkState:
    """Tell followers of the model how it stands now."""
    row = get(db, work_id)
    state = state_of(row)
    events.append(db, row["model_id"], [WorkChanged(at=now(), work=state)])
    return state


def state_of(row: sqlite3.Row, groups: Sequence[Group] = ()) -> WorkState:
    """A run or an evaluation in the wire's format; an evaluation with its rewards by task."""
    columns = {name: row[name] for name in row.keys() if row[name] is not None}  # noqa: SIM118
    fields = {name: columns[name] for name in WorkState.model_fields if name in columns}
    fields |= {
        "model": row["slug"],
        "error": json.loads(row["error"]) if row["error"] else None,
        "parameters": json.loads(row["parameters"]),
    }
    more = _of_evaluation(row, groups) if row["kind"] == EVALUATION else _of_run(row)
    return WorkState.model_validate(fields | more)


def _of_run(row: sqlite3.Row) -> dict[str, Any]:
    done, steps = row["step"], row["steps"] or 0
    step_s = pace(json.loads(row["times"] or "[]"))
    left = Progress(done, steps, step_s).eta_s if row["status"] == "running" else None
    return {
        "fine_tuned_model": row["slug"] if done else None,
        "estimated_finish": now() + left if left else None,
        "step_s": step_s,
        "steps": steps,
    }


def _of_evaluation(row: sqlite3.Row, groups: Sequence[Group]) -> dict[str, Any]:
    done = row["done"]
    return {
        "checkpoint": row["checkpoint_name"],
        "job_id": row["run_id"] or row["id"],
        "name": row["tasks_name"],
        "total": row["samples"] * row["num_tasks"],
        "mean_reward": row["reward_sum"] / done if done else None,
        "result": json.loads(row["result"]) if row["result"] else None,
        "groups": groups,
    }


def revive(db: Db, work_id: str, status: str) -> None:
    """Set it back to a status before its end."""
    db.execute(
        "UPDATE work SET status = ?, finished_at = NULL, error = NULL, reason = NULL, note = NULL"
        " WHERE id = ?",
        (status, work_id),
    )
