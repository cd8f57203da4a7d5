"""Steering: set the head as carefully as it can be done, and say what became of it.

The tree is read before asking, again before sending, and after. If somebody moved the head
meanwhile, it asks again; steps that training takes are no reason to. The request is sent
once: after an unclear outcome the tree says what happened, not a second request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hud_tui.errors import HudError, HudUnreachable
from hud_tui.events import TreeRead
from hud_tui.rl.head import Outcome, name, only_trained, outcome
from hud_tui.rl.run import Run
from hud_tui.rl.text import clean
from hud_tui.tui.screens.head_dialog import HeadDialog

if TYPE_CHECKING:
    from hud_tui.tui.journal import Journal
    from hud_tui.tui.screens.base import HudScreen


class Act(StrEnum):
    """What the user pressed; each leaves its own trace in the journal."""

    SET = "set"
    UNDO = "undo"
    REDO = "redo"


@dataclass(frozen=True)
class Answer:
    """What the service answered to the request."""

    answered: bool = True
    refusal: HudError | None = None


async def steer(view: HudScreen, target: str, act: Act = Act.SET, note: str = "") -> Outcome | None:
    """Preview, ask, set the head once, read the tree.

    Args:
        view: Shows the run, and asks.
        target: Id of the checkpoint to serve.
        note: What the user should know first.

    Returns:
        What became of it; None where the user left everything as it is.

    Raises:
        HudError: The tree cannot be read, or the service refused.
    """
    seen = view.run
    run = await read_tree(view)
    while True:
        moved = f"The head moved since you last saw it: {name(seen.head)} → {name(run.head)}."
        if run.tree.find(target) is None:
            return Outcome(False, "that checkpoint is no longer in the tree")
        if _head(run) == target:
            return Outcome(False, f"{name(run.head)} is the head already")
        dialog = HeadDialog(view, target, note, "" if only_trained(seen, run) else moved)
        if not await view.app.push_screen_wait(dialog):
            return None
        seen, run = dialog.shown, await read_tree(view)
        if only_trained(seen, run):
            break
    return await _send(view, run, target, act)


async def read_tree(view: HudScreen) -> Run:
    """Read the tree now, and show it in every view.

    Raises:
        HudError: It cannot be read.
    """
    model = view.run.model
    assert model is not None
    checkpoints = await view.client.checkpoints(model.id)
    return view.hud.fold(TreeRead(checkpoints=tuple(checkpoints)))


async def _send(view: HudScreen, before: Run, target: str, act: Act) -> Outcome:
    """The one request, and what the tree says of it."""
    journal, model = view.hud.journal, view.run.model
    assert model is not None
    journal.expect(target, new=act is Act.SET)
    answer = Answer()
    try:
        await view.client.set_head(model.id, target)
    except HudUnreachable:
        answer = Answer(answered=False)
    except HudError as error:
        answer = Answer(refusal=error)
    try:
        run = await read_tree(view)
    except HudError as error:
        if answer.refusal is not None:
            raise answer.refusal from error
        return Outcome(False, _unknown(answer, error))
    if answer.refusal is not None:
        raise answer.refusal
    became = outcome(before, run, target, answer.answered)
    if not became.done:
        return became
    _write(journal, _head(before), target, act)
    return Outcome(True, f"{became.text} · z undoes")


def _write(journal: Journal, before: str | None, target: str, act: Act) -> None:
    if act is Act.UNDO:
        journal.undid()
    elif act is Act.REDO:
        journal.redid()
    else:
        journal.moved(before, target)


def _unknown(answer: Answer, error: HudError) -> str:
    said = "the head was set" if answer.answered else "no answer"
    return f"{said}, and the tree cannot be read ({clean(error.message, 80)}): r reads it again"


def _head(run: Run) -> str | None:
    return None if run.head is None else run.head.id
