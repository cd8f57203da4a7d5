"""What is shown as JSON of a model and its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hud_tui.client.job_names import find_job
from hud_tui.client.raw_status import raw_status
from hud_tui.errors import HudUsage
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.wire import Model


async def read_document(
    client: HudClient, model: Model, ref: str | None
) -> tuple[str, dict[str, Any]]:
    """A title, and the document.

    Args:
        client: The service.
        model: The one that is followed.
        ref: What the command line named: this model, or a job of it; None for the model.

    Raises:
        HudError: The service cannot be asked.
    """
    job = await _job(client, model, ref)
    title = f"{one_line(model.model_name, 60)}{f' · job {one_line(job, 40)}' if job else ''}"
    return title, await raw_status(client, model.id, job)


async def _job(client: HudClient, model: Model, ref: str | None) -> str | None:
    if ref is None:
        return None
    try:
        find_model(ref, [model])
    except HudUsage:
        return await find_job(client, ref)
    return None
