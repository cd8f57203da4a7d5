"""Everything that the service says of a model and its run, with nothing left out."""

import asyncio
from typing import TYPE_CHECKING, Any

from hud_tui.wire import JobStatus

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


async def raw_status(client: "HudClient", model: str, job: str | None = None) -> dict[str, Any]:
    """The job's raw status, the model's row of the catalog, and its whole tree.

    Args:
        client: The service.
        model: Any name of the model.
        job: A job's id; None for the model's current or last.

    Raises:
        HudError: The service cannot be asked, or knows none of this name.
    """
    row = await client.model(model)
    status, tree = await asyncio.gather(client.known_job(job or row.id), client.checkpoints(row.id))
    return {
        "job": None if status is None else job_document(status),
        "model": row.model_dump(mode="json"),
        "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in tree],
    }


def job_document(job: JobStatus) -> dict[str, Any]:
    """A job's raw status, its error always as code, message and param."""
    error = {"code": None, "message": job.error, "param": None}
    dumped = job.model_dump(mode="json")
    return dumped | {"error": error} if isinstance(job.error, str) else dumped
