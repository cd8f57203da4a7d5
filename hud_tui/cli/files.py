"""``convert``, ``export``, ``report``, ``init``, ``keys`` and ``log``."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from os.path import expanduser
from pathlib import Path
from time import time
from typing import Any, TypeVar

from hud_tui.audit_log import CommandLog, change_text, document, local_time, matching
from hud_tui.cli.alarms import alarm_report, silent_s, thresholds
from hud_tui.cli.connect import client_of, connector_of, guard_of, paths_of, run_command
from hud_tui.cli.models import named, newest
from hud_tui.cli.output import aligned, confirm, emit, flags_of, print_notice, require_consent, show
from hud_tui.cli.streams import changed
from hud_tui.cli.timing import MOST, read_time, run_of
from hud_tui.client.client import HudClient
from hud_tui.client.history import read_moves
from hud_tui.client.preflight import load_path, path_of
from hud_tui.config import CONFIG_NAME, config_dir, read_config
from hud_tui.errors import HudNotFound, HudPreflightFailed, HudUsage, refuse_beyond
from hud_tui.events import TreeRead
from hud_tui.keys import ACTIONS, with_keys
from hud_tui.legacy.dataset import (
    check_dataset,
    check_name,
    dataset_card,
    push,
    require_token,
    to_rows,
    write_parquet_folder,
)
from hud_tui.legacy.gym import (
    Described,
    GymConfig,
    described,
    gym_text,
    new_gym,
    read_gym,
    signature,
)
from hud_tui.legacy.image import ImageFacts, analyze_image, image_lines, is_image
from hud_tui.legacy.lock_file import (
    LOCK_NAME,
    image_name,
    load_lock,
    read_bounded,
    replace_file,
    write_dataset,
)
from hud_tui.legacy.yaml import MAX_BYTES
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
from hud_tui.rl.findings import verdict
from hud_tui.rl.names import plain_name
from hud_tui.rl.report import FILE, LocalFacts, report_files
from hud_tui.rl.run import Run
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.rl.time_report import discarded_sheet, time_sheet
from hud_tui.rollouts.control import works_of
from hud_tui.settings import every_variable
from hud_tui.storage import check_new, write_folder, write_named, write_numbered
from hud_tui.wire_time import RunTime

MOST_ROWS = 2000
"""Most discarded rollouts of a table."""


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


# ``export`` and ``report``: a run in new files.


T = TypeVar("T")
PIECES: dict[str, Callable[[Sheet], Iterator[str]]] = {"csv": csv_pieces, "json": json_pieces}


def export(args: argparse.Namespace) -> int:
    """Export a table; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The file exists, or cannot be written.
    """
    if args.output:
        check_new(Path(expanduser(args.output)))
    stem, sheet = _read(args)
    aside = sheet.steps_aside
    rows = list(sheet.rows)
    pieces = PIECES[args.format](replace(sheet, rows=rows))
    file = _write(args, f"{stem}-{sheet.name}", pieces)
    changed(f"write {file}")
    body = {"file": str(file), "what": sheet.name, "format": args.format}
    body |= {"rows": len(rows), "columns": list(sheet.columns), "steps_aside": aside}
    size = f"{counted(len(rows), 'row')}, {counted(len(sheet.columns), 'column')}"
    show(args, "export", body, f"wrote {file}: {size}")
    if aside:
        print_notice(
            f"{sheet.name} of the steps to the head; {counted(aside, 'other step')}"
            f" of the tree {'is' if aside == 1 else 'are'} not on its line"
            " (--what checkpoints lists all)"
        )
    return 0


def report(args: argparse.Namespace) -> int:
    """Write a model's run as Markdown with charts; returns the exit code.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudUsage: The directory cannot be written to.
    """
    (run, told), service = asyncio.run(_with_client(args, partial(_read_with_time, args)))
    book = _notebook(args, run)
    files = report_files(run, LocalFacts(service, book.notes, told), time())
    directory = Path(expanduser(args.output)) if args.output else _usual_directory()
    folder = write_folder(directory, f"{_stem(run)}-report", files)
    changed(f"write {folder}")
    charts = len(files) - 1
    wrote = f"wrote {folder / FILE} and {counted(charts, 'chart')}"
    show(args, "report", {"file": str(folder / FILE), "charts": charts}, wrote)
    return 0


async def _with_client(
    args: argparse.Namespace, read: Callable[[HudClient], Awaitable[T]]
) -> tuple[T, str]:
    """Read with a client of the service; also returns the service's label."""
    async with aclosing(await client_of(args)) as client:
        return await read(client), client.settings.label


