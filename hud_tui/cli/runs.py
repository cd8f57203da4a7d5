"""``preflight``, ``run`` and ``sweep``."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import Any, TextIO
from urllib.parse import quote

from pydantic import ValidationError

from hud_tui.change import Change, TaskSource
from hud_tui.cli.alarms import thresholds
from hud_tui.cli.connect import command_of, connector_of, paths_of, run_connected
from hud_tui.cli.flags import parameters, swept
from hud_tui.cli.output import bar, confirm, emit, print_notice, require_consent, show
from hud_tui.cli.streams import changed
from hud_tui.cli.watch import AlarmPrinter, Follower, alarm_level, emit_event, print_event
from hud_tui.cli.which_model import choose_model
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import check_update, choose_tasks, load_source
from hud_tui.client.preflight import preflight as check
from hud_tui.client.signal import SignalCache, ask_of, measure, size_of
from hud_tui.client.starting import read_start
from hud_tui.client.submit import (
    SweepDriver,
    cancel_sweep,
    job_of,
    plan_sweep,
    refreshed,
    submit,
    sweep_to_resume,
)
from hud_tui.client.sweep_files import SweepFiles
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudError, HudPreflightFailed, HudUsage, refuse_beyond
from hud_tui.parameters import RUNS_AT_ONCE
from hud_tui.rl.cost import evaluation_facts
from hud_tui.rl.disk import check_room, where_stored
from hud_tui.rl.findings import Finding, in_order, verdict
from hud_tui.rl.settings import DEFAULT, completed, defaults, setting_label, write, wrong_value
from hud_tui.rl.sweep import (
    Member,
    Sweep,
    combinations,
    paced_like,
    run_costs,
    size_of_runs,
    sweep_facts,
)
from hud_tui.rl.tasks.legacy import find_variables
from hud_tui.rl.tasks.signal import Progress, check_signal, document
from hud_tui.rl.tasks.task import Task, form_of, split_text
from hud_tui.rl.text import age, counted, one_line
from hud_tui.rl.work import Work
from hud_tui.rollouts.control import works_of
from hud_tui.rollouts.trial import prices_of
from hud_tui.settings import read_paths, set_variables
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters

# Printing what a submission sends.


LABEL = 16


async def _plan(
    client: HudClient,
    args: argparse.Namespace,
    model: Model,
    tasks: Sequence[Task],
    origin: dict[str, Any],
    asked: JobParameters,
    findings: Iterable[Finding],
    start: str,
) -> dict[str, Any]:
    """Print everything that a submission sends and costs; returns the document of ``--dry-run``."""
    like = await _paced_like(args, client, model, origin["name"])
    values = asked.model_dump(exclude_none=True)
    prices = prices_of(client, model, paths_of(args).state)
    size = size_of_runs([values], 1, model, tasks, like, prices)
    lines = [
        ("model", model.model_name),
        ("starts from", start),
        ("tasks", f"{split_text(tasks)}, format {form_of(tasks)}"),
        ("from", f"{origin['loaded_from']} {origin['source']}"),
        ("environments", ", ".join(dict.fromkeys(task.env for task in tasks))),
        *((setting_label(name), json.dumps(value)) for name, value in values.items()),
        ("other", _usual(model, values)),
    ]
    held = sum(task.heldout for task in tasks)
    for run in size.each:
        lines += evaluation_facts(run, values, held)
    filled = [run.name for run in find_variables(tasks, set_variables())]
    lines += [("variables", ", ".join(filled))] if filled else []
    lines += run_costs(size)
    lines += where_stored(model, asked.steps)
    lines += [(run.level, run.message) for run in findings if run.level != "ok"]
    print_facts(lines, plan_stream(args))
    costs = {key: getattr(size, key) for key in COSTS}
    return {
        "sent": False,
        "model": model.model_name,
        "source": origin["source"],
        "tasks": len(tasks),
        "parameters": values,
        "rollouts": size.rollouts,
        "size": asdict(size.each[0]) | costs if size.each else None,
        "start": start,
    }


def plan_stream(args: argparse.Namespace) -> TextIO:
    """Where a plan is printed: stdout if it is the result, as text of ``--dry-run``."""
    return sys.stdout if args.dry_run and not args.headless else sys.stderr


def _usual(model: Model, values: Mapping[str, object]) -> str:
    """The model's own defaults of what is not given."""
    if model.training_defaults is None:
        return "defaults of the service for this model"
    left = {key: value for key, value in defaults(model).items() if key not in values}
    chosen = {key: value for key, value in left.items() if value not in (None, False, DEFAULT)}
    texts = [f"{setting_label(key)} {write(value)}" for key, value in chosen.items()]
    return f"defaults of the model: {', '.join(texts)}" if texts else "defaults of the model"


