"""Evaluations on an environment of the user's own: its tasks, rolled out by its worker."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.client.evaluate import RollOut
from hud_tui.errors import HudUsage
from hud_tui.rl.tasks.checks import failures_text
from hud_tui.rl.tasks.signal import Outcome, Pace, Progress, TaskSignal
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rollouts.environment import Loaded, check_tasks, load, rollout_of, started
from hud_tui.rollouts.process import WorkerProcess
from hud_tui.rollouts.run_files import Order, known_runs
from hud_tui.rollouts.watched import error_text
from hud_tui.wire import EvaluationJob, EvaluationParameters, JobEnter, Json

SAMPLED = ("max_tokens", "temperature")
"""Parameters of an evaluation that a run has, too."""


async def tasks_of(client: HudClient, order: Order, state: Path) -> Loaded:
    """The tasks of an environment, which were checked.

    Raises:
        HudError: It cannot be imported, or a task does not fit it.
    """
    async with started(client, order, state) as worker:
        loaded = await load(worker, client, order)
    found = [one for one in check_tasks(loaded) if one.check != "train"]  # nothing is trained on
    if message := failures_text(found):
        fixes = (one.fix for one in found if one.level == "failure" and one.fix)
        raise HudUsage(message, next(fixes, ""))
    return loaded


def environment_of(order: Order) -> Json:
    """What is kept of how an evaluation's rollouts are made."""
    return {"order": order.model_dump(mode="json"), "flags": order.flags}


def order_of_run(state: Path | None, job_id: str | None) -> Order | None:
    """What a run that was begun here trains on; None: it was not."""
    folder = None if state is None or job_id is None else known_runs(state).get(job_id)
    return None if folder is None else folder.order()


def latest_order(state: Path, model_id: str, source: Path) -> Order | None:
    """How the latest run of a model that was begun here on an environment makes its rollouts; None:
    there was no such run."""
    found: list[tuple[float, Order]] = []
    for folder in known_runs(state).values():
        with suppress(HudUsage, OSError):  # a damaged run does not prevent an evaluation
            order, written = folder.order(), (folder.path / "order.json").stat().st_mtime
            if (order.model_id, order.source) == (model_id, str(source)):
                found.append((written, order))
    return max(found, key=lambda one: one[0], default=(0.0, None))[1]


def with_own_tasks(order: Order) -> Order:
    """The order with all tasks of its environment's file, instead of the run's taskset."""
    return order.model_copy(update={"tasks": None, "left_out": []})


def filled(asked: EvaluationParameters, order: Order) -> EvaluationParameters:
    """The parameters of an evaluation's rollouts: those that were not given are the order's. They
    are what an evaluation can be compared by."""
    given = {key for key in asked.model_fields_set if getattr(asked, key) is not None}
    known = {key: order.parameters.get(key) for key in SAMPLED if key not in given}
    return asked.model_copy(update={k: one for k, one in known.items() if one is not None})


def roll_out_in(state: Path) -> RollOut:
    """Rolls out with workers whose environments print to files in the state directory."""

    def roll_out(
        client: HudClient,
        evaluation: EvaluationJob,
        environment: Mapping[str, Any],
        checkpoint: str | None,
        missing: Sequence[Task],
    ) -> AsyncGenerator[Progress, None]:
        order = Order.model_validate(environment["order"])
        sampled = {key: evaluation.parameters.get(key) for key in SAMPLED}
        known = {key: value for key, value in sampled.items() if value is not None}
        order = order.model_copy(update={"parameters": order.parameters | known})
        return _Sampling(client, evaluation, order, checkpoint, missing).run(state)

    return roll_out


class _Sampling:
    def __init__(
        self,
        client: HudClient,
        evaluation: EvaluationJob,
        order: Order,
        checkpoint: str | None,
        missing: Sequence[Task],
    ) -> None:
        self._client, self._evaluation, self._order = client, evaluation, order
        self._checkpoint, self._missing = checkpoint, missing
        self._signals: dict[str, TaskSignal] = {}
        self._began, self._done, self._trouble = monotonic(), 0, ""
        self._news = asyncio.Event()

    async def run(self, state: Path) -> AsyncGenerator[Progress, None]:
        """Roll out everything; ends when all have ended.

        Raises:
            HudError: The environment's code or its interpreter; the worker ended.
        """
        async with started(self._client, self._order, state, self._count) as worker:
            await load(worker, self._client, self._order)
            await self._enter()
            groups = self._begin(worker)
            try:
                async for progress in self._progress(groups):
                    yield progress
            finally:
                for group in groups:
                    group.cancel()
                await asyncio.gather(*groups, return_exceptions=True)

    async def _enter(self) -> None:
        one = self._evaluation
        name = f"evaluation of {one.checkpoint or one.checkpoint_id or 'base'} of {one.model}"
        entered = JobEnter(name=one_line(name, 200), group=one.samples)
        await self._client.enter_job(one.id.replace("-", ""), entered)

    def _begin(self, worker: WorkerProcess) -> set[asyncio.Task[dict[str, Any]]]:
        tasks = {task.slug: task for task in self._missing}
        found = set()
        for slug, count in Counter(task.slug for task in self._missing).items():
            request = rollout_of(self._order, self._evaluation.id, tasks[slug], count)
            request["checkpoint"] = self._checkpoint
            found.add(asyncio.create_task(worker.call("roll_out", **request)))
        return found

    async def _progress(
        self, groups: set[asyncio.Task[dict[str, Any]]]
    ) -> AsyncGenerator[Progress, None]:
        """After each rollout. Raises HudError: of a group's request."""
        left = set(groups)
        while left:
            hearing = asyncio.create_task(self._news.wait())
            await asyncio.wait({*left, hearing}, return_when=asyncio.FIRST_COMPLETED)
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing
            self._news.clear()
            for group in [one for one in left if one.done()]:
                left.discard(group)
                group.result()
            yield self._now()

    def _now(self) -> Progress:
        pace = Pace(self._done, monotonic() - self._began)
        signals = tuple(self._signals.values())
        return Progress(self._done, len(self._missing), signals, pace, self._trouble)

    def _count(self, event: Mapping[str, Any]) -> None:
        """A rollout has ended."""
        run, slug = event["run"], str(event["task_slug"])
        before = self._signals.get(slug, TaskSignal(slug, ()))
        outcomes, errors = before.outcomes, before.errors
        self._done += 1
        if run["error"] is None:
            outcomes = (*outcomes, Outcome(run["reward"], run["tokens"]))
        else:
            self._trouble = error_text(run)
            errors += 1
        self._signals[slug] = TaskSignal(slug, outcomes, errors=errors)
        self._news.set()