def _read(args: argparse.Namespace) -> tuple[str, Sheet]:
    """Stem of the file name, and the table."""
    if args.what == "models":
        models, _ = asyncio.run(_with_client(args, HudClient.models))
        return "hud", models_sheet(models, {})
    if args.what == "jobs":
        return "hud", jobs_sheet(asyncio.run(_with_client(args, HudClient.jobs))[0])
    if args.what in ("time", "discarded"):
        return asyncio.run(_with_client(args, partial(_time_sheet, args)))[0]
    run, _ = asyncio.run(_with_client(args, partial(_read_run, args)))
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
    if args.what == "time":
        return stem, time_sheet(await read_time(client, run_id))
    run_id = (await read_time(client, run_id, 1)).run_id
    return stem, discarded_sheet(run_id, (await client.runs.discarded(run_id, MOST_ROWS)).items)


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
    """A model's run with its alarms; of the newest run if none is named.

    Raises:
        HudUsage: There is none.
    """
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


def _write(args: argparse.Namespace, stem: str, pieces: Iterator[str]) -> Path:
    """Write to the named file; else to a free name in the named or default directory."""
    named = Path(expanduser(args.output)) if args.output else None
    if named is not None and not named.is_dir():
        return write_named(named, pieces)
    return write_numbered(named or _usual_directory(), stem, f".{args.format}", pieces)


# ``init``: write a hud-vf-gym configuration for an environment, or show one.


def init(args: argparse.Namespace) -> int:
    """Write or show a configuration; returns the exit code.

    Raises:
        HudError: An image cannot be looked into.
        HudUsage: Neither or both of ENV and ``--show``; no such environment; the file exists.
    """
    if (args.environment is None) == (args.show is None):
        raise HudUsage("give either ENV or --show FILE", "see hud-tui init --help")
    if args.show is not None:
        file = Path(args.show)
        config, warnings = read_gym(str(file), read_bounded(file))
        _report(config, file, warnings, args.headless, one_line(file))
        return 0
    if args.dry_run and not is_image(args.environment):
        raise HudUsage("--dry-run is of an image", "an image has a tag, e.g. text-2048:latest")
    env, image = _describe_any(args)
    if args.dry_run and image is not None:
        show(args, "image", image, *image_lines(image, signature))
        return 0
    config, warnings = new_gym(env)
    file = _target(args, env.name)
    text = gym_text(config, f"Made by hud-tui init for {one_line(env.name)}")
    if len(text.encode()) > MAX_BYTES:
        what = f"{one_line(env.name)} has too much to say: more than {MAX_BYTES >> 10} kB"
        raise HudUsage(what, "write a configuration of the tools that are needed")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{one_line(file.parent)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "-o names another directory") from error
    replace_file(file, text.encode())
    changed(f"write {one_line(file)}")
    if image is not None and not args.headless:
        print("\n".join(image_lines(image, signature)))
    _report(config, file, warnings, args.headless, f"wrote {one_line(file)}", image)
    return 0


def _describe_any(args: argparse.Namespace) -> tuple[Described, ImageFacts | None]:
    """The environment on disk, in an image, or of the service; and what the image has.

    Raises:
        HudError: There is no such environment, or its image cannot be looked into.
        HudUsage: The file to be written exists.
    """
    name = args.environment
    env = None if is_image(name) and not Path(expanduser(name)).exists() else _on_disk(name)
    if env is not None:
        return env, None
    if not is_image(name):
        return asyncio.run(_with_client(args, partial(_describe, name=name)))[0], None
    if not args.dry_run:
        _target(args, image_name(name))
    known = every_variable()
    absent = [variable for variable in args.env if not known.get(variable)]
    if absent:
        raise HudUsage(f"--env {one_line(absent[0], 60)}: not set here", f"export {absent[0]}=…")
    variables = {variable: known[variable] for variable in args.env}
    facts = asyncio.run(analyze_image(name, variables, print_notice))
    return Described(image_name(name), facts.tools, image=name), facts


def _target(args: argparse.Namespace, name: str) -> Path:
    """The file to be written. Raises HudUsage: it exists."""
    file = Path(args.output or Path("configs") / f"{_file_name(name)}.yaml")
    if file.exists() and not args.force:
        raise HudUsage(f"{one_line(file)} exists", "--force overwrites it, -o names another")
    return file


