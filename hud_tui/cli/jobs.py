"""``jobs``: list, cancel and resume them."""

import argparse
from contextlib import suppress

from hud_tui.cli.connect import paths_of
from hud_tui.cli.output import changes, confirm, emit, print_notice, require_consent, show
from hud_tui.client.client import HudClient, find_job
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.rl.work import Work, is_lost
from hud_tui.rollouts import control
from hud_tui.wire import WorkState


async def jobs(client: HudClient, args: argparse.Namespace) -> int:
    """List the newest jobs; show, cancel or resume one."""
    if args.job is None:
        if changes(args):
            listed = client.settings.command("--headless", "jobs")
            raise HudUsage("no job given", f"{listed} lists them")
        emit("jobs", {"jobs": await _works(client, args).jobs()})
        return 0
    if changes(args):
        require_consent(args, client)
    job_id = await find_job(client, args.job)
    if changes(args):
        return await (_cancel if args.cancel else _resume)(client, args, job_id)
    job = None
    with suppress(HudNotFound):  # the service does not list it
        job = await client.job(job_id)
    folder = control.driven_here(paths_of(args).state, job_id)
    status = await _works(client, args).state(job_id)
    more = {} if folder is None else control.report_of(folder)
    emit("job", {"job_id": job_id, "job": job, "status": status, **more})
    return 0


def _works(client: HudClient, args: argparse.Namespace) -> WorkClient:
    return control.works_of(client, paths_of(args).state)


async def _cancel(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"cancel job {job_id}?")
    works = _works(client, args)
    result = await works.cancel(job_id)
    try:
        status = await works.state(job_id)
    except HudError as error:
        status = None
        print_notice(f"cancelled, but its status could not be read: {error.message}")
    message = f"cancelled job {job_id}"
    if not result.cancelled:
        message = f"nothing to cancel: job {job_id} {_standing(client, status)}"
        if args.headless:
            print_notice(message)
    show(args, "job", {"job_id": job_id, "cancelled": result.cancelled, "status": status}, message)
    return 0


def _standing(client: HudClient, status: WorkState | None) -> str:
    """Why nothing was cancelled."""
    if status is None:
        return "was not running"
    work = Work.of(status)
    if not (work.is_active and work.run_id):
        return f"had already ended ({status.status})"
    cancel = client.settings.command("jobs", work.run_id, "--cancel")
    return f"is part of run {work.run_id}: cancel that: {cancel}"


async def _resume(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"resume job {job_id}?")
    works = _works(client, args)
    if works.evaluations.is_made_here(job_id):
        again = client.settings.command("eval", "--resume", job_id)
        raise HudUsage("this evaluation goes on only while it is followed", again)
    status = await works.resume(job_id)
    work = Work.of(status)
    step = f", at step {work.step} of {work.total}" if work.step is not None and work.total else ""
    message = f"resumed job {job_id}: {status.status}{step}"
    has_failed = is_lost(status.status)
    if has_failed:
        message = f"could not resume job {job_id}: {status.status}{step}: {work.why}"
    show(args, "job", {"job_id": job_id, "status": status}, one_line(message, 800))
    return 1 if has_failed else 0
