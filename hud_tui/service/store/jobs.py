"""Jobs: managed runs, and those that a client reports as it goes."""

import sqlite3

from hud_tui.service.clock import now
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import not_found
from hud_tui.service.store import Db, insert

_STATUS = """CASE WHEN job.kind = 'training' THEN job.status
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id AND status IN ('running', 'queued'))
        THEN 'running'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id AND status != 'error') THEN 'completed'
    WHEN EXISTS (SELECT 1 FROM trace WHERE job_id = job.id) THEN 'error'
    ELSE 'pending' END"""
"""HUD has no "job exit": a reported job is over when its traces are. It is an error where no
rollout of it came to anything."""
_COLUMNS = f"job.*, {_STATUS} AS shown_status, model.slug, taskset.name AS taskset_name"
_FROM = """FROM job LEFT JOIN model ON model.id = job.model_id
    LEFT JOIN taskset ON taskset.id = job.taskset_id"""
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
