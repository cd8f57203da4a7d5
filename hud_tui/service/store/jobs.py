"""Jobs: managed runs, and jobs that clients report."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hud_tui.rl.loop import LoopFacts
from hud_tui.rl.work import EVALUATION, SUCCEEDED, TRAINING, End
from hud_tui.service.engines.base import EngineError
from hud_tui.service.http import Refused, bad_field, canonical, not_found, now, refusal
from hud_tui.service.store import access, checkpoints, runs, times, traces, works
from hud_tui.service.store.db import Db, fetched, insert, value, without_damaged
from hud_tui.wire import JobError, WorkState
from hud_tui.wire_runs import DriveReport, DriveRun

# How a managed run can end, and what is stored of it.


class Stopped(Exception):
    """The run was asked to stop."""


def failed(error: Exception) -> End:
    full = refusal(error)
    if full is not None:
        code, message = "disk", f"{full.detail} (resume the run)"
    elif isinstance(error, EngineError | Refused):
        code, message = "engine" if isinstance(error, EngineError) else "refused", str(error)
    else:
        code, message = "internal", f"{type(error).__name__}: {error}"
    return End("failed", JobError(code=code, message=message))


_LISTED = f"""SELECT {works.COLUMNS},
    (SELECT count(*) FROM trace WHERE job_id = work.id) AS num_traces,
    (SELECT max(step) FROM trace WHERE job_id = work.id) AS sampled_step,
    CASE WHEN work.kind = 'reported' AND {works.STATUS} = 'error' THEN
        (SELECT error FROM trace WHERE job_id = work.id AND error IS NOT NULL
            ORDER BY rowid LIMIT 1)
        END AS first_error {works.FROM}"""
"""Jobs with counts of their rollouts, from an index."""


def own_unfinished(db: Db) -> list[str]:
    """Ids of the jobs under way that the caller may cancel: managed runs, evaluations, and reported
    jobs with open traces."""
    query = f"{works.SELECT} WHERE work.is_job AND {works.STATUS} IN ('queued', 'running')"
    return [job["id"] for job in db.execute(query).fetchall() if access.may_end(db, job["id"])]


def get(db: Db, job_id: str) -> sqlite3.Row:
    """One job by either spelling of its id. Raises Refused, 404."""
    return _one(db, works.SELECT, job_id)


def listed(db: Db, job_id: str) -> sqlite3.Row:
    """One job as in `page`, with num_traces and sampled_step. Raises Refused, 404."""
    return _one(db, _LISTED, job_id)


def page(
    db: Db, limit: int, offset: int, taskset_id: str | None = None
) -> tuple[list[sqlite3.Row], int]:
    """One page of jobs, newest first by insertion (clocks go back), and the total."""
    where, args = "WHERE work.is_job = 1", list[str]()
    if taskset_id:
        where, args = f"{where} AND work.taskset_id = ?", [taskset_id]
    query = f"{_LISTED} {where} ORDER BY work.rowid DESC LIMIT ? OFFSET ?"
    rows = db.execute(query, (*args, limit, offset)).fetchall()
    [total] = db.execute(f"SELECT count(*) FROM work {where}", args).fetchone()
    return rows, int(total)


def enter(
    db: Db,
    job_id: str,
    name: str | None,
    group: int | None,
    taskset_id: str | None,
    steps: int | None = None,
) -> None:
    """Begin a client's job, as the client describes it. Repeating it changes nothing. Raises
    Refused, 507: the caller may store no more."""
    if exists(db, job_id):
        return
    access.refuse_more_disk(db)
    insert(
        db,
        "work",
        id=job_id,
        kind="reported",
        name=name,
        created_at=now(),
        group_size=group,
        taskset_id=taskset_id,
        loop_steps=steps,
    )
    access.sign(db, "work", job_id)


def exists(db: Db, job_id: str) -> bool:
    """Whether a job with this id was begun."""
    return db.execute("SELECT 1 FROM work WHERE id = ?", (job_id,)).fetchone() is not None


def rename(db: Db, job_id: str, name: str) -> None:
    """Give a job another name. Raises Refused, 403: it is somebody else's."""
    access.refuse_others(db, job_id, "rename")
    db.execute("UPDATE work SET name = ? WHERE id = ?", (name, job_id))


def _one(db: Db, select: str, job_id: str) -> sqlite3.Row:
    return fetched(
        db, "job", job_id[:100], f"{select} WHERE work.id = ? AND work.is_job", (canonical(job_id),)
    )


# Managed runs: jobs that this service carries out.


@dataclass(frozen=True)
class Submission:
    """A managed run to queue."""

    job_id: str
    model_id: str
    name: str
    parameters: dict[str, Any]
    tasks: list[dict[str, Any]]
    taskset: str = ""
    """Name of the tasks."""
    taskset_id: str | None = None
    """The taskset with exactly these tasks, if there is one."""
    start: str | None = None
    """As in `SubmitJob`."""


