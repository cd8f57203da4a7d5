"""Work: a training run or an evaluation, from its submission to its end.

It is queued, running or ended. Who lists it, who carries it out and who is asked to cancel or
resume it obey the same rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from hud_tui.rl.metrics import estimate_text
from hud_tui.rl.text import one_line
from hud_tui.wire import Estimate, EvaluationJob, Job, JobError, JobStatus

# Statuses, in HUD's words. A status that is not in ENDED is active.


SUCCEEDED = frozenset({"succeeded", "completed"})
RESUMABLE = frozenset({"interrupted", "cancelled", "failed"})
"""Statuses from which a managed run or an evaluation can resume."""
ENDED = SUCCEEDED | RESUMABLE | {"error"}


def has_ended(status: str | None) -> bool:
    return status in ENDED


def is_active(status: str | None) -> bool:
    """Whether it is queued or running; an unknown status counts as active, none does not."""
    return bool(status) and not has_ended(status)


def is_lost(status: str | None) -> bool:
    """Whether it has ended without success."""
    return has_ended(status) and status not in SUCCEEDED


# How it ends.


@dataclass(frozen=True)
class End:
    """How work ended."""

    status: str
    error: JobError | None = None
    """Error that ended it."""
    reason: str | None = None
    """Why a run ended well before its last step, without an error."""


TRAINING, EVALUATION = "training", "evaluation"
REPORTED = "reported"
"""Kind of rollouts that a client makes, or requests one by one."""
LOOP = "loop"
"""Kind of a training loop outside the service."""
SHUTDOWN = {
    TRAINING: "the service stopped during the run: resume it from the head",
    EVALUATION: "the service stopped during the evaluation: resume it to sample what is missing",
}


def stopped(kind: str, ends_as: str) -> End:
    """The end of training or an evaluation that was asked to stop, with the requested status."""
    if ends_as != "interrupted":
        return End(ends_as)
    return End(ends_as, JobError(code="interrupted", message=SHUTDOWN[kind]))


def trouble(job: JobStatus | EvaluationJob) -> str:
    """Why it failed, as reported by the service; empty if it did not fail."""
    error = job.error.message if isinstance(job.error, JobError) else job.error
    return error or ""


def reason(job: JobStatus) -> str:
    """Why a run ended, whether it failed or not; empty if the service gives no reason."""
    return trouble(job) or job.reason or ""


@dataclass(frozen=True, slots=True)
class Work:
    """What can be said of any work, whichever list or reply it is from."""

    id: str
    kind: str
    """TRAINING, EVALUATION, REPORTED or LOOP."""
    title: str
    """Safe to print in one line."""
    status: str
    model_id: str | None = None
    """None if the service does not report it."""
    done: int | None = None
    """Steps taken, or rollouts of an evaluation that are finished; None for other kinds."""
    total: int | None = None
    why: str = ""
    """Why it ended, if it is told."""

    @classmethod
    def of(cls, source: Job | JobStatus | EvaluationJob) -> Self:
        """From a row of the list of jobs, or from its own state."""
        match source:
            case Job():
                return cls._of_row(source, source.metadata or {})
            case JobStatus():
                steps, why = (source.step or 0, source.steps), reason(source)
                title = title_of(source.name, source.id)
                return cls(
                    source.id or "", TRAINING, title, source.status, source.model_id, *steps, why
                )
            case EvaluationJob():
                title = f"The evaluation of {one_line(weights_name(source), 40)}"
                rollouts, why = (source.done, source.total), trouble(source)
                return cls(
                    source.id, EVALUATION, title, source.status, source.model_id, *rollouts, why
                )

    @classmethod
    def _of_row(cls, job: Job, more: Mapping[str, Any]) -> Self:
        kind = more.get("kind")
        kind = kind if kind in (TRAINING, EVALUATION) else REPORTED
        counts = ("done", "total") if kind == EVALUATION else ("step", "steps")
        done, total = (_whole(more.get(name)) for name in counts)
        model_id = more.get("model_id")
        return cls(
            id=job.id,
            kind=kind,
            title=title_of(job.name, job.id),
            status=job.status or "",
            model_id=model_id if isinstance(model_id, str) else None,
            done=0 if kind == EVALUATION and done is None else done,
            total=total,
            why=str(more.get("reason") or ""),
        )

    @property
    def is_evaluation(self) -> bool:
        return self.kind == EVALUATION

    @property
    def step(self) -> int | None:
        """Steps taken; None if it takes none."""
        return None if self.is_evaluation else self.done

    @property
    def is_active(self) -> bool:
        return is_active(self.status)

    @property
    def is_untold(self) -> bool:
        """Whether it ended without success, and why is still to be asked for."""
        return is_lost(self.status) and not self.why

    @property
    def count(self) -> str:
        """E.g. ``213/400``; empty if nothing is counted."""
        if self.done is None:
            return ""
        if self.total is None:
            return f"{self.done}/?" if self.is_evaluation else str(self.done)
        return f"{self.done}/{self.total}"

    @property
    def state(self) -> str:
        """Its title, status and progress in one line: ``arith on m is running at step 3 of 60``."""
        status = one_line(self.status or "–", 20)
        if self.done is None:
            return f"{self.title} is {status}"
        total = "?" if self.total is None else self.total
        if self.is_evaluation:
            return f"{self.title} is {status} after {self.done} of {total} rollouts"
        return f"{self.title} is {status} at step {self.done} of {total}"

    @property
    def why_no_cancel(self) -> str:
        """Why it cannot be cancelled; empty if it can."""
        if self.kind == LOOP:
            return f"{self.title} is driven from outside: only its own client can cancel it."
        return "" if self.is_active else f"{self._standing}: nothing to cancel."

    @property
    def why_no_resume(self) -> str:
        """Why it cannot be resumed; empty if it can."""
        if self.kind in (LOOP, REPORTED):
            return f"{self.title} is driven from outside: only its own client can resume it."
        return "" if self.status in RESUMABLE else f"{self._standing}: nothing to resume."

    @property
    def _standing(self) -> str:
        status = one_line(self.status or "–", 20)
        is_or_has = f"is {status}" if self.is_active else f"has ended ({status})"
        return f"{self.title} {is_or_has}"


def weights_name(evaluation: EvaluationJob) -> str:
    """Display name of the evaluated weights."""
    return evaluation.checkpoint or (evaluation.checkpoint_id or "base")[:8]


def title_of(name: str | None, id_: str | None) -> str:
    """Display name of a job."""
    return one_line(name or f"job {(id_ or '')[:8]}", 60)


def job_mean(job: Job) -> Estimate | None:
    """Mean reward of an evaluation; None for other jobs, and before it has ended."""
    more = job.metadata or {}
    if more.get("kind") != EVALUATION or not isinstance(more.get("mean"), dict):
        return None
    try:
        return Estimate.model_validate(more["mean"])
    except ValidationError:
        return None


def job_result(job: Job) -> str:
    """Result of an evaluation, e.g. ``mean reward .718 [.56, .849], 36 tasks × 4``; empty for other
    jobs, and before it has ended."""
    mean, more = job_mean(job), job.metadata or {}
    if mean is None:
        return ""
    value = estimate_text(mean.value, mean.low, mean.high)
    size = one_line(f"{more.get('tasks')} tasks × {more.get('samples')}", 40)
    return f"mean reward {value}, {size}"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
