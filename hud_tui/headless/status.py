"""``status``: the service, a model, its head, its job and its last metrics."""

import argparse
import asyncio
from datetime import UTC, datetime

from hud_tui.client.client import HudClient
from hud_tui.client.job_names import find_job
from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.headless.output import emit
from hud_tui.rl.names import find_model
from hud_tui.rl.status import Service, Status, current_model, last_metrics
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, JobStatus, Model


async def status(client: HudClient, args: argparse.Namespace) -> int:
    """The status of a model, of a job's model, or of the newest run's."""
    model = await (_newest(client) if args.ref is None else _named(client, args.ref))
    tree: list[Checkpoint] = []
    job: JobStatus | None = None
    if model is not None:
        tree, job = await asyncio.gather(client.checkpoints(model.id), client.known_job(model.id))
    settings = client.settings
    now = Status(
        service=Service(settings.label, settings.api_url),
        model=model,
        head=next((c for c in tree if c.is_active), None),
        checkpoints=len(tree),
        job=job,
        metrics=last_metrics(tree),
        as_of=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    emit("status", now)
    return 0


async def _newest(client: HudClient) -> Model | None:
    return current_model(*await asyncio.gather(client.models(), client.jobs(limit=20)))


async def _named(client: HudClient, ref: str) -> Model:
    """The model of this name, or the one that the job of this id trains.

    Raises:
        HudAmbiguous: Several.
        HudUsage: Neither.
    """
    models = await client.models()
    try:
        return find_model(ref, models)
    except HudAmbiguous:
        raise
    except HudUsage as unknown:
        job = await client.known_job(await _find_job(client, ref, unknown))
        name = job and (job.model_id or job.fine_tuned_model or job.model)
        if not name:
            raise HudUsage(f"job {one_line(ref)} trains no model") from unknown
        return find_model(name, models)


async def _find_job(client: HudClient, ref: str, unknown: HudUsage) -> str:
    try:
        return await find_job(client, ref)
    except HudAmbiguous:
        raise
    except HudUsage as error:
        raise HudUsage(f"{unknown.message}, nor a job", unknown.hint) from error
