"""Stopping a run and taking it up again: asked in a dialog, sent once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hud_tui.keys import keyed
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.wire import JobStatus

if TYPE_CHECKING:
    from hud_tui.tui.screens.base import HudScreen

RESUMABLE = frozenset({"interrupted", "failed", "cancelled"})
"""How a run ended that can be taken up again."""


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
    return await screen.hud.confirm_name(None if model is None else model.id, what)


def job_name(job: JobStatus) -> str:
    """What a job is called in a dialog."""
    return one_line(job.name or f"job {(job.id or '')[:8]}", 60)
