"""Forking a model: what its fork is called."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App

from hud_tui.client.starting import StartingPoint, read_start
from hud_tui.errors import HudError
from hud_tui.rl.checkpoint_tree import free_name, name_problem, slug_of
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import OPENS
from hud_tui.tui.screens.dialogs import InputDialog, objection, show_error
from hud_tui.tui.session import RunSession
from hud_tui.wire import Model


async def ask_fork(
    app: App[None], session: RunSession, source: Model, start: StartingPoint | None = None
) -> Model | None:
    """Ask for a name that no model of the service has, and fork at `start`, or at the head of the
    source; the dialog shows the errors of the service. Returns None if the user cancelled."""
    forked: list[Model] = []

    async def read() -> tuple[Sequence[Model], StartingPoint] | None:
        try:
            models = await session.client.models()
            if start is not None:
                return models, start
            return models, await read_start(session.client, source)
        except HudError as error:
            show_error(app, error)
            return None

    # What is typed while it reads is for the field of the dialog.
    about = await app.run_worker(read(), group=OPENS).wait()
    if about is None:
        return None
    models, point = about

    async def accept(text: str) -> str:
        try:
            forked.append(await session.client.fork(source.id, text, point.ref))
        except HudError as error:
            return objection(error)
        return ""

    await app.push_screen_wait(
        InputDialog(
            f"Fork {source.model_name}",
            [
                f"A copy of {one_line(source.model_name, 60)} for you to train.",
                f"It starts at {one_line(point.name, 60)}; the source stays as it is.",
            ],
            "Fork",
            value=free_name(source.model_name, models),
            check=lambda text: name_problem(text, models),
            accept=accept,
            foresee=lambda text: (
                f"slug: {slug_of(text)}" if session.client.settings.embedded else ""
            ),
        )
    )
    return forked[0] if forked else None
