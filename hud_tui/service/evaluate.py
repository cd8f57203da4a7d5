"""Evaluations: each task is rolled out several times with one checkpoint's weights.

The checkpoint has a policy of its own, so that a run's rollouts, gradients and head are not
affected. One evaluation samples at a time, in parts of a few rollouts, so that runs and other
callers get their turns in between; the others wait in order. A part is stored in one transaction
as soon as it is graded: finished rollouts are never sampled again.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.evaluation import summarize
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import counted
from hud_tui.rl.work import EVALUATION, End
from hud_tui.sampling import sample_missing
from hud_tui.service.context import ServiceContext, Stop
from hud_tui.service.engine_rollouts import EngineMaker, Rollouts, trace_rows
from hud_tui.service.http import Refused, bad_field, new_id
from hud_tui.service.run_plan import Planned, effort_tokens, plan_tasks
from hud_tui.service.store import checkpoints, evaluations, jobs, models, runs, works
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.models import ModelRow
from hud_tui.service.works import Keep, Works
from hud_tui.wire import Group, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation, UsualTasks

log = logging.getLogger(__name__)

MOST = 100_000
"""Most rollouts of one evaluation."""


class Evaluator:
    def __init__(self, parts: ServiceContext, lives: Works) -> None:
        self._parts, self._works = parts, lives
        self._turn = asyncio.Lock()

    async def submit(self, model: ModelRow, body: SubmitEvaluation, keep: Keep) -> WorkState:
        """Check everything, queue the evaluation and start it; `model` may be a base. Raises
        Refused, 404, no such checkpoint; 410, its weights were deleted; 422, tasks that cannot be
        rolled out, or none in the split."""
        node = await self._node(model, body.checkpoint_id)
        rows, name = await self._rows(model, body)
        tasks = TaskSplit.of(await self._plan(model, rows))
        try:
            planned, split = tasks.chosen(body.split)
        except HudUsage as error:
            raise bad_field("split", error.message) from error
        base = self._parts.base(model)
        most = min(body.parameters.max_tokens or effort_tokens(None, base), base.context - 1)
        asked = body.parameters.model_copy(update={"max_tokens": most})
        if (count := len(planned) * asked.samples) > MOST:
            raise bad_field("parameters.samples", f"{count} rollouts: at most {MOST} in one")
        about = {
            "tasks_name": name,
            "split": split,
            "samples": asked.samples,
            "num_tasks": len(planned),
            "parameters": asked.model_dump(exclude={"samples"}),
        }
        id_, chosen = new_id(), [rows[task.index] for task in planned]
        evaluation = EngineEvaluation(self._parts, self._turn, model, node, id_, asked, planned)
        new = (id_, model, node, chosen, about)
        return await self._works.queue(evaluation, evaluations.submit, keep, *new)

    async def usual_tasks(self, model: ModelRow) -> UsualTasks:
        """The tasks that are evaluated if none are given. Raises Refused: there are none."""
        rows, name = await self._of_last_run(model)
        split = TaskSplit.of(await asyncio.to_thread(read_rows, rows))
        return UsualTasks(name=name, heldout=len(split.heldout), train=len(split.train))

    async def resume(self, evaluation_id: str, keep: Keep) -> WorkState:
        """Resume an evaluation that ended early; finished rollouts are kept. Raises Refused, 404;
        409, it has succeeded or goes on; 410, the weights were deleted."""
        store = self._parts.store
        await self._works.settle(evaluation_id)
        row = await store.read(evaluations.get, evaluation_id)
        model = await store.read(models.find, row["model_id"])
        node = await self._node(model, row["checkpoint_id"])
        planned = await self._plan(model, works.tasks_of(row))
        asked = EvaluationParameters(samples=row["samples"], **json.loads(row["parameters"]))
        evaluation = EngineEvaluation(
            self._parts, self._turn, model, node, row["id"], asked, planned
        )
        return await self._works.queue(evaluation, works.requeue, keep, row["id"])

    async def _node(self, model: ModelRow, ref: str | None) -> Node | None:
        if ref is None:
            return None
        return await self._parts.store.read(checkpoints.loadable, model.id, ref)

    async def _rows(
        self, model: ModelRow, body: SubmitEvaluation
    ) -> tuple[Sequence[dict[str, Any]], str]:
        """The tasks' rows and their name."""
        if body.tasks is not None:
            return body.tasks, body.name or counted(len(body.tasks), "task")
        try:
            rows, name = await self._of_last_run(model)
        except Refused as refused:
            if refused.status != 404:  # it had a run, whose tasks a client has
                raise
            why = "the model has had no managed run whose tasks could be taken: say which"
            raise bad_field("tasks", why) from refused
        return rows, body.name or name

    async def _of_last_run(self, model: ModelRow) -> tuple[list[dict[str, Any]], str]:
        """The tasks of the model's latest managed run, and their name. Raises Refused, 404, it had
        none; 422, the latest was driven by a client, which has its tasks."""
        job = await self._parts.store.read(jobs.training, model.id)
        if job["driver"] is not None:
            name = await self._parts.store.read(runs.taskset, job["id"]) or "of its own"
            again = f"hud-tui --local eval FILE -m {quote(model.slug)}"
            why = f"the latest run was on the environment {name}; give its file: {again}"
            raise bad_field("tasks", why)
        rows = works.tasks_of(job)
        name = str(job["name"] or "").removesuffix(f" on {model.slug}")
        return rows, name or counted(len(rows), "task")

    async def _plan(self, model: ModelRow, rows: Sequence[dict[str, Any]]) -> list[Planned]:
        base, tokens = self._parts.base(model), await self._parts.tokenizer(model)
        return await asyncio.to_thread(plan_tasks, rows, base, tokens, "tasks")


