"""Hosted rollouts: a client names a task and a model, the service samples and grades.

Each is one turn through the gateway, kept under the trace that the client chose, so it is
read, cancelled and trained on as any other.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from hud_tui.service import gateway
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import EngineError
from hud_tui.service.environments import ENVIRONMENTS, Scenario
from hud_tui.service.gateway import whole
from hud_tui.service.http import Refused, bad_field, canonical, wanted_id
from hud_tui.service.managed_run import effort_tokens
from hud_tui.service.store import jobs, models, traces
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Chat, SubmitRollout, TraceEnter, TraceExit

log = logging.getLogger(__name__)
AT_ONCE = 64
"""Rollouts that are sampled together; the others wait in the order they came."""
MOST = 100_000
"""Rollouts that may wait."""
OURS = frozenset(
    {
        *("model", "messages", "checkpoint", "tools", "n", "stream", "stream_options"),
        *("prompt_token_ids", "continuation_from"),
    }
)
"""Of an agent's completion_kwargs, those that a rollout has its own of."""
TAKEN = frozenset({"reasoning_effort", "extra_body", "return_token_ids", "logprobs"})
"""Those that are read here, or that every rollout is sampled with."""


class Hosted:
    """The rollouts under way. Those that have not ended when the service stops end as errors."""

    def __init__(self, parts: ServiceContext) -> None:
        self._parts = parts
        self._line = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()
        """Those that were cancelled before their turn came."""

    async def submit(self, body: SubmitRollout) -> str:
        """Queue a rollout; its status. The same trace again changes nothing.

        A refusal ends the rollout as an error under a job that the client has begun: nobody
        else would end it.

        Raises:
            Refused: 400, 404 or 422: the model, the environment, the scenario or its args; an
                agent or a way to sample that this service does not have; 429: too many wait.
        """
        trace_id, job_id = wanted_id("trace", body.trace_id), wanted_id("job", body.job_id)
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
            rollout = self._roll_out(trace_id, chat, lambda said: scenario.grade(body.args, said))
            task = asyncio.create_task(rollout, name=f"rollout {trace_id}")
            self._tasks[trace_id] = task
            task.add_done_callback(lambda done: self._forget(trace_id))
        return status

    def cancel(self, trace_id: str) -> None:
        """Do not sample this one; a turn that has begun is finished, and counts no more."""
        if trace_id in self._tasks:
            self._stopped.add(trace_id)

    async def cancel_job(self, job_id: str) -> int:
        """Stop a job's rollouts that have not ended; how many there were."""
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
                answered = await gateway.complete(self._parts, chat, trace_id)
            ended = _graded(whole(answered)["choices"][0], grade)
        except (Refused, EngineError) as error:
            ended = TraceExit(status="error", error=str(error))
        except Exception as error:
            log.exception("rollout %s failed", trace_id)
            ended = TraceExit(status="error", error=f"{type(error).__name__}: {error}")
        await self._write_end(_end, trace_id, ended)

    async def _write_end(self, change: Callable[..., object], *args: object) -> None:
        """Write down how rollouts ended; where that fails, the next start says it of them."""
        try:
            await self._parts.store.write(change, *args)
        except sqlite3.Error as error:
            log.warning("the end of a rollout could not be written: %s", error)

    def _forget(self, trace_id: str) -> None:
        self._tasks.pop(trace_id, None)
        self._stopped.discard(trace_id)

    def _chat(self, body: SubmitRollout, scenario: Scenario, model: ModelRow) -> Chat:
        """What the gateway is asked. Raises Refused, 400 or 422."""
        config = body.agent.config
        given = _flat(config.get("completion_kwargs"))
        base = self._parts.base(model)
        effort = effort_tokens(str(given.get("reasoning_effort")), base)
        messages = [{"role": "user", "content": scenario.prompt(body.args)}]
        if config.get("system_prompt"):
            messages.insert(0, {"role": "system", "content": str(config["system_prompt"])})
        asked: dict[str, Any] = {"max_tokens": effort, "checkpoint": config.get("checkpoint")}
        asked |= {name: value for name, value in given.items() if name not in TAKEN}
        try:
            chat = Chat(model=model.id, messages=messages, **asked)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise bad_field(f"agent.config.{first['loc'][0]}", first["msg"]) from error
        gateway.check(self._parts, chat)
        return chat


def _flat(given: object) -> dict[str, Any]:
    """An agent's completion_kwargs as OpenAI's client sends them: ``extra_body`` among the rest.

    Raises:
        Refused: 422, they are no objects, or have what a rollout has its own of.
    """
    found = {} if given is None else given
    extra = found.get("extra_body") or {} if isinstance(found, Mapping) else {}
    if not isinstance(found, Mapping) or not isinstance(extra, Mapping):
        raise bad_field("agent.config.completion_kwargs", "expected an object")
    flat = {str(name): value for name, value in {**found, **extra}.items() if value is not None}
    if taken := OURS & flat.keys():
        named = f"agent.config.completion_kwargs.{min(taken)}"
        raise bad_field(named, "a hosted rollout has its own")
    return flat


def _scenario(body: SubmitRollout) -> Scenario:
    """Raises Refused, 404 or 422: unknown, or args that do not fit."""
    if body.agent.type != "openai_compatible":
        raise bad_field("agent.type", "this service has agents of type openai_compatible only")
    if body.verifier is not None:
        raise bad_field("verifier", "this service grades by the scenario, and has no verifiers")
    environment = ENVIRONMENTS.get(body.env)
    if environment is None:
        raise Refused(404, f"no such environment: {body.env}; this has {', '.join(ENVIRONMENTS)}")
    scenario = environment.scenarios.get(body.task.removeprefix(f"{body.env}:"))
    if scenario is None:
        known = ", ".join(environment.scenarios)
        raise Refused(404, f"{body.env} has no scenario {body.task}; it has {known}")
    try:
        scenario.prompt(body.args)
    except ValueError as error:
        raise bad_field("args", str(error)) from error
    return scenario


def _graded(choice: dict[str, Any], grade: Callable[[str], float]) -> TraceExit:
    reward = grade(choice["message"]["content"])
    stop = "length" if choice["finish_reason"] == "length" else "done"
    result = {"score": reward, "done": True, "isError": False}
    return TraceExit(status="completed", reward=reward, evaluation_result=result, stop_reason=stop)


def _queue(db: Db, trace_id: str, job_id: str, entered: TraceEnter) -> str:
    jobs.enter(db, job_id, None, None, None)
    return traces.queue(db, trace_id, job_id, entered)


def _refuse(db: Db, trace_id: str, job_id: str, entered: TraceEnter, why: str) -> None:
    """Unless the rollout has ended already, or nobody waits for it under this job."""
    known = traces.status(db, trace_id)
    if jobs.exists(db, job_id) and known in (None, "running"):
        traces.enter(db, trace_id, job_id, entered)
        traces.leave(db, trace_id, TraceExit(status="error", error=why))


def _end(db: Db, trace_id: str, ended: TraceExit) -> None:
    """Unless it was cancelled meanwhile."""
    if traces.status(db, trace_id) == "queued":
        traces.leave(db, trace_id, ended)
