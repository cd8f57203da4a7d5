"""``train``: train on an environment of the user's own; ``init-env``: write a small one to start
from."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from hud_tui.change import Change
from hud_tui.cli.alarms import thresholds
from hud_tui.cli.connect import command_of, connector_of, paths_of, run_connected
from hud_tui.cli.flags import given, parameters
from hud_tui.cli.output import confirm, emit, print_notice, require_consent
from hud_tui.cli.runs import checked_parameters, print_finding
from hud_tui.cli.streams import changed
from hud_tui.cli.watch import AlarmPrinter, Follower, alarm_level, result_at, result_text
from hud_tui.cli.which_model import choose_model
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import check_update
from hud_tui.client.starting import read_start
from hud_tui.client.submit import Submission
from hud_tui.errors import HudError, HudPreflightFailed, HudUsage
from hud_tui.parameters import ROLLOUT_OPTIONS
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.disk import check_room
from hud_tui.rl.findings import Finding, in_order, verdict
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import SUCCEEDED, has_ended, reason
from hud_tui.rollouts import control
from hud_tui.rollouts.environment import Loaded, check, check_source, load, setting_of
from hud_tui.rollouts.process import SDK_WORDS, EnvironmentFailed, WorkerProcess
from hud_tui.rollouts.run_files import (
    Order,
    RunFolder,
    keep_order,
    log_of_checks,
    losses_text,
    run_folder,
)
from hud_tui.rollouts.template import write_environment
from hud_tui.rollouts.trial import ROLLOUTS, Trial, evaluated_by, make_trial, prices_of, size_of
from hud_tui.rollouts.watched import error_text
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters

LOOK_S = 0.5
COUNTED = ("turn", "tool_call", "token")
MOST_ROLLOUTS = 256


def train(args: argparse.Namespace) -> int:
    """Check an environment, roll a few tasks out, then train on it; returns the exit code. Raises
    HudError: a check failed, or the service did not answer."""
    _checked(args)
    return asyncio.run(run_connected(train_with, args, connector_of(args)))


async def train_with(client: HudClient, args: argparse.Namespace) -> int:
    """`train` with a client; `args`: of its parser."""
    source, asked = _checked(args)
    return await _Command(client, args, source, asked).run()


def _checked(args: argparse.Namespace) -> tuple[Path, JobParameters]:
    """The source and the parameters of the command line. Raises HudUsage: one is invalid."""
    source = check_source(args.source)
    if args.check_rollouts is not None and not 1 <= args.check_rollouts <= MOST_ROLLOUTS:
        raise HudUsage(f"--check-rollouts {args.check_rollouts}", f"from 1 to {MOST_ROLLOUTS}")
    asked = checked_parameters(parameters(args))
    level = alarm_level(args)
    if level is not None and not (args.follow and args.headless):
        watch = command_of(args, "--headless", "watch", "MODEL", "--fail-on", level)
        hint = f"add --headless --follow, or watch it: {watch}"
        raise HudUsage(f"--fail-on {level} needs a run that is followed", hint)
    return source, asked


class _Command:
    def __init__(
        self, client: HudClient, args: argparse.Namespace, source: Path, asked: JobParameters
    ) -> None:
        self._client, self._args = client, args
        self._source, self._asked = source, asked
        self._paths = paths_of(args)
        self._has_begun = asyncio.Event()

    async def run(self) -> int:
        """Check, begin, and follow if requested."""
        args = self._args
        if not args.check:
            require_consent(args, self._client)
        model = await choose_model(self._client, args)
        if not args.check:
            self._client.wire.guard.check("train", Change("train", model.id))
            await control.require_absent_run(self._client, self._paths.state, model.id)
        start = await read_start(self._client, model)
        order = self._order(model, start.ref)
        document = await self._preflight(order, model)
        failed = document["verdict"] in ("failure", *args.fail_on)
        if args.check or failed:
            self._show("train", document)
            return HudPreflightFailed.exit_code if failed else 0
        what = f"train {model.model_name} from {start.name} on {one_line(self._source.name)}?"
        await confirm(args, what)
        if args.follow:
            if not (self._args.headless and await self._has_driven_runs()):
                await self._begin(order)
                return await self._follow(run_folder(self._paths.state, order.job_id), order)
            printer = AlarmPrinter(thresholds(), alarm_level(self._args))
            follower = Follower(self._client, model, printer, lambda: self._about(order))
            reporting = asyncio.create_task(self._report_kill(order))
            try:
                code = await follower.run(lambda: self._begin(order))
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)
            folder = run_folder(self._paths.state, order.job_id)
            if has_ended(folder.state().status):  # else an alarm ended this command
                await control.exited(folder)  # so that the model's next run can begin
            return code
        status = await control.begin(self._client, order, self._paths.state)
        self._show("job", self._begun(order, status))
        return 1 if status.status == "failed" else 0

    def _order(self, model: Model, start: str | None) -> Order:
        """The order of the command line. Raises HudUsage: an invalid number or name."""
        args = self._args
        return control.order_of(
            self._client,
            model,
            self._source,
            self._asked.model_dump(exclude_none=True),
            start=start,
            name=args.name,
            left_out=args.leave_out,
            **given(args, ROLLOUT_OPTIONS),
        )

    async def _preflight(self, order: Order, model: Model) -> dict[str, Any]:
        """Load and check the environment, and try it with the head; as a document."""
        log = log_of_checks(self._paths.state, order.source)
        setting = setting_of(order, self._client.settings, log)
        worker = WorkerProcess(setting)
        print_notice(f"starting {one_line(setting.interpreter.python)} ({setting.interpreter.why})")
        await worker.start()
        try:
            return await self._checked(worker, order, model)
        finally:
            await worker.close()

    async def _checked(self, worker: WorkerProcess, order: Order, model: Model) -> dict[str, Any]:
        trial: Trial | None = None
        try:
            loaded = await load(worker, self._client, order)
        except EnvironmentFailed as error:
            self._print_traceback(error.failure)
            raise
        findings = check(loaded, model, order.parameters, self._client.settings.program)
        findings += await check_update(self._client, model.id, order.parameters)
        findings += check_room(model, order.parameters["steps"])
        for finding in findings:
            print_finding(finding)
        if verdict(findings) != "failure" and not self._args.no_trial:
            trial, tried = await self._tried(worker, order, loaded, model)
            findings += tried
        interpreter, size = worker.setting.interpreter, size_of(order, loaded.tasks)
        prices = prices_of(self._client, model, self._paths.state)
        evaluated = evaluated_by(order, model, loaded.tasks)
        return {
            "source": order.source,
            "model": order.model,
            "interpreter": {"python": interpreter.python, "found": interpreter.why, **worker.about},
            "runtime": order.runtime,
            "environments": loaded.environments,
            "tasks": len(loaded.tasks),
            "heldout": sum(task.heldout for task in loaded.tasks),
            "tasks_from": loaded.origin,
            "parameters": order.parameters,
            "findings": in_order(findings),
            "log": str(worker.setting.log),
            "verdict": verdict(findings),
            "rollout": None if trial is None else trial.first,
            "signal": None if trial is None else trial.document(size),
            "estimate": None if trial is None else trial.estimate(size, prices, evaluated),
        }

    async def _tried(
        self, worker: WorkerProcess, order: Order, loaded: Loaded, model: Model
    ) -> tuple[Trial | None, list[Finding]]:
        """Try some tasks with the head, and print what that found."""
        count = self._args.check_rollouts or ROLLOUTS
        trial, findings = await make_trial(worker, self._client, order, loaded, model, count)
        if self._args.anyway:
            findings = [_as_warning(finding) for finding in findings]
        for finding in findings:
            print_finding(finding, always=True)
        if trial is not None:
            keep_order(self._paths.state, trial.job_id, order)
            if trial.failure:
                self._print_traceback(trial.failure)
        return trial, findings

    def _print_traceback(self, failure: Mapping[str, Any]) -> None:
        for line in str(failure.get("traceback") or "").splitlines():
            print(f"  {one_line(line, 400)}" if line.strip() else "", file=sys.stderr)

    def _begun(self, order: Order, status: Any) -> dict[str, Any]:
        fields = {"job_id": order.job_id, "model": order.model, "status": status}
        return {**fields, **self._about(order)}

    def _about(self, order: Order) -> dict[str, Any]:
        """What the files of a run tell beyond its status."""
        watch = self._client.settings.command("--headless", "status", order.job_id)
        return {"watch": watch, **control.report_of(run_folder(self._paths.state, order.job_id))}

    async def _has_driven_runs(self) -> bool:
        """Whether the service has driven runs: the embedded one does."""
        return self._client.settings.embedded

    async def _begin(self, order: Order) -> Submission:
        before = await self._client.known_job(order.model_id)
        await control.begin(self._client, order, self._paths.state)
        self._has_begun.set()
        return Submission(order.job_id, before=before)

    async def _report_kill(self, order: Order) -> None:
        """Have the service know at once if the driver is killed."""
        folder = run_folder(self._paths.state, order.job_id)
        await self._has_begun.wait()
        with suppress(HudError, OSError):  # else the driver's reports are overdue soon
            while True:
                await asyncio.sleep(LOOK_S)
                if not folder.is_driven:
                    break
            await control.status_of(self._client, folder, order.job_id)

    async def _follow(self, folder: RunFolder, order: Order) -> int:
        """Print each step until the run ends, from its files."""
        print_notice(f"job {order.job_id} began; it continues if this command is interrupted")
        shown, lost = 0, 0
        while True:
            await asyncio.sleep(LOOK_S)
            is_driven, state = folder.is_driven, folder.state()
            if state.step > shown:
                result = await self._result(order, state.checkpoint_id)
                rewards = result_text(result) or "taken"
                print_notice(f"step {state.step} of {order.parameters['steps']}: {rewards}")
                shown = state.step
            if state.failed > lost:
                print_notice(losses_text(state.failed, state.groups_lost))
                lost = state.failed
            if not is_driven:
                break
        status = await control.status_of(self._client, folder, order.job_id)
        result = await self._result(order, folder.state().checkpoint_id)
        self._show("job", {**self._begun(order, status), "result": result})
        return 0 if status.status in SUCCEEDED else 1

    async def _result(self, order: Order, checkpoint_id: str | None) -> dict[str, Any] | None:
        """Rewards of one step's checkpoint; None if the step is not in the tree."""
        tree = Tree.of(await self._client.checkpoints(order.model_id))
        return result_at(tree, None if checkpoint_id is None else tree.find(checkpoint_id))

    def _show(self, kind: str, document: Mapping[str, Any]) -> None:
        if self._args.headless:
            emit(kind, document)
        elif kind == "train":
            print(_check_text(document))
        else:
            print(_job_text(document))


