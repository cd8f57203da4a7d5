"""What is asked before a model is forked, a run is cancelled or resumed, or the app is left."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App

from hud_tui.errors import HudConflict, HudError
from hud_tui.keys import key, keyed
from hud_tui.rl.checkpoint_tree import free_name, label, name_problem, slug_of
from hud_tui.rl.run import job_is_active, job_model_id, job_progress, job_title
from hud_tui.rl.text import one_line
from hud_tui.tui.notices import tell
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import ChoiceDialog, ConfirmDialog, InputDialog
from hud_tui.tui.session import RunSession
from hud_tui.tui.write_policy import WritePolicy
from hud_tui.wire import Checkpoint, Job, JobStatus, Model


async def ask_fork(
    app: App[None],
    session: RunSession,
    source: Model,
    models: Sequence[Model],
    name: str | None = None,
    start: Checkpoint | None = None,
) -> Model | None:
    """Ask for a name, and fork; what the service objects to is said in the dialog.

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
        f"A copy of {one_line(source.model_name, 60)} that is yours to train.",
        f"It starts at {label_of(start)}; the source stays as it is.",
    ]


def _objection(error: HudError) -> str:
    if isinstance(error, HudConflict):
        return one_line(error.detail)
    return one_line(f"{error.message} {error.hint}", 300)


def _slug(name: str) -> str:
    return f"commands and code call it {slug_of(name)}"


def label_of(start: Checkpoint | None) -> str:
    """Where a fork starts, in words."""
    return "the source's head" if start is None else one_line(label(start), 60)


# Stopping a job and taking one up again: asked first, sent once.


RESUMABLE = frozenset({"interrupted", "cancelled", "failed"})
"""Statuses of a managed run that can go on from its last step."""


def why_no_cancel(job: Job) -> str:
    """Why a job cannot be stopped; empty where it can."""
    if job_is_active(job):
        return ""
    return f"{job_title(job)} has ended ({one_line(job.status or '–', 20)}): nothing to stop."


def why_no_resume(job: Job) -> str:
    """Why a job cannot be taken up again; empty where it can."""
    title = job_title(job)
    if (job.metadata or {}).get("kind") != "training":
        return f"{title} is no managed run: only its own client can let it go on."
    if job.status in RESUMABLE:
        return ""
    if job_is_active(job):
        return f"{title} is under way: there is nothing to resume."
    said, launch = one_line(job.status or "–", 20), key("app.view.launch")
    return f"{title} has ended ({said}): launch a new run with {launch}."


async def ask_cancel(view: HudScreen, job: Job) -> str | None:
    """Ask, then stop a job between two rollouts; what the service said, or None.

    Raises:
        HudError: It refused, or did not answer.
    """
    progress = job_progress(job)
    at = f" at step {progress}" if progress else ""
    lines = [
        f"{job_title(job)} is {one_line(job.status or 'running', 20)}{at}.",
        "It stops between two rollouts. Every step taken so far stays in the tree,",
        "and the head stays where it is.",
    ]
    dialog = ConfirmDialog("Stop a job", lines, "Stop the job", True, "Keep it running")
    if not await view.app.push_screen_wait(dialog):
        return None
    if not await view.context.writes.confirm_name(job_model_id(job), "stop its job"):
        return None
    done = await view.client.cancel_job(job.id)
    return f"the service says: {one_line(done.status or 'cancelled', 40)}"


async def ask_resume(view: HudScreen, job: Job) -> str | None:
    """Ask, then let a run go on from the model's head; what the service said, or None.

    Raises:
        HudError: It refused, or did not answer.
    """
    lines = [
        f"{job_title(job)} stopped at step {job_progress(job) or '0'}.",
        "It goes on from the model's head, with the parameters it had.",
    ]
    if not await view.app.push_screen_wait(ConfirmDialog("Resume a job", lines, "Resume")):
        return None
    if not await view.context.writes.confirm_name(job_model_id(job), "let its job go on"):
        return None
    status = await view.client.resume_job(job.id)
    return f"the service says: {one_line(status.status, 40)}"


