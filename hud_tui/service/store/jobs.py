"""Jobs: managed runs, and those that a client reports as it goes."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from hud_tui.events import JobChanged
from hud_tui.service.engines.base import EngineError
from hud_tui.service.http import Refused, canonical, not_found, now, refusal
from hud_tui.service.store import events, runs
from hud_tui.service.store.db import Db, insert
from hud_tui.wire import JobError, JobStatus

# How a managed run can end, and what is written of it.


INTERRUPTED = JobError(
    code="interrupted",
    message="the service stopped during the run: resume it from the head",
)


@dataclass(frozen=True)
class End:
    """A run's last status."""

    status: str
    error: JobError | None = None
    """Why it ended badly."""
    reason: str | None = None
    """Why it ended well before its last step."""


class Stopped(Exception):
    """The run was asked to end."""


class Solved(Exception):
    """Nothing is left to learn from the tasks."""


class ZeroVariance(Exception):
    """Too many batches in a row had nothing to train on."""


def stopped(ends_as: str) -> End:
    """The end of a run that was asked to stop, with the status that it was to have."""
    return End(ends_as, INTERRUPTED if ends_as == "interrupted" else None)


def failed(error: Exception) -> End:
    """The end of a run that could not go on."""
    full = refusal(error)
    if full is not None:
        return End("failed", JobError(code="disk", message=f"{full.detail} (resume the run)"))
    match error:
        case ZeroVariance():
            code = "zero_variance"
        case EngineError():
            code = "engine"
        case Refused():
            code = "refused"
        case _:
            return End("failed", JobError(code="internal", message=_bug(error)))
    return End("failed", JobError(code=code, message=str(error)))


