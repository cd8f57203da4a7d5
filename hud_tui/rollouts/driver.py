"""Driver: takes the steps of a run on an environment of the user's own, in a process of its own.

Each step: the worker makes rollouts in groups, failed ones are handled by policy, then a gradient
pass and an optimizer step through our client. All of it is stored before and after. So whatever is
killed (worker, driver, app or service), the run continues from the model's head: finished
rollouts are used, and no step is taken twice.

No batch is trained on twice, because every training call has a key that is on disk before the call
is sent. If an answer is lost, the service is asked by the key (`settle`). A service without keys,
such as HUD's, is asked for its tree: a new child of the batch's parent is the step.
"""

import asyncio
import logging
import sys
from asyncio import create_task
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any
from uuid import UUID, uuid4, uuid5

from hud_tui.client.client import HudClient
from hud_tui.client.evaluation_ledger import Graded, known_rewards
from hud_tui.client.trainer import checked, forward_backward_body, head_of
from hud_tui.errors import (
    HudConflict,
    HudError,
    HudNotFound,
    HudRefused,
    HudUnclear,
    HudUnreachable,
    HudUsage,
)
from hud_tui.parameters import USUAL
from hud_tui.processes import this_process
from hud_tui.rl import timeline
from hud_tui.rl.drawing import Drawing
from hud_tui.rl.findings import failures_text
from hud_tui.rl.groups import has_gradient
from hud_tui.rl.loop import Evaluate, Loop, Sample, Train
from hud_tui.rl.plan import MissingRollouts, TaskSplit
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.timeline import ENVIRONMENT, EVALUATING, FORWARD_BACKWARD
from hud_tui.rl.work import End
from hud_tui.rollouts.driver_time import DriverWatch
from hud_tui.rollouts.environment import Loaded, check_tasks, rollout_of
from hud_tui.rollouts.process import EnvironmentFailed, WorkerProcess
from hud_tui.rollouts.run_files import (
    RESAMPLE,
    Batch,
    RunFolder,
    environment_name,
    losses_text,
    run_folder,
)
from hud_tui.rollouts.service import RETRY_S, ServiceLink, connect_to
from hud_tui.rollouts.watched import failure_text
from hud_tui.rollouts.worker_rollouts import (
    BEAT_S,
    Ended,
    EvaluationMaker,
    MakeWorker,
    WorkerHost,
    WorkerMaker,
    report_until_stopped,
)
from hud_tui.sampling import SampledAhead, sample_missing
from hud_tui.settings import read_paths
from hud_tui.wire import BASE, Checkpoint, Group, JobError
from hud_tui.wire_changes import Settled
from hud_tui.wire_rollouts import JobEnter
from hud_tui.wire_runs import DriveReport, DriveRun, KeepEvaluation
from hud_tui.wire_training import ForwardBackward, OptimStep, Payload

log = logging.getLogger("hud_tui.driver")

HUD_POLL_S = 15.0
"""Seconds between two checks of a job that its driver gets no answers about."""
CONFLICTS = 3
"""Refusals of one step, e.g. because its gradients were dropped, after which the run ends."""
RESAMPLED = 3
"""Attempts at a group if failed rollouts are resampled."""
Groups = Sequence[Mapping[str, Any]]
"""Groups as they are stored: task, runs, and whether it was lost."""
ADAM = ("learning_rate", "beta1", "beta2", "eps", "weight_decay")


class Moved(Exception):
    """The head was set elsewhere: the batch is off-policy."""

    def __init__(self, reason: str) -> None:
        """`reason`: why its rollouts are discarded."""
        super().__init__(reason)
        self.reason = reason


