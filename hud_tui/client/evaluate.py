"""Evaluations: made by the service if it can, else by this program.

The embedded service samples and stores evaluations itself; they continue whoever follows them. HUD
has no such endpoint: here this program submits each rollout, pinned to the checkpoint, under one
job, while somebody follows the evaluation; the result is stored in a file on this machine, by the
job's id. On an environment of the user's own, a process on this machine makes the rollouts, for any
service, and goes on when this program ends; the embedded service receives the progress and the
result. All kinds are listed, followed, cancelled and resumed in the same way (`WorkClient`).
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from time import time
from typing import TYPE_CHECKING
from uuid import uuid4

from hud_tui.change import UNNAMED, Change, TaskSource
from hud_tui.client.evaluation_files import EvaluationFiles, StoredEvaluation, without_groups
from hud_tui.client.evaluation_ledger import Drivers, Graded
from hud_tui.client.signal import MOST, NOT_SAMPLED, SampleRequest, sample
from hud_tui.client.transport import SUBMIT_S, Lookup, if_there
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.rl.evaluation import Difference, Paired, Scores, difference, find_evaluation, pair_of
from hud_tui.rl.own_numbers import is_of_run
from hud_tui.rl.plan import MissingRollouts, TaskSplit
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.work import EVALUATION, SUCCEEDED, Work, driver_ended, has_ended, weights_name
from hud_tui.wire import Checkpoint, Evaluation, Group, Json, Model, WorkState
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_runs import SubmitEvaluation, UsualTasks

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

DIFFERENCES = 200
"""Maximum number of cached comparisons."""


class Evaluations:
    def __init__(self, client: "HudClient", files: EvaluationFiles, drivers: Drivers) -> None:
        """
        Args:
            files: Has those that are made on this machine.
            drivers: Make rollouts on environments of the user's own.
        """
        self._client, self._files, self._drivers = client, files, drivers
        self._differences: dict[tuple[str, str], Difference | None] = {}
        """By the ids of both evaluations."""
        self._offered: bool | None = None
        """Whether the service makes evaluations; None if not known yet."""

    async def of_model(self, model: Model) -> list[WorkState]:
        """All known evaluations of a model, oldest first, without rewards by task. Raises HudError:
        the service does not answer."""
        files = await self._files.of_model(self._client, model.id)
        stored = {
            evaluation.evaluation.id: without_groups(self.now(evaluation)) for evaluation in files
        }
        listed = {evaluation.id: evaluation for evaluation in await self._listed(model.id) or ()}
        return list((listed | stored).values())  # where it is listed, in the service's order

    async def get(self, evaluation_id: str, groups: bool = True) -> WorkState:
        """An evaluation by its id; with `groups`, including its rewards by task. Raises
        HudNotFound: no such evaluation."""
        stored = await self._files.find(self._client, evaluation_id)
        if stored is not None:
            now = self.now(stored)
            return now if groups else without_groups(now)
        url = self._client.wire.rl("/v1/evaluations/{}", evaluation_id)
        return await self._client.wire.get(url, WorkState, {} if groups else {"groups": 0})

    async def known(self, evaluation_id: str) -> WorkState | None:
        """An evaluation without its rewards by task; None if there is none of this id."""
        return await if_there(self.get(evaluation_id, groups=False))

    async def find(self, ref: str) -> WorkState:
        """An evaluation by its id or a prefix of it, without rewards by task. Raises HudAmbiguous:
        several match; the hint lists them; HudUsage: none matches; the hint lists the newest."""
        if (named := await self.known(ref)) is not None:
            return named
        evaluations: list[WorkState] = []
        for model in await self._client.models():
            evaluations += await self.of_model(model)
        newest = sorted(
            evaluations, key=lambda evaluation: evaluation.created_at or 0.0, reverse=True
        )
        return find_evaluation(ref, newest)

    def is_made_here(self, evaluation_id: str) -> bool:
        """Whether this program makes its rollouts, so that it only continues while it is
        followed."""
        stored = self._files.read(evaluation_id)
        return stored is not None and stored.environment is None

    @property
    def is_told(self) -> bool:
        """Whether events of the service tell how evaluations go on; False while that is unknown."""
        return bool(self._offered)

    def is_apart(self, evaluation_id: str) -> bool:
        """Whether a process of its own on this machine makes its rollouts."""
        stored = self._files.read(evaluation_id)
        return stored is not None and stored.environment is not None

    async def usual_tasks(self, model: Model) -> UsualTasks | None:
        """The default tasks of an evaluation: those of the model's latest run, or of the last
        evaluation that this program made; None if there are none. Raises HudError: the service does
        not answer."""
        if await self._listed(model.id) is None:
            last = await self._last(model.id)
            if last is None:
                return None
            split, name = TaskSplit.of(read_rows(last.tasks)), last.evaluation.name
            return UsualTasks(name=name, heldout=len(split.heldout), train=len(split.train))
        url = self._client.wire.rl("/v1/models/{}/evaluations/tasks", model.id)
        try:
            return await self._client.wire.get(url, UsualTasks)
        except HudNotFound:
            return None

    async def paired(
        self, before: Sequence[Evaluation], after: Sequence[Evaluation]
    ) -> Paired | None:
        """The difference of two checkpoints, task by task, from the evaluations of each, oldest
        first; None if no two can be compared. Raises HudError: the service does not answer, or no
        longer has the evaluations."""
        pair = pair_of(before, after)
        if pair is None:
            return None
        ids = pair[0].id or "", pair[1].id or ""
        if ids not in self._differences:
            scores = [
                Scores.of((await self.get(evaluation.id or "")).groups, evaluation.solved_at)
                for evaluation in pair
            ]
            while len(self._differences) >= DIFFERENCES:
                self._differences.pop(next(iter(self._differences)))
            self._differences[ids] = await asyncio.to_thread(_drawn, *scores)
        shift = self._differences[ids]
        return None if shift is None else Paired(*pair, shift)

    async def rollouts(
        self, of: Evaluation, node: Checkpoint | None, slug: str, step: int | None
    ) -> Group:
        """An evaluation's rollouts of one task, with their trace ids. Raises HudError: the service
        does not answer, or no longer has the rollouts.

        Args:
            node: The evaluated checkpoint; None for the weights that the model started from.
            step: The number of its step in its run.
        """
        own = not is_of_run(of)
        traces = await self._client.rollouts.job_traces(
            of.job_id or of.id or "", None if own or node is None else step
        )
        if not own and of.id is not None and not any(trace.heldout for trace in traces):
            with suppress(HudNotFound):  # a run with steps by a client evaluates in a job apart
                traces, own = await self._client.rollouts.job_traces(of.id), True
        graded = {
            trace.id: trace.reward
            for trace in traces
            if trace.task_slug == slug and trace.reward is not None
            if own or _evaluates(trace, node)
        }
        return Group(task_slug=slug, rewards=list(graded.values()), trace_ids=list(graded))

    async def submit(
        self,
        model: Model,
        body: SubmitEvaluation,
        called: str | None = None,
        source: TaskSource = UNNAMED,
        environment: Json | None = None,
    ) -> WorkState:
        """Submit an evaluation, once. If this program makes it from hosted rollouts, nothing
        happens until it is followed.

        Args:
            body: The checkpoint, the tasks and the parameters.
            called: Name of the checkpoint.
            source: What its tasks came from, for the command log.
            environment: How its rollouts are made, on an environment of the user's own.

        Raises:
            HudUsage: The service makes no evaluations, and this program cannot roll out these
                tasks.
            HudError: The process of one on an environment did not begin.
            HudRefused: The service refused it.
            HudUnclear: The outcome is unknown.
        """
        is_offered = await self._listed(model.id) is not None
        if environment is None and is_offered:
            return await self._send(model, body, source)
        self._client.wire.guard.check("evaluate")
        begun = await self._begin(model, body, called, environment)
        self._log(begun, {} if environment is None else environment["flags"], source)
        if environment is not None:
            await self._start(begun.id)
        return begun

    async def _send(self, model: Model, body: SubmitEvaluation, source: TaskSource) -> WorkState:
        """Have the service make an evaluation."""
        client, before = self._client, body.checkpoint_id or ""
        url = client.wire.rl("/v1/models/{}/evaluations", model.id)
        omitted = () if body.tasks is None else ("tasks",)
        change = Change(
            "evaluate", model.id, before=before, made="id", omitted=omitted, source=source
        )
        listed = client.settings.command("eval", "-m", model.model_name, "--list")
        lookup = Lookup[WorkState](
            client.wire.settle_url(model.id), hint=f"look at {listed} before you repeat"
        )
        write = client.wire.write
        return await write("POST", url, WorkState, change, body, SUBMIT_S, lookup=lookup)

    async def requeue(self, stored: StoredEvaluation) -> WorkState:
        """Queue one that this program or a process of this machine makes again; the process begins.
        Raises HudUsage: it has succeeded, or its process goes on; HudError: the process did not
        begin."""
        now = self.now(stored)
        # one from hosted rollouts that is running has lost the program that made it
        if now.status in SUCCEEDED or (stored.environment and not has_ended(now.status)):
            raise HudUsage(Work.of(now).why_no_resume)
        self._client.wire.guard.check("resume")
        again = stored.changed(status="queued", error=None, finished_at=None)
        self._files.write(again)
        self._log_change(again.evaluation, Change("resume", now.model_id, now.id, after="queued"))
        if again.environment is not None:
            await self._start(now.id)
        return again.evaluation

    async def _listed(self, model_id: str) -> list[WorkState] | None:
        """The service's evaluations of a model; None if it makes none."""
        if self._offered is False:
            return None
        evaluations = await self._client.evaluations(model_id)
        self._offered = evaluations is not None
        return evaluations

    # Evaluations that this program makes.

    def _log(self, begun: WorkState, flags: Json, source: TaskSource) -> None:
        """Add it to the command log. `flags`: how its rollouts are made."""
        before = begun.checkpoint_id or ""
        change = Change("evaluate", begun.model_id, before=before, after=begun.id, source=source)
        asked = begun.parameters | {"samples": begun.samples}
        body = {"split": begun.split, "parameters": asked, "options": flags}
        self._log_change(begun, change, body)

    def _log_change(self, of: WorkState, change: Change, body: Json | None = None) -> None:
        """Add a change to the command log that no single request makes."""
        writing = self._client.wire.writing
        url = self._client.wire.rl("/v1/evaluations/{}", of.id)
        written = writing.begin(change, "PUT", url, json.dumps(body or {}).encode(), "")
        writing.done(written, of, "", "")

    async def _begin(
        self,
        model: Model,
        body: SubmitEvaluation,
        called: str | None,
        environment: Json | None = None,
    ) -> WorkState:
        """Store a new evaluation. Raises HudUsage if it cannot be made."""
        last = await self._last(model.id) if body.tasks is None else None
        rows: Sequence[Json] | None = body.tasks
        if last is not None:
            rows, environment = last.tasks, last.environment
        if rows is None:
            raise HudUsage("say which tasks: this service keeps none for an evaluation")
        if body.checkpoint_id is None and model.checkpoint_count != 0 and not self._offered:
            origin = one_line(model.forked_from or "the model that it was forked from", 100)
            hint = f"evaluate {origin}, or a checkpoint"
            raise HudUsage("only checkpoints can be sampled, not what a model started from", hint)
        tasks, split = TaskSplit.of(read_rows(rows)).chosen(body.split)
        if any(task.is_legacy for task in tasks):
            raise HudUsage("rows up to v4 name no scenario that could be rolled out", NOT_SAMPLED)
        asked = body.parameters
        if (count := len(tasks) * asked.samples) > MOST:
            raise HudUsage(f"{count} rollouts", f"at most {MOST}: lower --samples")
        evaluation = WorkState(
            kind=EVALUATION,
            id=(id_ := str(uuid4())),
            model_id=model.id,
            model=model.model_name,
            checkpoint_id=body.checkpoint_id,
            checkpoint=called if body.checkpoint_id else None,
            job_id=id_,
            status="queued",
            split=split,
            name=body.name or (last.evaluation.name if last else None),
            samples=asked.samples,
            num_tasks=len(tasks),
            total=len(tasks) * asked.samples,
            parameters=asked.model_dump(exclude={"samples", "seed"}, exclude_none=True),
            created_at=time(),
        )
        stored = StoredEvaluation(
            service=await self._client.service_id(),
            evaluation=evaluation,
            tasks=[task.row() for task in tasks],
            environment=environment,
        )
        self._files.write(stored)
        return evaluation

    async def _last(self, model_id: str) -> StoredEvaluation | None:
        """The newest evaluation of a model that this program makes; None without any."""
        return next(reversed(await self._files.of_model(self._client, model_id)), None)

    def now(self, stored: StoredEvaluation) -> WorkState:
        """How it stands; one whose process was killed says nothing itself."""
        evaluation = stored.evaluation
        if (
            stored.environment is None
            or has_ended(evaluation.status)
            or self._drivers.is_active(evaluation.id)
        ):
            return evaluation
        stored = self._files.read(evaluation.id) or stored  # it may have ended just now
        if has_ended(stored.evaluation.status):
            return stored.evaluation
        again = self._client.settings.command("jobs", evaluation.id, "--resume")
        return stored.ended("interrupted").changed(error=driver_ended(again)).evaluation

    async def _start(self, evaluation_id: str) -> None:
        """Have its process begin. Raises HudError."""
        try:
            await self._drivers.start(self._client, evaluation_id)
        except HudError as error:
            stored = self._files.read(evaluation_id)
            if stored is not None and not has_ended(stored.evaluation.status):
                self._files.write(stored.ended("failed", one_line(error.message, 300)))
            raise


