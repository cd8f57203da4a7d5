"""Steering: set the head as carefully as it can be done, and say what became of it.

The tree is read before asking, again before sending, and after. If somebody moved the head
meanwhile, it asks again; steps that training takes are no reason to. The request is sent
once: after an unclear outcome the tree says what happened, not a second request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from hud_tui.errors import HudConflict, HudError, HudUnclear, HudUsage
from hud_tui.events import TreeRead
from hud_tui.keys import key, keyed
from hud_tui.rl.head import Outcome, name, named, only_trained, outcome, refusal
from hud_tui.rl.run import Run
from hud_tui.rl.text import clean
from hud_tui.tui.journal import Act
from hud_tui.tui.moves import moved_note
from hud_tui.tui.screens.head_dialog import HeadDialog

if TYPE_CHECKING:
    from hud_tui.tui.journal import Journal
    from hud_tui.tui.moves import Wanted
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.wire import Checkpoint


@dataclass(frozen=True)
class Answer:
    """What the service answered to the request."""

    answered: bool = True
    refusal: HudError | None = None


async def steer(
    view: HudScreen, wanted: Wanted, say: Callable[[Content], object]
) -> Outcome | None:
    """Preview, ask, set the head once, read the tree.

    Args:
        view: Shows the run, and asks.
        wanted: The checkpoint to serve.
        say: Is told what goes on once the user has agreed.

    Returns:
        What became of it; None where the user left everything as it is.

    Raises:
        HudError: The tree cannot be read, or the service refused.
    """
    seen = view.run
    while True:
        dialog = HeadDialog(view, wanted, partial(_preview, view, wanted, seen))
        if not await view.app.push_screen_wait(dialog):
            if isinstance(dialog.instead, HudError):
                raise dialog.instead
            return dialog.instead
        model = view.run.model
        if model is None or not await view.hud.confirm_name(model.id, "set its head"):
            return None
        seen = dialog.shown
        say(Content(f"setting the head to {named(seen, wanted.target)} …"))
        run = await read_tree(view)
        if not only_trained(seen, run):
            say(Content())
            continue
        try:
            return await _send(view, run, wanted)
        except HudConflict:
            if only_trained(seen, await read_tree(view)):
                raise
            say(Content())


async def read_tree(view: HudScreen) -> Run:
    """Read the tree now, and show it in every view.

    Raises:
        HudError: It cannot be read, or another model was chosen meanwhile.
    """
    model = view.run.model
    if model is None:
        raise HudUsage("No model is followed.", keyed("press {app.view.models} to choose one"))
    known = len(view.hud.catch_up().tree)
    checkpoints = await view.client.checkpoints(model.id)
    now = view.hud.catch_up()
    if now.model is None or now.model.id != model.id:
        raise HudUsage("Another model was chosen meanwhile.", "look at its tree, then decide")
    if known <= len(checkpoints) < len(now.tree) and _is_part(checkpoints, now):
        return now  # steps were told of while the answer was on its way: it must not undo them
    return view.hud.fold(TreeRead(checkpoints=tuple(checkpoints)))


def _is_part(checkpoints: Sequence[Checkpoint], run: Run) -> bool:
    """Whether the run's tree begins with these."""
    last = len(checkpoints) - 1
    return last < 0 or run.tree.find(checkpoints[last].id) == last


async def _preview(view: HudScreen, wanted: Wanted, seen: Run) -> str | Outcome:
    """Read the tree: what the user should know first, or why there is nothing to ask."""
    run = await read_tree(view)
    position = run.tree.find(wanted.target)
    if position is None:
        return Outcome(False, "that checkpoint is no longer in the tree")
    if position == run.tree.head:
        return Outcome(False, f"{name(run.head)} is the head already")
    if why := refusal(run.tree[position]):
        return Outcome(False, why)
    if only_trained(seen, run):
        return wanted.note
    moved = moved_note(seen, run, view.hud.journal, view.hud.clock())
    return f"{wanted.note} {moved}".strip()


async def _send(view: HudScreen, before: Run, wanted: Wanted) -> Outcome:
    """The one request, and what the tree says of it."""
    journal, model, target = view.hud.journal, view.run.model, wanted.target
    assert model is not None
    journal.expect(target, new=wanted.act is Act.SET)
    answer = Answer()
    seen = {"seen": _head(before)} if view.client.settings.local else {}
    try:
        await view.client.set_head(model.id, target, was=_head(before), **seen)
    except HudUnclear:
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
        return _refused(run, target, answer.refusal)
    became = outcome(before, run, target, answer.answered)
    if not became.done:
        return became
    _write(journal, _head(before), target, wanted.act, view.hud.clock())
    return Outcome(True, f"{became.text} · {key('checkpoints.undo')} undoes")


def _refused(run: Run, target: str, error: HudError) -> Outcome:
    """A checkpoint that expired meanwhile is no failure of the service's."""
    position = run.tree.find(target)
    why = "" if position is None or error.status != 410 else refusal(run.tree[position])
    if not why:
        raise error
    return Outcome(False, f"{why} The head is still {name(run.head)}.")


def _write(journal: Journal, before: str | None, target: str, act: Act, now: float) -> None:
    if act is Act.UNDO:
        journal.undid(now)
    elif act is Act.REDO:
        journal.redid(now)
    else:
        journal.moved(before, target, now)


def _unknown(answer: Answer, error: HudError) -> str:
    said = "the head was set" if answer.answered else "no answer"
    again = f"{key('checkpoints.refresh')} reads it again"
    return f"{said}, and the tree cannot be read ({clean(error.message, 80)}): {again}"


def _head(run: Run) -> str | None:
    return None if run.head is None else run.head.id