def _report(
    config: GymConfig,
    file: Path,
    warnings: list[str],
    document: bool,
    title: str,
    image: ImageFacts | None = None,
) -> None:
    for warning in warnings if document else ():
        print_notice(warning)
    if document:
        facts = {"file": str(file), "actions": list(config.action_mappings), "warnings": warnings}
        transforms = list(config.transforms())
        more = {"transforms": transforms, "config": config.plain(), "image": image}
        emit("gym_config", {**facts, **more})
        return
    print(f"{title}: {counted(len(config.action_mappings), 'action')}")
    for name, action in config.action_mappings.items():
        brackets = ", ".join(one_line(arg, 60) for arg in action.parser.positional)
        print(f"  {one_line(name, 60)}({brackets}) → {one_line(action.tool or 'the end', 60)}")
    for transform in config.transforms():
        where = one_line(f"{transform.action}.{transform.argument}", 120)
        print(f"  transform of {where}, Python that is not run here: {clean(transform.text, 500)}")
    for warning in warnings:
        print(f"  ! {warning}")


def _on_disk(env: str) -> Described | None:
    """The environment of a directory with a lock file, or of a lock file; None if neither.

    Raises:
        HudUsage: No lock file in the directory, or it is invalid.
    """
    path = Path(expanduser(env))
    if path.is_dir() and not (path / LOCK_NAME).is_file() and "/" in env:
        raise HudUsage(f"{one_line(env)} has no {LOCK_NAME}", "build the environment: hud build")
    if path.is_dir() and (path / LOCK_NAME).is_file():
        path = path / LOCK_NAME
    return described(load_lock(path)) if path.is_file() else None


async def _describe(client: HudClient, name: str) -> Described:
    """An environment as the service describes it: scenarios, no tools."""
    config = await client.tasks.environment(name)
    if config is None:
        hint = f"give a directory with {LOCK_NAME}, that file, or the name of an environment; "
        hint += f"or an image with its tag: {one_line(name)}:latest"
        raise HudUsage(f"no environment named {one_line(name)}", hint)
    if config.registry_id is None:
        offered = config.scenarios if isinstance(config.scenarios, list) else []
        return Described(name, scenarios=[(str(scenario), "") for scenario in offered])
    records = await client.tasks.scenarios(config.registry_id)
    return Described(
        name, scenarios=[(record.name, record.description or "") for record in records]
    )


def _file_name(name: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name[:80])
    return safe.strip(".") or "environment"


# ``keys``: every key of the app, including changes by the config file.


def keys(args: argparse.Namespace) -> int:
    """Print them, or those of one view; returns the exit code.

    Raises:
        HudUsage: Unknown view, or an invalid key in the config file.
    """
    directory = config_dir(os.environ)
    keymap = read_config(directory).keys
    views = dict.fromkeys(action.view for action in ACTIONS)
    if args.view is not None and args.view not in views:
        raise HudUsage(f"no view named {args.view}", f"known: {', '.join(views)}")
    usual = (action for action in ACTIONS if args.view in (None, action.view))
    actions = [with_keys(action, keymap) for action in usual]
    if args.headless:
        rows = [
            {
                "id": action.id,
                "view": action.view,
                "keys": action.keys.split(","),
                "shown": action.all_shown,
                "label": action.label,
                "does": action.help,
                "changed": action.id in keymap,
            }
            for action in actions
        ]
        emit("keys", {"file": str(directory / CONFIG_NAME), "keys": rows})
    else:
        table = [(action.id, action.all_shown, action.help) for action in actions]
        print("\n".join(aligned(table, most=200)))
    return 0


# ``log``: the command log of this machine.


def log(args: argparse.Namespace) -> int:
    """Print the newest entries, oldest first, as a document or as lines.

    Raises:
        HudUsage: Invalid limit.
    """
    if args.server:
        from hud_tui.cli.access import server_log

        return run_command(server_log, args, connector_of(args))
    refuse_beyond("--limit", args.limit, {"ge": 1})
    entries, bad = CommandLog(paths_of(args).state).read()
    matches = matching(entries, args.text or "")
    shown = matches[-args.limit :]
    if args.headless:
        facts = {"total": len(matches), "omitted": len(matches) - len(shown), "unreadable": bad}
        documents = [document(entry, flags_of(args)) for entry in shown]
        emit("log", {"entries": documents, **facts})
        return 0
    for entry in shown:
        model = entry.name or entry.model[:8]
        what = (
            f"{local_time(entry)}  {entry.outcome:<8}{entry.verb:<10} {model}  {change_text(entry)}"
        )
        print(one_line(f"{what}  {entry.message}".rstrip(), 400))
    if not shown:
        print("no changes from this machine yet" if not entries else "no entry matches")
    if bad:
        print(f"{counted(bad, 'unreadable line')} in the log")
    return 0