async def preflight(client: HudClient, args: argparse.Namespace) -> int:
    """Check a taskset, and a model for it; exit code 5 where a check failed."""
    asked = parameters_in(args)
    refuse_beyond("--sample", args.sample, {"ge": 1})
    tasks, origin = await load_source(client, args.source)
    model, unchosen = await _model(client, args)
    findings = unchosen + await check_everything(client, tasks, model, asked, origin.get("lock"))
    document: dict[str, Any] = {}
    if args.sample is not None and model is not None and verdict(findings) != "failure":
        finding, document = await signal(client, args, tasks, origin, asked, model)
        findings.append(print_finding(finding))
    emit("preflight", _document(tasks, origin, findings) | document)
    return HudPreflightFailed.exit_code if is_refused([args.fail_on], findings) else 0


async def _model(client: HudClient, args: argparse.Namespace) -> tuple[str | None, list[Finding]]:
    """The model's name; or None and a finding that no model is checked. Raises HudUsage: sampling
    needs a model, and several are possible."""
    if args.model:
        return args.model, []
    try:
        return (await choose_model(client, args)).model_name, []
    except HudUsage as error:
        if args.sample is not None:
            raise
        message = f"{error.message}: model not checked"
        return None, [print_finding(Finding("model", "warning", message, fix=error.hint))]


async def run(client: HudClient, args: argparse.Namespace) -> int:
    """Check, then submit once; with ``--follow`` print events until the run ends. Several values of
    a parameter make a sweep."""
    several = swept(args)
    asked = _largest(args, several) if several else parameters_in(args)
    printer = None if several else _alarm_printer(args)
    at_once = _at_once(args) or RUNS_AT_ONCE.usual
    if not args.dry_run:
        require_consent(args, client)
    everything, origin = await load_source(client, args.source)
    tasks, source = choose_tasks(everything, origin, args.leave_out, args.digest)
    model = await choose_model(client, args)
    if not args.dry_run:
        verb = "fork" if several else "submit"
        client.wire.guard.check(args.command, Change(verb, model.id))
    asked = completed(model, asked)
    findings = await check_everything(client, tasks, model.id, asked, origin.get("lock"))
    for loss_fn in several.get("loss_fn", ()):
        loss = {"loss_fn": loss_fn, "loss_fn_config": asked.loss_fn_config}
        if loss_fn != asked.loss_fn:
            findings += map(print_finding, await check_update(client, model.id, loss))
    if is_refused(args.fail_on, findings):
        document = _document(tasks, origin, findings)
        show(args, "preflight", document, "nothing was submitted: preflight failed")
        return HudPreflightFailed.exit_code
    if several:
        return await begin(client, args, model, tasks, source, origin["name"], at_once)
    start = await read_start(client, model)
    if not args.yes or args.dry_run:
        plan = await _plan(client, args, model, tasks, origin, asked, findings, start.name)
        if args.dry_run:
            show(args, "run", plan, "nothing was submitted: --dry-run")
            return 0
    on = f"{counted(len(tasks), 'task')} of {origin['name']}"
    await confirm(args, f"train {model.model_name} on {on}?")
    once = partial(submit, client, job_of(model, tasks, asked, start), source)
    if printer is not None:
        return await Follower(client, model, printer).run(once)
    submission = await once()
    if submission.found:
        print_notice("the submission got no answer, but the service runs the job")
    show_job(client, args, model, submission.job_id, "submitted")
    return 0


def show_job(
    client: HudClient, args: argparse.Namespace, model: Model, job_id: str, what: str
) -> None:
    """Print a run's job, which is not followed. `what`: what was done, e.g. ``submitted``."""
    watch = client.settings.command("--headless", "status", job_id)
    document = {"job_id": job_id, "model": model.model_name, "watch": watch}
    if not client.settings.embedded:
        document["url"] = f"{client.settings.web_url}/jobs/{quote(job_id, safe='')}"
    live = client.settings.command("status", job_id)
    shown = f"{what} job {job_id} of {model.model_name}; watch it: {live}"
    show(args, "job", document, shown)


