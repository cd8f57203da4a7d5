"""Submitting runs: a single one, finding the outcome if its answer is lost; and sweeps of several.

This program drives a sweep, with a limited number of active runs, and stores its state in a file:
the service only knows runs, so this works on HUD as on the embedded service. Each request is
recorded in the file before it is sent, so that a sweep whose process was killed can continue
without making a fork or submitting a run twice.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import time
from typing import Any
from uuid import uuid4

from hud_tui.audit_log import AuditEntry
from hud_tui.change import UNNAMED, TaskSource
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import choose_tasks, load_source
from hud_tui.client.starting import StartingPoint, read_start
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudConflict, HudError, HudNotFound, HudRefused, HudUnclear, HudUsage
from hud_tui.rl.sweep import AGAIN, WAITING, Member, Sweep, members_of, sweep_name
from hud_tui.rl.tasks.legacy import fill_rows
from hud_tui.rl.tasks.task import Task, rows_digest
from hud_tui.rl.text import one_line
from hud_tui.rl.work import is_active, trouble
from hud_tui.settings import every_variable
from hud_tui.wire import BASE, Model, WorkState
from hud_tui.wire_runs import JobConfig, JobDataset, JobParameters, SubmitJob

# A single run.


LOOKS, LOOK_S = 3, 1.0
"""Attempts to find a lost submission, and seconds between them."""


def job_of(
    model: Model, tasks: Sequence[Task], asked: JobParameters, start: StartingPoint
) -> SubmitJob:
    """The request of a run."""
    return SubmitJob(
        model_id=model.id,
        dataset=JobDataset(tasks=[task.row() for task in tasks]),
        config=JobConfig(parameters=asked),
        start=start.ref,
    )


@dataclass(frozen=True)
class Submission:
    """A run accepted by the service."""

    job_id: str
    found: bool = False
    """Whether its answer was lost, and the run was found as the model's latest."""
    before: WorkState | None = None
    """The model's latest run before this submission."""

    def is_before(self, job: WorkState) -> bool:
        """Whether `job` is the run before this submission, as far as can be told."""
        before = self.before
        return before is not None and (before.id, before.created_at) == (job.id, job.created_at)


async def submit(client: HudClient, body: SubmitJob, source: TaskSource = UNNAMED) -> Submission:
    """Submit a run once. If the answer is lost, look for a new run of the model. `source`: what its
    tasks came from, for the command log. Raises HudError: refused, or lost and no new run was
    found."""
    before = await client.known_job(body.model_id)
    body = _filled(body)
    try:
        return Submission((await client.runs.submit(body, source)).job_id, before=before)
    except HudConflict as error:
        error.hint = error.hint or await _how_to_cancel(client, body.model_id)
        raise
    except HudUnclear as error:
        failure = error
    after = await _find_new_run(client, body.model_id, Submission("", before=before), failure)
    return Submission(after.id or body.model_id, found=True, before=before)


async def _how_to_cancel(client: HudClient, model_id: str) -> str:
    """The command that cancels the run that trains a model; empty without such a run."""
    try:
        job = await client.known_job(model_id)
    except HudError:
        return ""
    if job is None or not job.id or not is_active(job.status):
        return ""
    return client.settings.command("jobs", job.id, "--cancel")


SOURCED = frozenset({"dataset", "tasks"})
"""Fields of a body that can be loaded again from the tasks' source."""


async def omitted_tasks(client: HudClient, entry: AuditEntry) -> tuple[dict[str, Any] | None, str]:
    """The fields of a request's body that the command log omits, loaded again from their source;
    else None, and the reason."""
    if not entry.omitted:
        return None, ""
    if not entry.source or not set(entry.omitted) <= SOURCED:
        return None, f"the log does not keep {' and '.join(entry.omitted)}"
    try:
        everything, origin = await load_source(client, entry.source)
        tasks, _ = choose_tasks(everything, origin, entry.left_out, entry.digest or None)
    except HudError as error:
        return None, one_line(error.message, 200)
    rows = [task.row() for task in tasks]
    return {"dataset": {"tasks": rows}, "tasks": rows}, ""


def _filled(body: SubmitJob) -> SubmitJob:
    """The body with variables in its rows substituted, as HUD's client sends them: the service does
    not have this machine's environment variables. Values are never logged or displayed."""
    if not any("mcp_config" in task for task in body.dataset.tasks):
        return body
    rows = fill_rows(body.dataset.tasks, every_variable())
    return body.model_copy(update={"dataset": JobDataset(tasks=rows)})


async def _find_new_run(
    client: HudClient, model_id: str, lost: Submission, failure: HudError
) -> WorkState:
    """Find the new run, with several attempts. Raises HudError: `failure`, with a hint."""
    for attempt in range(LOOKS):
        await asyncio.sleep(LOOK_S if attempt else 0)
        try:
            after = await client.known_job(model_id)
        except HudError:
            raise failure from None
        if after is not None and not lost.is_before(after):
            return after
    failure.hint = "the service shows no new run of this model: check again before you resubmit"
    raise failure


