"""``export`` and ``report``: a run in new files, for other programs and for people."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from time import time
from typing import TypeVar

from hud_tui.client.client import HudClient
from hud_tui.config import config_dir, read_config
from hud_tui.errors import HudUsage
from hud_tui.events import TreeRead
from hud_tui.headless.alarms import judge, thresholds
from hud_tui.headless.main import Connect
from hud_tui.headless.output import emit, tell
from hud_tui.headless.status import named, newest, silent_s
from hud_tui.notebook import Notebook, notebook_file
from hud_tui.rl.export.names import plain_name
from hud_tui.rl.export.report import FILE, Kept, report_files
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
from hud_tui.storage import check_new, write_folder, write_named, write_numbered

T = TypeVar("T")
KIND = "export"
PIECES: dict[str, Callable[[Sheet], Iterator[str]]] = {"csv": csv_pieces, "json": json_pieces}


def export(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Read what is asked for and write it; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The file exists, or cannot be written.
    """
    if args.output:
        check_new(Path(expanduser(args.output)))
    stem, sheet = _read(args, paths, connect)
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


def report(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Write a model's run as Markdown with charts; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The directory cannot be written to.
    """
    run, service = asyncio.run(_with_client(args, connect, partial(_read_run, args.ref)))
    book = _notebook(paths, run)
    files = report_files(run, Kept(service, book.notes, book.moves), time())
    directory = Path(expanduser(args.output)) if args.output else _usual_directory()
    folder = write_folder(directory, f"{_stem(run)}-report", files)
    if args.headless:
        emit("report", {"file": str(folder / FILE), "charts": len(files) - 1})
    else:
        print(f"wrote {one_line(folder / FILE, 400)} and {count(len(files) - 1, 'chart')}")
    return 0


async def _with_client(
    args: argparse.Namespace, connect: Connect, read: Callable[[HudClient], Awaitable[T]]
) -> tuple[T, str]:
    """What is read from the service, and what that is called."""
    client = await connect("local" if args.local else "hud", None, tell)
    try:
        return await read(client), client.settings.label
    finally:
        await client.aclose()


def _read(
    args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect
) -> tuple[str, Sheet]:
    """What the file is called after, and what it has."""
    if args.what in ("models", "jobs"):
        return "hud", asyncio.run(_with_client(args, connect, LISTS[args.what]))[0]
    run, _ = asyncio.run(_with_client(args, connect, partial(_read_run, args.ref)))
    return _stem(run), _sheet(args.what, run, _notebook(paths, run).notes)


async def _models(client: HudClient) -> Sheet:
    return models_sheet(await client.models(), {})


async def _jobs(client: HudClient) -> Sheet:
    return jobs_sheet(await client.jobs())


LISTS: dict[str, Callable[[HudClient], Awaitable[Sheet]]] = {"models": _models, "jobs": _jobs}
"""What is exported of no one model."""


def _stem(run: Run) -> str:
    return plain_name("base" if run.model is None else run.model.model_name)


def _notebook(paths: Callable[[], Paths], run: Run) -> Notebook:
    return Notebook(notebook_file(paths().state, "" if run.model is None else run.model.id))


def _usual_directory() -> Path:
    return read_config(config_dir(os.environ)).export_dir


async def _read_run(ref: str | None, client: HudClient) -> Run:
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
    named = Path(expanduser(args.output)) if args.output else None
    if named is not None and not named.is_dir():
        return write_named(named, pieces)
    return write_numbered(named or _usual_directory(), stem, f".{args.format}", pieces)
