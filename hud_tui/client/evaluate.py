"""Evaluations: made by the service if it can, else by this program.

The embedded service samples and stores evaluations itself; they continue whoever follows them. HUD
has no such endpoint: here this program submits each rollout, pinned to the checkpoint, under one
job, while somebody follows the evaluation; the result is stored in a file on this machine, by the
job's id. On an environment of the user's own, a worker on this machine makes the rollouts, for any
service; the embedded one receives the progress and the result. All kinds are listed, followed,
cancelled and resumed in the same way.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from hud_tui.audit_log import UNNAMED, Change, TaskSource
from hud_tui.client.signal import MOST, NOT_SAMPLED, SampleRequest, sample
from hud_tui.client.transport import SUBMIT_S, Lookup
from hud_tui.errors import HudError, HudNotFound, HudRefused, HudUnreachable, HudUsage
from hud_tui.rl.evaluation import (
    Difference,
    Paired,
    Scores,
    difference,
    find_evaluation,
    pair_of,
    summarize,
)
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.signal import Progress
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line, seconds
from hud_tui.rl.work import SUCCEEDED, Work, has_ended
from hud_tui.storage import read_regular, write_atomic
from hud_tui.wire import (
    BASE,
    Checkpoint,
    Evaluation,
    EvaluationJob,
    Group,
    JobError,
    Json,
    KeepEvaluation,
    Model,
    SubmitEvaluation,
    UsualTasks,
)

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

LOOK_S, LONGEST_LOOK_S, FAR_LOOK_S = 0.1, 0.5, 3.0
"""Seconds between two reads of an evaluation: at first; the longest for a service on this machine,
and for one elsewhere."""
MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is read."""
DIFFERENCES = 200
"""Maximum number of cached comparisons."""
NOT_THERE = (400, 404, 405, 501)
"""HTTP statuses of a service without evaluations."""


class RollOut(Protocol):
    """Makes rollouts on an environment of the user's own."""

    def __call__(
        self,
        client: "HudClient",
        evaluation: EvaluationJob,
        environment: Mapping[str, Any],
        checkpoint: str | None,
        missing: Sequence[Task],
    ) -> AsyncGenerator[Progress, None]:
        """
        Args:
            evaluation: What is evaluated, and how it is sampled.
            environment: How rollouts are made, as passed to `Evaluations.submit`.
            checkpoint: What completions are asked of: a checkpoint's id, or `BASE`; None for the
                model as it is served.
            missing: One task for each rollout to make.

        Yields:
            The progress after each rollout.
        """
        ...


