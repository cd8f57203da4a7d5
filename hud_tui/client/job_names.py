"""Which job a reference means: an id, how one begins, or a model, whose latest run it is."""

from typing import TYPE_CHECKING

from hud_tui.errors import HudRefused
from hud_tui.rl.names import find_job as find_among

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

LOOKED_THROUGH = 1000
"""Newest jobs among which the beginning of an id is looked for."""


async def find_job(client: "HudClient", ref: str) -> str:
    """The id of the job that is meant.

    Raises:
        HudUsage: None or several match; the hint lists ids.
    """
    try:
        return (await client.job(ref)).id
    except HudRefused as error:
        if error.status not in (400, 404, 405, 422):
            raise
    status = await client.known_job(ref)
    if status is not None:
        return status.id or ref
    return find_among(ref, await client.jobs(LOOKED_THROUGH)).id
