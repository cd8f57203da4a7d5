"""Runner and Hosted: managed runs and hosted rollouts, each one asyncio task."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import counted
from hud_tui.service import gateway
from hud_tui.service.completions import whole
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import LOSSES, EngineError
from hud_tui.service.environments import Scenario, find_scenario
from hud_tui.service.http import Refused, bad_field, canonical, canonical_id, invalid, new_id
from hud_tui.service.managed_run import Run
from hud_tui.service.run_plan import checked_config, effort_tokens, fill, make_plan, planned_before
from hud_tui.service.store import access, checkpoints, jobs, models, traces, works
from hud_tui.service.store.db import Db, kept
from hud_tui.service.store.models import ModelRow
from hud_tui.service.works import Keep, Works
from hud_tui.wire import BASE, WorkState
from hud_tui.wire_rollouts import SubmitRollout, TraceEnter, TraceExit
from hud_tui.wire_runs import DriveRun, JobParameters, SubmitJob
from hud_tui.wire_training import Chat

log = logging.getLogger(__name__)


class Runner:
    def __init__(self, parts: ServiceContext, lives: Works) -> None:
        self.submitting = asyncio.Lock()
        self._parts, self._works = parts, lives

    async def submit(self, model: ModelRow, body: SubmitJob, keep: Keep) -> WorkState:
        """Check everything, queue the run and start it. Hold `submitting` around it. Raises
        Refused, 409, another run trains it; 422, invalid parameters or rows; 507, the disk has no
        room for a checkpoint."""
        await self.refuse_training(model.id)
        base = self._parts.base(model)
        await self._parts.retention.refuse_full(base)
        parameters = fill(body.config.parameters, base)
        reference = parameters.get("kl_reference")
        if reference not in (None, BASE):
            await self._parts.store.read(checkpoints.loadable, model.id, reference)
        rows = body.dataset.tasks
        tokens = await self._parts.tokenizer(model)
        plan = await asyncio.to_thread(make_plan, parameters, rows, base, tokens)
        job_id = new_id()
        taskset_id, taskset = await self._taskset(rows)
        name = f"{taskset} on {model.slug}"
        submission = jobs.Submission(
            *(job_id, model.id, name, parameters, rows, taskset, taskset_id, body.start)
        )
        run = Run(self._parts, model, job_id, plan)
        return await self._works.queue(run, jobs.submit, keep, submission)

    async def resume(self, job_id: str, keep: Keep) -> WorkState:
        """Resume a run that ended before its last step, from the model's head. Raises Refused, 404;
        409, it succeeded, is running, or another run trains the model."""
        store = self._parts.store
        job = await store.read(jobs.training, job_id)
        await self._works.settle(job["id"])
        if job["driver"] is not None:
            # which refuses, and says where it is resumed
            return await store.write(kept, works.requeue, keep, job["id"])
        model = await store.read(models.find, job["model_id"])
        base, tokens = self._parts.base(model), await self._parts.tokenizer(model)
        parameters, rows = planned_before(json.loads(job["parameters"])), works.tasks_of(job)
        plan = await asyncio.to_thread(make_plan, parameters, rows, base, tokens)
        run = Run(self._parts, model, job["id"], plan, jobs.facts(job))
        return await self._works.queue(run, works.requeue, keep, job["id"])

    async def refuse_training(self, model_id: str, driven_by: str | None = None) -> None:
        """Raises Refused, 409, while a run trains the model, unless it is `driven_by` the caller;
        403, the model is protected."""
        job = await self._parts.store.read(works.active, model_id)
        if job is not None:
            await self._works.settle(job["id"])
        await self._parts.store.read(works.refuse_training, model_id, driven_by)

    async def drive(self, job_id: str, body: DriveRun) -> WorkState:
        """Begin or resume a run whose steps the client takes. Raises Refused: as `jobs.drive`; 422,
        a loss or a key of its config that there is not."""
        loss = {name: body.parameters.get(name) for name in ("loss_fn", "loss_fn_config")}
        try:
            asked = JobParameters.model_validate(loss)
        except ValidationError as error:
            raise invalid("parameters", error) from error
        checked_config(asked.loss_fn or LOSSES[0], asked.loss_fn_config, "parameters")
        async with self.submitting:
            await self.refuse_training(body.model_id, job_id)
            state = await self._works.hear(job_id, jobs.drive, body)
            model = await self._parts.store.read(models.find, body.model_id)
            self._parts.session(model).stopwatch.begin(job_id, hears=True)
            return state

    async def _taskset(self, rows: list[dict[str, object]]) -> tuple[str | None, str]:
        """Id of the tasks' taskset, if they are one, and a name: its, else their number and
        environment."""
        tasks = read_rows(rows)
        slugs = [task.slug for task in tasks]
        taskset = await self._parts.store.read(models.holding, slugs)
        envs = "+".join(sorted({task.env for task in tasks})[:3])
        if taskset:
            return taskset["id"], taskset["name"]
        return None, counted(len(tasks), f"{envs} task")


# Hosted rollouts: a client names a task and a model, the service samples and grades.
#
# Each is one turn through the gateway, stored under the trace id that the client chose, so it is
# read, cancelled and trained on like any other.


AT_ONCE = 64
"""Rollouts sampled at the same time; the others wait in order."""
MOST = 100_000
"""Most rollouts that may wait."""
OURS = frozenset(
    {
        *("model", "messages", "checkpoint", "tools", "n", "stream", "stream_options"),
        *("prompt_token_ids", "continuation_from"),
    }
)
"""completion_kwargs that a rollout sets itself."""
TAKEN = frozenset({"reasoning_effort", "extra_body", "return_token_ids", "logprobs"})
"""completion_kwargs that are supported, or that every rollout is sampled with."""


class Hosted:
    """The rollouts in progress. If the service stops, they end as errors."""

    def __init__(self, parts: ServiceContext) -> None:
        self._parts = parts
        self._line = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()
        """Trace ids that were cancelled before their turn."""

    async def submit(self, body: SubmitRollout) -> str:
        """Queue a rollout; returns its status. Submitting the same trace again changes nothing.

        A refused rollout is stored as an error if the client has entered its job, since nothing
        else would end it. Raises Refused, 400, 404 or 422, the model, the environment, the scenario
        or its args, or an agent or a sampling parameter that is not supported; 403, the job or the
        rollout is somebody else's; 429, too many wait.
        """
        trace_id, job_id = canonical_id("trace", body.trace_id), canonical_id("job", body.job_id)
        entered = TraceEnter(
            group_id=body.group_id,
            task_slug=body.slug or body.task,
            model=str(body.agent.config.get("model", ""))[:200],
            parent_trace_id=canonical(body.parent_trace_id or ""),
        )
        try:
            scenario = _scenario(body)
            model = await self._parts.store.read(models.find, str(entered.model))
            chat = self._chat(body, scenario, model)
        except Refused as refused:
            why = str(refused)
            await self._parts.store.write(_refuse, trace_id, job_id, entered, why)
            raise
        if len(self._tasks) >= MOST:
            raise Refused(429, f"{MOST} rollouts wait already: try again later")
        entered = entered.model_copy(update={"model": model.slug})
        status = await self._parts.store.write(_queue, trace_id, job_id, entered)
        if status == "queued" and trace_id not in self._tasks:
            rollout = self._roll_out(trace_id, chat, lambda text: scenario.grade(body.args, text))
            task = asyncio.create_task(rollout, name=f"rollout {trace_id}")
            self._tasks[trace_id] = task
            task.add_done_callback(lambda done: self._forget(trace_id))
        return status

    def cancel(self, trace_id: str) -> None:
        """Cancel a rollout; a turn in progress is completed and discarded."""
        if trace_id in self._tasks:
            self._stopped.add(trace_id)

    async def cancel_job(self, job_id: str) -> int:
        """Cancel a job's unfinished rollouts; returns their number."""
        stopped = await self._parts.store.write(traces.cancel_running, job_id)
        for trace_id in stopped:
            self.cancel(trace_id)
        return len(stopped)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._write_end(traces.end_queued)

    async def _roll_out(self, trace_id: str, chat: Chat, grade: Callable[[str], float]) -> None:
        try:
            async with self._line:
                if trace_id in self._stopped:
                    return
                asked = await gateway.read(self._parts, chat, trace_id)
                sampled = await gateway.complete(self._parts, asked)
            ended = _graded(whole(asked, sampled)["choices"][0], grade)
        except (Refused, EngineError) as error:
            ended = TraceExit(status="error", error=str(error))
        except Exception as error:
            log.exception("rollout %s failed", trace_id)
            ended = TraceExit(status="error", error=f"{type(error).__name__}: {error}")
        await self._write_end(_end, trace_id, ended)

    async def _write_end(self, change: Callable[..., object], *args: object) -> None:
        """Store how rollouts ended; if that fails, the next start marks them as interrupted."""
        try:
            await self._parts.store.write(change, *args)
        except sqlite3.Error as error:
            log.warning("the end of a rollout could not be written: %s", error)

    def _forget(self, trace_id: str) -> None:
        self._tasks.pop(trace_id, None)
        self._stopped.discard(trace_id)

    def _chat(self, body: SubmitRollout, scenario: Scenario, model: ModelRow) -> Chat:
        """The rollout's request to the gateway. Raises Refused, 400 or 422."""
        config = body.agent.config
        options = _flat(config.get("completion_kwargs"))
        effort = effort_tokens(str(options.get("reasoning_effort")), self._parts.base(model))
        messages = [{"role": "user", "content": scenario.prompt(body.args)}]
        if config.get("system_prompt"):
            messages.insert(0, {"role": "system", "content": str(config["system_prompt"])})
        asked: dict[str, Any] = {"max_tokens": effort, "checkpoint": config.get("checkpoint")}
        asked |= {name: value for name, value in options.items() if name not in TAKEN}
        try:
            chat = Chat(model=model.id, messages=messages, **asked)
        except ValidationError as error:
            raise invalid("agent.config", error) from error
        gateway.check(self._parts, chat)
        return chat