@dataclass(eq=False)
class EngineEvaluation:
    """An evaluation that the engine samples, queued or running."""

    parts: ServiceContext
    turn: asyncio.Lock
    """Held by the one evaluation that samples."""
    model: ModelRow
    node: Node | None
    id: str
    asked: EvaluationParameters
    planned: Sequence[Planned]
    kind: str = EVALUATION
    stop: Stop = field(default_factory=Stop)
    groups: list[Group] = field(default_factory=list)
    """Rewards of the stored rollouts, by task."""

    async def carry_out(self) -> End:
        """Wait for its turn, and sample all missing rollouts.

        Raises:
            Stopped: A stop was requested.
            Refused: The checkpoint's weights were deleted.
            EngineError: The engine failed, or stopped too often.
        """
        turn = asyncio.ensure_future(self.turn.acquire())
        try:
            await self.stop.unless(turn)
            await self.parts.store.write(works.mark, self.id, status="running")
            maker = EngineMaker(
                self.parts,
                self.model,
                self.node,
                self.asked,
                (self.id,),
                self.stop,
                self._log_loss,
                pinned=True,
            )
            await sample_missing(self.planned, self.asked.samples, maker, self)
        finally:
            if turn.done() and not turn.cancelled():  # it may have arrived together with a stop
                self.turn.release()
        return End("succeeded")

    async def _log_loss(self, error: Exception) -> None:
        log.info("evaluation %s goes on after: %s", self.id, error)

    async def made(self) -> Mapping[str, int]:
        self.groups = await self.parts.store.read(evaluations.made, self.id)
        return {group.task_slug: len(group.rewards) for group in self.groups}

    async def keep(self, part: Rollouts) -> None:
        step, id_ = (self.node.step, self.node.id) if self.node else (0, None)
        rows = trace_rows(part, (self.id, step, None), self.model, self.asked.temperature, id_)
        await self.parts.store.write(evaluations.advance, self.id, rows, part.seconds)
        self.groups += part.groups

    async def finish(self, end: End) -> None:
        """Store how it ended, with its results if it succeeded."""
        result = groups = None
        if end.status == "succeeded":
            groups = self.groups
            result = await asyncio.to_thread(summarize, groups, self.asked.solved_at)
        await self.parts.store.write(evaluations.finish, self.id, end, result, groups)