def submit(db: Db, new: Submission) -> WorkState:
    """Queue a managed run. Raises Refused, 409: the model is in another run, or its head is not
    where the run is to start; 429, the caller has too much work under way; 507, it may store no
    more."""
    works.refuse_training(db, new.model_id)
    access.refuse_more_disk(db)
    if new.start is not None:
        checkpoints.refuse_other_start(db, new.model_id, new.start)
    more = works.tasks_columns(new.tasks)
    _begin(db, new.job_id, new, **more, taskset_id=new.taskset_id)
    access.refuse_too_much_work(db)
    return works.changed(db, new.job_id)


def _begin(db: Db, job_id: str, new: Submission | DriveRun, **more: object) -> None:
    """Add a run, with more of its job's columns."""
    insert(
        db,
        "work",
        id=job_id,
        kind=TRAINING,
        name=new.name,
        status="queued",
        created_at=now(),
        group_size=new.parameters.get("group_size"),
        model_id=new.model_id,
        steps=new.parameters.get("steps"),
        parameters=json.dumps(new.parameters),
        **more,
    )
    access.sign(db, "work", job_id)
    runs.begin(db, job_id, new.model_id, new.taskset or None)


def training(db: Db, ref: str) -> sqlite3.Row:
    """A managed run by its id, or the latest of a model by the model's id. Raises Refused, 404."""
    query = f"""{works.SELECT} WHERE work.id = (
        SELECT id FROM work WHERE kind = 'training' AND (id = :ref OR model_id = :ref)
        ORDER BY id = :ref DESC, rowid DESC LIMIT 1)"""
    return fetched(db, "training job", ref[:200], query, {"ref": canonical(ref)})


def advance(
    db: Db,
    job_id: str,
    *,
    steps: int = 0,
    iterations: int = 1,
    tokens: int = 0,
    seconds: float = 0.0,
    wasted: int = 0,
    note: str | None = None,
) -> WorkState:
    """Count a batch: its `steps` (0 or 1) and `iterations` (0 if it is dealt out again), and the
    `wasted` rollouts that were not trained on."""
    if wasted:
        runs.wasted(db, job_id, wasted)
    db.execute(
        "UPDATE work SET step = step + :steps, iteration = iteration + :iterations,"
        " attempt = CASE WHEN :steps THEN 1 ELSE attempt + 1 END, busy_s = busy_s + :seconds,"
        " trained_tokens = trained_tokens + :tokens, note = :note WHERE id = :id",
        {
            "steps": steps,
            "iterations": iterations,
            "seconds": seconds,
            "tokens": tokens,
            "note": note,
            "id": job_id,
        },
    )
    return works.changed(db, job_id)


def facts(job: sqlite3.Row) -> LoopFacts:
    """What has happened to a run, for the one that resumes it."""
    return LoopFacts(job["step"], job["iteration"], job["attempt"], solved=job["solved"])


# Work that a client carries out: runs whose steps it takes, evaluations whose rollouts it makes.


SAY_START = "this model has checkpoints: name the one to start from by its id, or say base"
LEASE_S = 30.0
"""Seconds without a report after which a driver counts as gone: those in which the service
listened."""
ABANDONED_S = 600.0
"""The same, after which its rollouts do, too: until then it may only be asleep."""


def drive(db: Db, job_id: str, body: DriveRun) -> WorkState:
    """Begin a run that a client drives, or resume one that ended before its last step; rollouts
    that an earlier driver left unfinished are cancelled. Raises Refused, 409, the model is in
    another run, the run is complete, or the head is not where it is to start; 422, the job is of
    another kind, or does not say where it starts; 429, the caller has too much work under way."""
    row = db.execute(f"{works.SELECT} WHERE work.id = ?", (job_id,)).fetchone()
    if row is not None and (row["driver"] is None or row["model_id"] != body.model_id):
        raise Refused(422, f"job {job_id} is not a run of this model that a client drives")
    if row is not None and row["status"] in SUCCEEDED:
        works.refuse_resuming(row)
    if row is None or row["status"] != "running":
        works.refuse_training(db, body.model_id)
        access.refuse_more_disk(db)
    if row is not None:
        access.refuse_others(db, job_id, "drive")
        access.take_over(db, job_id)
    if row is None:
        if body.start is not None:
            checkpoints.refuse_other_start(db, body.model_id, body.start)
        elif checkpoints.head_id(db, body.model_id) is not None:
            raise bad_field("start", SAY_START)
        _begin(db, job_id, body, driver=body.driver)
    traces.cancel_running(db, job_id)
    works.revive(db, job_id, "running")
    db.execute(
        "UPDATE work SET asked = NULL, driver = ?, parameters = ?, steps = ? WHERE id = ?",
        (body.driver, json.dumps(body.parameters), body.parameters.get("steps"), job_id),
    )
    access.refuse_too_much_work(db)
    return works.changed(db, job_id)


def driven(db: Db, work_id: str) -> sqlite3.Row:
    """A run or an evaluation that a client carries out. Raises Refused, 404."""
    row = works.get(db, work_id)
    if row["driver"] is None:
        raise not_found(f"driven {'run' if row['kind'] == TRAINING else 'evaluation'}", row["id"])
    return row


