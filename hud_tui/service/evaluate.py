"""Evaluations: each task is rolled out several times with one checkpoint's weights.

The checkpoint has a policy of its own, so that a run's rollouts, gradients and head are not
affected. One evaluation samples at a time, in parts of a few rollouts, so that runs and other
callers get their turns in between; the others wait in order. A part is stored in one transaction
as soon as it is graded: finished rollouts are never sampled again.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from shlex import quote
from time import perf_counter
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.evaluation import summarize
from hud_tui.rl.loop import End
from hud_tui.rl.plan import Split
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import one_line
from hud_tui.service.context import ServiceContext, Stop, until_written
from hud_tui.service.engines.base import EngineError, EngineLost, Handle, Sampled
from hud_tui.service.http import Refused, bad_field, canonical, new_id, now, refusal, rollout_id
from hud_tui.service.managed_run import (
    LOST_IN_A_ROW,
    Planned,
    Rollouts,
    effort_tokens,
    evaluation_requests,
    grade_all,
    groups_of,
    in_turns,
    plan_tasks,
    trace_rows,
)
from hud_tui.service.store import checkpoints, evaluations, jobs, models, runs
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.db import Db, kept
from hud_tui.service.store.evaluations import NewEvaluation
from hud_tui.service.store.jobs import Stopped, failed
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import (
    EvaluationJob,
    EvaluationParameters,
    Group,
    SubmitEvaluation,
    UsualTasks,
)

log = logging.getLogger(__name__)

Keep = Callable[[Db, EvaluationJob], object]
"""Stores the reply, in the same transaction as the change."""
MOST = 100_000
"""Most rollouts of one evaluation."""
AT_ONCE = 256
"""Rollouts per part."""
LONG = 100
"""Tokens of an answer from which on a part has half as many rollouts, so that runs get their turn
as soon."""
AHEAD = 1
"""Parts handed to the engine in addition to the current one, so that it never waits for grading or
the store."""
STOP_S = 10
"""Longest wait for a cancelled evaluation to end, seconds."""


class Evaluator:
    def __init__(self, parts: ServiceContext) -> None:
        self._parts = parts
        self._turn = asyncio.Lock()
        self._tasks: dict[str, tuple[Work, asyncio.Task[None]]] = {}
        self._closing = asyncio.Event()

    async def submit(self, model: ModelRow, body: SubmitEvaluation, keep: Keep) -> EvaluationJob:
        """Check everything, queue the evaluation and start it; `model` may be a base.

        Raises:
            Refused: 404, no such checkpoint; 410, its weights were deleted; 422, tasks that
                cannot be rolled out, or none in the split.
        """
        ref = body.checkpoint_id
        if ref is not None:
            ref = canonical(ref) or ref
        node = await self._node(model, ref)
        rows, name = await self._rows(model, body)
        tasks = Split.of(await self._plan(model, rows))
        try:
            planned, split = tasks.chosen(body.split)
        except HudUsage as error:
            raise bad_field("split", error.message) from error
        asked = self._filled(model, body.parameters)
        if (count := len(planned) * asked.samples) > MOST:
            raise bad_field("parameters.samples", f"{count} rollouts: at most {MOST} in one")
        of = node.name if node else "base"
        new = NewEvaluation(
            id=new_id(),
            model_id=model.id,
            checkpoint_id=node.id if node else None,
            title=one_line(f"evaluation of {of} of {model.slug} on {name}", 200),
            name=name,
            split=split,
            samples=asked.samples,
            num_tasks=len(planned),
            parameters=asked.model_dump(exclude={"samples"}),
        )
        chosen = [rows[task.index] for task in planned]
        status = await self._parts.store.write(kept, evaluations.submit, keep, new, chosen)
        self._start(Work(self._parts, model, node, new.id, asked, planned))
        return status

    async def usual_tasks(self, model: ModelRow) -> UsualTasks:
        """The tasks that are evaluated if none are given. Raises Refused: there are none."""
        rows, name = await self._of_last_run(model)
        split = Split.of(await asyncio.to_thread(read_rows, rows))
        return UsualTasks(name=name, heldout=len(split.heldout), train=len(split.train))

    async def resume(self, evaluation_id: str, keep: Keep) -> EvaluationJob:
        """Resume an evaluation that ended early; finished rollouts are kept.

        Raises:
            Refused: 404; 409, it has succeeded or goes on; 410, the weights were deleted.
        """
        store = self._parts.store
        row = await store.read(evaluations.get, evaluation_id)
        model = await store.read(models.find, row["model_id"])
        node = await self._node(model, row["checkpoint_id"])
        planned = await self._plan(model, json.loads(row["tasks"] or "[]"))
        asked = EvaluationParameters(samples=row["samples"], **json.loads(row["parameters"]))
        status = await store.write(kept, evaluations.requeue, keep, row["id"])
        self._start(Work(self._parts, model, node, row["id"], asked, planned))
        return status

    async def cancel(self, evaluation_id: str) -> bool:
        """Stop an evaluation and wait for its end; False if it was not active."""
        found = self._tasks.get(evaluation_id)
        if found is None:
            return False
        work, task = found
        work.stop.request("cancelled")
        await asyncio.wait({task}, timeout=STOP_S)
        return True

    async def close(self) -> None:
        """Stop all evaluations between two parts; they end as interrupted."""
        self._closing.set()
        tasks = [task for _, task in self._tasks.values()]
        for work, _ in self._tasks.values():
            work.stop.request("interrupted")
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _node(self, model: ModelRow, ref: str | None) -> Node | None:
        if ref is None:
            return None
        return await self._parts.store.read(checkpoints.loadable, model.id, ref)

    async def _rows(
        self, model: ModelRow, body: SubmitEvaluation
    ) -> tuple[Sequence[dict[str, Any]], str]:
        """The tasks' rows and their name."""
        if body.tasks is not None:
            return body.tasks, body.name or f"{len(body.tasks)} tasks"
        try:
            rows, name = await self._of_last_run(model)
        except Refused as refused:
            if refused.status != 404:  # it had a run, whose tasks a client has
                raise
            why = "the model has had no managed run whose tasks could be taken: say which"
            raise bad_field("tasks", why) from refused
        return rows, body.name or name

    async def _of_last_run(self, model: ModelRow) -> tuple[list[dict[str, Any]], str]:
        """The tasks of the model's latest managed run, and their name.

        Raises:
            Refused: 404, it had none; 422, the latest was driven by a client, which has its tasks.
        """
        job = await self._parts.store.read(jobs.training, model.id)
        if job["driver"] is not None:
            source = await self._parts.store.read(runs.taskset, job["id"]) or "SOURCE"
            again = f"hud-tui --local eval {quote(source)} -m {quote(model.slug)}"
            raise bad_field("tasks", f"the latest run was on {source}: {again}")
        rows: list[dict[str, Any]] = json.loads(job["tasks"])
        name = str(job["name"] or "").removesuffix(f" on {model.slug}")
        return rows, name or f"{len(rows)} tasks"

    async def _plan(self, model: ModelRow, rows: Sequence[dict[str, Any]]) -> list[Planned]:
        base, tokens = self._parts.base(model), await self._parts.tokenizer(model)
        return await asyncio.to_thread(plan_tasks, rows, base, tokens, "tasks")

    def _filled(self, model: ModelRow, asked: EvaluationParameters) -> EvaluationParameters:
        base = self._parts.base(model)
        most = min(asked.max_tokens or effort_tokens(None, base), base.context - 1)
        return asked.model_copy(update={"max_tokens": most})

    def _start(self, work: "Work") -> None:
        task = asyncio.create_task(self._guard(work), name=f"evaluation {work.id}")
        self._tasks[work.id] = work, task

    async def _guard(self, work: "Work") -> None:
        """Run the work and store how it ended, whatever the outcome."""
        try:
            end = await self._outcome(work)
            finish = partial(work.finish, end)
            await until_written(finish, self._closing, f"evaluation {work.id}")
        finally:
            if self._tasks.get(work.id, (None,))[0] is work:
                del self._tasks[work.id]

    async def _outcome(self, work: "Work") -> End:
        try:
            async with self._in_turn(work):
                await work.sample()
        except Stopped:
            return evaluations.stopped(work.stop.ends_as)
        except (EngineError, Refused) as error:
            return failed(error)
        except Exception as error:
            if refusal(error) is None:
                log.exception("evaluation %s failed", work.id)
            return failed(error)
        return End("succeeded")

    @asynccontextmanager
    async def _in_turn(self, work: "Work") -> AsyncIterator[None]:
        """Wait for the turn to sample, and hold it. Raises Stopped."""
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            await work.stop.unless(turn)
            yield
        finally:
            if turn.done() and not turn.cancelled():  # it may have arrived together with a stop
                self._turn.release()


