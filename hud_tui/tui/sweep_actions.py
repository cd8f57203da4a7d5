"""Sweeps, driven by the app while it is open: begun, cancelled and resumed; runs that have started
continue without it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from textual.app import App

from hud_tui.client.submit import SweepDriver, cancel_sweep, refreshed, sweep_to_resume
from hud_tui.keys import keyed
from hud_tui.rl.sweep import Member, Sweep
from hud_tui.rl.tasks.task import Task
from hud_tui.tui.screens.dialogs import ConfirmDialog, show_notice
from hud_tui.tui.session import RunSession

AskSweep = Callable[[App[None], RunSession, Sweep], Coroutine[Any, Any, str | None]]


def start_sweep(
    app: App[None], session: RunSession, sweep: Sweep, tasks: Sequence[Task], again: bool = False
) -> None:
    """Run a sweep to its end, whichever view is shown meanwhile; `again`: it is resumed."""
    session.sweeps[sweep.id] = sweep
    app.run_worker(_drive(app, session, sweep, tasks, again), group="sweeps")


async def _drive(
    app: App[None], session: RunSession, sweep: Sweep, tasks: Sequence[Task], again: bool
) -> None:
    def observe(now: Sweep, member: Member) -> None:
        session.sweeps[now.id] = now

    try:
        ended = await SweepDriver(session.works, sweep, tasks, observe, again).run(follow=True)
        show_notice(app, f"{ended.name} {ended.status}")
    finally:
        session.sweeps.pop(sweep.id, None)


async def ask_cancel_sweep(app: App[None], session: RunSession, sweep: Sweep) -> str | None:
    """Cancel the active runs of a sweep and start no further one, after confirmation; return its
    status, or None if the user declined. Call it from a worker. Raises HudError if a run could not
    be cancelled."""
    lines = [
        f"{sweep.progress_text}.",
        "Its runs end between two rollouts, and queued ones do not start.",
        "Every checkpoint so far is kept.",
    ]
    dialog = ConfirmDialog("Cancel the sweep", lines, "Cancel sweep", True, "Keep training")
    if not await app.push_screen_wait(dialog):
        return None
    now = await refreshed(session.works, sweep)
    return (await cancel_sweep(session.works, now)).progress_text


async def ask_resume_sweep(app: App[None], session: RunSession, sweep: Sweep) -> str | None:
    """Resume a sweep after confirmation; return its status, or None if the user declined. Call it
    from a worker. Raises HudError if its tasks have changed or the service does not answer."""
    lines = [
        f"{sweep.progress_text}.",
        "Cancelled and interrupted runs resume where they were, and queued ones start.",
    ]
    if not await app.push_screen_wait(ConfirmDialog("Resume the sweep", lines, "Resume sweep")):
        return None
    going, tasks = await sweep_to_resume(session.works, sweep)
    start_sweep(app, session, going, tasks, again=True)
    return going.progress_text


async def may_leave_sweeps(app: App[None], session: RunSession) -> bool:
    """Whether to quit although sweeps that this program drives have not ended."""
    sweeps = session.sweeps.values()
    if not sweeps:
        return True
    lines = [f"{sweep.progress_text}." for sweep in sweeps]
    if any(member.running for sweep in sweeps for member in sweep.members):
        lines.append(f"Runs that have started continue {session.where}.")
    if any(sweep.waiting for sweep in sweeps):
        lines.append("Queued ones start only while hud-tui is open; after a restart,")
        lines.append(keyed("{runs.resume_run} in Runs resumes the sweep."))
    dialog = ConfirmDialog("Quit during a sweep", lines, "Quit", keep="Stay")
    return await app.push_screen_wait(dialog)