def _alarm_printer(args: argparse.Namespace) -> AlarmPrinter | None:
    """The printer of alarms; None without ``--follow``."""
    level = alarm_level(args)
    if args.follow:
        shown = emit_event if args.headless else print_event
        return AlarmPrinter(thresholds(), level, show=shown)
    if level is not None:
        watch = command_of(args, "--headless", "watch", "MODEL", "--fail-on", level)
        hint = f"add --follow, or watch it: {watch}"
        raise HudUsage(f"--fail-on {level} needs --follow", hint)
    return None


def _works(args: argparse.Namespace, client: HudClient) -> WorkClient:
    return works_of(client, paths_of(args).state)


COSTS = ("sampled_tokens", "trained_tokens", "seconds", "basis", "dollars", "machine_dollars")
"""Of a single run, beside the fields of its `RunSize`."""


async def _paced_like(
    args: argparse.Namespace, client: HudClient, model: Model, taskset: str
) -> Work | None:
    """The run that an estimate of time goes by; None on HUD, which has no list of all runs."""
    if model.training_defaults is None:
        return None
    return paced_like(await _works(args, client).runs.read(), model, taskset)


def _largest(args: argparse.Namespace, several: dict[str, tuple[Any, ...]]) -> JobParameters:
    """The parameters of a sweep's largest batch, after checking those of all runs. Raises HudUsage:
    invalid parameters, too many runs, or ``--fail-on`` an alarm."""
    if alarm_level(args) is not None:
        raise HudUsage("--fail-on an alarm is for one run", "watch the runs of a sweep one by one")
    largest = [checked_parameters({**parameters(args), **c}) for c in combinations(several)]
    return max(largest, key=lambda p: (p.group_size or 0) * (p.tasks_per_step or 1))


def parameters_in(args: argparse.Namespace) -> JobParameters:
    """The parameters of the command line. Raises HudUsage: one is out of bounds."""
    return checked_parameters(parameters(args))


def checked_parameters(values: dict[str, Any]) -> JobParameters:
    """Parameters from the command line. Raises HudUsage: one is out of bounds."""
    try:
        return JobParameters(**values)
    except ValidationError as error:
        raise wrong_value(error) from error


def is_refused(fail_on: list[str], findings: list[Finding]) -> bool:
    """Whether ``--fail-on`` ends the command."""
    return verdict(findings) in ("failure", *fail_on)


async def check_everything(
    client: HudClient, tasks: list[Task], model: str | None, asked: JobParameters, lock: str | None
) -> list[Finding]:
    """All checks of preflight; what is wrong is printed."""
    findings = []
    async for finding in check(client, tasks, model, asked, lock):
        findings.append(print_finding(finding))
    return findings


def print_finding(finding: Finding, always: bool = False) -> Finding:
    """Print a finding of the checks if it is a warning or failure, or `always`; returns it."""
    if finding.level != "ok" or always:
        print_notice(finding.line)
    return finding


def _document(tasks: list[Task], origin: dict[str, Any], findings: list[Finding]) -> dict[str, Any]:
    return {
        **origin,
        "tasks": len(tasks),
        "variables": find_variables(tasks, set_variables()),
        "findings": in_order(findings),
        "verdict": verdict(findings),
    }


# ``preflight --sample``: the signal of the tasks, from sampled rollouts.


