"""``status``: the service, a model, its head, its job and its last metrics."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any

from hud_tui.client.client import HudClient
from hud_tui.client.job_names import find_job
from hud_tui.client.raw_status import job_document
from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.headless.checkpoints import checkpoint_document
from hud_tui.headless.output import emit, plain
from hud_tui.rl.ages import seconds
from hud_tui.rl.names import find_model
from hud_tui.rl.status import Service, Status, current_model, last_metrics
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import Tree
from hud_tui.wire import Checkpoint, JobStatus, Model

if TYPE_CHECKING:
    from hud_tui.rl.alarms.thresholds import Thresholds


async def status(client: HudClient, args: argparse.Namespace) -> int:
    """The status of a model, of a job's model, or of the newest run's; and its alarms."""
    asked = newest(client) if args.ref is None else named(client, args.ref)
    limits, model = await asyncio.gather(asyncio.to_thread(_limits), asked)
    tree: list[Checkpoint] = []
    job: JobStatus | None = None
    if model is not None:
        job_id = await _job_id(client, model, args.ref)
        tree, job = await asyncio.gather(client.checkpoints(model.id), client.known_job(job_id))
    settings, grown = client.settings, Tree.of(tree)
    now = Status(
        service=Service(settings.label, settings.api_url),
        model=model,
        head=grown.served,
        checkpoints=len(tree),
        job=job,
        metrics=last_metrics(tree),
        as_of=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    head = checkpoint_document(grown, grown.head)
    said: dict[str, Any] = {"head": head, "job": job and job_document(job)}
    if args.verbose:
        said["tree"] = [checkpoint_document(grown, position) for position in range(len(grown))]
    emit("status", {**plain(now), **said, **_alarms(grown, silent_s(tree, job), job, limits)})
    return 0


async def _job_id(client: HudClient, model: Model, ref: str | None) -> str:
    """What the job is asked for by: its own id where that was given, else the model's."""
    try:
        return model.id if ref is None else find_model(ref, [model]).id
    except HudUsage:
        return await find_job(client, ref or "")


def _limits() -> Thresholds:
    """What the detectors go by; they are loaded while the service answers."""
    from hud_tui.headless.alarms import thresholds

    return thresholds()


def _alarms(
    tree: Tree, silent_s: float | None, job: JobStatus | None, limits: Thresholds
) -> dict[str, Any]:
    from hud_tui.headless.alarms import judge, report_documents

    return report_documents(judge(tree, job, silent_s, limits))


def silent_s(tree: list[Checkpoint], job: JobStatus | None) -> float | None:
    """Seconds since the newest step, or since the job began; None where neither is known."""
    stamps = [seconds(tree[-1].created_at) if tree else None, job and job.created_at]
    known = [stamp for stamp in stamps if stamp]
    return time() - max(known) if known else None


async def newest(client: HudClient) -> Model | None:
    """The model of the newest run, or one of one's own; None where there is none."""
    return current_model(*await asyncio.gather(client.models(), client.jobs(limit=20)))


async def named(client: HudClient, ref: str) -> Model:
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