def _flat(sent: object) -> dict[str, Any]:
    """An agent's completion_kwargs as OpenAI's client sends them: ``extra_body`` merged. Raises
    Refused, 422, they are no objects, or set what a rollout sets itself."""
    options = {} if sent is None else sent
    extra = options.get("extra_body") or {} if isinstance(options, Mapping) else {}
    if not isinstance(options, Mapping) or not isinstance(extra, Mapping):
        raise bad_field("agent.config.completion_kwargs", "expected an object")
    flat = {str(name): value for name, value in {**options, **extra}.items() if value is not None}
    if taken := OURS & flat.keys():
        named = f"agent.config.completion_kwargs.{min(taken)}"
        raise bad_field(named, "a hosted rollout has its own")
    return flat


def _scenario(body: SubmitRollout) -> Scenario:
    """The task's scenario. Raises Refused, 404 or 422: unknown, or args that do not fit."""
    if body.agent.type != "openai_compatible":
        raise bad_field("agent.type", "this service has agents of type openai_compatible only")
    if body.verifier is not None:
        raise bad_field("verifier", "this service grades by the scenario, and has no verifiers")
    try:
        scenario = find_scenario(body.env, body.task.removeprefix(f"{body.env}:"))
        scenario.prompt(body.args)
    except LookupError as error:
        raise Refused(404, str(error)) from error
    except ValueError as error:
        raise bad_field("args", str(error)) from error
    return scenario