# Sweeps.


LOCAL_S, HUD_S = 0.5, 10.0
"""Seconds between two reads of active runs: on the embedded service, and on HUD."""
FORKING, SUBMITTING, REFUSED = "forking", "submitting", "refused"


async def plan_sweep(
    works: WorkClient,
    model: Model,
    tasks: tuple[str, Sequence[Task]],
    parameters: Mapping[str, Any],
    swept: Mapping[str, Sequence[Any]],
    at_once: int,
    left_out: Sequence[str],
) -> Sweep:
    """A new sweep; nothing is sent or stored.

    Args:
        tasks: The source of the tasks, and the tasks.
        swept: The parameters with several values, by wire name.
        at_once: Maximum number of runs at the same time.
        left_out: Slugs of the source's tasks that are not used.

    Raises:
        HudUsage: It is too large, or a value is given twice.
    """
    client, (source, rows) = works.client, tasks
    taken = [name for m in await client.models() for name in (m.name, m.model_name) if name]
    name = sweep_name(model.model_name, [*taken, *(sweep.name for sweep in works.sweeps.all())])
    fixed = {key: value for key, value in parameters.items() if key not in swept}
    start = await read_start(client, model)
    if model.training_defaults is not None:
        fixed["sweep"] = name
    return Sweep(
        id=uuid4().hex,
        name=name,
        service=await client.service_id(),
        model_id=model.id,
        model=model.model_name,
        checkpoint_id=start.ref,
        start=start.name,
        source=source,
        digest=rows_digest([task.row() for task in rows]),
        parameters=fixed,
        at_once=at_once,
        members=members_of(name, swept),
        created_at=time(),
        left_out=tuple(left_out),
    )


async def sweep_to_resume(
    works: WorkClient, sweep: Sweep, at_once: int | None = None
) -> tuple[Sweep, list[Task]]:
    """A sweep as it will be continued, and its tasks, loaded again. `at_once`: new maximum number
    of runs at the same time; None keeps it. Raises HudUsage: its tasks have changed; HudError: the
    service does not answer."""
    tasks, _ = await load_source(works.client, sweep.source)
    tasks = [task for task in tasks if task.slug not in sweep.left_out]
    now = rows_digest([task.row() for task in tasks])
    if now != sweep.digest:
        where, was = one_line(sweep.source, 200), f"digest {now}, not {sweep.digest}"
        what = f"{where} has other tasks than when {sweep.name} was started: {was}"
        raise HudUsage(what, "put them back, or start another sweep")
    going = requeued(await refreshed(works, works.sweeps.stored(sweep)))
    if at_once is not None:
        going = going.model_copy(update={"at_once": at_once})
    return going, tasks


