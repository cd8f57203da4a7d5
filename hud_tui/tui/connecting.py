"""Connecting: to the service at the start, and anew where it went away."""

from __future__ import annotations

from asyncio import create_task, to_thread
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.worker import WorkerError

from hud_tui.errors import HudError, HudUnreachable
from hud_tui.tui.screens import load_views

if TYPE_CHECKING:
    from hud_tui.tui.app import HudApp

READING = frozenset({"read", "check", "form", "start"})
"""Groups of workers that only read, and may be begun again on another client."""


async def connect(app: HudApp, mode: str, key: str | None) -> None:
    """Connect, then show the view that the command line asked for; a failure is shown."""
    app.mode, app.key = mode, key
    app.connect_screen.wait("connecting…")
    views = create_task(to_thread(load_views))  # while the service starts
    try:
        app.client = await app.connect(mode, key, app.connect_screen.wait)
        from hud_tui.tui.opening import opening

        first = await opening(app.client, app.start, app.open_layout())
    except HudError as error:
        await views
        if not (isinstance(error, HudUnreachable) and await _open_offline(app)):
            app.connect_screen.fail(error)
        return
    finally:
        await views
        app.settle()
    app.catalog = first.models
    if first.model is not None:
        app.choose(first.model)
    app.keep_last_known()
    await app.switch_mode(first.view)
    if first.trouble is not None:
        app.tell(first.trouble)
    elif app.start.verbose:
        app.action_raw(app.start.ref)


async def _open_offline(app: HudApp) -> bool:
    """Show what was known last; False where there is nothing to show."""
    known = await to_thread(app.read_kept)
    if known is None:
        return False
    from hud_tui.events import TreeRead
    from hud_tui.rl.run import Run
    from hud_tui.tui.opening import opening_offline

    try:
        first = opening_offline(known, app.start, app.layout)
    except HudError:
        return False
    assert first.model is not None
    run = Run(model=first.model)
    if first.model.id == known.model.id:
        run = replace(run.fold(TreeRead(checkpoints=known.tree)), job=known.job)
    app.catalog = first.models
    app.choose(first.model, run, known.at)
    app.catch_up()
    app.keep_last_known()
    await app.switch_mode(first.view)
    return True


async def connect_anew(app: HudApp, mode: str) -> None:
    """Take a new client in place of the old; on the embedded service, start it where it ended.

    What still reads from the old client is ended before that is closed, and read again.
    """
    try:
        client = await app.connect(mode, app.key, app.say)
    except HudError as error:
        app.tell(error)
        return
    old, app.client, app.reconnected = app.client, client, True
    if app.run_now.model is not None:
        app.choose(app.run_now.model)
    await _end_reading(app)
    if old is not None:
        await old.aclose()
    app.clear_notifications()
    app.say("connected again")
    if app.shown_view is not None:
        app.shown_view.on_screen_resume()


async def _end_reading(app: HudApp) -> None:
    readers = [worker for worker in app.workers if worker.group in READING]
    for worker in readers:
        worker.cancel()
    for worker in readers:
        with suppress(WorkerError):
            await worker.wait()