class Evaluations:
    def __init__(
        self,
        client: "HudClient",
        folder: Callable[[], Path | None],
        roll_out: RollOut | None = None,
    ) -> None:
        """
        Args:
            folder: Returns the directory for evaluations made by this program; called when needed.
                None: there is none, so that this program cannot make evaluations.
            roll_out: Makes rollouts on environments of the user's own; None: not available.
        """
        self._roll_out = roll_out
        self._client = client
        self._files = _Files(client, folder)
        self._differences: dict[tuple[str, str], Difference | None] = {}
        """By the ids of both evaluations."""
        self._offered: bool | None = None
        """Whether the service makes evaluations; None if not known yet."""

    async def of_model(self, model: Model) -> list[EvaluationJob]:
        """All known evaluations of a model, oldest first, without rewards by task.

        Raises:
            HudError: The service does not answer.
        """
        stored = {one.id: one for one in await self._files.of_model(model.id)}
        listed = {one.id: one for one in await self._listed(model.id) or ()}
        return list((listed | stored).values())  # where it is listed, in the service's order

    async def get(self, evaluation_id: str, groups: bool = True) -> EvaluationJob:
        """An evaluation by its id; with `groups`, including its rewards by task.

        Raises:
            HudNotFound: No such evaluation.
        """
        stored = await self._files.find(evaluation_id)
        if stored is not None:
            return stored.evaluation
        url = self._client.rl("/v1/evaluations/{}", evaluation_id)
        return await self._client.wire.get(url, EvaluationJob, {} if groups else {"groups": 0})

    async def find(self, ref: str) -> EvaluationJob:
        """An evaluation by its id or a prefix of it, without rewards by task.

        Raises:
            HudAmbiguous: Several match; the hint lists them.
            HudUsage: None matches; the hint lists the newest.
        """
        try:
            return await self.get(ref, groups=False)
        except HudRefused as error:
            if error.status not in NOT_THERE:
                raise
        known: list[EvaluationJob] = []
        for model in await self._client.models():
            known += await self.of_model(model)
        newest = sorted(known, key=lambda one: seconds(one.created_at) or 0.0, reverse=True)
        return find_evaluation(ref, newest)

    def is_made_here(self, evaluation_id: str) -> bool:
        """Whether this program makes its rollouts, so that it only continues while it is
        followed."""
        return self._files.read(evaluation_id) is not None

    async def usual_tasks(self, model: Model) -> UsualTasks | None:
        """The default tasks of an evaluation: those of the model's latest run, or of the last
        evaluation that this program made; None if there are none.

        Raises:
            HudError: The service does not answer.
        """
        if await self._listed(model.id) is None:
            last = await self._files.last(model.id)
            if last is None:
                return None
            split, name = TaskSplit.of(read_rows(last.tasks)), last.evaluation.name
            return UsualTasks(name=name, heldout=len(split.heldout), train=len(split.train))
        url = self._client.rl("/v1/models/{}/evaluations/tasks", model.id)
        try:
            return await self._client.wire.get(url, UsualTasks)
        except HudNotFound:
            return None

    async def paired(
        self, before: Sequence[Evaluation], after: Sequence[Evaluation]
    ) -> Paired | None:
        """The difference of two checkpoints, task by task; None if no two evaluations can be
        compared.

        Args:
            before, after: The evaluations of each, oldest first.

        Raises:
            HudError: The service does not answer, or no longer has the evaluations.
        """
        pair = pair_of(before, after)
        if pair is None:
            return None
        ids = pair[0].id or "", pair[1].id or ""
        if ids not in self._differences:
            scores = [
                Scores.of((await self.get(one.id or "")).groups, one.solved_at) for one in pair
            ]
            while len(self._differences) >= DIFFERENCES:
                self._differences.pop(next(iter(self._differences)))
            self._differences[ids] = await asyncio.to_thread(_drawn, *scores)
        found = self._differences[ids]
        return None if found is None else Paired(*pair, found)

    async def rollouts(self, of: Evaluation, node: Checkpoint | None, slug: str) -> Group:
        """An evaluation's rollouts of one task, with their trace ids.

        Args:
            node: The evaluated checkpoint; None for the weights that the model started from.

        Raises:
            HudError: The service does not answer, or no longer has the rollouts.
        """
        own = of.job_id in (None, of.id)
        step = None if own or node is None else node.step
        traces = await self._client.job_traces(of.job_id or of.id or "", step)
        if not own and of.id is not None and not any(one.heldout for one in traces):
            with suppress(HudNotFound):  # a run with steps by a client evaluates in a job apart
                traces, own = await self._client.job_traces(of.id), True
        chosen = [one for one in traces if one.task_slug == slug and one.reward is not None]
        if not own:  # a run's job also has the training rollouts of the task
            chosen = [one for one in chosen if one.evaluates == (node.id if node else None)]
        if not own and node is None:
            chosen = [one for one in chosen if one.heldout and not one.step]
        return Group(
            task_slug=slug,
            rewards=[one.reward for one in chosen if one.reward is not None],
            trace_ids=[one.id for one in chosen],
        )

    async def submit(
        self,
        model: Model,
        body: SubmitEvaluation,
        called: str | None = None,
        source: TaskSource = UNNAMED,
        environment: Json | None = None,
    ) -> EvaluationJob:
        """Submit an evaluation, once. If this program makes it, nothing happens until it is
        followed.

        Args:
            body: The checkpoint, the tasks and the parameters.
            called: Name of the checkpoint.
            source: What its tasks came from, for the command log.
            environment: How its rollouts are made, on an environment of the user's own.

        Raises:
            HudUsage: The service makes no evaluations, and this program cannot roll out these
                tasks.
            HudRefused: The service refused it.
            HudUnclear: The outcome is unknown.
        """
        is_offered = await self._listed(model.id) is not None
        if environment is not None:
            begun = await self._begin(model, body, called, environment)
            self._log(begun, environment, source)
            return begun
        if is_offered:
            return await self._send(model, body, source)
        return await self._begin(model, body, called)

    async def _send(
        self, model: Model, body: SubmitEvaluation, source: TaskSource
    ) -> EvaluationJob:
        """Have the service make an evaluation."""
        client, before = self._client, body.checkpoint_id or ""
        url = client.rl("/v1/models/{}/evaluations", model.id)
        omitted = () if body.tasks is None else ("tasks",)
        change = Change(
            "evaluate", model.id, before=before, made="id", omitted=omitted, source=source
        )
        listed = client.settings.command("eval", "-m", model.model_name, "--list")
        lookup = Lookup[EvaluationJob](
            client.settle_url(model.id), hint=f"look at {listed} before you repeat"
        )
        write = client.wire.write
        return await write("POST", url, EvaluationJob, change, body, SUBMIT_S, lookup=lookup)

    async def follow(self, evaluation_id: str) -> AsyncGenerator[EvaluationJob, None]:
        """Yield its state repeatedly; the last one has ended, and includes its rewards by task.

        An evaluation that this program makes progresses only in here. If this generator is closed
        or cancelled early, the service is told to stop open rollouts; the evaluation can be
        resumed.
        """
        stored = await self._files.find(evaluation_id)
        if stored is not None:
            async with aclosing(self._make(stored)) as made:
                async for evaluation in made:
                    yield evaluation
            return
        look_s, longest_s = LOOK_S, LONGEST_LOOK_S if self._client.settings.local else FAR_LOOK_S
        while not has_ended((now := await self.get(evaluation_id, groups=False)).status):
            yield now
            await asyncio.sleep(look_s)
            look_s = min(1.25 * look_s, longest_s)
        yield await self.get(evaluation_id)

    async def cancel(self, evaluation_id: str) -> None:
        """Stop it between two rollouts; finished rollouts are kept. No effect if it has ended."""
        stored = await self._files.find(evaluation_id)
        if stored is None or not has_ended(stored.evaluation.status):
            with suppress(*(() if stored is None else (HudNotFound,))):  # nothing may be sent yet
                await self._client.cancel_job(evaluation_id)
        if stored is not None and not has_ended(stored.evaluation.status):
            await self._files.write(_ended(stored, "cancelled"))

    async def resume(self, evaluation_id: str) -> EvaluationJob:
        """Continue with the missing rollouts; if this program makes them, once it is followed.

        Raises:
            HudNotFound: No such evaluation.
            HudConflict: It is active, or no rollout is missing.
            HudUsage: It is one that this program makes, and has succeeded.
        """
        stored = await self._files.find(evaluation_id)
        if stored is not None:
            # one that is running has lost the program that made it
            if stored.evaluation.status in SUCCEEDED:
                raise HudUsage(Work.of(stored.evaluation).why_no_resume)
            again = stored.changed(status="queued", error=None, finished_at=None)
            await self._files.write(again)
            return again.evaluation
        resumed = await self._client.resume_job(evaluation_id)
        assert isinstance(resumed, EvaluationJob)
        return resumed

    async def _listed(self, model_id: str) -> list[EvaluationJob] | None:
        """The service's evaluations of a model; None if it makes none."""
        if self._offered is False:
            return None
        try:
            url = self._client.rl("/v1/models/{}/evaluations", model_id)
            found = await self._client.wire.get(url, list[EvaluationJob])
        except HudRefused as error:
            if error.status not in NOT_THERE:
                raise
            self._offered = False
            return None
        self._offered = True
        return found

    # Evaluations that this program makes.

    def _log(self, begun: EvaluationJob, environment: Json, source: TaskSource) -> None:
        """Add it to the command log, because no single request starts it."""
        before, writing = begun.checkpoint_id or "", self._client.wire.writing
        change = Change("evaluate", begun.model_id, before=before, after=begun.id, source=source)
        asked = begun.parameters | {"samples": begun.samples}
        body = {"split": begun.split, "parameters": asked, "options": environment["flags"]}
        url = self._client.rl("/v1/evaluations/{}", begun.id)
        written = writing.begin(change, "PUT", url, json.dumps(body).encode(), "")
        writing.done(written, begun, "id", "")

    async def _begin(
        self,
        model: Model,
        body: SubmitEvaluation,
        called: str | None,
        environment: Json | None = None,
    ) -> EvaluationJob:
        """Store a new evaluation. Raises HudUsage if it cannot be made."""
        last = await self._files.last(model.id) if body.tasks is None else None
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
        evaluation = EvaluationJob(
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
            created_at=_now(),
        )
        await self._files.write(_Stored(evaluation, [task.row() for task in tasks], environment))
        return evaluation

    async def _make(self, stored: "_Stored") -> AsyncGenerator[EvaluationJob, None]:
        """Make the missing rollouts; yields the state after each, and at last the outcome."""
        if has_ended(stored.evaluation.status):
            yield stored.evaluation
            return
        of, trouble = stored.evaluation, ""
        made = await known_rewards(self._client, of.id, of.samples)
        stored = _with(stored, made, status="running")
        await self._report(stored)
        spent, began = stored.evaluation.seconds or 0.0, monotonic()
        try:
            async with aclosing(self._sampled(stored, made)) as progress:
                async for now in progress:
                    took = spent + monotonic() - began
                    stored = _with(stored, _joined(made, now), status="running", seconds=took)
                    await self._files.write(stored)
                    yield stored.evaluation
                    trouble = now.trouble
        except HudError as error:
            await self._end(_ended(stored, "failed", one_line(error.message, 300)))
            raise
        except BaseException:  # e.g. cancelled, because nobody follows it any more
            await asyncio.shield(self._end(_ended(stored, "cancelled")))
            raise
        stored = _over(stored, trouble)
        await self._end(stored)
        yield stored.evaluation

    async def _end(self, stored: "_Stored") -> None:
        await self._files.write(stored)
        await self._report(stored)

    async def _report(self, stored: "_Stored") -> None:
        """Report an evaluation on an environment of the user's own to the embedded service."""
        one = stored.evaluation
        if stored.environment is None or await self._listed(one.model_id) is None:
            return
        known = one.model_dump(include=set(KeepEvaluation.model_fields), exclude_none=True)
        with suppress(HudUnreachable):  # the state is in the file already
            await self._client.keep_evaluation(one.id, KeepEvaluation.model_validate(known))

    def _sampled(
        self, stored: "_Stored", made: Mapping[str, Sequence[float]]
    ) -> AsyncGenerator[Progress, None]:
        evaluation = stored.evaluation
        tasks, samples = read_rows(stored.tasks), evaluation.samples
        missing = [task for task in tasks for _ in range(samples - len(made.get(task.slug, ())))]
        if stored.environment is not None:
            if self._roll_out is None:
                again = self._client.settings.command("eval", "--resume", evaluation.id)
                raise HudUsage("this evaluation is on an environment", again)
            of = evaluation.checkpoint_id or (BASE if self._offered else None)
            return self._roll_out(self._client, evaluation, stored.environment, of, missing)
        parameters = evaluation.parameters
        sampling: dict[str, Any] = {
            key: parameters[key] for key in ("max_tokens", "temperature") if key in parameters
        }
        model = evaluation.model or evaluation.model_id
        size, groups = (samples, tasks) if not made else (1, missing)
        pinned = evaluation.checkpoint_id
        asked = SampleRequest(evaluation.model_id, model, pinned, size, len(groups), sampling)
        of = evaluation.checkpoint or evaluation.checkpoint_id or "base"
        name = f"evaluation of {of} of {model} on {evaluation.name or f'{len(tasks)} tasks'}"
        return sample(self._client, groups, asked, evaluation.id, one_line(name, 200))