def _as_warning(finding: Finding) -> Finding:
    """A finding that groups will have no gradient, as no failure."""
    is_failure = finding.check == "signal" and finding.level == "failure"
    return replace(finding, level="warning") if is_failure else finding


def _check_text(document: Mapping[str, Any]) -> str:
    """The checks, for people."""
    about = document["interpreter"]
    lines = [
        f"environment  {document['source']}",
        f"python       {about.get('python')} with hud {about.get('hud')} ({about['found']})",
    ]
    for environment in document["environments"]:
        names = ", ".join(template["id"] for template in environment["templates"])
        lines.append(f"templates    {environment['name']}: {names}")
    held = f", {document['heldout']} held out" if document["heldout"] else ""
    lines.append(f"tasks        {document['tasks']}{held}, from {document['tasks_from']}")
    if document["rollout"]:
        lines += _trial_lines(document["rollout"])
    if document["estimate"]:
        lines.append(f"estimate     {document['estimate']}")
    lines.append(f"verdict      {document['verdict']}")
    return "\n".join(one_line(line, 400) for line in lines)


def _trial_lines(trial: Mapping[str, Any]) -> list[str]:
    run = trial["run"]
    if run["error"] is not None:
        phase = (run.get("failure") or {}).get("phase")
        failed = f"failed{f' in {phase}' if phase else ''}"
        return [f"rollout      {trial['title']}: {failed}: {error_text(run)}"]
    parts = [f"reward {run['reward']:g}"]
    if run["turns"] is not None:
        parts += [counted(run[f"{what}s"], what.replace("_", " ")) for what in COUNTED]
    parts += [f"{run['seconds']:.1f} s"]
    lines = [f"rollout      {trial['title']}: {', '.join(parts)}", f"answer       {run['content']}"]
    for subscore in run.get("subscores") or ():
        lines.append(
            f"subscore     {subscore['name']}: {subscore['value']:g}, weight {subscore['weight']:g}"
        )
    if run.get("info"):
        lines.append(f"info         {run['info']}")
    return lines


