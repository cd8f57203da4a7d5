"""Stopping a job and taking one up again: asked first, sent once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hud_tui.keys import key
from hud_tui.rl.jobs import is_active, job_model_id, job_progress, job_title
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.dialogs import ConfirmDialog

if TYPE_CHECKING:
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.wire import Job

RESUMABLE = frozenset({"interrupted", "cancelled", "failed"})
"""Statuses of a managed run that can go on from its last step."""


def why_no_cancel(job: Job) -> str:
    """Why a job cannot be stopped; empty where it can."""
    if is_active(job):
        return ""
    return f"{job_title(job)} has ended ({one_line(job.status or '–', 20)}): nothing to stop."


def why_no_resume(job: Job) -> str:
    """Why a job cannot be taken up again; empty where it can."""
    title = job_title(job)
    if (job.metadata or {}).get("kind") != "training":
        return f"{title} is no managed run: only its own client can let it go on."
    if job.status in RESUMABLE:
        return ""
    if is_active(job):
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
    if not await view.hud.confirm_name(job_model_id(job), "stop its job"):
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
    if not await view.hud.confirm_name(job_model_id(job), "let its job go on"):
        return None
    status = await view.client.resume_job(job.id)
    return f"the service says: {one_line(status.status, 40)}"
