"""``preflight`` and ``run``."""

import argparse
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from hud_tui.client.client import HudClient
from hud_tui.client.preflight import preflight as check
from hud_tui.client.sources import load_source
from hud_tui.client.submission import Submission, submit
from hud_tui.commands.parser import flag
from hud_tui.commands.runs import parameters
from hud_tui.errors import HudPreflightFailed, HudUsage
from hud_tui.headless.alarms import thresholds
from hud_tui.headless.consent import confirm, require_consent
from hud_tui.headless.follow import Follower
from hud_tui.headless.output import emit, tell
from hud_tui.headless.sentry import Sentry
from hud_tui.headless.submitting import choose_model, say_what_is_sent
from hud_tui.rl.preflight import Finding, in_order, verdict
from hud_tui.rl.run_form import completed
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.variables import find_variables
from hud_tui.rl.written import Change
from hud_tui.variables import set_variables
from hud_tui.wire import JobConfig, JobDataset, JobParameters, SubmitJob


async def preflight(client: HudClient, args: argparse.Namespace) -> int:
    """Check a taskset, and a model for it; exit code 5 where a check failed."""
    asked = _parameters(args)
    tasks, origin = await load_source(client, args.source)
    model, unchosen = await _model(client, args)
    findings = unchosen + await _findings(client, tasks, model, asked, origin.get("lock"))
    document: dict[str, Any] = {}
    if args.sample is not None and model is not None and verdict(findings) != "failure":
        from hud_tui.headless.signal import signal

        found, document = await signal(client, args, tasks, origin, asked, model)
        findings.append(_told(found))
    emit("preflight", _document(tasks, origin, findings) | document)
    return HudPreflightFailed.exit_code if _fails([args.fail_on], findings) else 0


async def _model(client: HudClient, args: argparse.Namespace) -> tuple[str | None, list[Finding]]:
    """The model's name; else None, with the finding that none is checked.

    Raises:
        HudUsage: It is wanted for sampling, and it is not clear which.
    """
    if args.model:
        return args.model, []
    try:
        return (await choose_model(client, args)).model_name, []
    except HudUsage as error:
        if args.sample is not None:
            raise
        message = f"{error.message}, so none is checked"
        return None, [_told(Finding("model", "warning", message, fix=error.hint))]


async def run(client: HudClient, args: argparse.Namespace) -> int:
    """Check, submit once, and with ``--follow`` print events until the run has ended."""
    require_consent(args, client)
    asked = _parameters(args)
    sentry = _sentry(args)
    tasks, origin = await load_source(client, args.source)
    model = await choose_model(client, args)
    client.wire.guard.check(args.command, Change("submit", model.id))
    asked = completed(model, asked)
    findings = await _findings(client, tasks, model.id, asked, origin.get("lock"))
    if _fails(args.fail_on, findings):
        emit("preflight", _document(tasks, origin, findings))
        return HudPreflightFailed.exit_code
    if not args.yes:
        say_what_is_sent(model, tasks, origin, asked, findings)
    await confirm(args, f"train {model.model_name} on {len(tasks)} tasks of {origin['name']}?")
    body = SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=[task.row() for task in tasks]),
        config=JobConfig(parameters=asked),
    )
    if sentry is not None:
        return await Follower(client, model, sentry).run(body)
    submission = await submit(client, body)
    _say_if_found(submission)
    flags = "--headless --local" if client.settings.local else "--headless"
    watch = f"hud-tui {flags} status {submission.job_id}"
    web = {} if client.settings.local else {"url": _page(client, submission.job_id)}
    said = {"job_id": submission.job_id, "model": model.model_name, "watch": watch}
    emit("job", said | web)
    return 0


def _sentry(args: argparse.Namespace) -> Sentry | None:
    """Who watches the run; None where nobody follows it."""
    alarms = [level for level in ("warn", "critical") if level in args.fail_on]
    if args.follow:
        return Sentry(thresholds(), alarms[0] if alarms else None)
    if alarms:
        hint = "add --follow, or use hud-tui watch"
        raise HudUsage(f"--fail-on {alarms[0]} needs --follow", hint)
    return None


def _parameters(args: argparse.Namespace) -> JobParameters:
    try:
        return JobParameters(**parameters(args))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = flag(str(first["loc"][0]))
        raise HudUsage(f"{name} {one_line(first['input'])}: {first['msg']}") from error


def _fails(fail_on: list[str], findings: list[Finding]) -> bool:
    """Whether it is to end here, as ``--fail-on`` has it."""
    return verdict(findings) in ("failure", *fail_on)


async def _findings(
    client: HudClient, tasks: list[Task], model: str | None, asked: JobParameters, lock: str | None
) -> list[Finding]:
    findings = []
    async for finding in check(client, tasks, model, asked, lock):
        findings.append(_told(finding))
    return findings


def _told(finding: Finding) -> Finding:
    """The finding, once people have been told of it where it is bad."""
    if finding.level != "ok":
        where = f" [{finding.where}]" if finding.where else ""
        fix = f" ({finding.fix})" if finding.fix else ""
        tell(f"{finding.level}: {finding.message}{where}{fix}")
    return finding


def _document(tasks: list[Task], origin: dict[str, Any], findings: list[Finding]) -> dict[str, Any]:
    return {
        **origin,
        "tasks": len(tasks),
        "variables": find_variables(tasks, set_variables()),
        "findings": in_order(findings),
        "verdict": verdict(findings),
    }


def _page(client: HudClient, job_id: str) -> str:
    """Where the platform shows a job."""
    return f"{client.settings.web_url}/jobs/{quote(job_id, safe='')}"


def _say_if_found(submission: Submission) -> None:
    if submission.found:
        tell("no answer came to the submission, but the service runs the job")