@dataclass(eq=False)
class Work:
    """One evaluation that is queued or running."""

    parts: ServiceContext
    model: ModelRow
    node: Node | None
    id: str
    asked: EvaluationParameters
    planned: Sequence[Planned]
    stop: Stop = field(default_factory=Stop)
    made: list[Group] = field(default_factory=list)
    """Rewards of the stored rollouts, by task."""

    async def sample(self) -> None:
        """Sample all missing rollouts.

        Raises:
            Stopped: A stop was requested.
            Refused: The checkpoint's weights were deleted.
            EngineError: The engine failed, or stopped too often.
        """
        await self.parts.store.write(evaluations.start, self.id)
        lost = 0
        while missing := await self._missing():
            try:
                await self._sample_missing(missing)
            except (EngineLost, OSError) as error:
                lost += 1
                if lost > LOST_IN_A_ROW or refusal(error) is not None:
                    raise
                log.info("evaluation %s goes on after: %s", self.id, error)
                await self.stop.unless(asyncio.sleep(lost))

    async def finish(self, end: End) -> None:
        """Store how it ended, with its results if it succeeded."""
        found = groups = None
        if end.status == "succeeded":
            groups = self.made
            found = await asyncio.to_thread(summarize, groups, self.asked.solved_at)
        await self.parts.store.write(evaluations.finish, self.id, end, found, groups)

    async def _missing(self) -> list[Planned]:
        self.made = await self.parts.store.read(evaluations.made, self.id)
        done = {group.task_slug for group in self.made}
        return [task for task in self.planned if task.task.slug not in done]

    async def _sample_missing(self, missing: Sequence[Planned]) -> None:
        """Sample part by part; one part is stored while the next is sampled."""
        model, tokens = self.model, await self.parts.tokenizer(self.model)
        node = self.node
        if node is not None:  # retention may have moved the state to another file
            node = await self.parts.store.read(checkpoints.loadable, model.id, node.id)
        keeping: asyncio.Future[Any] | None = None
        async with self.parts.policies.borrow(model, node, pinned=True) as handle:
            try:
                async with aclosing(self._sampled(handle, missing)) as parts:
                    async for tasks, sampled, seconds in parts:
                        graded = grade_all(tasks, sampled, tokens, partial(rollout_id, self.id))
                        if keeping is not None:
                            await keeping
                        rollouts = Rollouts((), graded, now() - seconds, seconds)
                        keeping = asyncio.ensure_future(self._keep(rollouts))
            finally:
                if keeping is not None:
                    await keeping

    async def _sampled(
        self, handle: Handle, missing: Sequence[Planned]
    ) -> AsyncGenerator[tuple[Sequence[Planned], Sequence[Sampled], float], None]:
        """The parts as they are sampled, each with the seconds it took."""
        context = self.parts.base(self.model).context
        engine, asked = self.parts.engine, self.asked
        most = AT_ONCE if (asked.max_tokens or context) < LONG else AT_ONCE // 2
        parts = in_turns(missing, asked.samples, most)
        waiting, coming = deque(parts), deque[asyncio.Future[list[Sampled]]]()

        def hand_over() -> None:
            while waiting and len(coming) <= AHEAD:
                requests = evaluation_requests(waiting.popleft(), asked, context)
                coming.append(asyncio.ensure_future(engine.sample(handle, requests)))

        try:
            for tasks in parts:
                hand_over()
                start = perf_counter()
                sampled = await self.stop.unless(coming[0])
                coming.popleft()
                hand_over()
                yield tasks, sampled, perf_counter() - start
        finally:
            for one in coming:
                one.cancel()
            await asyncio.gather(*coming, return_exceptions=True)

    async def _keep(self, rollouts: Rollouts) -> None:
        step, id_ = (self.node.step, self.node.id) if self.node else (0, None)
        place = (self.id, step, None)
        rows = trace_rows(rollouts, place, self.model, self.asked.temperature, id_)
        await self.parts.store.write(evaluations.advance, self.id, rows, rollouts.seconds)
        self.made += groups_of(rollouts.heldout)
