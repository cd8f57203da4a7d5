"""Work: a training run or an evaluation, from its submission to its end.

It is queued, running or ended. Who lists it, who carries it out and who is asked to cancel or
resume it obey the same rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from hud_tui.rl.metrics import finite
from hud_tui.rl.text import one_line
from hud_tui.wire import Estimate, Evaluation, Job, JobError, WorkState

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
"""Kind of rollouts that a client makes, or requests one by one; of a training loop outside the
service, too."""
TRIAL = "trial of "
"""How the name of a job begins whose rollouts are tried before a run."""
IMPORTED = "imported"
"""Kind of a run of another trainer that was imported from its log: there is nothing but that."""
READ_ONLY = "was imported from a log: it is read only."
OUTSIDE = "is driven from outside: only its own client can"
SHUTDOWN = {
    TRAINING: "the service stopped during the run: resume it from the head",
    EVALUATION: "the service stopped during the evaluation: resume it to sample what is missing",
}


def stopped(kind: str, ends_as: str) -> End:
    """The end of training or an evaluation that was asked to stop, with the requested status."""
    if ends_as != "interrupted":
        return End(ends_as)
    return End(ends_as, JobError(code="interrupted", message=SHUTDOWN[kind]))


def driver_ended(resume: str) -> JobError:
    """Why work is interrupted whose process was killed; `resume`: the command that resumes it."""
    why = f"its driver ended; finished rollouts are kept; resume: {resume}"
    return JobError(code="interrupted", message=why)


def trouble(job: WorkState) -> str:
    """Why it failed, as reported by the service; empty if it did not fail."""
    return (job.error.message or job.error.code or "") if job.error else ""


def reason(job: WorkState) -> str:
    """Why a run ended, whether it failed or not; empty if the service gives no reason."""
    return trouble(job) or job.reason or ""


@dataclass(frozen=True, slots=True)
class Work:
    """Any work: a run, an evaluation, a loop outside the service, a job of reported rollouts,
    whichever list or reply it is from.

    None, or empty, where a value is not reported, not known yet, or of another kind of work.
    """

    id: str
    kind: str = TRAINING
    """TRAINING, EVALUATION, REPORTED or IMPORTED."""
    name: str = ""
    status: str = ""
    model_id: str | None = None
    model: str = ""
    done: int | None = None
    """Steps taken, or rollouts of an evaluation that are finished."""
    total: int | None = None
    why: str = ""
    """Why it ended, if it is told."""
    run_id: str = ""
    """The run that an evaluation is part of."""
    taskset: str = ""
    start: str = ""
    """The checkpoint that its first step started from, else what the model was forked from."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """By wire name; the loss's own ones flattened: ``loss_fn_config.beta``."""
    loss: str = ""
    lr: float | None = None
    group_size: int | None = None
    seed: int | None = None
    engine: str = ""
    reward_first: float | None = None
    """Mean over its first steps, in the taskset's reward unit."""
    reward: float | None = None
    """Mean over its newest steps."""
    points: tuple[float, ...] = ()
    """Rewards of its steps in order, averaged to shape (≤ 32,)."""
    heldout: float | None = None
    heldout_rollouts: int | None = None
    """Rollouts of the held-out reward."""
    evaluation: Evaluation | None = None
    no_gradient: float | None = None
    """Share of its rollouts in zero-variance groups."""
    alarms: int | None = None
    alarm: str = ""
    """Level of its most severe active alarm: info, warn or critical."""
    alarm_title: str = ""
    tokens: int = 0
    duration_s: float | None = None
    step_s: float | None = None
    """Median seconds between its newest steps."""
    waits: bool = False
    """Whether the engine's server holds it up."""
    created_at: float | None = None
    """Unix seconds."""
    stepped_at: float | None = None
    by: str = ""
    """Name of the key by which it was begun, on a service whose keys have names."""
    resumed_by: str = ""
    """Name of the key by which it was resumed, if that is another one."""
    sweep: str = ""
    note: str = ""
    whole: bool = True
    """Whether its steps were read; if not, it has only what a list of jobs reports."""

    @classmethod
    def of(cls, source: Job | WorkState) -> Self:
        """From a row of the list of jobs, or from its own state."""
        if isinstance(source, Job):
            return cls._of_row(source, source.metadata or {})
        work = cls(
            id=source.id,
            status=one_line(source.status, 20),
            model_id=source.model_id,
            created_at=source.created_at,
            by=one_line(source.by or "", 40),
            resumed_by=one_line(source.resumed_by or "", 40),
        )
        if source.is_evaluation:
            return replace(
                work,
                kind=EVALUATION,
                name=f"The evaluation of {one_line(weights_name(source), 40)}",
                done=source.done,
                total=source.total,
                run_id=source.job_id or "" if source.job_id != source.id else "",
                why=trouble(source),
            )
        return replace(
            work,
            kind=REPORTED if source.kind == REPORTED else TRAINING,
            name=title_of(source.name, source.id),
            done=source.step or 0,
            total=source.steps,
            step_s=finite(source.step_s),
            waits=bool(source.waits),
            why=reason(source),
        )

    @classmethod
    def _of_row(cls, job: Job, more: Mapping[str, Any]) -> Self:
        kind = more.get("kind")
        kind = kind if kind in (TRAINING, EVALUATION) else REPORTED
        counts = ("done", "total") if kind == EVALUATION else ("step", "steps")
        done, total = (whole(more.get(name)) for name in counts)
        model_id = more.get("model_id")
        return cls(
            id=job.id,
            kind=kind,
            name=title_of(job.name, job.id),
            status=one_line(job.status or "", 20),
            model_id=model_id if isinstance(model_id, str) else None,
            done=0 if kind == EVALUATION and done is None else done,
            total=total,
            by=one_line(job.by or "", 40),
            resumed_by=one_line(job.resumed_by or "", 40),
            why=str(more.get("reason") or ""),
            run_id=str(more.get("run_id") or ""),
        )

    @property
    def title(self) -> str:
        """Its name; without one, the model for a loop, else the beginning of the id."""
        if not self.name and self.is_loop and self.model:
            return f"loop on {self.model}"
        return self.name or self.id[:8]

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop outside the service, of which only what it reports is known."""
        return self.kind == REPORTED and self.done is not None

    @property
    def is_imported(self) -> bool:
        """Whether it is a run of another trainer, of which no service knows."""
        return self.kind == IMPORTED

    @property
    def is_evaluation(self) -> bool:
        return self.kind == EVALUATION

    @property
    def is_trained_on(self) -> bool:
        """Whether steps may be trained on its rollouts: not on those of an evaluation, nor of a
        trial before a run."""
        is_trial = self.kind == REPORTED and (self.name or "").startswith(TRIAL)
        return self.kind != EVALUATION and not is_trial

    @property
    def step(self) -> int | None:
        """Steps taken; None if it takes none."""
        return None if self.is_evaluation else self.done

    @property
    def steps(self) -> int | None:
        """Steps that a run or a loop is to take; None if it takes none, or that is unknown."""
        return None if self.is_evaluation else self.total

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
        is_now = f"{one_line(self.title, 60)} is {one_line(self.status or '–', 20)}"
        if self.done is None:
            return is_now
        total = "?" if self.total is None else self.total
        if self.is_evaluation:
            return f"{is_now} after {self.done} of {total} rollouts"
        return f"{is_now} at step {self.done} of {total}"

    @property
    def why_no_cancel(self) -> str:
        """Why it cannot be cancelled; empty if it can."""
        if self.is_imported:
            return f"{one_line(self.title, 60)} {READ_ONLY}"
        if self.is_loop:
            return f"{one_line(self.title, 60)} {OUTSIDE} cancel it."
        if self.run_id and self.is_active:
            return f"{one_line(self.title, 60)} is part of run {self.run_id}: cancel that."
        return "" if self.is_active else f"{self._standing}: nothing to cancel."

    @property
    def why_no_resume(self) -> str:
        """Why it cannot be resumed; empty if it can."""
        if self.is_imported:
            return f"{one_line(self.title, 60)} {READ_ONLY}"
        if self.kind == REPORTED:
            return f"{one_line(self.title, 60)} {OUTSIDE} resume it."
        return "" if self.status in RESUMABLE else f"{self._standing}: nothing to resume."

    @property
    def why_no_checkpoint(self) -> str:
        """Why none of its checkpoints can be read; empty if one may be."""
        if not self.is_imported:
            return ""
        return f"{one_line(self.title, 60)} was imported from a log: it has no checkpoints"

    @property
    def _standing(self) -> str:
        status = one_line(self.status or "–", 20)
        is_or_has = f"is {status}" if self.is_active else f"has ended ({status})"
        return f"{one_line(self.title, 60)} {is_or_has}"


def weights_name(evaluation: WorkState) -> str:
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


def whole(value: object) -> int | None:
    """A value of a job's data if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