async def signal(
    client: HudClient,
    args: argparse.Namespace,
    tasks: list[Task],
    origin: dict[str, Any],
    parameters: JobParameters,
    model_name: str,
) -> tuple[Finding, dict[str, Any]]:
    """Sample rollouts; returns the finding, and ``signal`` of the document."""
    model = await client.model(model_name)
    asked = await ask_of(client, model, parameters, args.sample)
    paths = read_paths(args.state_dir, args.data_dir)
    cache = SignalCache(paths.state / "signal", fresh=args.fresh)
    taskset_id = None if args.fresh else origin.get("taskset_id")
    last, shown = None, -1
    async with aclosing(measure(client, tasks, model, asked, cache, taskset_id)) as measured:
        async for last in measured:
            if last.done != shown:
                _show_progress(last)
                shown = last.done
    assert last is not None
    size = size_of(model, parameters, asked, tasks)
    if last.trouble:
        print_notice(f"a rollout failed: {last.trouble}")
    facts = {
        "model": model.model_name,
        "checkpoint": asked.checkpoint,
        "sampling": asked.sampling,
        "groups": asked.groups,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    signals = document(last.signals, size, last.pace, facts)
    return check_signal(last.signals, size, client.settings.program), {"signal": signals}


def _show_progress(progress: Progress) -> None:
    """A progress bar on a terminal; elsewhere the first and last report."""
    done, total = progress.done, progress.total
    if not sys.stderr.isatty():
        if done == total:
            print_notice(f"{done} of {total} rollouts, {len(progress.signals)} tasks")
        return
    end = "\n" if done == total else ""
    print(f"\r\x1b[K{bar(done, total)} rollouts", end=end, file=sys.stderr, flush=True)


# Sweeps: several runs from one ``run``, and ``sweep``: list, show, cancel, resume.


SWEEP, MEMBER = "sweep", "sweep_run"


async def begin(
    client: HudClient,
    args: argparse.Namespace,
    model: Model,
    tasks: Sequence[Task],
    source: TaskSource,
    name: str,
    at_once: int,
) -> int:
    """Print the cost of a sweep, then fork and submit; returns the exit code."""
    if args.leave_out:
        raise HudUsage("--leave-out is for one run", "write the tasks of a sweep to a file")
    works = _works(args, client)
    of, shared, several = (source.origin, tasks), parameters(args), swept(args)
    sweep = await plan_sweep(works, model, of, shared, several, at_once, ())
    like = await _paced_like(args, client, model, name)
    prices = prices_of(client, model, paths_of(args).state)
    size = size_of_runs(sweep.runs, sweep.at_once, model, tasks, like, prices)
    out = plan_stream(args)
    print_notice(f"sweep {sweep.name}: {size.summary}", out)
    lines = sweep_facts(sweep, size, model, tasks)
    lines += [(finding.level, finding.message) for finding in check_room(model, size.steps)]
    print_facts((line for line in lines if line[0] != "ok"), out)
    document = _sweep_document(sweep) | {"size": size.document, "sent": not args.dry_run}
    if args.dry_run:
        show(args, SWEEP, document, "nothing was submitted: --dry-run")
        return 0
    many = len(sweep.members)
    await confirm(args, f"fork {model.model_name} {many} times and train on {name}?")
    works.sweeps.keep(sweep, cancelled=False)
    changed(f"begin {sweep.name}, no run yet", f"{_again(client, sweep)} submits them")
    show(args, SWEEP, document)
    return await _drive(args, works, sweep, tasks)


def _at_once(args: argparse.Namespace) -> int | None:
    refuse_beyond(RUNS_AT_ONCE.flag, args.at_once, RUNS_AT_ONCE.bounds)
    at_once: int | None = args.at_once
    return at_once


def print_facts(lines: Iterable[tuple[str, str]], out: TextIO) -> None:
    """Print labels, each with its text."""
    for label, text in lines:
        print(f"  {label:<{LABEL}} {one_line(text, 300)}", file=out, flush=True)


async def _drive(
    args: argparse.Namespace,
    works: WorkClient,
    sweep: Sweep,
    tasks: Sequence[Task],
    again: bool = False,
) -> int:
    follow, headless = args.follow, args.headless
    printed: dict[str, str] = {}

    def show_member(now: Sweep, member: Member) -> None:
        if headless:
            emit(MEMBER, {"sweep": now.name, **member.model_dump(mode="json")})
        elif printed.get(member.name) != (line := _line(member)):  # ids change too, unseen here
            printed[member.name] = line
            print(line, flush=True)

    driver = SweepDriver(works, sweep, tasks, show_member, again)
    try:
        ended = await driver.run(follow)
    except asyncio.CancelledError:
        print_notice(
            f"{sweep.name}: its runs continue; start the others with {_again(works.client, sweep)}"
        )
        raise
    if headless:
        emit(SWEEP, _sweep_document(ended))
    refused = any(member.status == "refused" for member in ended.members)
    bad = ended.status in ("failed", "cancelled") if follow else refused
    return 1 if bad else 0


def _again(client: HudClient, sweep: Sweep) -> str:
    return client.settings.command("sweep", sweep.name, "--resume", "-y")


# ``sweep``.


def sweep(args: argparse.Namespace) -> int:
    """List the sweeps; show, cancel or resume one; returns the exit code.

    Raises:
        HudUsage: No such sweep, or its tasks have changed.
        HudError: The service does not answer, or refuses.
    """
    files = SweepFiles(paths_of(args).state)
    if args.sweep is None:
        if args.cancel or args.resume:
            raise HudUsage("say which sweep", f"{command_of(args, 'sweep')} lists them")
        return _list(args, _refreshed_all(args, files.all()))
    sweep = files.find(args.sweep)

    async def work(client: HudClient, args: argparse.Namespace) -> int:
        return await _steer(client, args, sweep)

    return asyncio.run(run_connected(work, args, connector_of(args)))


async def _steer(client: HudClient, args: argparse.Namespace, sweep: Sweep) -> int:
    if not await client.is_of(sweep.service):
        where = one_line(sweep.service, 100)
        where = where if "://" in where else f"the service of another data directory ({where})"
        raise HudUsage(f"{sweep.name} was started on {where}", "connect to that service")
    if args.cancel or args.resume:
        require_consent(args, client)
        what = "cancel" if args.cancel else "resume"
        await confirm(args, f"{what} {sweep.name}, {len(sweep.members)} runs?")
    works = _works(args, client)
    if args.resume:
        resumed, tasks = await sweep_to_resume(works, sweep, _at_once(args))
        changed(f"resume {resumed.name}")
        if all(member.ended for member in resumed.members):
            print_notice(f"nothing to resume: every run of {resumed.name} has ended")
            _show_sweep(args, resumed)
            return 0
        return await _drive(args, works, resumed, tasks, again=True)
    sweep = await refreshed(works, sweep)
    if args.cancel:
        sweep = await cancel_sweep(works, sweep)
        changed(f"cancel {sweep.name}")
    _show_sweep(args, sweep)
    return 0


def _refreshed_all(args: argparse.Namespace, sweeps: Sequence[Sweep]) -> Sequence[Sweep]:
    """The sweeps with the present status of the runs of the service that answers; those of another
    service as they were when they were last followed from here."""

    async def work(client: HudClient, args: argparse.Namespace) -> int:
        works = _works(args, client)
        for stored in sweeps:
            is_here = await client.is_of(stored.service)
            refreshed_sweeps.append(await refreshed(works, stored) if is_here else stored)
        return 0

    refreshed_sweeps: list[Sweep] = []
    if all(member.ended for sweep in sweeps for member in sweep.members):
        return sweeps
    try:
        asyncio.run(run_connected(work, args, connector_of(args)))
    except HudError as error:
        print_notice(
            f"{error.message}: what is not ended is shown as it was when it was last followed"
        )
        return sweeps
    return refreshed_sweeps


def _list(args: argparse.Namespace, sweeps: Sequence[Sweep]) -> int:
    if args.headless:
        emit("sweeps", {"sweeps": [_sweep_document(sweep) for sweep in sweeps]})
        return 0
    for sweep in sweeps:
        ended = f"{sum(member.ended for member in sweep.members)}/{len(sweep.members)} ended"
        when = age(sweep.created_at, time())
        print(one_line(f"{sweep.name}  {sweep.status}  {ended}  {sweep.model}  {when}", 200))
    if not sweeps:
        start = command_of(args, "run", "TASKS", "-m", "MODEL", "--lr", "1e-4,3e-4")
        print(f"no sweeps on this machine; start one: {start}")
    return 0


def _show_sweep(args: argparse.Namespace, sweep: Sweep) -> None:
    if args.headless:
        emit(SWEEP, _sweep_document(sweep))
        return
    print(one_line(f"{sweep.name}  {sweep.status}  {sweep.model}  {sweep.source}", 300))
    for member in sweep.members:
        print(_line(member))


def _line(member: Member) -> str:
    why = f"  {member.error}" if member.error else ""
    return one_line(f"  {member.status:<11} {member.name}  {member.values_text}{why}", 400)


def _sweep_document(sweep: Sweep) -> dict[str, Any]:
    return {**sweep.model_dump(mode="json"), "status": sweep.status}