async def known_rewards(
    client: "HudClient",
    evaluation_id: str,
    samples: int,
    stored: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Rewards by task of an evaluation's rollouts: the stored ones, or those that the service has
    of a task if they are more, as after a kill; at most `samples` per task."""
    rewards: dict[str, list[float]] = {}
    with suppress(HudNotFound):
        for trace in await client.job_traces(evaluation_id):
            if trace.status == "completed" and trace.reward is not None and trace.task_slug:
                rewards.setdefault(trace.task_slug, []).append(trace.reward)
    for slug, row in stored.items():
        if len(row) >= len(rewards.get(slug, ())):
            rewards[slug] = list(row)
    return {slug: row[:samples] for slug, row in rewards.items()}


def _drawn(before: Scores, after: Scores) -> Difference | None:
    """The difference, with its bootstrap intervals computed, which takes long."""
    found = difference(before, after)
    return found if found is None or (found.reward and found.solved) else None


def _joined(made: Mapping[str, Sequence[float]], now: Progress) -> dict[str, list[float]]:
    """Rewards by task: earlier ones and those sampled now."""
    found = {slug: list(rewards) for slug, rewards in made.items()}
    for signal in now.signals:
        found.setdefault(signal.slug, []).extend(signal.rewards)
    return found


def _now() -> str:
    # Evaluations are ordered by when they were made; two may be made in one second.
    return datetime.now(UTC).isoformat(timespec="microseconds")


# Files: one for each evaluation that this program makes, with its task rows.


class _File(BaseModel):
    service: str
    """`HudClient.service_id` of the service that has the model."""
    evaluation: EvaluationJob
    tasks: list[Json]
    environment: Json | None = None
    """How its rollouts are made, if on an environment of the user's own."""


@dataclass(frozen=True)
class _Stored:
    evaluation: EvaluationJob
    tasks: Sequence[Json]
    environment: Json | None = None
    service: str = ""
    """As in the file; empty before it is stored."""

    def changed(self, **fields: object) -> "_Stored":
        return replace(self, evaluation=self.evaluation.model_copy(update=fields))


def _with(stored: _Stored, rewards: Mapping[str, Sequence[float]], **fields: object) -> _Stored:
    """The evaluation with these rewards by task."""
    groups = [Group(task_slug=slug, rewards=list(row)) for slug, row in rewards.items()]
    every = [reward for row in rewards.values() for reward in row]
    mean = sum(every) / len(every) if every else None
    return stored.changed(groups=groups, done=len(every), mean_reward=mean, **fields)


def _ended(stored: _Stored, status: str, why: str | None = None) -> _Stored:
    error = None if why is None else JobError(code="rollouts", message=why)
    return stored.changed(status=status, error=error, finished_at=_now())


def _over(stored: _Stored, trouble: str) -> _Stored:
    """The outcome after every rollout has ended; failed rollouts are not in the statistics."""
    evaluation = stored.evaluation
    failed = evaluation.total - evaluation.done
    why = f"{failed} of {evaluation.total} rollouts failed: {trouble}: resume it to repeat them"
    ended = _ended(stored, "failed" if failed else "succeeded", why if failed else None)
    if not evaluation.done:
        return ended
    fields = {
        "id": evaluation.id,
        "job_id": evaluation.id,
        "split": evaluation.split,
        "name": evaluation.name,
        "created_at": _now(),
        "max_tokens": evaluation.parameters.get("max_tokens"),
        "temperature": evaluation.parameters.get("temperature"),
    }
    found = summarize(evaluation.groups, evaluation.parameters.get("solved_at", 1.0))
    return ended.changed(result=found.model_copy(update=fields))


class _Files:
    def __init__(self, client: "HudClient", folder: Callable[[], Path | None]) -> None:
        self._client, self._folder = client, folder

    async def find(self, evaluation_id: str) -> _Stored | None:
        """An evaluation by its id; None if this program does not make it."""
        stored = self.read(evaluation_id)
        return stored if stored is not None and await self._client.is_of(stored.service) else None

    def read(self, evaluation_id: str) -> _Stored | None:
        """As `find`, of whichever service."""
        folder = self._folder()
        if folder is None or not all(one.isalnum() or one == "-" for one in evaluation_id):
            return None
        return _read(folder / f"{evaluation_id}.json")

    async def of_model(self, model_id: str) -> list[EvaluationJob]:
        """All evaluations of a model, oldest first, without rewards by task."""
        stored = await self._of_model(model_id)
        return [one.evaluation.model_copy(update={"groups": []}) for one in stored]

    async def last(self, model_id: str) -> _Stored | None:
        """The newest evaluation of a model; None without any."""
        return next(reversed(await self._of_model(model_id)), None)

    async def _of_model(self, model_id: str) -> list[_Stored]:
        folder = self._folder()
        stored = map(_read, folder.glob("*.json") if folder is not None else ())
        found = [one for one in stored if one and one.evaluation.model_id == model_id]
        own = {
            service: await self._client.is_of(service) for service in {one.service for one in found}
        }
        found = [one for one in found if own[one.service]]
        return sorted(found, key=lambda one: one.evaluation.created_at or "")

    async def write(self, stored: _Stored) -> None:
        """Store an evaluation. Raises HudUsage if it cannot be written."""
        body = _File(
            service=stored.service or await self._client.service_id(),
            evaluation=stored.evaluation,
            tasks=list(stored.tasks),
            environment=stored.environment,
        )
        folder = self._folder()
        if folder is None:
            raise HudUsage("nothing is kept of this session", "start it with a --state-dir")
        file = folder / f"{stored.evaluation.id}.json"
        try:
            write_atomic(file, json.dumps(body.model_dump(mode="json"), allow_nan=False))
        except (OSError, ValueError) as error:
            what = f"{one_line(file, 300)} cannot be written: {one_line(error, 200)}"
            raise HudUsage(
                what, "check disk space and permissions, or use another --state-dir"
            ) from error


def _read(file: Path) -> _Stored | None:
    """The evaluation in a file; None if the file is invalid."""
    try:
        found = _File.model_validate_json(read_regular(file, MOST_BYTES))
    except (OSError, ValueError, ValidationError):
        return None
    return _Stored(found.evaluation, found.tasks, found.environment, found.service)
