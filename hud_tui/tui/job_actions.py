"""Dialogs before a model is forked, a run is cancelled or resumed, or the app quits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import App

from hud_tui.errors import HudConflict, HudError
from hud_tui.keys import key, keyed
from hud_tui.rl.checkpoint_tree import free_name, label, name_problem, slug_of
from hud_tui.rl.run import job_is_active, job_model_id, job_step, job_title
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.base import WritePolicy
from hud_tui.tui.screens.dialogs import ChoiceDialog, ConfirmDialog, InputDialog
from hud_tui.tui.screens.over import tell
from hud_tui.tui.session import RunSession
from hud_tui.wire import Checkpoint, Job, JobStatus, Model


async def ask_fork(
    app: App[None],
    session: RunSession,
    source: Model,
    models: Sequence[Model],
    name: str | None = None,
    start: Checkpoint | None = None,
) -> Model | None:
    """Ask for a name, and fork; the dialog shows the service's objections.

    Args:
        source: The model to fork.
        models: The catalog, for names that are taken.
        name: What to propose; None for a free one.
        start: Where it starts; None for the source's head.

    Returns:
        The new model; None if the user left.
    """
    forked: list[Model] = []

    async def accept(text: str) -> str:
        try:
            start_id = None if start is None else start.id
            forked.append(await session.client.fork(source.id, text, start_id))
        except HudError as error:
            return _objection(error)
        return ""

    await app.push_screen_wait(
        InputDialog(
            f"Fork {source.model_name}",
            _what(source, start),
            "Fork",
            value=name or free_name(source.model_name, models),
            check=lambda text: name_problem(text, models),
            accept=accept,
            foresee=_slug if session.mode == "local" else lambda text: "",
        )
    )
    return forked[0] if forked else None


def _what(source: Model, start: Checkpoint | None) -> list[str]:
    return [
        f"A copy of {one_line(source.model_name, 60)} for you to train.",
        f"It starts at {label_of(start)}; the source stays as it is.",
    ]


def _objection(error: HudError) -> str:
    if isinstance(error, HudConflict):
        return one_line(error.detail)
    return one_line(f"{error.message} {error.hint}", 300)


def _slug(name: str) -> str:
    return f"slug: {slug_of(name)}"


def label_of(start: Checkpoint | None) -> str:
    """Where a fork starts, in words."""
    return "the source's head" if start is None else one_line(label(start), 60)


# Cancelling a run and resuming one: asked first, sent once.


RESUMABLE = frozenset({"interrupted", "cancelled", "failed"})
"""Statuses of a managed run that can resume from its last step."""


def why_no_cancel(job: Job) -> str:
    """Why a job cannot be cancelled; empty where it can."""
    if job_is_active(job):
        return ""
    return f"{job_title(job)} has ended ({one_line(job.status or '–', 20)}): nothing to cancel."


def why_no_resume(job: Job) -> str:
    """Why a job cannot be resumed; empty where it can."""
    title = job_title(job)
    if (job.metadata or {}).get("kind") != "training":
        return f"{title} is not a managed run: only its own client can resume it."
    if job.status in RESUMABLE:
        return ""
    if job_is_active(job):
        return f"{title} is running: nothing to resume."
    said, launch = one_line(job.status or "–", 20), key("app.view.launch")
    return f"{title} has ended ({said}): launch a new run with {launch}."


@dataclass(frozen=True)
class Asked:
    """The run that is asked about, as its row in a list or its own status has it."""

    id: str
    title: str
    status: str
    model_id: str | None
    step: int | None = None
    """None for a job that takes no steps."""
    steps: int | None = None

    @classmethod
    def of_row(cls, job: Job) -> Asked:
        status, steps = job.status or "running", (job.metadata or {}).get("steps")
        steps = steps if isinstance(steps, int) else None
        return cls(job.id, job_title(job), status, job_model_id(job), job_step(job), steps)

    @classmethod
    def of_status(cls, job: JobStatus, model_id: str | None) -> Asked:
        title = one_line(job.name or f"job {(job.id or '')[:8]}", 60)
        return cls(job.id or "", title, job.status, model_id, job.step or 0, job.steps)

    @property
    def progress(self) -> str:
        """E.g. `` at step 3 of 60``; empty for a job that takes no steps."""
        return "" if self.step is None else f" at step {self.step} of {self.steps or '?'}"


async def ask_cancel(
    app: App[None], session: RunSession, writes: WritePolicy, run: Asked
) -> str | None:
    """Ask, then cancel a run between two rollouts; its status then, or None. From a worker.

    Raises:
        HudError: The service refused, or did not answer.
    """
    lines = [
        f"{run.title} is {one_line(run.status, 20)}{run.progress}.",
        "It ends between two rollouts. Every checkpoint so far is kept,",
        "and the head stays where it is.",
    ]
    if run.step is not None:
        lines.append(keyed("{live.resume_run} in Live resumes it."))
    dialog = ConfirmDialog("Cancel the run", lines, "Cancel run", True, "Keep training")
    if not await app.push_screen_wait(dialog):
        return None
    return await cancel(session, writes, run)


async def cancel(session: RunSession, writes: WritePolicy, run: Asked) -> str | None:
    """Cancel a run, once the name of a protected model is typed; its status then, or None where
    the user left. Every view and dialog cancels by this."""
    if not await writes.confirm_name(run.model_id, "cancel its run"):
        return None
    done = await session.client.cancel_job(run.id)
    return one_line(done.status or "cancelled", 40)


async def ask_resume(
    app: App[None], session: RunSession, writes: WritePolicy, run: Asked
) -> str | None:
    """Ask, then let a run go on from the model's head with the parameters it had; its status
    then, or None. Every view and dialog resumes by this. From a worker.

    Raises:
        HudError: The service refused, or did not answer.
    """
    lines = [
        f"{run.title} is {one_line(run.status, 20)}{run.progress}.",
        "Every step so far is saved.",
        "It continues from the model's head, with the same parameters.",
    ]
    if not await app.push_screen_wait(ConfirmDialog("Resume the run", lines, "Resume")):
        return None
    if not await writes.confirm_name(run.model_id, "resume its run"):
        return None
    return one_line((await session.client.resume_job(run.id)).status, 40)


# What the app asks about a run: what becomes of it on the way out, and whether it goes on.


async def may_leave(
    app: App[None], session: RunSession, writes: WritePolicy, job: JobStatus
) -> bool:
    """Ask what becomes of the run that trains: it goes on, or it is cancelled.

    Returns:
        Whether to leave now.
    """
    asked = of_session(session, job)
    where = "in the background" if session.mode == "local" else "on HUD"
    lines = [
        f"{asked.title} is{asked.progress}.",
        f"It can continue training {where}; start hud-tui again to see it.",
    ]
    ways = [] if writes.read_only else [("cancel-run", "Cancel run")]
    choices = [*ways, ("leave", "Keep training")]
    dialog = ChoiceDialog("Quit while a run trains", lines, choices, yes="leave", keep="Stay")
    answer = await app.push_screen_wait(dialog)
    if answer != "cancel-run":
        return answer == "leave"
    try:
        return await cancel(session, writes, asked) is not None
    except HudError as error:
        tell(app, error)
        return False


def of_session(session: RunSession, job: JobStatus) -> Asked:
    """The followed model's run."""
    model = session.run.model
    return Asked.of_status(job, None if model is None else model.id)


async def offer_resume(
    app: App[None], session: RunSession, writes: WritePolicy, job: JobStatus
) -> None:
    """`ask_resume`, of a run that the end of the service cut short; an error is told."""
    try:
        await ask_resume(app, session, writes, of_session(session, job))
    except HudError as error:
        tell(app, error)
