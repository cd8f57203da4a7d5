"""``jobs``, ``traces`` and ``runs``: list, cancel and resume jobs; their rollouts; all runs."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import fields
from itertools import accumulate, islice
from shutil import get_terminal_size
from time import time
from typing import Any

from hud_tui.cli.connect import command_of, connector_of, paths_of, run_connected
from hud_tui.cli.output import confirm, emit, plain, print_notice, require_consent, show
from hud_tui.client.client import HudClient, find_job
from hud_tui.client.runs import RunList
from hud_tui.client.submit import SweepFiles
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.notebook import Notebook, run_notes
from hud_tui.rl.names import setting_label
from hud_tui.rl.run import SUCCEEDED, has_ended, reason
from hud_tui.rl.runs import Column, RunRow, columns, find_run, parse_filter, sort_rows
from hud_tui.rl.sweep import RunGroup, differences, group_rows
from hud_tui.rl.text import counted, one_line
from hud_tui.rollouts import control
from hud_tui.wire import Job, Trace


async def jobs(client: HudClient, args: argparse.Namespace) -> int:
    """List the newest jobs; show, cancel or resume one."""
    if args.job is None:
        if args.cancel or args.resume:
            listed = client.settings.command("--headless", "jobs")
            raise HudUsage("no job given", f"{listed} lists them")
        emit("jobs", {"jobs": await client.jobs()})
        return 0
    if args.cancel or args.resume:
        require_consent(args, client)
    job_id = await find_job(client, args.job)
    if args.cancel or args.resume:
        return await (_cancel if args.cancel else _resume)(client, args, job_id)
    job = await _listed(client, job_id)
    folder = control.driven_here(paths_of(args).state, job_id)
    if folder is None:
        status = await client.known_job(job_id)
    else:
        status = await control.status_of(client, folder, job_id)
    more = {} if folder is None else control.report_of(folder)
    emit("job", {"job_id": job_id, "job": job, "status": status, **more})
    return 0


async def _cancel(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"cancel job {job_id}?")
    result = await control.cancel(client, paths_of(args).state, job_id)
    try:
        status = await client.known_job(job_id)
    except HudError as error:
        status = None
        print_notice(f"cancelled, but its status could not be read: {error.message}")
    message = f"cancelled job {job_id}"
    if not result.cancelled:
        state = f"had already ended ({status.status})" if status else "was not running"
        message = f"nothing to cancel: job {job_id} {state}"
        if args.headless:
            print_notice(message)
    show(args, "job", {"job_id": job_id, "cancelled": result.cancelled, "status": status}, message)
    return 0


async def _resume(client: HudClient, args: argparse.Namespace, job_id: str) -> int:
    await confirm(args, f"resume job {job_id}?")
    status = await control.resume(client, paths_of(args).state, job_id)
    step = f", at step {status.step} of {status.steps}" if status.steps else ""
    message = f"resumed job {job_id}: {status.status}{step}"
    is_lost = has_ended(status.status) and status.status not in SUCCEEDED
    if is_lost:
        message = f"could not resume job {job_id}: {status.status}{step}: {reason(status)}"
    show(args, "job", {"job_id": job_id, "status": status}, one_line(message, 800))
    return 1 if is_lost else 0


async def _listed(client: HudClient, job_id: str) -> Job | None:
    """A job's row; None if the service does not list it."""
    try:
        return await client.job(job_id)
    except HudNotFound:
        return None


# ``traces``: a job's rollouts: the newest, those of one step, or all pages.


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
    omitted = max(0, total - limit)
    _print_traces(job_id, args.step, total, omitted, shown, omitted)
    if omitted:
        more = "--limit N, --step N, or --all for one document per page"
        print_notice(f"{omitted:,} older rollouts omitted; for more: {more}")
    return 0


async def _all(client: HudClient, job_id: str, step: int | None) -> int:
    """Print every rollout, one page in memory at a time."""
    if step is not None:
        rows = await client.job_traces(job_id, step)
        for offset in range(0, max(1, len(rows)), PAGE):
            _print_traces(job_id, step, len(rows), offset, rows[offset : offset + PAGE])
        return 0
    total, offset = (await client.trace_page(job_id, 1, 0)).total, 0
    async for page in _pages(client, job_id, 0):
        _print_traces(job_id, step, max(total, offset + len(page)), offset, page)
        offset += len(page)
    if not offset:
        _print_traces(job_id, step, 0, 0, [])
    return 0


