"""``jobs`` and ``traces``."""

import argparse

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound, HudUsage
from hud_tui.headless.consent import confirm, require_consent
from hud_tui.headless.output import emit
from hud_tui.rl.text import one_line
from hud_tui.wire import Job


async def jobs(client: HudClient, args: argparse.Namespace) -> int:
    """The newest jobs; one of them; or one of them cancelled or resumed."""
    if args.job is None:
        if args.cancel or args.resume:
            raise HudUsage("say which job", "see hud-tui --headless jobs")
        emit("jobs", {"jobs": await client.jobs()})
        return 0
    if args.cancel or args.resume:
        require_consent(args)
        return await (_cancel if args.cancel else _resume)(client, args)
    job, status = await _find(client, args.job), await client.known_job(args.job)
    if job is None and status is None:
        raise HudNotFound(404, f"no job {one_line(args.job)}", "hud-tui --headless jobs lists them")
    emit("job", {"job_id": args.job, "job": job, "status": status})
    return 0


async def traces(client: HudClient, args: argparse.Namespace) -> int:
    """A job's rollouts, all pages."""
    emit("traces", {"job_id": args.job, "traces": await client.job_traces(args.job)})
    return 0


async def _cancel(client: HudClient, args: argparse.Namespace) -> int:
    await confirm(args, f"cancel job {args.job}?")
    result = await client.cancel_job(args.job)
    status = await client.known_job(args.job)
    emit("job", {"job_id": args.job, "cancelled": result.cancelled, "status": status})
    return 0


async def _resume(client: HudClient, args: argparse.Namespace) -> int:
    await confirm(args, f"resume job {args.job}?")
    emit("job", {"job_id": args.job, "status": await client.resume_job(args.job)})
    return 0


async def _find(client: HudClient, job_id: str) -> Job | None:
    try:
        return await client.job(job_id)
    except HudNotFound:
        return None
