"""``jobs`` and ``traces``: list, show, cancel and resume jobs; read their rollouts."""

import argparse
from collections.abc import AsyncIterator

from hud_tui.cli.output import confirm, emit, require_consent, tell
from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.wire import Job, Trace


async def jobs(client: HudClient, args: argparse.Namespace) -> int:
    """List the newest jobs; show, cancel or resume one."""
    if args.job is None:
        if args.cancel or args.resume:
            raise HudUsage("no job given", "hud-tui --headless jobs lists them")
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
        tell(f"cancelled, but its status could not be read: {error.message}")
    emit("job", {"job_id": job_id, "cancelled": result.cancelled, "status": status})
    return 0


async def _resume(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"resume job {job_id}?")
    emit("job", {"job_id": job_id, "status": await client.resume_job(job_id)})
    return 0


async def _listed(client: HudClient, job_id: str) -> Job | None:
    """A job's row; None if the service does not list it."""
    try:
        return await client.job(job_id)
    except HudNotFound:
        return None


# ``traces``: a job's rollouts: the newest, those of one step, or all in pages.


PAGE = 1000
"""Rollouts per request, and per document of ``--all``."""
MOST = 1000
"""Default number of rollouts."""


async def traces(client: HudClient, args: argparse.Namespace) -> int:
    """A job's rollouts in chronological order; with ``--all`` one document per page."""
    if args.limit is not None and args.limit < 1:
        raise HudUsage(f"--limit {args.limit}: expected 1 or more")
    job_id = await find_job(client, args.job)
    if args.all:
        return await _all(client, job_id, args.step)
    limit = args.limit or MOST
    if args.step is None:
        total = (await client.trace_page(job_id, 1, 0)).total
        shown = [t async for page in _pages(client, job_id, max(0, total - limit)) for t in page]
    else:
        rows = await client.job_traces(job_id, args.step)
        total, shown = len(rows), rows[-limit:]
    left_off = max(0, total - limit)
    _print(job_id, args.step, total, left_off, shown, left_off)
    if left_off:
        more = "--limit N, --step N, or --all for one document per page"
        tell(f"{left_off:,} older rollouts omitted; for more: {more}")
    return 0


async def _all(client: HudClient, job_id: str, step: int | None) -> int:
    """Print every rollout, one page in memory at a time."""
    if step is not None:
        rows = await client.job_traces(job_id, step)
        for offset in range(0, max(1, len(rows)), PAGE):
            _print(job_id, step, len(rows), offset, rows[offset : offset + PAGE])
        return 0
    total, offset = (await client.trace_page(job_id, 1, 0)).total, 0
    async for page in _pages(client, job_id, 0):
        _print(job_id, step, max(total, offset + len(page)), offset, page)
        offset += len(page)
    if not offset:
        _print(job_id, step, 0, 0, [])
    return 0


async def _pages(client: HudClient, job_id: str, offset: int) -> AsyncIterator[list[Trace]]:
    """The rollouts from an offset on."""
    while True:
        page = await client.trace_page(job_id, PAGE, offset)
        if page.items:
            yield page.items
        offset += len(page.items)
        if not page.items or offset >= page.total:
            return


def _print(
    job_id: str, step: int | None, total: int, offset: int, page: list[Trace], left_off: int = 0
) -> None:
    place = {"total": total, "offset": offset, "left_off": left_off}
    emit("traces", {"job_id": job_id, "step": step, **place, "traces": page})
