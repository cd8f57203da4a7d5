"""What a job's row says of it; of a managed run, its metadata say more."""

from hud_tui.rl import job_words
from hud_tui.rl.text import one_line
from hud_tui.wire import Job


def is_active(job: Job) -> bool:
    """Whether a job has not ended."""
    return job_words.is_active(job.status)


def job_title(job: Job) -> str:
    """What a job is called, in one clean line."""
    return one_line(job.name or f"job {job.id[:8]}", 60)


def job_model_id(job: Job) -> str | None:
    """Id of the model that a managed run trains, where the service says so."""
    found = (job.metadata or {}).get("model_id")
    return found if isinstance(found, str) else None


def job_step(job: Job) -> int | None:
    """Steps that a managed run has taken; None for any other job."""
    step = (job.metadata or {}).get("step")
    return step if isinstance(step, int) else None


def job_progress(job: Job) -> str:
    """E.g. ``213/400``; empty for a job that is no managed run."""
    steps = (job.metadata or {}).get("steps")
    step = job_step(job)
    return "" if step is None else f"{step}/{steps}" if isinstance(steps, int) else str(step)


def job_reason(job: Job) -> str:
    """Why a job ended as it did, where its row says so."""
    return str((job.metadata or {}).get("reason") or "")


def may_have_reason(job: Job) -> bool:
    """Whether it is worth asking why a job ended: it ended badly, and its row does not say."""
    ended_well = job.status in job_words.SUCCEEDED
    return job_words.has_ended(job.status) and not ended_well and not job_reason(job)
