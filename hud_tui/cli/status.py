"""``status``: the service, a model, its head, its job, its last metrics and its alarms."""

import argparse
import asyncio
from datetime import UTC, datetime
from typing import Any

from hud_tui.cli.alarms import alarm_report, report_documents, silent_s, thresholds
from hud_tui.cli.models import checkpoint_document
from hud_tui.cli.output import emit
from hud_tui.cli.which_model import named, newest
from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree, step_metrics
from hud_tui.rl.names import find_model
from hud_tui.wire import Checkpoint, Model, WorkState


async def status(client: HudClient, args: argparse.Namespace) -> int:
    """The status of a model, of a job's model, or of the newest run's; and its alarms."""
    asked = newest(client) if args.ref is None else named(client, args.ref)
    limits, model = await asyncio.gather(asyncio.to_thread(thresholds), asked)
    tree: list[Checkpoint] = []
    job: WorkState | None = None
    if model is not None:
        job_id = await _job_id(client, model, args.ref)
        tree, job = await asyncio.gather(client.checkpoints(model.id), client.known_job(job_id))
    settings, grown = client.settings, Tree.of(tree)
    document: dict[str, Any] = {
        "service": {"label": settings.label, "url": settings.api_url},
        "model": model,
        "head": checkpoint_document(grown, grown.head),
        "checkpoints": len(tree),
        "job": job,
        "metrics": step_metrics(tree[-1]) if tree else {},
        "as_of": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    if args.verbose:
        document["tree"] = [checkpoint_document(grown, position) for position in range(len(grown))]
    alarms = report_documents(alarm_report(grown, job, silent_s(tree, job), limits))
    emit("status", document | alarms)
    return 0


async def _job_id(client: HudClient, model: Model, ref: str | None) -> str:
    """Reference of the job in requests: the given job id, else the model's id."""
    try:
        return model.id if ref is None else find_model(ref, [model]).id
    except HudUsage:
        return await find_job(client, ref or "")
