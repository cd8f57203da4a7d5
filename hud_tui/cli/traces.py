"""``traces``: a job's rollouts: the newest, those of one step, all pages, or those that a filter
keeps."""

import argparse
from contextlib import aclosing
from typing import Any

from hud_tui.cli.output import emit, print_notice
from hud_tui.client.client import HudClient, find_job
from hud_tui.client.rollout_search import Match, read_searched, search
from hud_tui.errors import HudUsage, refuse_beyond
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.rollout_search import split_filter
from hud_tui.rl.text import counted, spaced
from hud_tui.wire import Model
from hud_tui.wire_rollouts import Trace

PAGE = 1000
"""Rollouts per request and per document of ``--all``; without that the default number."""


async def traces(client: HudClient, args: argparse.Namespace) -> int:
    """A job's rollouts in chronological order; with ``--all`` one document per page, with
    ``--filter`` those that it keeps."""
    refuse_beyond("--limit", args.limit, {"ge": 1})
    if args.filter is not None:
        split_filter(args.filter)  # what is invalid raises before the service is asked
    try:
        job_id = await find_job(client, args.job)
    except HudUsage as error:
        model = next((m for m in await client.models() if args.job in (m.id, m.model_name)), None)
        if model is None:
            raise error
        return await _of_loop(client, args, model)
    if args.filter is not None:
        return await _search(client, args, job_id)
    if args.all:
        return await _all(client, job_id, args.step)
    limit = args.limit or PAGE
    if args.step is None:
        total = (await client.rollouts.trace_page(job_id, 1, 0)).total
        shown = [
            t
            async for page in client.rollouts.trace_pages(job_id, max(0, total - limit), PAGE)
            for t in page
        ]
    else:
        rows = await client.rollouts.job_traces(job_id, args.step)
        total, shown = len(rows), rows[-limit:]
    omitted = max(0, total - limit)
    _print_traces(job_id, args.step, total, omitted, shown, omitted)
    if omitted:
        more = "--limit N, --step N, or --all for one document per page"
        print_notice(f"{spaced(omitted)} older rollouts omitted; for more: {more}")
    return 0


async def _of_loop(client: HudClient, args: argparse.Namespace, model: Model) -> int:
    """The rollouts that the steps of a model were trained on, oldest first, where a loop outside
    of this service trains it and reports no job."""
    if args.filter is not None:
        raise HudUsage("--filter needs a job", f"{model.model_name} is trained by a loop outside")
    tree = Tree.of(await client.checkpoints(model.id))
    steps = [tree[position] for position in tree.path(tree.head)]
    if args.step is not None:
        steps = [node for node in steps if node.step == args.step]
    rows: list[dict[str, Any]] = []
    while steps and (args.all or len(rows) < (args.limit or PAGE)):
        node = steps.pop()
        read = await client.rollouts.checkpoint_traces(model.id, node.id)
        where = {"checkpoint": node.name, "step": node.step}
        rows[:0] = [row.model_dump(mode="json", exclude_none=True) | where for row in read]
    shown = rows if args.all else rows[-(args.limit or PAGE) :]
    facts = {"job_id": None, "model": model.model_name, "step": args.step}
    emit("traces", {**facts, "total": None if steps else len(rows), "traces": shown})
    return 0


async def _search(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    """Print the rollouts that a filter keeps, with where its first word stands in each."""
    searched = await read_searched(client, job_id, args.step)
    limit, matches, failed = args.limit or PAGE, list[Match](), 0
    async with aclosing(search(client, searched.rollouts, args.filter)) as matching:
        async for progress in matching:
            matches += progress.matches
            failed = progress.failed
    shown = matches if args.all else matches[-limit:]
    facts = {"total": searched.total, "searched": len(searched.rollouts) - failed}
    rows = [_match_document(match) for match in shown]
    more = {"matched": len(matches), "omitted": len(matches) - len(shown), "traces": rows}
    emit("traces", {"job_id": job_id, "step": args.step, "filter": args.filter, **facts, **more})
    if failed:
        print_notice(f"{counted(failed, 'rollout')} could not be read")
    if searched.total > len(searched.rollouts):
        newest = spaced(len(searched.rollouts))
        print_notice(f"only the newest {newest} of {spaced(searched.total)} searched")
    return 0


def _match_document(match: Match) -> dict[str, Any]:
    """A rollout, its advantage, and where the first word of the filter stands in it."""
    spot = match.place
    return {
        **match.rollout.trace.model_dump(mode="json", exclude_none=True),
        "advantage": match.rollout.advantage,
        "where": None if spot is None else spot.where,
        "excerpt": None if spot is None else spot.excerpt,
    }


async def _all(client: HudClient, job_id: str, step: int | None) -> int:
    """Print every rollout, one page in memory at a time."""
    if step is not None:
        rows = await client.rollouts.job_traces(job_id, step)
        for offset in range(0, max(1, len(rows)), PAGE):
            _print_traces(job_id, step, len(rows), offset, rows[offset : offset + PAGE])
        return 0
    total, offset = (await client.rollouts.trace_page(job_id, 1, 0)).total, 0
    async for page in client.rollouts.trace_pages(job_id, 0, PAGE):
        _print_traces(job_id, step, max(total, offset + len(page)), offset, page)
        offset += len(page)
    if not offset:
        _print_traces(job_id, step, 0, 0, [])
    return 0


def _print_traces(
    job_id: str, step: int | None, total: int, offset: int, page: list[Trace], omitted: int = 0
) -> None:
    page_facts = {"total": total, "offset": offset, "omitted": omitted}
    emit("traces", {"job_id": job_id, "step": step, **page_facts, "traces": page})
