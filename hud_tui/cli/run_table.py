"""``runs``: the table of all runs, some of them side by side, a name or a note for one of them."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from shutil import get_terminal_size
from time import time
from typing import Any

from hud_tui.cli.connect import connector_of, paths_of, run_connected
from hud_tui.cli.output import confirm, emit, plain, require_consent, tell
from hud_tui.client.client import HudClient
from hud_tui.client.runs import RunList
from hud_tui.client.sweep import SweepFiles
from hud_tui.errors import HudUsage
from hud_tui.notebook import Notebook, run_notes
from hud_tui.rl.runs import (
    Column,
    RunGroup,
    RunRow,
    columns,
    differences,
    find_run,
    group_rows,
    parse_filter,
    sort_rows,
)
from hud_tui.rl.text import one_line

WIDEST = 40
"""Characters of a cell."""
KIND = "runs"


def runs(args: argparse.Namespace) -> int:
    """Print the table as text, or with ``--headless`` as a document; returns the exit code.

    Raises:
        HudError: The service does not answer.
        HudUsage: No such column, run or field; the filter makes no sense.
    """
    if args.limit < 1:
        raise HudUsage(f"--limit {args.limit}: expected 1 or more")
    changed = args.name is not None or args.note is not None
    if changed and len(args.run) != 1:
        raise HudUsage("--name and --note are for one run", "say which: hud-tui runs RUN --name X")
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
    """These runs, read before others where they have to be put together."""
    if all(row.whole for row in named):
        return list(named)
    wanted = [row.id for row in named]
    known = {row.id: row for row in await table.read(wanted)}
    return [known.get(row.id, row) for row in named]


async def _change(
    args: argparse.Namespace, client: HudClient, notes: Notebook, table: RunList, row: RunRow
) -> int:
    """Give a run its name or its note."""
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
    if args.headless:
        emit("run", {"run": run_document(after)})
    else:
        noted = f"  {after.note}" if after.note else ""
        print(one_line(f"{after.id[:8]}  {after.name}{noted}", 600))
    return 0


def run_document(row: RunRow) -> dict[str, Any]:
    """A run as documents have it: its row, with what follows from it."""
    found = {one.name: plain(getattr(row, one.name)) for one in fields(row)}
    return {**found, "active": row.active, "step_s": row.step_s, "eta_s": row.eta_s}


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
        "left_off": len(found) - len(shown),
        "source": table.said,
        "runs": [row(one) for one in shown],
    }
    if args.group:
        document["groups"] = [_group_document(group) for group in groups]
    if len(args.run) > 1:
        told = differences(shown)
        document["differences"] = {
            "keys": told.keys,
            "rows": {id_: dict(zip(told.keys, values, strict=True)) for id_, values in told.rows},
            "same": dict(told.same),
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
        for group in groups:
            print(_cut(f"▾ {group.title}"))
            _print_rows(group.rows, chosen)
    else:
        _print_rows(shown, chosen)
    if len(args.run) > 1:
        _print_differences(shown)
    if not shown:
        print("no run matches" if table.rows else "there are no runs yet")
    if len(found) > len(shown):
        tell(f"{len(found) - len(shown)} older runs omitted: --limit N shows more")
    if table.polls:
        tell(table.said)


def _print_rows(rows: Sequence[RunRow], chosen: Sequence[Column]) -> None:
    now = time()
    lines = [[_cell(column.text(row, now)) for column in chosen] for row in rows]
    _print_table([column.title for column in chosen], lines, [column.number for column in chosen])


def _print_differences(rows: Sequence[RunRow]) -> None:
    """A row a setting that is not the same in all, a column a run."""
    told = differences(rows)
    print()
    names = [_cell(row.name or row.id[:8]) for row in rows]
    values = zip(*(each for _, each in told.rows), strict=True)
    lines = [[key, *column] for key, column in zip(told.keys, values, strict=True)]
    _print_table(["differs in", *names], lines, [False] * (1 + len(rows)))
    if not told.keys:
        print("nothing: they were given the same")


def _cell(text: str) -> str:
    line = one_line(text, 1000)
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def _print_table(
    titles: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    if not lines:
        return
    cells = [list(titles), *lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(line, widths, right, strict=True)
        )
        print(_cut("  ".join(padded).rstrip()))


def _cut(line: str) -> str:
    """To the terminal's width; whole where nobody looks at it there."""
    if not sys.stdout.isatty():
        return line
    width = get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"
