"""``convert``: tasks as a data set of Hugging Face."""

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hud_tui.cli.connect import guard_of
from hud_tui.cli.output import confirm, print_notice, require_consent, show
from hud_tui.cli.streams import changed
from hud_tui.client.preflight import load_path, path_of
from hud_tui.errors import HudPreflightFailed, HudUsage
from hud_tui.legacy.dataset import (
    check_dataset,
    check_name,
    dataset_card,
    push,
    require_token,
    to_rows,
    write_parquet_folder,
)
from hud_tui.legacy.lock_file import write_dataset
from hud_tui.rl.findings import verdict
from hud_tui.rl.text import counted, one_line
from hud_tui.settings import every_variable


def convert(args: argparse.Namespace) -> int:
    """Check the tasks, write the data set, push it if asked to, update the lock file.

    Raises:
        HudUsage: Invalid name, tasks or directory; or not confirmed.
        HudError: The Hub refuses it. Local files stay.
    """
    pushes = not args.no_push
    if pushes:
        guard_of(args).check("push to the Hugging Face Hub; --no-push writes it here only")
    check_name(args.name, pushes)
    variables = every_variable()
    if pushes:
        require_consent(args)
        require_token(variables.get("HF_TOKEN"))
    path = path_of(args.tasks)
    if path is None:
        hint = "give a .json, .jsonl or .parquet file, or a directory of them"
        raise HudUsage(f"{one_line(args.tasks)}: no such file", hint)
    tasks, origin = load_path(args.tasks, path)
    columns, rows = to_rows(tasks)
    findings = check_dataset(tasks, rows, variables)
    for finding in findings:
        if finding.level != "ok":
            print_notice(finding.line)
    document = {**origin, "name": args.name, "tasks": len(tasks), "columns": columns}
    document |= {"findings": findings, "verdict": verdict(findings)}
    if verdict(findings) == "failure":
        return _end(args, document, HudPreflightFailed.exit_code)
    if pushes:
        kind = "private" if args.private else "public"
        what = f"{counted(len(tasks), 'task')} to the {kind} data set {args.name}"
        asyncio.run(confirm(args, f"push {what}?"))
    folder = Path(args.output or args.name.rpartition("/")[2])
    file = write_parquet_folder(folder, columns, rows, dataset_card(args.name, tasks, columns))
    changed(f"write {file}")
    document |= {"file": str(file), "pushed": None, "private": args.private}
    if pushes:
        document["pushed"] = push(folder, args.name, args.private, variables.get("HF_TOKEN"))
    if "lock" in origin:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_dataset(Path(origin["lock"]), args.name, len(tasks), now, folder)
    return _end(args, document, 0)


def _end(args: argparse.Namespace, document: dict[str, Any], code: int) -> int:
    lines = ["nothing was written"]
    if not code:
        rows, columns = counted(document["tasks"], "task"), ", ".join(document["columns"])
        lines = [f"wrote {document['file']}: {rows}; {columns}"]
        if document["pushed"]:
            lines.append(f"pushed to {document['pushed']}")
        if "lock" in document:
            lines.append(f"noted as primary_dataset in {document['lock']}")
    show(args, "dataset", document, *lines)
    return code
