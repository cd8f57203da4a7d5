"""``time``: where the time of a run's steps went, and what became of its rollouts."""

import argparse

from hud_tui.cli.output import emit
from hud_tui.cli.which_model import newest
from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudNotFound, HudUsage, refuse_beyond
from hud_tui.rl.text import one_line
from hud_tui.rl.time_report import time_document
from hud_tui.wire_time import RunTime

MOST = 500
"""Most steps of one document."""
LAST = 20
"""Steps that it has unless others are asked for."""


async def time(client: HudClient, args: argparse.Namespace) -> int:
    """The newest steps of a run, or one; with ``--discarded`` also the rollouts that no step was
    trained on. Raises HudUsage: there is no run, no such step, or the service does not say."""
    refuse_beyond("--last", args.last, {"ge": 1, "le": MOST})
    refuse_beyond("--step", args.step, {"ge": 1})
    refuse_beyond("--discarded", args.discarded, {"ge": 1, "le": 2000})
    run_id = await run_of(client, args.ref)
    told = await read_time(client, run_id, args.last or LAST, args.step)
    document = time_document(told)
    if args.discarded:
        page = await client.runs.discarded(told.run_id, args.discarded)
        document["discarded_rollouts"] = [item.model_dump() for item in page.items]
    emit("time", document)
    return 0


async def run_of(client: HudClient, ref: str | None) -> str:
    """Id of the run of a job, or the latest of a model; of the newest run if none is named. A loop
    without a job has its model's. Raises HudUsage: there is none."""
    if ref is not None:
        return await find_job(client, ref)
    model = await newest(client)
    if model is None:
        raise HudUsage("you have no model yet", "name a job: hud-tui --headless time JOB")
    job = await client.known_job(model.id)
    return model.id if job is None else job.id


async def read_time(
    client: HudClient, run_id: str, last: int = MOST, step: int | None = None
) -> RunTime:
    """Raises HudUsage: the service does not say, or there is no such step."""
    try:
        told = await client.runs.run_time(run_id, last, step)
    except HudNotFound as error:
        what = f"the time of {one_line(run_id)} is not known"
        raise HudUsage(what, "it needs the embedded service, and a step") from error
    if step is not None and not told.steps:
        hint = "--last N has the newest steps that were measured"
        raise HudUsage(f"the time of step {step} is not known", hint)
    return told
