"""``convert``: task files as a Hugging Face data set, on this machine and on the Hub."""

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hud_tui.client.sources import load_path, path_of
from hud_tui.errors import HudPreflightFailed, HudUsage
from hud_tui.headless.consent import confirm, require_consent
from hud_tui.headless.output import emit, tell
from hud_tui.older.dataset_card import dataset_card
from hud_tui.older.dataset_checks import check_dataset, check_name
from hud_tui.older.dataset_rows import to_rows
from hud_tui.older.hub import push, require_token
from hud_tui.older.lock_file import write_dataset
from hud_tui.older.parquet import write_folder
from hud_tui.rl.preflight import Finding, count, verdict
from hud_tui.rl.text import one_line
from hud_tui.variables import every_variable


def convert(args: argparse.Namespace) -> int:
    """Check, write, push where it was asked for, and note it in the lock file.

    Raises:
        HudUsage: The name, the tasks or the place cannot be used; or nobody agreed.
        HudError: The Hub does not take it. What was written on this machine stays.
    """
    pushes = not args.no_push
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
    _say(findings)
    document = {**origin, "name": args.name, "tasks": len(tasks), "columns": columns}
    document |= {"findings": findings, "verdict": verdict(findings)}
    if verdict(findings) == "failure":
        return _end(args, document, HudPreflightFailed.exit_code)
    if pushes:
        asyncio.run(confirm(args, _question(args, len(tasks))))
    folder = Path(args.output or args.name.rpartition("/")[2])
    file = write_folder(folder, columns, rows, dataset_card(args.name, tasks, columns))
    document |= {"file": str(file), "pushed": None, "private": args.private}
    if pushes:
        document["pushed"] = push(folder, args.name, args.private, variables.get("HF_TOKEN"))
    if "lock" in origin:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_dataset(Path(origin["lock"]), args.name, len(tasks), now, folder)
    return _end(args, document, 0)


def _question(args: argparse.Namespace, tasks: int) -> str:
    kind = "private" if args.private else "public"
    return f"push {count(tasks, 'task')} to the {kind} data set {args.name}?"


def _say(findings: list[Finding]) -> None:
    for finding in findings:
        if finding.level != "ok":
            where = f" [{finding.where}]" if finding.where else ""
            tell(f"{finding.level}: {finding.message}{where} ({finding.fix})")


def _end(args: argparse.Namespace, document: dict[str, Any], code: int) -> int:
    if args.headless:
        emit("dataset", document)
    elif code:
        print("nothing was written")
    else:
        rows, columns = count(document["tasks"], "task"), ", ".join(document["columns"])
        print(f"wrote {one_line(document['file'])}: {rows}; {one_line(columns, 400)}")
        if document["pushed"]:
            print(f"pushed to {one_line(document['pushed'])}")
        if "lock" in document:
            print(f"noted as primary_dataset in {one_line(document['lock'])}")
    return code
