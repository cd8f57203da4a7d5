"""``export``: a run's tables as new files, for other programs."""

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hud_tui.client.client import HudClient
from hud_tui.config import config_dir, read_config
from hud_tui.errors import HudUsage
from hud_tui.events import TreeRead
from hud_tui.headless.alarms import judge, thresholds
from hud_tui.headless.main import Connect
from hud_tui.headless.output import emit, tell
from hud_tui.headless.status import named, newest, silent_s
from hud_tui.new_files import check_new, plain_name, write_named, write_numbered
from hud_tui.notebook import Notebook, notebook_file
from hud_tui.rl.export.sheet import Sheet, csv_pieces, json_pieces
from hud_tui.rl.export.sheets import (
    alarms_sheet,
    groups_sheet,
    jobs_sheet,
    metrics_sheet,
    models_sheet,
    tree_sheet,
)
from hud_tui.rl.preflight import count
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths

KIND = "export"
PIECES: dict[str, Callable[[Sheet], Iterator[str]]] = {"csv": csv_pieces, "json": json_pieces}


def export(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Read what is asked for and write it; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The file exists, or cannot be written.
    """
    if args.output:
        check_new(Path(args.output).expanduser())
    stem, sheet = asyncio.run(_read(args, paths, connect))
    rows = list(sheet.rows)
    pieces = PIECES[args.format](replace(sheet, rows=rows))
    file = _write(args, f"{stem}-{sheet.name}", pieces)
    if args.headless:
        body = {"file": str(file), "what": sheet.name, "format": args.format}
        emit(KIND, {**body, "rows": len(rows), "columns": list(sheet.columns)})
    else:
        size = f"{count(len(rows), 'row')}, {count(len(sheet.columns), 'column')}"
        print(f"wrote {one_line(file, 400)}: {size}")
    return 0


async def _read(
    args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect
) -> tuple[str, Sheet]:
    """What the file is called after, and what it has."""
    client = await connect("local" if args.local else "hud", None, tell)
    try:
        if args.what == "models":
            return "hud", models_sheet(await client.models(), {})
        if args.what == "jobs":
            return "hud", jobs_sheet(await client.jobs())
        run = await _read_run(client, args.ref)
    finally:
        await client.aclose()
    assert run.model is not None
    notes = Notebook(notebook_file(paths().state, run.model.id)).notes
    return plain_name(run.model.model_name), _sheet(args.what, run, notes)


async def _read_run(client: HudClient, ref: str | None) -> Run:
    """A model's run, judged by the limits of the config file; the newest run's where None.

    Raises:
        HudUsage: There is none.
    """
    limits = thresholds()
    model = await (newest(client) if ref is None else named(client, ref))
    if model is None:
        raise HudUsage("there is no model of your own yet", "name one: hud-tui export MODEL")
    tree, job = await asyncio.gather(client.checkpoints(model.id), client.known_job(model.id))
    run = Run(model=model).fold(TreeRead(checkpoints=tuple(tree)))
    return replace(run, job=job, alarms=judge(run.tree, job, silent_s(tree, job), limits))


def _sheet(what: str, run: Run, notes: Mapping[str, str]) -> Sheet:
    match what:
        case "checkpoints":
            return tree_sheet(run, notes)
        case "groups":
            return groups_sheet(run)
        case "alarms":
            return alarms_sheet(run)
        case _:
            return metrics_sheet(run)


def _write(args: argparse.Namespace, stem: str, pieces: Iterator[str]) -> Path:
    """To the file that was named; else to a free name in the directory that was, or is usual."""
    named = Path(args.output).expanduser() if args.output else None
    if named is not None and not named.is_dir():
        return write_named(named, pieces)
    directory = named or read_config(config_dir(os.environ)).export_dir
    return write_numbered(directory, stem, f".{args.format}", pieces)