class Driver:
    """One run, from the state in its files on."""

    def __init__(
        self,
        folder: RunFolder,
        connect: Callable[[], HudClient | None],
        make_worker: MakeWorker = WorkerProcess,
    ) -> None:
        """`connect` returns a client of the run's service; None if none runs now."""
        self._folder = folder
        self._order, self._state = folder.order(), folder.state()
        self._state.take(self._state.facts.resumed())
        self._loop = Loop.of(self._order.parameters)
        self._stopping = asyncio.Event()
        self._watch = DriverWatch()
        self._service = ServiceLink(connect, self._is_stopping, self._watch)
        self._host = WorkerHost(
            self._order,
            self._service,
            folder.environment_log,
            self._stopping,
            make_worker,
            self._on_load,
        )
        self._is_known = False
        """Whether the service knows driven runs."""
        self._in_doubt = True
        """Whether an earlier process may have sent calls of the batch."""
        self._wasted = 0
        self._note: str | None = None
        self._began = 0.0
        self._evaluating: str | None = None
        """Id of the evaluation in progress, if the service knows it."""
        self._ahead = SampledAhead(self._sample_ahead)
        self._drawing = Drawing(self._order.parameters)
        for iteration, groups in folder.seen():
            self._drawing.saw(iteration, groups.items())

    async def run(self) -> str:
        """Run until the end, a cancel, or until the service is gone; returns the last status."""
        beating: asyncio.Task[None] | None = None
        try:
            await self._begin()
            reports = report_until_stopped(self._host, self._folder, self._is_asked_to_stop)
            beating = create_task(reports)
            end = await self._train()
        except Ended as ended:
            end = ended.end
        except EnvironmentFailed as error:
            where = {"step": self._state.step + 1, "trace_id": None, "task": None}
            self._folder.add_failure({**where, "groups_lost": 0, **error.failure})
            self._state.error = {"code": "environment", **error.details}
            end = End("failed", JobError(code="environment", message=one_line(error.message)))
        except HudUnreachable as error:
            end = End("interrupted", JobError(code="unreachable", message=error.message))
            if self._is_stopping():  # for that a call stopped waiting for the service
                end = End("cancelled")
        except HudError as error:
            hint = f" ({error.hint})" if error.hint else ""
            end = End("failed", JobError(code=error.kind, message=error.message + hint))
        finally:
            if beating is not None:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)
            await self._ahead.drop()
            await self._host.close()
        await self._end(end)
        return end.status

    # Beginning, reporting, ending.

    async def _begin(self) -> None:
        """Have the service know of the run; until then its state is ``queued``."""
        order, state = self._order, self._state
        body = DriveRun(
            model_id=order.model_id,
            start=order.start,
            name=order.name,
            taskset=environment_name(order.source),
            driver=this_process(),
            parameters={**order.parameters, **order.flags},
        )
        try:
            await self._service.call(lambda client: client.runs.drive(order.job_id, body))
            self._is_known = True
        except HudConflict:
            if state.step < order.parameters["steps"]:
                raise
            self._is_known = True  # the driver was killed after it had reported success
        except HudRefused as error:
            if error.status not in (404, 405):
                raise
            await self._enter(order.job_id, order.name, self._group_size)
        state.status, state.error = "running", None
        self._folder.save(state)

    async def _enter(self, job_id: str, name: str, group: int) -> None:
        """Have a service without driven runs know of a job."""
        body = JobEnter(name=name, group=group)
        await self._service.call(lambda c: c.rollouts.enter_job(job_id.replace("-", ""), body))

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._folder.is_cancelled()

    async def _is_asked_to_stop(self) -> bool:
        if self._is_known:
            with self._reporting() as report:
                status = await self._service.client.runs.report(self._order.job_id, report)
            if self._evaluating is not None:
                with suppress(HudConflict):  # it has ended just now
                    await self._service.client.runs.report(self._evaluating, DriveReport())
            return status.asked == "cancel"
        for _ in range(int(HUD_POLL_S / BEAT_S)):
            if self._folder.is_cancelled():
                return True
            await asyncio.sleep(BEAT_S)
        try:
            return (await self._service.client.job(self._order.job_id)).status == "cancelled"
        except HudNotFound:
            return False

    @contextmanager
    def _reporting(self) -> Iterator[DriveReport]:
        """How the run stands; what is not received is told with the next report."""
        report = self._report()
        try:
            yield report
        except HudError:
            self._wasted += report.wasted
            self._watch.give_back(report.time)
            raise

    def _report(self, **end: Any) -> DriveReport:
        wasted, self._wasted = self._wasted, 0
        busy = self._state.busy_s + (monotonic() - self._began if self._began else 0.0)
        told = DriveReport(busy_s=busy, wasted=wasted, attempt=self._state.attempt, **end)
        return told.model_copy(update={"note": self._note, "time": self._watch.take()})

    async def _end(self, end: End) -> None:
        """Stored here first, since the service may be gone."""
        state = self._state
        state.status = end.status
        if end.error is not None and state.error is None:
            state.error = {"code": end.error.code, "message": end.error.message}
        self._folder.save(state)
        self._folder.forget_cancel()
        if self._is_known:
            report = self._report(status=end.status, error=end.error, reason=end.reason)
            with suppress(HudError):
                await self._service.client.runs.report(self._order.job_id, report)
        await self._service.close()

    # Steps.

    @property
    def _group_size(self) -> int:
        return int(self._order.parameters["group_size"])

    async def _train(self) -> End:
        """Do what the loop says until it ends; returns how. Raises Ended."""
        while True:
            self._host.stop_if_asked()
            self._began = monotonic()
            try:
                match self._loop.next(self._state.facts):
                    case Sample() as action:
                        with self._watch.measure(ENVIRONMENT, 0):
                            await self._sample(action)
                    case Train():
                        self._ahead.fill(partial(self._loop.ahead, self._state.facts))
                        with self._watch.measure(FORWARD_BACKWARD, 0):
                            await self._step()
                    case Evaluate():
                        await self._ahead.settled()  # the worker is for one at a time
                        with self._watch.measure(EVALUATING):
                            await self._evaluate()
                    case End() as end:
                        return self._explained(end)
            except Moved as moved:
                log.info("the head was moved: the step is sampled again from it")
                self._note = "the head was moved: the step is sampled again from it"
                await self._ahead.drop()
                left = [group["runs"] for group in self._folder.groups() if not group["lost"]]
                self._watch.discard(moved.reason, [run for runs in left for run in runs])
                self._wasted += sum(len(group["runs"]) for group in self._folder.groups())
                self._state.take(self._state.facts.discarded())
                self._state.batch = None
                self._folder.keep_groups(lambda group: False)
                self._folder.save(self._state)
            finally:
                self._state.busy_s += monotonic() - self._began
                self._began = 0.0

    def _explained(self, end: End) -> End:
        """With the last failure, if the run fails for the environment."""
        if end.error is None or end.error.code != "environment":
            return end
        failures = self._folder.failures()
        last = failures[-1] if failures else {"type": "Error", "message": "no group is left"}
        self._state.error = {"code": "environment", "failure": last}
        message = one_line(f"{end.error.message}; last: {failure_text(last)}")
        return End(end.status, JobError(code="environment", message=message))

    # Sampling the groups of a step.

    async def _sample(self, action: Sample) -> None:
        """Roll out a batch of tasks, unless that was done ahead; store its groups, and the batch if
        it has a gradient."""
        batch = await self._ahead.take(action.iteration) or await self._sample_ahead(action)
        self._finish_batch(*batch)

    async def _sample_ahead(self, action: Sample) -> tuple[str | None, Groups, dict[str, float]]:
        """Roll out a batch of tasks, and store its groups; returns the id of the checkpoint that
        sampled them, the groups, and `Drawing.counts`."""
        train = TaskSplit.of((await self._host.load()).tasks).train
        chosen = self._drawing.tasks_of(train, action.iteration)
        batch_key: dict[str, Any] = {"iteration": action.iteration, "attempt": action.attempt}
        batch_key["parent"] = await self._sampler(batch_key)
        batch = _BatchLedger(self._folder, batch_key, self._group_size)
        roll_out = partial(self._group, batch_key, action.step)
        maker = WorkerMaker(self._host, roll_out, self._report_return)
        await sample_missing(chosen, self._group_size, maker, batch)
        groups = list(batch.groups().values())
        rewards = {group["task"]: rewards_of(group) for group in groups if not group["lost"]}
        self._folder.add_seen(action.iteration, rewards)
        self._drawing.saw(action.iteration, rewards.items())
        return batch_key["parent"], groups, self._drawing.counts(train)

    async def _sampler(self, batch_key: Mapping[str, Any]) -> str | None:
        """The checkpoint to sample a batch from: the head; or the one that an earlier process began
        with, if it is not too old."""
        tree = await self._service.call(lambda c: c.checkpoints(self._order.model_id))
        for group in self._folder.groups():
            if all(group.get(key) == value for key, value in batch_key.items()):
                begun_with: str | None = group["parent"]
                age = age_of(tree, begun_with)
                if age is not None and age <= self._loop.oldest:
                    return begun_with
        head = head_of(tree)
        return head.id if head else None

    async def _report_return(self) -> None:
        """Tell the service how the run stands, also if it was away."""
        if self._is_known:
            with self._reporting() as report:
                await self._service.call(lambda c: c.runs.report(self._order.job_id, report))

    def _on_load(self, loaded: Loaded, digest: str) -> None:
        """Check what was loaded, and note an edit. Raises HudUsage: nothing to train on;
        EnvironmentFailed: args do not fit any more, e.g. after an edit."""
        state = self._state
        if state.digest not in (None, digest):
            self._note = f"{Path(self._order.source).name} was changed at step {state.step}"
            log.info(self._note)
        if not TaskSplit.of(loaded.tasks).train:
            raise HudUsage("every task is held out: nothing to train on", "see columns.split")
        if message := failures_text(check_tasks(loaded)):
            raise EnvironmentFailed({"type": "Tasks", "phase": "load", "message": message})
        if state.digest != digest:
            state.digest = digest
            self._folder.save(state)

    async def _group(
        self, batch_key: Mapping[str, Any], step: int, missing: MissingRollouts[Task]
    ) -> dict[str, Any]:
        """Sample one group for a step, repeatedly if the policy says so. Raises Ended: it demands
        that."""
        task = missing.task
        request = rollout_of(self._order, self._order.job_id, task, missing.count)
        if self._is_known:  # each rollout says it itself: a report may come later than the rollout
            request["entered"] = {"step": step, "attempt": batch_key["attempt"]}
            if self._loop.max_staleness:  # the head may be another one before it has ended
                request["checkpoint"] = batch_key["parent"] or BASE
        for tries_left in reversed(range(RESAMPLED if self._order.failed == RESAMPLE else 1)):
            runs = await self._host.roll_out(request)
            self._host.succeed()
            self._watch.grade(runs)
            is_lost = self._count(runs, task, step)
            if not is_lost:
                break
            self._wasted += len(runs)
            if tries_left:
                self._watch.discard(timeline.RESAMPLED, runs)
        if is_lost:
            self._watch.discard_failed(runs)
            runs = [{**run, "samples": []} for run in runs]
        return {**batch_key, "task": task.slug, "lost": is_lost, "runs": runs}

    def _count(self, runs: Sequence[Mapping[str, Any]], task: Task, step: int) -> bool:
        """Count a group's rollouts; returns whether one failed. Raises Ended: too many failed."""
        failed = [run for run in runs if run["error"] is not None]
        failures = [
            run.get("failure") or {"type": "Error", "message": run["error"]} for run in failed
        ]
        state = self._state
        state.rollouts += len(runs)
        state.failed += len(failed)
        state.groups_lost += bool(failed)
        for number, (run, failure) in enumerate(zip(failed, failures, strict=True)):
            lost = int(number == 0)
            where = {"step": step, "trace_id": run["trace_id"], "task": task.slug}
            self._folder.add_failure({**where, "groups_lost": lost, **failure})
        if failed:
            what = losses_text(state.failed, state.groups_lost)
            self._note = one_line(f"{what}; last: {failure_text(failures[0])}", 600)
            if (most := self._order.stop_after) is not None and state.failed >= most:
                state.error = {"code": "environment", "failure": dict(failures[0])}
                raise Ended("failed", JobError(code="environment", message=self._note))
        return bool(failed)

    # From groups to a batch.

    def _finish_batch(self, parent: str | None, groups: Groups, tasks: dict[str, float]) -> None:
        """Make a batch of the complete groups, if it has a gradient. `tasks`: as in `Batch`."""
        whole = [group for group in groups if not group["lost"]]
        rewards = list(map(rewards_of, whole))
        loss_fn = loss_of(self._order.parameters)
        has_any = any(has_gradient(group, loss_fn) for group in rewards)
        state, before = self._state, self._state.facts
        state.take(before.sampled(rewards, has_any))
        if has_any:
            self._begin_step(parent, before.iteration, whole, tasks=tasks)
        else:
            if whole:
                self._note = f"batch {before.iteration + 1} had no gradient: sampled again"
                self._wasted += sum(map(len, rewards))
                idle = [run for group in whole for run in group["runs"]]
                self._watch.discard(timeline.ZERO_VARIANCE, idle)
            log.info("step %d is sampled again: %s", state.step + 1, self._note)
            self._folder.keep_groups(lambda group: group["iteration"] > before.iteration)
        self._folder.save(state)

    def _begin_step(
        self,
        parent: str | None,
        iteration: int,
        groups: Groups,
        substep: int = 0,
        tasks: dict[str, float] | None = None,
    ) -> None:
        """Make the keys of the calls of the next step on a batch."""
        keys = [uuid4().hex for _ in chunks_of(groups)]
        self._state.batch = Batch(
            parent=parent,
            keys=keys,
            step_key=uuid4().hex,
            iteration=iteration,
            substep=substep,
            tasks=tasks or {},
        )
        self._in_doubt = False

    # The step: sent only once, whatever happens.

    async def _step(self) -> None:
        """Train on the batch: all passes, then the optimizer step. Raises Moved."""
        refused = 0
        while True:
            try:
                taken = await self._settled_step() if self._in_doubt else None
                self._landed(taken or await self._send())
                return
            except HudUnclear as error:
                log.warning("it is not known whether the step was taken: %s", error.message)
                self._in_doubt = True
            except HudUnreachable as error:
                log.warning("the service does not answer: %s", error.message)
                self._in_doubt = True
            except HudConflict as error:
                refused += 1
                if refused > CONFLICTS:
                    raise
                log.warning("the step was refused: %s", one_line(error.message))
                self._in_doubt = True
                await asyncio.sleep(RETRY_S)
                continue
            await asyncio.sleep(RETRY_S)
            await self._service.forget()
            await self._host.await_service()
            await self._report_return()

    async def _send(self) -> str:
        """Send the missing passes and the step; returns the id of the new checkpoint."""
        batch, order, client = self._batch, self._order, self._service.client
        await self._report_return()  # its time up to here is part of the step
        self._take_up(batch, await client.checkpoints(order.model_id))
        run = order.job_id if self._is_known else None
        chunks = chunks_of(self._batch_groups())
        for number, chunk in enumerate(chunks):
            if self._in_doubt and await self._is_passed(number):
                continue
            body = pass_body(chunk, self._group_size, order.parameters)
            await client.training.forward_backward(order.model_id, body, batch.keys[number], run)
        step = {key: order.parameters[key] for key in ADAM if order.parameters.get(key) is not None}
        if self._is_known:
            step |= {"draw": self._drawing.by, "tasks": batch.tasks or None}
        result = await client.training.optim_step(
            order.model_id, checked(OptimStep, **step), batch.step_key, run
        )
        return result.checkpoint_id

    def _take_up(self, batch: Batch, tree: Sequence[Checkpoint]) -> None:
        """Record from which head the batch's step is taken. Raises Moved: that is not the head any
        more; or, before its first call, what sampled the batch is too old."""
        head, age = head_of(tree), age_of(tree, batch.parent)
        is_sent = batch.known is not None or batch.substep > 0
        if age is None:
            raise Moved(timeline.HEAD_MOVED)
        if age > (0 if is_sent else self._loop.oldest):
            raise Moved(timeline.STALE if self._loop.oldest else timeline.HEAD_MOVED)
        if batch.known is None:
            batch.parent = head.id if head else None
            batch.known = [c.id for c in tree if c.prev_model_checkpoint_id == batch.parent]
        self._folder.save(self._state)

    @property
    def _batch(self) -> Batch:
        assert self._state.batch is not None
        return self._state.batch

    def _batch_groups(self) -> list[dict[str, Any]]:
        """The complete groups of the batch."""
        iteration = self._batch.iteration
        if iteration is None:
            iteration = self._state.iteration
        groups = self._folder.groups()
        return [group for group in groups if group["iteration"] == iteration and not group["lost"]]

    async def _settled_step(self) -> str | None:
        """The checkpoint of a step that may have been taken; None if it was not, and will not
        be."""
        batch, model_id = self._batch, self._order.model_id
        settled = await self._settle(batch.step_key)
        if settled is None:  # HUD has no keys: only the tree tells
            tree = await self._service.call(lambda client: client.checkpoints(model_id))
            children = [node.id for node in tree if node.prev_model_checkpoint_id == batch.parent]
            made = [] if batch.known is None else [c for c in children if c not in batch.known]
            return made[-1] if made else None
        if settled.state == "done" and settled.reply is not None:
            return str(settled.reply["checkpoint_id"])
        batch.step_key = uuid4().hex
        return None

    async def _is_passed(self, number: int) -> bool:
        """Whether a pass's gradients wait on the service. If those of any pass were dropped, all
        were, and all passes are repeated."""
        batch = self._batch
        settled = await self._settle(batch.keys[number])
        if settled is not None and settled.state == "done":
            return True
        if settled is not None and settled.state == "dropped":
            batch.keys = [uuid4().hex for _ in batch.keys]
        else:
            batch.keys[number] = uuid4().hex
        self._folder.save(self._state)
        return False

    async def _settle(self, key: str) -> Settled | None:
        """The outcome of a call; None if the service has no keys."""
        try:
            return await self._service.call(lambda c: c.training.settle(self._order.model_id, key))
        except HudRefused as error:
            if error.status in (404, 405):
                return None
            raise

    def _landed(self, checkpoint_id: str) -> None:
        """Record that the step is in the tree."""
        state, batch, groups = self._state, self._batch, self._batch_groups()
        rewards = [run["reward"] for group in groups for run in group["runs"]]
        iteration = state.iteration if batch.iteration is None else batch.iteration
        if not batch.substep:
            state.tokens += sum(run["tokens"] for group in groups for run in group["runs"])
        state.take(state.facts.stepped_again() if batch.substep else state.facts.stepped())
        state.checkpoint_id, state.batch = checkpoint_id, None
        if batch.substep + 1 < self._loop.substeps and not self._loop.is_over(state.facts):
            self._begin_step(checkpoint_id, iteration, groups, batch.substep + 1)
        self._folder.save(state)
        if state.batch is None:
            self._folder.keep_groups(lambda group: group["iteration"] > iteration)
        mean = fmean(rewards) if rewards else 0.0
        log.info("step %d: reward %.3f, %s", state.step, mean, checkpoint_id)

    # Held-out tasks.

    async def _evaluate(self) -> None:
        """Roll out the held-out tasks with the newest checkpoint."""
        heldout = TaskSplit.of((await self._host.load()).tasks).heldout
        if heldout:
            await self._evaluate_on(heldout)
        self._state.take(self._state.facts.scored())
        self._folder.save(self._state)

    async def _evaluate_on(self, tasks: Sequence[Task]) -> None:
        """Failed rollouts are left out, since the run goes on."""
        order, step, checkpoint = self._order, self._state.step, self._state.checkpoint_id
        # the same however often the step's evaluation is begun
        evaluation_id = str(uuid5(UUID(order.job_id), f"evaluation {step}"))
        samples = int(order.parameters.get("eval_samples") or USUAL["eval_samples"])
        self._note = f"evaluating step {step} on {len(tasks)} held-out tasks"
        body = KeepEvaluation(
            model_id=order.model_id,
            checkpoint_id=checkpoint,
            run_id=order.job_id,
            driver=this_process(),
            samples=samples,
            num_tasks=len(tasks),
            parameters=order.parameters,
        )
        scores = _Scores(self._service, evaluation_id, samples)
        maker = EvaluationMaker(self._host, evaluation_id, checkpoint, self._report_return)

        async def keep(status: str) -> None:
            if self._is_known:
                told = body.model_copy(update={"status": status, "groups": scores.groups})
                await self._service.call(lambda c: c.runs.keep_evaluation(evaluation_id, told))

        # its rollouts have a job of their own, so that nobody takes them for a step's
        if self._is_known:
            await self._service.call(lambda c: c.runs.keep_evaluation(evaluation_id, body))
            self._evaluating = evaluation_id
        else:
            name = f"evaluation of step {step} of {order.name}"
            await self._enter(evaluation_id, name[:200], samples)
        try:
            await sample_missing(tasks, samples, maker, scores)
        except Ended:
            await keep("cancelled")
            raise
        finally:
            self._evaluating = None
        self._note = None
        await keep("succeeded" if scores.groups else "failed")


