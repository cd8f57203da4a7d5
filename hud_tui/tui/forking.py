"""Forking: a name is asked for, and the fork is sent once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hud_tui.errors import HudConflict, HudError
from hud_tui.rl.catalog import free_name, name_problem, slug_of
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.wire import Checkpoint, Model

if TYPE_CHECKING:
    from hud_tui.tui.app import HudApp


async def ask_fork(
    app: HudApp,
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
            forked.append(await app.connected.fork(source.id, text, start_id))
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
            foresee=_slug if app.mode == "local" else lambda text: "",
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