SAMPLED = {"max_tokens", "temperature"}
"""Parameters of an evaluation that a hosted rollout takes."""


class HostedMaker:
    """Makes rollouts on the service, each pinned to the checkpoint."""

    def __init__(self, client: "HudClient", evaluation: WorkState) -> None:
        self.trouble = ""
        """Error of the last rollout that failed."""
        self._client, self._evaluation = client, evaluation

    async def make(
        self, missing: Sequence[MissingRollouts[Task]]
    ) -> AsyncGenerator[list[Graded], None]:
        """Raises HudError: the service does not answer, or refuses."""
        of = self._evaluation
        sampling = {key: of.parameters[key] for key in SAMPLED & of.parameters.keys()}
        model = of.model or of.model_id
        size = of.samples if all(rollouts.count == of.samples for rollouts in missing) else 1
        groups = [rollouts.task for rollouts in missing for _ in range(rollouts.count // size)]
        asked = SampleRequest(of.model_id, model, of.checkpoint_id, size, len(groups), sampling)
        tasks = of.name or f"{of.num_tasks} tasks"
        name = one_line(f"evaluation of {weights_name(of)} of {model} on {tasks}", 200)
        seen: Counter[str] = Counter()
        async with aclosing(sample(self._client, groups, asked, of.id, name)) as sampled:
            async for now in sampled:
                self.trouble = now.trouble
                part = [
                    (signal.slug, reward)
                    for signal in now.signals
                    for reward in signal.rewards[seen[signal.slug] :]
                ]
                seen.update(slug for slug, _ in part)
                yield part

    async def recover(self, error: Exception, losses: int) -> None:
        """Raises the error: the client repeats by itself what may pass."""
        raise error


def _evaluates(trace: Trace, node: Checkpoint | None) -> bool:
    """Whether a rollout of a run's job, which has the training rollouts, too, evaluates a
    checkpoint; None for the weights that the model started from."""
    if node is not None:
        return trace.evaluates == node.id
    return trace.evaluates is None and bool(trace.heldout) and not trace.step


def _drawn(before: Scores, after: Scores) -> Difference | None:
    """The difference, with its bootstrap intervals computed, which takes long."""
    shift = difference(before, after)
    return shift if shift is None or (shift.reward and shift.solved) else None