@dataclass(frozen=True)
class _BatchLedger:
    """The groups of the batch in progress; lost ones count as made."""

    folder: RunFolder
    batch_key: Mapping[str, Any]
    """What the batch's groups have in common: iteration, attempt, parent."""
    size: int
    """Rollouts per group."""

    def groups(self) -> dict[str, dict[str, Any]]:
        """The complete groups, by task; those of another attempt at the batch are deleted."""
        groups, batch_key = self.folder.groups(), self.batch_key

        def is_own(group: Mapping[str, Any]) -> bool:
            return all(group.get(key) == batch_key[key] for key in batch_key)

        of_iteration = [group for group in groups if group["iteration"] == batch_key["iteration"]]
        if not all(map(is_own, of_iteration)):
            self.folder.keep_groups(
                lambda group: is_own(group) or group["iteration"] != batch_key["iteration"]
            )
        return {group["task"]: group for group in filter(is_own, of_iteration)}

    async def made(self) -> Mapping[str, int]:
        return dict.fromkeys(self.groups(), self.size)

    async def keep(self, part: Mapping[str, Any]) -> None:
        self.folder.add_group(part)


@dataclass
class _Scores:
    """The rewards of a run's evaluation, which the service has."""

    service: ServiceLink
    evaluation_id: str
    samples: int
    rewards: dict[str, list[float]] = field(default_factory=dict)

    @property
    def groups(self) -> list[Group]:
        return [Group(task_slug=slug, rewards=row) for slug, row in self.rewards.items()]

    async def made(self) -> Mapping[str, int]:
        id_, samples, kept = self.evaluation_id, self.samples, self.rewards
        self.rewards = await self.service.call(lambda c: known_rewards(c, id_, samples, kept))
        return {slug: len(row) for slug, row in self.rewards.items()}

    async def keep(self, part: Sequence[Graded]) -> None:
        for slug, reward in part:
            self.rewards.setdefault(slug, []).append(reward)


