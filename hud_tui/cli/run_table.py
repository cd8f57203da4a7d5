"""``runs``: the table of all runs, several runs side by side, and renaming or annotating one."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, islice
from shutil import get_terminal_size
from time import time
from typing import Any

from hud_tui.cli.connect import command_of, connector_of, paths_of, run_connected
from hud_tui.cli.output import aligned, confirm, emit, plain, print_notice, require_consent, show
from hud_tui.cli.streams import changed
from hud_tui.client.client import HudClient
from hud_tui.client.runs import RunList
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudUsage, refuse_beyond
from hud_tui.rl.run_columns import Column, columns, parse_filter, sort_rows
from hud_tui.rl.run_groups import differences, group_rows
from hud_tui.rl.runs import find_run, left_s, silent_s
from hud_tui.rl.settings import setting_label
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import READ_ONLY, Work
from hud_tui.rollouts import control

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
    works = control.works_of(client, paths_of(args).state)
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
        await confirm(args, f"rename run {row.id[:8]} ({row.name}) to {args.name!r}?")
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
        print("no run matches" if table.rows else "no runs yet")
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