async def _pages(client: HudClient, job_id: str, offset: int) -> AsyncIterator[list[Trace]]:
    """The rollouts from an offset on, by page."""
    while True:
        page = await client.trace_page(job_id, PAGE, offset)
        if page.items:
            yield page.items
        offset += len(page.items)
        if not page.items or offset >= page.total:
            return


def _print_traces(
    job_id: str, step: int | None, total: int, offset: int, page: list[Trace], omitted: int = 0
) -> None:
    place = {"total": total, "offset": offset, "omitted": omitted}
    emit("traces", {"job_id": job_id, "step": step, **place, "traces": page})


# ``runs``: the table of all runs, several runs side by side, and renaming or annotating one.


WIDEST = 40
"""Most characters of a cell."""
KIND = "runs"


def runs(args: argparse.Namespace) -> int:
    """Print the table as text, or with ``--headless`` as a document; returns the exit code.

    Raises:
        HudError: The service does not answer.
        HudUsage: Unknown column, run or field; or an invalid filter.
    """
    if args.limit < 1:
        raise HudUsage(f"--limit {args.limit}: expected 1 or more")
    changed = args.name is not None or args.note is not None
    if changed and len(args.run) != 1:
        which = command_of(args, "runs", "RUN", "--name", "TEXT")
        raise HudUsage("--name and --note are for one run", f"say which: {which}")
    chosen = columns(args.columns or "")
    sort_rows([], args.sort or "")
    keep = parse_filter(args.filter or "", time())

    async def work(client: HudClient, args: argparse.Namespace) -> int:
        return await _work(client, args, chosen, keep)

    return asyncio.run(run_connected(work, args, connector_of(args)))


async def _work(
    client: HudClient,
    args: argparse.Namespace,
    chosen: Sequence[Column],
    keep: Callable[[RunRow], bool],
) -> int:
    state = paths_of(args).state
    notes = run_notes(state)
    table = RunList(client, lambda: notes.notes, SweepFiles(state).names)
    rows = list(await table.read())
    if args.run:
        named = [find_run(name, rows) for name in args.run]
        if args.name is not None or args.note is not None:
            return await _change(args, client, notes, table, named[0])
        rows = list({row.id: row for row in await _whole(table, named)}.values())
    found = sort_rows([row for row in rows if keep(row)], args.sort or "")
    shown = found[: args.limit]
    groups = group_rows(shown, args.group) if args.group else []
    if args.headless:
        emit(KIND, _document(args, table, found, shown, groups, chosen))
    else:
        _print(args, table, found, shown, groups, chosen)
    return 0


async def _whole(table: RunList, named: Sequence[RunRow]) -> list[RunRow]:
    """These runs, read before the others if their rows have to be computed."""
    if all(row.whole for row in named):
        return list(named)
    ids = [row.id for row in named]
    known = {row.id: row for row in await table.read(ids)}
    return [known.get(row.id, row) for row in named]


async def _change(
    args: argparse.Namespace, client: HudClient, notes: Notebook, table: RunList, row: RunRow
) -> int:
    """Rename a run, or store a note on it."""
    if args.note is not None:
        try:
            notes.write(row.id, args.note)
        except OSError as error:
            raise HudUsage(f"the note cannot be kept: {error}") from error
    if args.name is not None:
        require_consent(args, client)
        await confirm(args, f"call run {row.id[:8]} ({row.name}) {args.name!r}?")
        await client.rename_job(row.id, args.name)
    after = {each.id: each for each in await table.read([row.id])}.get(row.id, row)
    noted = f"  {after.note}" if after.note else ""
    line = f"{after.id[:8]}  {after.name}{noted}"
    show(args, "run", {"run": run_document(after)}, line)
    return 0


def run_document(row: RunRow) -> dict[str, Any]:
    """A run in documents: its row and derived values."""
    found = {one.name: plain(getattr(row, one.name)) for one in fields(row)}
    silent_s = row.silent_s(time())
    eta_s = row.eta_s if silent_s is None else None
    derived = {"step_s": row.step_s, "eta_s": eta_s, "silent_s": silent_s}
    return {**found, "active": row.active, **derived}