def rewards_of(group: Mapping[str, Any]) -> list[float]:
    return [run["reward"] for run in group["runs"]]


def age_of(tree: Sequence[Checkpoint], source: str | None) -> int | None:
    """The number of steps from a checkpoint, None for the weights that the model started from, to
    the head; None if it is no ancestor of that."""
    parents = {node.id: node.prev_model_checkpoint_id for node in tree}
    head, age = head_of(tree), 0
    id_ = head.id if head else None
    while id_ != source and id_ is not None:
        id_, age = parents.get(id_), age + 1
    return age if id_ == source else None


# The bodies of a step's gradient passes.


MOST_TOKENS = 400_000
"""Most numbers in the body of one pass: about 4 MB."""


def chunks_of(groups: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Groups that are sent together: HUD's service refuses bodies of tens of megabytes."""
    chunks: list[list[Mapping[str, Any]]] = [[]]
    size = 0
    for group in groups:
        own = sum(
            len(sample.get("prompt_token_ids") or ()) + 2 * len(sample["output_token_ids"])
            for run in group["runs"]
            for sample in run["samples"]
        )
        if chunks[-1] and size + own > MOST_TOKENS:
            chunks.append([])
            size = 0
        chunks[-1].append(group)
        size += own
    return chunks


def loss_of(parameters: Mapping[str, Any]) -> str:
    return parameters.get("loss_fn") or str(USUAL["loss_fn"])


def pass_body(
    groups: Sequence[Mapping[str, Any]], size: int, parameters: Mapping[str, Any]
) -> ForwardBackward:
    """The request of a pass; the same bytes for the same groups, so that its key stays valid."""
    inputs: list[Any] = []
    for group in groups:
        for run in group["runs"]:
            if run["samples"]:
                trained = {"samples": run["samples"], "reward": run["reward"]}
                inputs.append(Payload.model_validate(trained | {"trace_id": run["trace_id"]}))
            else:
                inputs.append(run["trace_id"])
    more = {"loss_fn_config": parameters.get("loss_fn_config") or None}
    more["reward_scale"] = parameters.get("reward_scale") or USUAL["reward_scale"]
    if parameters.get("kl_coef"):
        more |= {name: parameters.get(name) for name in ("kl_coef", "kl_reference")}
    loss_fn = loss_of(parameters)
    return forward_backward_body(inputs, size, loss_fn, **more)


# The process.


def main() -> int:
    """``python -m hud_tui.rollouts.driver STATE_DIR JOB_ID``; returns 0 if the run succeeded."""
    state, job_id = sys.argv[1:]
    log_to_stderr()
    folder = run_folder(Path(state), job_id)
    order = folder.order()
    paths = read_paths(state, order.data_dir or None)
    with folder.driving():
        status = asyncio.run(Driver(folder, lambda: connect_to(order, paths)).run())
    return 0 if status == "succeeded" else 1


def log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