def report(db: Db, work_id: str, body: DriveReport) -> WorkState:
    """Store a driver's report. What was interrupted for lack of reports is active again; at its
    end, unfinished rollouts are cancelled. Raises Refused, 404; 409, it has ended otherwise, or
    another run trains the model; 429, it was interrupted, and the caller has too much work."""
    row = driven(db, work_id)
    access.refuse_others(db, row["id"], "report on")
    is_back = row["status"] == "interrupted" and body.status == "running"
    if is_back:
        _take_back(db, row)
    elif row["status"] not in ("running", "interrupted", body.status):
        raise Refused(409, f"job {row['id']} is {row['status']}")
    if body.wasted:
        runs.wasted(db, row["id"], body.wasted)
    if body.time is not None and row["kind"] == TRAINING:
        times.discard(db, row["id"], row["step"] + 1, body.time.discarded)
    has_news = _store_progress(db, row, body)
    if _is_its_end(row, body):
        traces.cancel_running(db, row["id"])
        return works.finish(db, row["id"], End(body.status, body.error, body.reason))
    if is_back or body.wasted or has_news:
        return works.changed(db, row["id"])
    return works.state_of(works.get(db, row["id"]))


def _store_progress(db: Db, row: sqlite3.Row, body: DriveReport) -> bool:
    """Store what a report says of the progress; returns whether followers are to hear of it."""
    reported = {"note": body.note, "attempt": body.attempt, "busy_s": body.busy_s}
    changes = {key: value for key, value in reported.items() if value is not None}
    if changes:
        names = ", ".join(f"{name} = :{name}" for name in changes)
        db.execute(f"UPDATE work SET {names} WHERE id = :id", {**changes, "id": row["id"]})
    return any(row[key] != changes[key] for key in changes if key != "busy_s")


def _is_its_end(row: sqlite3.Row, body: DriveReport) -> bool:
    """Whether a report ends the work; not if it repeats the end that is stored."""
    if body.status == "running" or row["status"] not in ("running", "interrupted"):
        return False
    error = body.error.model_dump_json() if body.error else None
    return (row["status"], row["error"]) != (body.status, error)


def _take_back(db: Db, row: sqlite3.Row) -> None:
    """What was interrupted for lack of reports is running. Raises Refused, 409: another run trains
    the model; 429, the caller has too much work under way."""
    if row["kind"] == TRAINING:
        works.refuse_training(db, row["model_id"])
    works.revive(db, row["id"], "running")
    access.refuse_too_much_work(db)


def stepped(db: Db, job_id: str, checkpoint_id: str) -> WorkState:
    """Count a step of a driven run."""
    query = "SELECT json_extract(body, '$.num_tokens') FROM checkpoint WHERE id = ?"
    return advance(db, job_id, steps=1, tokens=value(db, query, (checkpoint_id,)) or 0)


def ask_to_cancel(db: Db, work_id: str) -> bool:
    """Ask a driver to stop between two rollouts; if it is gone, `end_abandoned` ends the work.
    Returns False if it is not active, or is an evaluation of a run, which alone can be cancelled.
    """
    row = driven(db, work_id)
    if row["status"] != "running" or row["run_id"]:
        return False
    if row["asked"] is None:
        works.mark(db, row["id"], asked="cancel")
    return True


def end_abandoned(db: Db, silent_s: Callable[[str], float]) -> int:
    """End driven work without a report for more than `LEASE_S`, and cancel the rollouts under way
    of that without one for more than `ABANDONED_S`. It is interrupted, or cancelled if that is what
    its driver was asked for.

    Args:
        db: The store.
        silent_s: Seconds in which the service listened to the driver of work, by its id, and did
            not hear it.

    Returns how much of it may have to be ended later: what is running, or was interrupted with
    rollouts under way, and was reported within `ABANDONED_S`. It has to be called again for that.
    """
    rows = db.execute(
        "SELECT id, kind, run_id, status, asked FROM work"
        " WHERE driver IS NOT NULL AND (status = 'running' OR"
        " status = 'interrupted' AND EXISTS (SELECT 1 FROM trace WHERE job_id = work.id"
        " AND trace.status IN ('running', 'queued')))"
    ).fetchall()
    for row in rows:
        with without_damaged(db, f"{row['kind']} {row['id']}"):
            _end_silent(db, row, silent_s(row["id"]))
    return sum(silent_s(row["id"]) <= ABANDONED_S for row in rows)


def _end_silent(db: Db, row: sqlite3.Row, silent_s: float) -> None:
    is_over = silent_s > LEASE_S and row["status"] == "running"
    if silent_s > ABANDONED_S or (is_over and row["asked"]):
        traces.cancel_running(db, row["id"])
    if not is_over:
        return
    if row["asked"]:
        works.finish(db, row["id"], End("cancelled"))
        return
    what = "evaluation" if row["kind"] == EVALUATION and not row["run_id"] else "run"
    why = f"its driver does not answer: resume the {what} where it was begun:"
    why += f" {works.resuming(row)}"
    works.finish(db, row["id"], End("interrupted", JobError(code="interrupted", message=why)))