# Stopping a run and taking it up again: asked in a dialog, sent once.


async def cancel(screen: HudScreen, job: JobStatus) -> None:
    """Ask, then end the run after the rollout under way. From a worker."""
    lines = [
        f"It has taken {job.step or 0} of {job.steps or '?'} steps.",
        keyed(
            "Its checkpoints and its head stay. {live.resume_run} takes it up again where it was."
        ),
    ]
    dialog = ConfirmDialog(f"End {job_name(job)}", lines, "End the run", keep="Keep training")
    if job.id is not None and await _agreed(screen, dialog, "end its run"):
        ended = await screen.attempt(screen.client.cancel_job(job.id))
        if ended is not None:
            screen.notify("The run ends after the rollout under way.", markup=False)


async def resume(screen: HudScreen, job: JobStatus) -> None:
    """Ask, then let the run take the steps it has left. From a worker."""
    left = f" {max(0, job.steps - (job.step or 0))} steps are left." if job.steps else ""
    lines = [f"It was {one_line(job.status, 20)} at step {job.step or 0}.{left}"]
    dialog = ConfirmDialog(f"Resume {job_name(job)}", lines, "Resume it")
    if job.id is not None and await _agreed(screen, dialog, "take up its run"):
        await screen.attempt(screen.client.resume_job(job.id))


async def _agreed(screen: HudScreen, dialog: ConfirmDialog, what: str) -> bool:
    """Whether the user says yes; of a protected model, by its name too."""
    model = screen.run.model
    if not await screen.app.push_screen_wait(dialog):
        return False
    return await screen.context.writes.confirm_name(None if model is None else model.id, what)


def job_name(job: JobStatus) -> str:
    """What a job is called in a dialog."""
    return one_line(job.name or f"job {(job.id or '')[:8]}", 60)


# What the app asks about a run: what becomes of it on the way out, and whether it goes on.


async def may_leave(
    app: App[None], session: RunSession, writes: WritePolicy, job: JobStatus
) -> bool:
    """Ask what becomes of the run that trains: it goes on, or it is stopped.

    Returns:
        Whether to leave now.
    """
    where = "in the background" if session.mode == "local" else "on HUD"
    lines = [
        f"{_job_said(job)} is at step {job.step or 0} of {job.steps or '?'}.",
        f"It can go on training {where}; hud-tui shows it again when you come back.",
    ]
    stop = [] if writes.read_only else [("stop", "End the run")]
    choices = [*stop, ("leave", "Keep training")]
    dialog = ChoiceDialog("Quit while a run trains", lines, choices, yes="leave", keep="Stay")
    answer = await app.push_screen_wait(dialog)
    if answer != "stop":
        return answer == "leave"
    try:
        if not await writes.confirm_name(_followed(session), "end its run"):
            return False
        await session.client.cancel_job(job.id or "")
    except HudError as error:
        tell(app, error)
        return False
    return True


async def offer_resume(
    app: App[None], session: RunSession, writes: WritePolicy, job: JobStatus
) -> None:
    """Ask whether a run goes on that the end of the service cut short."""
    lines = [
        f"{_job_said(job)} stopped with the service,"
        f" at step {job.step or 0} of {job.steps or '?'}.",
        "Every step taken so far is whole. It can go on from there.",
    ]
    if await app.push_screen_wait(ConfirmDialog("Resume the run", lines, "Resume")):
        try:
            if await writes.confirm_name(_followed(session), "let its run go on"):
                await session.client.resume_job(job.id or "")
        except HudError as error:
            tell(app, error)


def _followed(session: RunSession) -> str | None:
    model = session.run.model
    return None if model is None else model.id


def _job_said(job: JobStatus) -> str:
    return f"Job {one_line(job.name or job.id or '', 60)}"