class SweepDriver:
    """Runs the members of a sweep."""

    def __init__(
        self,
        works: WorkClient,
        sweep: Sweep,
        tasks: Sequence[Task],
        on_change: Callable[[Sweep, Member], None] = lambda sweep, member: None,
        again: bool = False,
    ) -> None:
        """`on_change` is called with each member that has changed; `again`: it is resumed, with so
        many runs at once."""
        self.sweep, self._again = sweep, again
        self._works, self._client, self._files = works, works.client, works.sweeps
        self._on_change = on_change
        self._rows = [task.row() for task in tasks]
        self._is_embedded = "sweep" in sweep.parameters  # HUD has no such parameter
        local = works.client.settings.local or self._is_embedded
        self._poll_s = LOCAL_S if local else HUD_S

    async def run(self, follow: bool) -> Sweep:
        """Start waiting runs, with at most `at_once` active at the same time.

        Args:
            follow: Return when all runs have ended; else when the last one has started.

        Returns:
            The sweep; cancelled if any process has cancelled it.

        Raises:
            HudError: The service does not answer, or the outcome of a request is unknown. The sweep
                can be resumed.
        """
        cancel = self._client.settings.command("sweep", self.sweep.name, "--cancel", "-y")
        with self._files.driving(self.sweep, cancel) as stored:
            self.sweep = await self._taken_up(stored)
            while not self.sweep.cancelled:
                await self._refresh()
                await self._start_some()
                begun = all(m.ended or m.running for m in self.sweep.members)
                done = all(m.ended for m in self.sweep.members)
                if done or (begun and not follow):
                    break
                await asyncio.sleep(self._poll_s)
                self.sweep = self._files.keep(self.sweep)
            if self.sweep.cancelled:  # whoever did that may not know of the run begun last
                self.sweep = self._files.keep(await _cancel_runs(self._works, self.sweep))
        return self.sweep

    async def _taken_up(self, stored: Sweep) -> Sweep:
        """The sweep as this process drives it: another one may have gone on with it until now."""
        if not self._again:
            return self._files.keep(stored)
        going = requeued(await refreshed(self._works, stored))
        at_once = self.sweep.at_once
        return self._files.keep(going.model_copy(update={"at_once": at_once}), cancelled=False)

    async def _refresh(self) -> None:
        """Update the status of active runs."""
        for number, member in enumerate(self.sweep.members):
            if member.running:
                status = await self._works.state(member.job_id)
                if status is not None and status.status != member.status:
                    self._set(number, status=status.status, error=one_line(trouble(status), 300))

    async def _start_some(self) -> None:
        for number, member in enumerate(self.sweep.members):
            free = self.sweep.at_once - sum(m.running for m in self.sweep.members)
            if free < 1 or self.sweep.cancelled:
                return
            if not member.ended and not member.running:
                await self._start(number)

    async def _start(self, number: int) -> None:
        """Fork and submit a member, or resume its job."""
        try:
            if not self.sweep.members[number].model_id:
                await self._fork(number)
            if not self.sweep.cancelled:
                await self._submit(number)
        except HudUnclear:
            raise
        except HudRefused as error:
            self._set(number, status=REFUSED, error=one_line(error.message, 300))

    async def _fork(self, number: int) -> None:
        member = self.sweep.members[number]
        model = None
        if member.status == FORKING:  # a process that was killed may have made the fork
            models = await self._client.models()
            model = next((m for m in models if member.name in (m.name, m.model_name)), None)
        self._set(number, status=FORKING)
        if model is None:
            sweep = self.sweep
            start = sweep.checkpoint_id or (BASE if self._is_embedded else None)
            model = await self._client.fork(sweep.model_id, member.name, start)
        self._set(number, model_id=model.id)

    async def _submit(self, number: int) -> None:
        member = self.sweep.members[number]
        if member.job_id:
            status = await self._works.resume(member.job_id)
            self._set(number, status=status.status, error="")
            return
        job = None
        if member.status == SUBMITTING:
            job = await self._client.known_job(member.model_id)
        self._set(number, status=SUBMITTING)
        job_id = job.id if job is not None and job.id else None
        if job_id is None:
            source = TaskSource(self.sweep.source, rows_digest(self._rows))
            job_id = (await submit(self._client, self._body(member), source)).job_id
        self._set(number, job_id=job_id, status="queued", error="")

    def _body(self, member: Member) -> SubmitJob:
        values = {**self.sweep.parameters, **member.differs}
        return SubmitJob(
            model_id=member.model_id,
            dataset=JobDataset(tasks=self._rows),
            config=JobConfig(parameters=JobParameters(**values)),
            start=BASE if self._is_embedded else None,  # what the fork was made from
        )

    def _set(self, number: int, **changed: str) -> None:
        """Change a member, store the sweep and report the change."""
        member = self.sweep.members[number].model_copy(update=changed)
        self.sweep = self._files.keep(self.sweep.with_member(number, member))
        self._on_change(self.sweep, member)


async def cancel_sweep(works: WorkClient, sweep: Sweep) -> Sweep:
    """Cancel the active runs of a sweep and start no further one; unchanged if all have ended.
    Raises HudError: a run could not be cancelled; those before it were."""
    if all(member.ended for member in sweep.members):
        return sweep
    sweep = works.sweeps.cancel(sweep)
    with suppress(HudUsage), works.sweeps.driving(sweep, "") as stored:
        return works.sweeps.keep(await _cancel_runs(works, stored))
    return await _cancel_runs(works, sweep)  # who drives it stores that


async def _cancel_runs(works: WorkClient, sweep: Sweep) -> Sweep:
    """Cancel the active runs of a sweep; returns it with their status. Raises HudError, as
    `cancel_sweep`."""
    for number, member in enumerate(sweep.members):
        if member.running:
            await works.cancel(member.job_id)
            status = await works.state(member.job_id)
            now = status.status if status is not None else "cancelled"
            sweep = sweep.with_member(number, member.model_copy(update={"status": now}))
    return sweep


def requeued(sweep: Sweep) -> Sweep:
    """The sweep ready to continue: cancelled, interrupted and refused members wait again."""
    members = tuple(
        m.model_copy(update={"status": WAITING, "error": ""}) if m.status in AGAIN else m
        for m in sweep.members
    )
    return sweep.model_copy(update={"members": members, "cancelled": False})


async def refreshed(works: WorkClient, sweep: Sweep) -> Sweep:
    """The sweep with the present status of each run."""
    for number, member in enumerate(sweep.members):
        if member.job_id and member.status not in ("succeeded", REFUSED, WAITING):
            try:
                status = await works.state(member.job_id)
            except HudNotFound:
                continue
            if status is not None:
                now = {"status": status.status, "error": one_line(trouble(status), 300)}
                sweep = sweep.with_member(number, member.model_copy(update=now))
    return sweep