def _graded(choice: dict[str, Any], grade: Callable[[str], float]) -> TraceExit:
    reward = grade(choice["message"]["content"])
    stop = "length" if choice["finish_reason"] == "length" else "done"
    result = {"score": reward, "done": True, "isError": False}
    return TraceExit(status="completed", reward=reward, evaluation_result=result, stop_reason=stop)


def _queue(db: Db, trace_id: str, job_id: str, entered: TraceEnter) -> str:
    """Begin a rollout; returns its status, which is not ``queued`` if it was submitted before and
    has ended."""
    traces.refuse_of_others(db, trace_id, job_id)
    access.refuse_more_disk(db)
    jobs.enter(db, job_id, None, None, None)
    traces.enter(db, trace_id, job_id, entered, "queued")
    return str(traces.status(db, trace_id))


def _refuse(db: Db, trace_id: str, job_id: str, entered: TraceEnter, why: str) -> None:
    """End a rollout as refused, unless it has ended or its job was not entered. Raises Refused,
    403: it is of somebody else's job."""
    traces.refuse_of_others(db, trace_id, job_id)
    status = traces.status(db, trace_id)
    if jobs.exists(db, job_id) and status in (None, "running"):
        traces.enter(db, trace_id, job_id, entered)
        traces.leave(db, trace_id, TraceExit(status="error", error=why))


def _end(db: Db, trace_id: str, ended: TraceExit) -> None:
    """Store how a rollout ended, unless it was cancelled meanwhile."""
    if traces.status(db, trace_id) == "queued":
        traces.leave(db, trace_id, ended)