def _document(
    args: argparse.Namespace,
    table: RunList,
    found: Sequence[RunRow],
    shown: Sequence[RunRow],
    groups: Sequence[RunGroup],
    chosen: Sequence[Column],
) -> dict[str, Any]:
    def row(one: RunRow) -> dict[str, Any]:
        if not args.columns:
            return run_document(one)
        return {"id": one.id, **{column.key: plain(column.value(one)) for column in chosen}}

    document: dict[str, Any] = {
        "total": len(table.rows),
        "matched": len(found),
        "omitted": len(found) - len(shown),
        "source": table.source_text,
        "runs": [row(one) for one in shown],
    }
    if args.group:
        document["groups"] = [_group_document(group) for group in groups]
    if len(args.run) > 1:
        diff = differences(shown)
        document["differences"] = {
            "keys": diff.keys,
            "rows": {id_: dict(zip(diff.keys, values, strict=True)) for id_, values in diff.rows},
            "same": dict(diff.same),
        }
    return document


def _group_document(group: RunGroup) -> dict[str, Any]:
    ids = [row.id for row in group.rows]
    return {"keys": dict(group.keys), "runs": ids, "reward": group.mean, "std": group.std}


def _print(
    args: argparse.Namespace,
    table: RunList,
    found: Sequence[RunRow],
    shown: Sequence[RunRow],
    groups: Sequence[RunGroup],
    chosen: Sequence[Column],
) -> None:
    if groups:
        _print_groups(groups, chosen)
    else:
        _print_rows(shown, chosen)
    if len(args.run) > 1:
        _print_differences(shown)
    if not shown:
        print("no run matches" if table.rows else "there are no runs yet")
    if len(found) > len(shown):
        print_notice(f"{len(found) - len(shown)} older runs omitted: --limit N shows more")
    if table.polls:
        print_notice(table.source_text)


def _print_rows(rows: Sequence[RunRow], chosen: Sequence[Column]) -> None:
    for line in _rows_aligned(rows, chosen):
        print(_cut(line))
    _note_cut(rows, chosen)


def _note_cut(rows: Sequence[RunRow], chosen: Sequence[Column]) -> None:
    """Name the columns that the terminal has no room for."""
    if not rows or not sys.stdout.isatty():
        return
    room, now = get_terminal_size().columns, time()
    widths = (
        max(len(column.title), *(len(_cell(column.text(row, now))) for row in rows))
        for column in chosen
    )
    ends = [end + 2 * place for place, end in enumerate(accumulate(widths))]
    if ends[-1] <= room:
        return
    hidden = [column.key for column, end in zip(chosen, ends, strict=True) if end >= room]
    print_notice(
        f"{counted(len(hidden), 'column')} cut at {room} characters: {', '.join(hidden)}; "
        "--columns KEYS shows others"
    )


def _print_groups(groups: Sequence[RunGroup], chosen: Sequence[Column]) -> None:
    """One heading over all groups, each with its title above its runs."""
    heading, *lines = _rows_aligned([row for group in groups for row in group.rows], chosen)
    print(_cut(heading))
    rest = iter(lines)
    for group in groups:
        print(_cut(f"▾ {group.title}"))
        for line in islice(rest, len(group.rows)):
            print(_cut(line))
    _note_cut([row for group in groups for row in group.rows], chosen)


def _rows_aligned(rows: Sequence[RunRow], chosen: Sequence[Column]) -> list[str]:
    """The heading and a line per run; empty without runs."""
    now = time()
    lines = [[_cell(column.text(row, now)) for column in chosen] for row in rows]
    return _aligned([one.title for one in chosen], lines, [one.number for one in chosen])


def _print_differences(rows: Sequence[RunRow]) -> None:
    """One row per setting that differs, one column per run."""
    diff = differences(rows)
    print()
    names = [_cell(row.name or row.id[:8]) for row in rows]
    values = zip(*(each for _, each in diff.rows), strict=True)
    keys = [setting_label(key) for key in diff.keys]
    lines = [[key, *column] for key, column in zip(keys, values, strict=True)]
    for line in _aligned(["differs in", *names], lines, [False] * (1 + len(rows))):
        print(_cut(line))
    if not diff.keys:
        print("nothing: they were given the same")


def _cell(text: str) -> str:
    line = one_line(text, 1000)
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def _aligned(
    titles: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool]
) -> list[str]:
    """A table's heading and lines in columns of equal width; empty without lines."""
    if not lines:
        return []
    cells = [list(titles), *lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    found = []
    for line in cells:
        padded = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(line, widths, right, strict=True)
        )
        found.append("  ".join(padded).rstrip())
    return found


def _cut(line: str) -> str:
    """Cut to the terminal's width; unchanged if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return line
    width = get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"
