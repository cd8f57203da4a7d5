"""``export`` and ``report``: a run in new files."""

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from time import time

from hud_tui.cli.alarms import alarm_report, silent_s, thresholds
from hud_tui.cli.connect import paths_of, with_client
from hud_tui.cli.output import print_notice, show
from hud_tui.cli.streams import changed
from hud_tui.cli.timing import MOST, read_time, run_of
from hud_tui.cli.which_model import named, newest
from hud_tui.client.client import HudClient
from hud_tui.client.history import read_moves
from hud_tui.config import config_dir, read_config
from hud_tui.errors import HudNotFound, HudUsage
from hud_tui.events import TreeRead
from hud_tui.notebook import Notebook, notebook_file
from hud_tui.rl.export import (
    Sheet,
    alarms_sheet,
    csv_pieces,
    evaluations_sheet,
    groups_sheet,
    jobs_sheet,
    json_pieces,
    metrics_sheet,
    models_sheet,
    tree_sheet,
)
from hud_tui.rl.names import plain_name
from hud_tui.rl.report import FILE, LocalFacts, report_files
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, spaced
from hud_tui.rl.time_report import discarded_sheet, time_sheet
from hud_tui.rollouts.control import works_of
from hud_tui.storage import check_new, write_folder, write_named, write_numbered
from hud_tui.wire_time import RunTime

PIECES: dict[str, Callable[[Sheet], Iterator[str]]] = {"csv": csv_pieces, "json": json_pieces}


def export(args: argparse.Namespace) -> int:
    """Export a table; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The file exists, or cannot be written.
    """
    named = Path(expanduser(args.output)) if args.output else None
    if named is not None:
        check_new(named)
    stem, sheet = _read(args)
    aside = sheet.steps_aside
    rows = list(sheet.rows)
    pieces = PIECES[args.format](replace(sheet, rows=rows))
    if named is not None and not named.is_dir():
        file = write_named(named, pieces)
    else:
        folder = named or _usual_directory()
        file = write_numbered(folder, f"{stem}-{sheet.name}", f".{args.format}", pieces)
    changed(f"write {file}")
    body = {"file": str(file), "what": sheet.name, "format": args.format}
    body |= {"rows": len(rows), "columns": list(sheet.columns), "steps_aside": aside}
    size = f"{counted(len(rows), 'row')}, {counted(len(sheet.columns), 'column')}"
    show(args, "export", body, f"wrote {file}: {size}")
    if aside:
        print_notice(
            f"{sheet.name} of the head's lineage; {counted(aside, 'other step')} of the tree"
            f" {'is' if aside == 1 else 'are'} left out (--what checkpoints lists all)"
        )
    return 0


def report(args: argparse.Namespace) -> int:
    """Write a model's run as Markdown with charts; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The directory cannot be written to.
    """
    (run, told), service = asyncio.run(with_client(args, partial(_read_with_time, args)))
    book = _notebook(args, run)
    files = report_files(run, LocalFacts(service, book.notes, told), time())
    directory = Path(expanduser(args.output)) if args.output else _usual_directory()
    folder = write_folder(directory, f"{_stem(run)}-report", files)
    changed(f"write {folder}")
    charts = len(files) - 1
    wrote = f"wrote {folder / FILE} and {counted(charts, 'chart')}"
    show(args, "report", {"file": str(folder / FILE), "charts": charts}, wrote)
    return 0


def _read(args: argparse.Namespace) -> tuple[str, Sheet]:
    """Stem of the file name, and the table."""
    if args.what == "models":
        models, _ = asyncio.run(with_client(args, HudClient.models))
        return "hud", models_sheet(models, {})
    if args.what == "jobs":
        return "hud", jobs_sheet(asyncio.run(with_client(args, HudClient.jobs))[0])
    if args.what in ("time", "discarded"):
        return asyncio.run(with_client(args, partial(_time_sheet, args)))[0]
    run, _ = asyncio.run(with_client(args, partial(_read_run, args)))
    sheets = {
        "evaluations": evaluations_sheet,
        "groups": groups_sheet,
        "alarms": alarms_sheet,
        "metrics": metrics_sheet,
    }
    if args.what == "checkpoints":
        return _stem(run), tree_sheet(run, _notebook(args, run).notes)
    return _stem(run), sheets[args.what](run)


async def _time_sheet(args: argparse.Namespace, client: HudClient) -> tuple[str, Sheet]:
    """Of the newest steps, or rollouts. Raises HudUsage: as `read_time`."""
    model = await (newest(client) if args.ref is None else named(client, args.ref))
    run_id = await run_of(client, args.ref)
    stem = plain_name("base" if model is None else model.model_name)
    told = await read_time(client, run_id, MOST if args.what == "time" else 1)
    if args.what == "discarded":
        return stem, discarded_sheet(told.run_id, await client.runs.all_discarded(told.run_id))
    if told.total > told.taken:
        print_notice(f"time of the newest {counted(told.taken, 'step')} of {spaced(told.total)}")
    return stem, time_sheet(told)


async def _read_with_time(
    args: argparse.Namespace, client: HudClient
) -> tuple[Run, RunTime | None]:
    """A model's run, and where its time went if the service says."""
    run = await _read_run(args, client)
    run_id = run.job.id if run.job is not None else run.model and run.model.id
    try:
        return run, None if not run_id else await client.runs.run_time(run_id, MOST)
    except HudNotFound:
        return run, None


def _stem(run: Run) -> str:
    return plain_name("base" if run.model is None else run.model.model_name)


def _notebook(args: argparse.Namespace, run: Run) -> Notebook:
    return Notebook(notebook_file(paths_of(args).state, "" if run.model is None else run.model.id))


def _usual_directory() -> Path:
    return read_config(config_dir(os.environ)).export_dir


async def _read_run(args: argparse.Namespace, client: HudClient) -> Run:
    """A model's run with its alarms; of the newest run if none is named. Raises HudUsage: there is
    none."""
    limits = thresholds()
    model = await (newest(client) if args.ref is None else named(client, args.ref))
    if model is None:
        example = client.settings.command(args.command, "MODEL")
        raise HudUsage("you have no model yet", f"name one: {example}")
    evaluations = works_of(client, paths_of(args).state).evaluations
    tree, job, evaluated, moves = await asyncio.gather(
        client.checkpoints(model.id),
        client.known_job(model.id),
        evaluations.of_model(model),
        read_moves(client, model.id, paths_of(args).state),
    )
    run = Run(model=model, evaluations={evaluation.id: evaluation for evaluation in evaluated})
    run = run.fold(TreeRead(checkpoints=tuple(tree))).fold(moves)
    return replace(run, job=job, alarms=alarm_report(run.tree, job, silent_s(tree, job), limits))