def _bug(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


_STATUS = """CASE WHEN job.kind = 'training' THEN job.status
    WHEN evaluation.id IS NOT NULL THEN evaluation.status
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id AND status IN ('running', 'queued'))
        THEN 'running'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id AND status != 'error') THEN 'completed'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id) THEN 'error'
    ELSE 'pending' END"""
"""HUD has no "job exit": a reported job is over when its traces are. It is an error where no
rollout of it came to anything."""
_COLUMNS = f"""job.*, {_STATUS} AS shown_status, model.slug, taskset.name AS taskset_name,
    evaluation.id AS evaluation_id, evaluation.checkpoint_id AS evaluates,
    evaluation.done AS evaluated, evaluation.samples * evaluation.num_tasks AS to_evaluate,
    evaluation.error AS evaluation_error"""
_FROM = """FROM job LEFT JOIN model ON model.id = job.model_id
    LEFT JOIN taskset ON taskset.id = job.taskset_id
    LEFT JOIN evaluation ON evaluation.id = job.id"""
SELECT = f"SELECT {_COLUMNS} {_FROM}"
_LISTED = f"""SELECT {_COLUMNS},
    (SELECT count(*) FROM trace WHERE job_id = job.id) AS num_traces,
    (SELECT max(step) FROM trace WHERE job_id = job.id) AS sampled_step,
    CASE WHEN {_STATUS} = 'error' AND job.kind != 'training' THEN
        (SELECT error FROM trace WHERE job_id = job.id AND error IS NOT NULL ORDER BY rowid LIMIT 1)
        END AS first_error {_FROM}"""
"""With what its rollouts say of it, read from an index."""


def unfinished(db: Db) -> list[sqlite3.Row]:
    """Every job that still does something: managed runs, and reported jobs with open traces."""
    return db.execute(f"{SELECT} WHERE {_STATUS} IN ('queued', 'running')").fetchall()


def get(db: Db, job_id: str) -> sqlite3.Row:
    """One job by either spelling of its id.

    Raises:
        Refused: 404.
    """
    return _one(db, SELECT, job_id)


def listed(db: Db, job_id: str) -> sqlite3.Row:
    """One job as `page` has it, with num_traces and sampled_step. Raises Refused, 404."""
    return _one(db, _LISTED, job_id)


def page(
    db: Db, limit: int, offset: int, taskset_id: str | None = None
) -> tuple[list[sqlite3.Row], int]:
    """One page of jobs, newest first, and the true total."""
    where, args = ("WHERE job.taskset_id = ?", (taskset_id,)) if taskset_id else ("", ())
    query = f"{_LISTED} {where} ORDER BY job.created_at DESC, job.rowid DESC LIMIT ? OFFSET ?"
    rows = db.execute(query, (*args, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM job {where}", args).fetchone()
    return rows, int(total)


def enter(
    db: Db,
    job_id: str,
    name: str | None,
    group: int | None,
    taskset_id: str | None,
    steps: int | None = None,
) -> None:
    """A client's job begins. Entering it again changes nothing.

    Args:
        db: The store's.
        job_id, name, group, taskset_id: As the client has them.
        steps: How many it says that its loop will take.
    """
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
        loop_steps=steps,
    )


def exists(db: Db, job_id: str) -> bool:
    """Whether anybody has begun a job of this id."""
    return db.execute("SELECT 1 FROM job WHERE id = ?", (job_id,)).fetchone() is not None


def rename(db: Db, job_id: str, name: str) -> None:
    """Give a job another name."""
    db.execute("UPDATE job SET name = ? WHERE id = ?", (name, get(db, job_id)["id"]))


def _one(db: Db, select: str, job_id: str) -> sqlite3.Row:
    row = db.execute(f"{select} WHERE job.id = ?", (canonical(job_id),)).fetchone()
    if row is None:
        raise not_found("job", job_id[:100])
    found: sqlite3.Row = row
    return found


# Managed runs: jobs that this service itself carries out.


RESUMABLE = ("interrupted", "cancelled", "failed")


@dataclass(frozen=True)
class Submission:
    """A managed run that is to be queued."""

    job_id: str
    model_id: str
    name: str
    parameters: dict[str, Any]
    tasks: list[dict[str, Any]]
    taskset: str = ""
    """What the tasks are called."""


def submit(db: Db, new: Submission) -> JobStatus:
    """Queue a managed run.

    Raises:
        Refused: 409, the model is in another run.
    """
    refuse_busy(db, new.model_id)
    insert(
        db,
        "job",
        id=new.job_id,
        kind="training",
        name=new.name,
        status="queued",
        created_at=now(),
        group_size=new.parameters["group_size"],
        model_id=new.model_id,
        steps=new.parameters["steps"],
        parameters=json.dumps(new.parameters),
        tasks=json.dumps(new.tasks),
    )
    runs.begin(db, new.job_id, new.model_id, new.taskset or None)
    return _changed(db, new.job_id)


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
    query = f"{SELECT} WHERE job.model_id = ? AND job.status IN ('queued', 'running')"
    row: sqlite3.Row | None = db.execute(query, (model_id,)).fetchone()
    return row


def training(db: Db, ref: str) -> sqlite3.Row:
    """A managed run by its id, or the latest of a model by the model's id.

    Raises:
        Refused: 404.
    """
    query = f"""{SELECT} WHERE job.kind = 'training' AND (job.id = :ref OR job.model_id = :ref)
        ORDER BY job.id = :ref DESC, job.rowid DESC LIMIT 1"""
    row = db.execute(query, {"ref": canonical(ref)}).fetchone()
    if row is None:
        raise not_found("training job", ref[:200])
    found: sqlite3.Row = row
    return found


def requeue(db: Db, job_id: str) -> JobStatus:
    """Queue a run again that ended short of its steps.

    Raises:
        Refused: 404; 409, it did not end so, or another run trains the model.
    """
    job = training(db, job_id)
    if job["status"] not in RESUMABLE:
        raise Refused(409, f"job {job['id']} is {job['status']}: there is nothing to resume")
    refuse_busy(db, job["model_id"])
    db.execute(
        "UPDATE job SET status = 'queued', finished_at = NULL, error = NULL, reason = NULL,"
        " note = NULL"
        " WHERE id = ?",
        (job["id"],),
    )
    return _changed(db, job["id"])


def start(db: Db, job_id: str) -> JobStatus:
    """Queued becomes running."""
    db.execute("UPDATE job SET status = 'running' WHERE id = ?", (job_id,))
    return _changed(db, job_id)


def finish(db: Db, job_id: str, end: End) -> JobStatus:
    """The run ended so."""
    error = end.error.model_dump_json() if end.error else None
    db.execute(
        "UPDATE job SET status = ?, finished_at = ?, error = ?, reason = ?, waits = NULL"
        " WHERE id = ?",
        (end.status, now(), error, end.reason, job_id),
    )
    return _changed(db, job_id)


def advance(
    db: Db,
    job_id: str,
    *,
    steps: int,
    tokens: int,
    seconds: float,
    wasted: int = 0,
    note: str | None = None,
) -> JobStatus:
    """One more iteration is done, having taken `steps` (0 or 1) optimizer steps, and `wasted`
    rollouts of a batch that had no gradient."""
    if wasted:
        runs.wasted(db, job_id, wasted)
    db.execute(
        "UPDATE job SET step = step + :steps, iteration = iteration + 1,"
        " attempt = CASE WHEN :steps THEN 1 ELSE attempt + 1 END, busy_s = busy_s + :seconds,"
        " trained_tokens = trained_tokens + :tokens, note = :note WHERE id = :id",
        {"steps": steps, "seconds": seconds, "tokens": tokens, "note": note, "id": job_id},
    )
    return _changed(db, job_id)


def note(db: Db, job_id: str, why: str) -> JobStatus:
    """The next step is sampled again, nothing of it having been counted."""
    db.execute("UPDATE job SET note = ? WHERE id = ?", (why, job_id))
    return _changed(db, job_id)


def solved(db: Db, job_id: str, why: str) -> JobStatus:
    """The run takes no further step; what is left is its evaluation."""
    db.execute("UPDATE job SET solved = ? WHERE id = ?", (why, job_id))
    return _changed(db, job_id)


def interrupt_all(db: Db) -> None:
    """After a crash: what was queued or running is interrupted, and can be resumed."""
    for job in db.execute(f"{SELECT} WHERE job.status IN ('queued', 'running')").fetchall():
        finish(db, job["id"], stopped("interrupted"))


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
            "estimated_finish": now() + left if running and left else None,
            "trained_tokens": row["trained_tokens"],
            "error": json.loads(row["error"]) if row["error"] else None,
            "id": row["id"],
            "name": row["name"],
            "model_id": row["model_id"],
            "step": done,
            "steps": steps,
            "parameters": json.loads(row["parameters"]),
            "reason": row["reason"],
            "note": row["note"],
            "attempt": row["attempt"],
            "waits": row["waits"],
        }
    )


def waits(db: Db, job_id: str, why: str | None) -> JobStatus:
    """The run is held up, or no longer."""
    db.execute("UPDATE job SET waits = ? WHERE id = ?", (why, job_id))
    return _changed(db, job_id)


def _changed(db: Db, job_id: str) -> JobStatus:
    row = get(db, job_id)
    job = status(row)
    events.append(db, row["model_id"], [JobChanged(at=now(), job=job)])
    return job
