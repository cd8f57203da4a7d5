"""Jobs: managed runs, and those that a client reports as it goes."""

import json
import sqlite3
from typing import Any

from hud_tui.events import JobChanged
from hud_tui.service.clock import now
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.store import Db, events, insert
from hud_tui.wire import JobError, JobStatus

_STATUS = """CASE WHEN job.kind = 'training' THEN job.status
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id AND status = 'running') THEN 'running'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id) THEN 'completed'
    ELSE 'pending' END"""
"""HUD has no "job exit": a reported job is over when its traces are."""
_SELECT = f"""SELECT job.*, {_STATUS} AS shown_status, model.slug, taskset.name AS taskset_name
    FROM job LEFT JOIN model ON model.id = job.model_id
    LEFT JOIN taskset ON taskset.id = job.taskset_id"""


def submit(
    db: Db,
    job_id: str,
    model_id: str,
    name: str,
    parameters: dict[str, Any],
    tasks: list[dict[str, Any]],
) -> JobStatus:
    """Queue a managed run.

    Raises:
        Refused: 409, the model is in another run.
    """
    refuse_busy(db, model_id)
    insert(
        db,
        "job",
        id=job_id,
        kind="training",
        name=name,
        status="queued",
        created_at=now(),
        group_size=parameters["group_size"],
        model_id=model_id,
        steps=parameters["steps"],
        parameters=json.dumps(parameters),
        tasks=json.dumps(tasks),
    )
    return _changed(db, job_id)


def refuse_busy(db: Db, model_id: str) -> None:
    """Raises Refused, 409, while a managed run trains the model; it names the run."""
    job = active(db, model_id)
    if job is not None:
        raise Refused(
            409,
            f"job {job['id']} ({job['name']}) is training this model:"
            " wait for it, or cancel it first",
        )


def active(db: Db, model_id: str) -> sqlite3.Row | None:
    """The run that is training a model."""
    query = f"{_SELECT} WHERE job.model_id = ? AND job.status IN ('queued', 'running')"
    row: sqlite3.Row | None = db.execute(query, (model_id,)).fetchone()
    return row


def all_active(db: Db) -> list[sqlite3.Row]:
    """Every queued or running run."""
    return db.execute(f"{_SELECT} WHERE job.status IN ('queued', 'running')").fetchall()


def unfinished(db: Db) -> list[sqlite3.Row]:
    """Every job that still does something: managed runs, and reported jobs with open traces."""
    return db.execute(f"{_SELECT} WHERE {_STATUS} IN ('queued', 'running')").fetchall()


def get(db: Db, job_id: str) -> sqlite3.Row:
    """One job by either spelling of its id.

    Raises:
        Refused: 404.
    """
    row = db.execute(f"{_SELECT} WHERE job.id = ?", (canonical(job_id),)).fetchone()
    if row is None:
        raise not_found("job", job_id[:100])
    found: sqlite3.Row = row
    return found


def training(db: Db, ref: str) -> sqlite3.Row:
    """A managed run by its id, or the latest of a model by the model's id.

    Raises:
        Refused: 404.
    """
    query = f"""{_SELECT} WHERE job.kind = 'training' AND (job.id = ?1 OR job.model_id = ?1)
        ORDER BY job.id = ?1 DESC, job.rowid DESC LIMIT 1"""
    row = db.execute(query, (canonical(ref),)).fetchone()
    if row is None:
        raise not_found("training job", ref[:200])
    found: sqlite3.Row = row
    return found


def page(
    db: Db, limit: int, offset: int, taskset_id: str | None = None
) -> tuple[list[sqlite3.Row], int]:
    """One page of jobs, newest first, and the true total."""
    where, args = ("WHERE job.taskset_id = ?", (taskset_id,)) if taskset_id else ("", ())
    query = f"{_SELECT} {where} ORDER BY job.created_at DESC, job.rowid DESC LIMIT ? OFFSET ?"
    rows = db.execute(query, (*args, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM job {where}", args).fetchone()
    return rows, int(total)


def enter(db: Db, job_id: str, name: str | None, group: int | None, taskset_id: str | None) -> None:
    """A client's job begins. Entering it again changes nothing."""
    insert(
        db,
        "job",
        "INSERT OR IGNORE",
        id=job_id,
        kind="reported",
        name=name,
        created_at=now(),
        group_size=group,
        taskset_id=taskset_id,
    )


def rename(db: Db, job_id: str, name: str) -> None:
    """Give a job another name."""
    db.execute("UPDATE job SET name = ? WHERE id = ?", (name, get(db, job_id)["id"]))


def start(db: Db, job_id: str) -> JobStatus:
    """Queued becomes running; of a run that ended short of its steps, too.

    Raises:
        Refused: 409, another run trains the model.
    """
    job = get(db, job_id)
    other = active(db, job["model_id"])
    if other is not None and other["id"] != job_id:
        refuse_busy(db, job["model_id"])
    db.execute(
        "UPDATE job SET status = 'running', finished_at = NULL, error = NULL, note = NULL"
        " WHERE id = ?",
        (job_id,),
    )
    return _changed(db, job_id)


def finish(db: Db, job_id: str, status: str, error: JobError | None = None) -> JobStatus:
    """The run ended with this status."""
    db.execute(
        "UPDATE job SET status = ?, finished_at = ?, error = ? WHERE id = ?",
        (status, now(), error.model_dump_json() if error else None, job_id),
    )
    return _changed(db, job_id)


def advance(
    db: Db, job_id: str, *, steps: int, tokens: int, seconds: float, note: str | None = None
) -> JobStatus:
    """One more iteration is done, having taken `steps` (0 or 1) optimizer steps."""
    db.execute(
        "UPDATE job SET step = step + ?, iteration = iteration + 1, busy_s = busy_s + ?,"
        " trained_tokens = trained_tokens + ?, note = ? WHERE id = ?",
        (steps, seconds, tokens, note, job_id),
    )
    return _changed(db, job_id)


def interrupt_all(db: Db) -> None:
    """After a crash: what was queued or running is interrupted, and can be resumed."""
    error = JobError(
        code="interrupted",
        message="the service stopped during the run: resume it to go on from the head",
    )
    for job in all_active(db):
        finish(db, job["id"], "interrupted", error)
    db.execute("UPDATE trace SET status = 'error' WHERE status = 'running' AND step IS NOT NULL")


def status(row: sqlite3.Row) -> JobStatus:
    """A managed run in the wire's raw-status form."""
    done, steps = row["step"], row["steps"] or 0
    left = (steps - done) * row["busy_s"] / done if done else None
    running = row["status"] == "running"
    model = row["slug"]
    return JobStatus.model_validate(
        {
            "status": row["status"],
            "model": model,
            "fine_tuned_model": model if done else None,
            "created_at": row["created_at"],
            "finished_at": row["finished_at"],
            "estimated_finish": now() + left if running and left is not None else None,
            "trained_tokens": row["trained_tokens"],
            "error": json.loads(row["error"]) if row["error"] else None,
            "id": row["id"],
            "name": row["name"],
            "model_id": row["model_id"],
            "step": done,
            "steps": steps,
            "parameters": json.loads(row["parameters"]),
            "note": row["note"],
        }
    )


def _changed(db: Db, job_id: str) -> JobStatus:
    row = get(db, job_id)
    job = status(row)
    events.append(db, row["model_id"], [JobChanged(at=now(), job=job)])
    return job
