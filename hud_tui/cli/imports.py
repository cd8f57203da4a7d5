"""``import``: runs of other trainers, into the table of runs."""

import argparse
from os.path import expanduser
from pathlib import Path

from hud_tui.cli.connect import command_of, paths_of
from hud_tui.cli.output import print_notice, show
from hud_tui.cli.streams import changed
from hud_tui.client.imported import ImportedFiles, read_folder
from hud_tui.errors import HudUsage
from hud_tui.rl.names import find_by_id
from hud_tui.rl.text import counted, names_text, one_line
from hud_tui.rl.work import Work

UNKNOWN = 5
"""Most names of unknown metrics in a line of text."""


def import_runs(args: argparse.Namespace) -> int:
    """Import the runs in a folder, or remove one that was imported; returns the exit code. Raises
    HudUsage: there is nothing to import, or no such run; or it cannot be written."""
    files = ImportedFiles(paths_of(args).state)
    if args.remove is not None:
        rows = list(files.works().values())
        row = find_by_id(args.remove, rows, "imported run", _label, lambda r: r.name)
        files.remove(row.id)
        changed(f"remove imported run {row.id[:8]}")
        show(args, "import", {"removed": row.id}, f"removed {row.id[:8]}  {one_line(row.name)}")
        return 0
    if args.path is None:
        raise HudUsage("import wandb needs a folder", "e.g. hud-tui import wandb ./wandb")
    runs, skipped = read_folder(Path(expanduser(args.path)))
    for line in skipped:
        print_notice(f"left out: {line}")
    lines, documents = [], []
    for run in map(files.keep, runs):
        work, unknown = run.work, run.unknown
        by = f" by {run.trainer}" if run.trainer else ""
        own = f"; under their own names: {names_text(unknown, UNKNOWN)}" if unknown else ""
        steps = counted(len(run.numbers), "step")
        lines.append(f"{run.id[:8]}  {one_line(run.name, 60)}{by}: {steps}{own}")
        facts = {"id": run.id, "name": run.name, "trainer": run.trainer, "status": work.status}
        documents.append({**facts, "steps": len(run.numbers), "unknown": unknown})
    if runs:
        changed(f"import {counted(len(runs), 'run')}")
        lines.append(f"see {'them' if len(runs) > 1 else 'it'}: {command_of(args, 'runs')}")
    show(args, "import", {"runs": documents, "skipped": skipped}, *lines)
    return 0 if runs else 1


def _label(row: Work) -> str:
    """Runs often have the same name."""
    return one_line(f"{row.id} ({row.name})" if row.name else row.id, 80)
