"""Waits: what an engine's server holds runs up with, told to who follows them."""

import asyncio

from hud_tui.service.engines.base import Engine
from hud_tui.service.store import Store, runs

LOOK_S = 1.0
"""Between two looks at what the engine says; nothing is asked of the server for it."""


def held_up(engine: Engine) -> str | None:
    """What requests wait for, in plain words; None while they move."""
    queue = engine.about().queue
    return None if queue == "active" else queue


async def tell(engine: Engine, store: Store, job_id: str) -> None:
    """Log each change as long as the run goes on; cancelled with it."""
    said: str | None = None
    while True:
        await asyncio.sleep(LOOK_S)
        now = held_up(engine)
        if now != said:
            said = now
            await store.write(runs.waits, job_id, now)
