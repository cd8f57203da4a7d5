"""What the app asks about a run: what becomes of it on the way out, and whether it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hud_tui.errors import HudError
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.dialogs import ChoiceDialog, ConfirmDialog

if TYPE_CHECKING:
    from hud_tui.tui.app import HudApp
    from hud_tui.wire import JobStatus


async def may_leave(app: HudApp, job: JobStatus) -> bool:
    """Ask what becomes of the run that trains: it goes on, or it is stopped.

    Returns:
        Whether to leave now.
    """
    where = "in the background" if app.mode == "local" else "on HUD"
    lines = [
        f"{_name(job)} is at step {job.step or 0} of {job.steps or '?'}.",
        f"It can go on training {where}; hud-tui shows it again when you come back.",
    ]
    stop = [] if app.read_only else [("stop", "End the run")]
    choices = [*stop, ("leave", "Keep training")]
    dialog = ChoiceDialog("Quit while a run trains", lines, choices, yes="leave", keep="Stay")
    answer = await app.push_screen_wait(dialog)
    if answer != "stop":
        return answer == "leave"
    try:
        if not await app.confirm_name(_followed(app), "end its run"):
            return False
        await app.connected.cancel_job(job.id or "")
    except HudError as error:
        app.tell(error)
        return False
    return True


async def offer_resume(app: HudApp, job: JobStatus) -> None:
    """Ask whether a run goes on that the end of the service cut short."""
    lines = [
        f"{_name(job)} stopped with the service, at step {job.step or 0} of {job.steps or '?'}.",
        "Every step taken so far is whole. It can go on from there.",
    ]
    if await app.push_screen_wait(ConfirmDialog("Resume the run", lines, "Resume")):
        try:
            if await app.confirm_name(_followed(app), "let its run go on"):
                await app.connected.resume_job(job.id or "")
        except HudError as error:
            app.tell(error)


def _followed(app: HudApp) -> str | None:
    model = app.run_now.model
    return None if model is None else model.id


def _name(job: JobStatus) -> str:
    return f"Job {one_line(job.name or job.id or '', 60)}"
