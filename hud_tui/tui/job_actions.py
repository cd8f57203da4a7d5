"""Cancelling and resuming runs and evaluations, after confirmation, and what is asked about them
when the app quits or starts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from textual.app import App

from hud_tui.errors import HudError
from hud_tui.keys import key, keyed
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.work import TRAINING, Work, has_ended, is_lost
from hud_tui.tui.screens.base import HudScreen, WritePolicy
from hud_tui.tui.screens.dialogs import ChoiceDialog, ConfirmDialog
from hud_tui.tui.session import RunSession
from hud_tui.wire import Checkpoint, WorkState


def to_cancel(run: Run, here: Checkpoint | None) -> WorkState | None:
    """The newest evaluation in progress: of the checkpoint under the cursor, else of any."""
    return _newest(run, here, lambda work: not work.why_no_cancel)


def to_resume(run: Run, here: Checkpoint | None) -> WorkState | None:
    """The newest interrupted evaluation: of the checkpoint under the cursor, else of any."""
    return _newest(run, here, lambda work: not work.why_no_resume)


def _newest(run: Run, here: Checkpoint | None, fits: Callable[[Work], bool]) -> WorkState | None:
    newest = [job for job in list(run.evaluations.values())[::-1] if fits(Work.of(job))]
    of_here = (job for job in newest if job.checkpoint_id == (here.id if here else None))
    return next(of_here, newest[0] if newest else None)


# Cancelling and resuming a run, after confirmation. The request is sent once.


def why_no_resume(of: Work) -> str:
    """Why it cannot be resumed, and what to do instead; empty if it can."""
    why = of.why_no_resume
    instead = keyed(" Launch a new run with {app.view.launch}.")
    return f"{why}{instead}" if of.kind == TRAINING and has_ended(of.status) and why else why


Ask = Callable[[App[None], RunSession, WritePolicy, Work], Coroutine[Any, Any, str | None]]
"""`ask_cancel` or `ask_resume`: returns how it became, in a word; None if the user declined."""


async def act(view: HudScreen, ask: Ask, run: Work) -> None:
    """Cancel or resume a run or an evaluation after confirmation, and tell how it became; an error
    is displayed. Call it from a worker."""
    became = await view.attempt(ask(view.app, view.session, view.context.writes, run))
    if became is not None:
        what = "The evaluation" if run.is_evaluation else "The run"
        view.notice(f"{what} is {became}.")


async def ask_cancel(
    app: App[None], session: RunSession, writes: WritePolicy, run: Work
) -> str | None:
    """Cancel a run between two rollouts, or an evaluation. From a worker. Raises HudError."""
    lines = [f"{run.state}."]
    if run.is_evaluation:
        resume = key("checkpoints.resume_evaluation")
        lines += [f"Finished rollouts are kept: {resume} samples the rest."]
        dialog = ConfirmDialog(
            "Cancel the evaluation", lines, "Cancel evaluation", True, "Keep sampling"
        )
    else:
        lines += [
            "It ends between two rollouts. Every checkpoint so far is kept,",
            "and the head stays where it is.",
        ]
        if run.step is not None:
            lines.append(keyed("{live.resume_run} in Live, Runs or Jobs resumes it."))
        dialog = ConfirmDialog("Cancel the run", lines, "Cancel run", True, "Keep training")
    if not await app.push_screen_wait(dialog):
        return None
    return await cancel(session, writes, run)


async def cancel(session: RunSession, writes: WritePolicy, run: Work) -> str | None:
    """Cancel after the name of a protected model is typed. Raises HudError."""
    if run.is_evaluation:
        status = await session.evaluation_runner.cancel(run.id)
        is_over = has_ended(status) and status != "cancelled"
        return f"not cancelled: it had ended ({one_line(status, 40)})" if is_over else "cancelled"
    if not await writes.confirm_name(run.model_id, "cancel its run"):
        return None
    done = await session.works.cancel(run.id)
    if not done.cancelled:
        return "not cancelled: it was not running"
    return one_line(done.status or "cancelled", 40)


async def ask_resume(
    app: App[None], session: RunSession, writes: WritePolicy, run: Work
) -> str | None:
    """Resume a run from the model's head with its parameters. Every view and dialog resumes through
    this function. Call it from a worker. Raises HudError, also if the run ended at once."""
    if run.is_evaluation:  # it samples missing rollouts, and changes no checkpoint
        await session.evaluation_runner.resume(run.id)
        return "resumed"
    lines = [
        f"{run.state}.",
        "Every step so far is saved.",
        "It continues from the model's head, with the same parameters.",
    ]
    if not await app.push_screen_wait(ConfirmDialog("Resume the run", lines, "Resume")):
        return None
    if not await writes.confirm_name(run.model_id, "resume its run"):
        return None
    status = await session.works.resume(run.id)
    if is_lost(status.status):
        why = one_line(Work.of(status).why or f"the run is {status.status}", 600)
        raise HudError(f"could not resume: {why}")
    return "resumed"


# Questions about a run when the app quits or starts.


async def may_end_evaluations(app: App[None], session: RunSession) -> bool:
    """Whether to quit although that ends evaluations that this program makes."""
    running = list(map(Work.of, session.evaluation_runner.running))
    if not running:
        return True
    lines = [f"{evaluation.state}." for evaluation in running]
    resume = key("checkpoints.resume_evaluation")
    lines.append("It goes on only while hud-tui is open. Finished rollouts are kept:")
    lines.append(f"{resume} in Checkpoints samples the rest, as hud-tui eval --resume does.")
    dialog = ConfirmDialog("Quit during an evaluation", lines, "Quit", keep="Stay")
    return await app.push_screen_wait(dialog)


async def may_leave(
    app: App[None], session: RunSession, writes: WritePolicy, job: WorkState
) -> bool:
    """Ask whether the active run continues or is cancelled; return whether to quit now. Raises
    HudError if it could not be cancelled."""
    run = of_session(session, job)
    lines = [
        f"{run.state}.",
        f"It can continue training {session.where}; start hud-tui again to see it.",
    ]
    ways = [] if writes.read_only else [("cancel-run", "Cancel run")]
    choices = [*ways, ("leave", "Keep training")]
    dialog = ChoiceDialog("Quit while a run trains", lines, choices, yes="leave", keep="Stay")
    answer = await app.push_screen_wait(dialog)
    if answer != "cancel-run":
        return answer == "leave"
    return await cancel(session, writes, run) is not None


def of_session(session: RunSession, job: WorkState) -> Work:
    model = session.run.model
    return replace(Work.of(job), model_id=None if model is None else model.id)
