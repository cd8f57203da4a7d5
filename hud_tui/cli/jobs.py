"""``jobs``, ``traces`` and ``runs``: list, cancel and resume jobs; their rollouts; all runs."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import fields
from itertools import accumulate, islice
from shutil import get_terminal_size
from time import time
from typing import Any

from hud_tui.cli.connect import command_of, connector_of, paths_of, run_connected
from hud_tui.cli.output import (
    aligned,
    changes,
    confirm,
    emit,
    plain,
    print_notice,
    require_consent,
    show,
)
from hud_tui.cli.streams import changed
from hud_tui.client.client import HudClient, find_job
from hud_tui.client.rollout_search import Match, read_searched, search
from hud_tui.client.runs import RunList
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudError, HudNotFound, HudUsage, refuse_beyond
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.rollout_search import split_filter
from hud_tui.rl.run_columns import Column, columns, parse_filter, sort_rows
from hud_tui.rl.runs import find_run, left_s, silent_s
from hud_tui.rl.settings import setting_label
from hud_tui.rl.sweep import differences, group_rows
from hud_tui.rl.text import counted, one_line, spaced
from hud_tui.rl.work import READ_ONLY, Work, is_lost
from hud_tui.rollouts import control
from hud_tui.wire import Model, WorkState
from hud_tui.wire_rollouts import Trace


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


# ``traces``: a job's rollouts: the newest, those of one step, or all pages.


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


# ``runs``: the table of all runs, several runs side by side, and renaming or annotating one.


WIDEST = 40
"""Most characters of a cell."""


def runs(args: argparse.Namespace) -> int:
    """Print the table as text, or with ``--headless`` as a document; returns the exit code.

    Raises:
        HudError: The service does not answer.
        HudUsage: Unknown column, run or field; or an invalid filter.
    """
    refuse_beyond("--limit", args.limit, {"ge": 1})
    changed = args.name is not None or args.note is not None
    if changed and len(args.run) != 1:
        which = command_of(args, "runs", "RUN", "--name", "TEXT")
        raise HudUsage("--name and --note are for one run", f"say which: {which}")
    columns(args.columns or "")  # what is invalid in these raises before the service is asked
    sort_rows([], args.sort or "", 0)
    parse_filter(args.filter or "", 0)
    return asyncio.run(run_connected(_work, args, connector_of(args)))


async def _work(client: HudClient, args: argparse.Namespace) -> int:
    works = _works(client, args)
    table = works.runs
    rows = list(await table.read())
    if args.run:
        rows = await _named(table, [find_run(name, rows) for name in args.run])
        if args.name is not None or args.note is not None:
            return await _change(args, works, rows[0])
    now = time()
    keep = parse_filter(args.filter or "", now)
    matches = sort_rows([row for row in rows if keep(row)], args.sort or "", now)
    shown = matches[: args.limit]
    if args.headless:
        emit("runs", _document(args, table, len(matches), shown, now))
    else:
        _print(args, table, len(matches) - len(shown), shown, now)
    return 0


async def _named(table: RunList, runs: Sequence[Work]) -> list[Work]:
    """These runs, each once, with their steps."""
    named = {run.id: run for run in runs}
    if all(run.whole for run in runs):
        return list(named.values())
    fresh = {run.id: run for run in await table.read(named)}  # they are read before all others
    return [fresh.get(id_, run) for id_, run in named.items()]


async def _change(args: argparse.Namespace, works: WorkClient, row: Work) -> int:
    """Rename a run, or store a note on it."""
    if args.note is not None:
        try:
            works.notes.write(row.id, args.note)
            changed(f"note on run {row.id[:8]}")
        except OSError as error:
            raise HudUsage(f"the note cannot be kept: {error}") from error
    if args.name is not None and row.is_imported:
        raise HudUsage(f"{row.id[:8]} {READ_ONLY}", "--note keeps a note on it")
    if args.name is not None:
        require_consent(args, works.client)
        await confirm(args, f"call run {row.id[:8]} ({row.name}) {args.name!r}?")
        await works.client.rename_job(row.id, args.name)
    after = {each.id: each for each in await works.runs.read([row.id])}.get(row.id, row)
    noted = f"  {after.note}" if after.note else ""
    show(args, "run", {"run": run_document(after, time())}, f"{after.id[:8]}  {after.name}{noted}")
    return 0


NAMES = {"done": "step", "total": "steps"}
RUN_KEYS = [NAMES.get(field.name, field.name) for field in fields(Work) if field.name != "why"]


def run_document(row: Work, now: float) -> dict[str, Any]:
    """A run in documents: its row and derived values at `now` (Unix seconds)."""
    stored = {key: plain(getattr(row, key)) for key in RUN_KEYS}
    derived = {"eta_s": left_s(row, now), "silent_s": silent_s(row, now)}
    return {**stored, "active": row.is_active, **derived}


def _document(
    args: argparse.Namespace, table: RunList, matched: int, shown: Sequence[Work], now: float
) -> dict[str, Any]:
    chosen = columns(args.columns or "")

    def row(run: Work) -> dict[str, Any]:
        if not args.columns:
            return run_document(run, now)
        return {"id": run.id, **{column.key: plain(column.value(run, now)) for column in chosen}}

    document: dict[str, Any] = {
        "total": len(table.rows),
        "matched": matched,
        "omitted": matched - len(shown),
        "source": table.source_text,
        "runs": [row(run) for run in shown],
    }
    if args.group:
        document["groups"] = [
            {
                "keys": dict(group.keys),
                "runs": [row.id for row in group.rows],
                "reward": group.mean,
                "std": group.std,
            }
            for group in group_rows(shown, args.group, now)
        ]
    if len(args.run) > 1:
        diff = differences(shown)
        document["differences"] = {
            "keys": diff.keys,
            "rows": {id_: dict(zip(diff.keys, values, strict=True)) for id_, values in diff.rows},
            "same": dict(diff.same),
            "warnings": diff.warnings,
        }
    return document


def _print(
    args: argparse.Namespace, table: RunList, omitted: int, shown: Sequence[Work], now: float
) -> None:
    _print_rows(shown, columns(args.columns or ""), args.group or "", now)
    if len(args.run) > 1:
        _print_differences(shown)
    if not shown:
        print("no run matches" if table.rows else "there are no runs yet")
    if omitted:
        print_notice(f"{omitted} older runs omitted: --limit N shows more")
    if table.polls:
        print_notice(table.source_text)


def _print_rows(rows: Sequence[Work], chosen: Sequence[Column], group_by: str, now: float) -> None:
    """One heading over all runs; if they are grouped, each group's title above its runs."""
    if not rows:
        return
    groups = group_rows(rows, group_by, now) if group_by else []
    ordered = [row for group in groups for row in group.rows] if groups else rows
    cells = [[one_line(column.text(row, now), WIDEST) for column in chosen] for row in ordered]
    table = [[column.title for column in chosen], *cells]
    right = [index for index, column in enumerate(chosen) if column.is_numeric]
    heading, *lines = aligned(table, right)
    print(_cut(heading))
    rest = iter(lines)
    for group in groups:
        print(_cut(f"▾ {group.title}"))
        for line in islice(rest, len(group.rows)):
            print(_cut(line))
    for line in rest:
        print(_cut(line))
    _note_cut(table, chosen)


