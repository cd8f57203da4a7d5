"""``jobs``: list them, look at one, end it or let it go on."""

import argparse

from hud_tui.client.client import HudClient
from hud_tui.client.job_names import find_job
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.headless.consent import confirm, require_consent
from hud_tui.headless.output import emit, tell
from hud_tui.wire import Job


async def jobs(client: HudClient, args: argparse.Namespace) -> int:
    """The newest jobs; one of them; or one of them cancelled or resumed."""
    if args.job is None:
        if args.cancel or args.resume:
            raise HudUsage("say which job", "see hud-tui --headless jobs")
        emit("jobs", {"jobs": await client.jobs()})
        return 0
    if args.cancel or args.resume:
        require_consent(args, client)
    job_id = await find_job(client, args.job)
    if args.cancel or args.resume:
        return await (_cancel if args.cancel else _resume)(client, args, job_id)
    job, status = await _listed(client, job_id), await client.known_job(job_id)
    emit("job", {"job_id": job_id, "job": job, "status": status})
    return 0


async def _cancel(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"cancel job {job_id}?")
    result = await client.cancel_job(job_id)
    try:
        status = await client.known_job(job_id)
    except HudError as error:
        status = None
        tell(f"it was cancelled, but its status cannot be read now: {error.message}")
    emit("job", {"job_id": job_id, "cancelled": result.cancelled, "status": status})
    return 0


async def _resume(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"resume job {job_id}?")
    emit("job", {"job_id": job_id, "status": await client.resume_job(job_id)})
    return 0


async def _listed(client: HudClient, job_id: str) -> Job | None:
    """Its row; None for a managed run that the service does not list."""
    try:
        return await client.job(job_id)
    except HudNotFound:
        return None