def _job_text(document: Mapping[str, Any]) -> str:
    status = document["status"]
    lines = [f"job {document['job_id']}  {status.status}  step {status.step} of {status.steps}"]
    if why := reason(status):
        lines.append(f"why  {why}")
    if document["failed_rollouts"]:
        lines.append(losses_text(document["failed_rollouts"], document["groups_lost"]))
    for failure in document["failures"][-1:]:
        where = f"{failure.get('file')}:{failure.get('line')}" if failure.get("file") else ""
        lines.append(f"last failure  {where} {failure.get('type')}: {failure.get('message')}")
        lines += str(failure.get("traceback") or "").splitlines()[-6:]
    lines.append(f"log  {document['logs']['environment']}")
    if rewards := result_text(document.get("result")):
        lines.append(f"result  {document['result']['checkpoint']}: {rewards}")
    return "\n".join(one_line(line, 400) for line in lines)


# ``init-env``.


def init_env(args: argparse.Namespace) -> int:
    """Write a small environment; returns the exit code. Raises HudUsage: it cannot be written."""
    files = write_environment(args.name, Path(args.output or "."), args.kind)
    shown = [one_line(file) for file in files]
    changed(f"write {', '.join(shown)}")
    folder, tests = (quote(one_line(path.parent)) for path in files)
    begin = command_of(args, "train", shown[0], "-m", "MODEL")
    install = f"python3.11 -m venv {folder}/.venv && {folder}/.venv/bin/pip install {SDK_WORDS}"
    test = f"{folder}/.venv/bin/python -m unittest discover {tests}"
    play = command_of(args, "play", shown[0])
    if args.headless:
        told = {"install": install, "test": test, "play": play, "train": begin}
        emit("init-env", {"files": shown, **told})
        return 0
    for file in shown:
        print(f"wrote {file}")
    print(f"the SDK:   {install}")
    print(f"test it:   {test}")
    print(f"play it:   {play}")
    print(f"check it:  {begin} --check")
    print(f"train it:  {begin}")
    return 0