def _note_cut(table: Sequence[Sequence[str]], chosen: Sequence[Column]) -> None:
    """Name the columns that the terminal has no room for."""
    if not sys.stdout.isatty():
        return
    room = get_terminal_size().columns
    widths = (max(map(len, column)) for column in zip(*table, strict=True))
    ends = [end + 2 * index for index, end in enumerate(accumulate(widths))]
    if ends[-1] <= room:
        return
    hidden = [column.key for column, end in zip(chosen, ends, strict=True) if end >= room]
    what = f"{counted(len(hidden), 'column')} cut at {room} characters: {', '.join(hidden)}"
    print_notice(f"{what}; --columns KEYS shows others")


def _print_differences(rows: Sequence[Work]) -> None:
    """One row per setting that differs, one column per run."""
    diff = differences(rows)
    print()
    names = [one_line(row.name or row.id[:8], WIDEST) for row in rows]
    values = zip(*(each for _, each in diff.rows), strict=True)
    keys = [setting_label(key) for key in diff.keys]
    lines = [[key, *column] for key, column in zip(keys, values, strict=True)]
    for line in aligned([["differs in", *names], *lines]) if lines else ():
        print(_cut(line))
    if not lines:
        print("nothing: they were given the same")
    for warning in diff.warnings:
        print(f"⚠ {warning}")


def _cut(line: str) -> str:
    """Cut to the terminal's width; unchanged if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return line
    width = get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"
