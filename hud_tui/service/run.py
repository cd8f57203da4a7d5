"""One managed run: sample from the head, grade, step, again; at the end, evaluate.

A step's rollouts are sampled by the weights before it, so the last checkpoint has no number
of its own until the held-out tasks are sampled once more from it: that is the evaluation.

The head is looked at before sampling and, under the session's lock, before training: if
it moved in between, the rollouts are thrown away and sampled again from the new head, so
that the next node branches from the one that was chosen. A stop is obeyed between
rollouts; a step that has begun is finished, whole.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

from hud_tui.service.batches import CROSS_ENTROPY, Batch, flat_groups, make_batch, name_flat
from hud_tui.service.disk import refusal
from hud_tui.service.endings import NoSpread, Solved, Stopped
from hud_tui.service.engines.base import Adam, EngineError, EngineLost, StateGone
from hud_tui.service.flats import IN_A_ROW, Flats
from hud_tui.service.parts import Parts
from hud_tui.service.plan import Plan, Planned
from hud_tui.service.rollouts import Rollouts, roll_out, trace_rows
from hud_tui.service.store import evaluations, heads, runs
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.rollouts import add_rollouts

T = TypeVar("T")
log = logging.getLogger(__name__)

LOST_IN_A_ROW = 3
"""Times that an iteration is repeated after the engine stopped, or a file could not be opened."""
EVALUATED_AT_ONCE = 256
"""Rollouts of an evaluation that the engine is asked for together: whoever else samples gets a
turn in between."""


class Run:
    def __init__(
        self,
        parts: Parts,
        model: ModelRow,
        job_id: str,
        plan: Plan,
        step: int = 0,
        iteration: int = 0,
        attempt: int = 1,
        solved: str | None = None,
    ) -> None:
        """
        Args:
            parts: The service's.
            model: The fork that is trained.
            job_id: The run's.
            plan: What it does.
            step: Optimizer steps it has taken so far.
            iteration: Batches it has sampled so far, with those that had no spread.
            attempt: Which sampling of the next step is due, from 1.
            solved: Why no further step is taken, where that was found before.
        """
        self.model = model
        self.job_id = job_id
        self.ends_as = "cancelled"
        """The status that a stop leaves."""
        self._parts = parts
        self._plan = plan
        self._step = step
        self._iteration = iteration
        self._stop = asyncio.Event()
        self._attempt = attempt
        self._solved = solved
        self._flats = Flats()
        self._session = parts.session(model)

    def stop(self, ends_as: str) -> None:
        """Ask it to end as soon as no step is being taken."""
        self.ends_as = ends_as
        self._stop.set()

    async def train(self) -> None:
        """Take all steps that are left, then evaluate the last checkpoint.

        Raises:
            Stopped: It was asked to end.
            Solved: `flats.IN_A_ROW` batches had full rewards only.
            NoSpread: So many had nothing to train on.
            EngineError: The engine failed, or stopped too often.
        """
        async with self._session.lock:
            await self._session.drop()
        while self._solved is None and self._step < self._plan.parameters["steps"]:
            await self._persist(self._iterate, f"step {self._step + 1}")
        await self._evaluate()
        if self._solved is not None:
            raise Solved(self._solved)

    async def _persist(
        self, work: Callable[[], Awaitable[T]], what: str, node: Node | None = None
    ) -> T:
        """Do something, and again where the engine stops meanwhile, or no file can be opened.

        Args:
            work: What is done.
            what: What it is called.
            node: The checkpoint that it samples from; None for the head.
        """
        for lost in range(1, LOST_IN_A_ROW + 1):
            try:
                return await work()
            except (EngineLost, OSError) as error:
                if refusal(error) is not None:  # the disk's: it does not pass by itself
                    raise
                from_ = node or await self._parts.store.read(heads.head, self.model.id)
                place = from_.name if from_ else "the start"
                note = f"{what}: {error}: sampled again from {place}"
                await self._parts.store.write(runs.note, self.job_id, note)
                if isinstance(error, OSError):  # too many open files: it may pass
                    await self._unless_stopped(asyncio.sleep(lost))
        return await work()

    async def _iterate(self) -> None:
        start = perf_counter()
        node = await self._parts.store.read(heads.head, self.model.id)
        plan, last = self._plan, self._step + 1 == self._plan.parameters["steps"]
        train, heldout = plan.tasks_of(self._iteration), plan.heldout_of(self._iteration, last)
        rollouts = await self._unless_stopped(self._sample(node, train, heldout))
        async with self._session.lock:
            now = await self._parts.store.read(heads.head_id, self.model.id)
            if self._stop.is_set() or now != (node.id if node else None):
                return
            await self._keep(rollouts, (self.job_id, self._step + 1, self._attempt))
            batch = self._batch(rollouts)
            if batch.datums():
                await self._take_step(batch, rollouts, start)
            else:
                await self._skip(batch, rollouts, start)

    async def _evaluate(self) -> None:
        """Sample the held-out tasks from the run's last checkpoint, and keep what it scored.

        Raises:
            Stopped: The run was asked to end.
            EngineError: It could not be sampled; the steps stand.
        """
        store, tasks = self._parts.store, self._plan.heldout
        node = await store.read(evaluations.due, self.job_id)
        if node is None or not tasks:
            return
        await store.write(runs.note, self.job_id, f"{_evaluation(node)}: {len(tasks)} tasks")
        rewards: list[float] = []
        try:
            for start in range(0, len(tasks), EVALUATED_AT_ONCE):
                part = tasks[start : start + EVALUATED_AT_ONCE]
                score = partial(self._score, node, part)
                rewards += await self._persist(score, _evaluation(node), node)
        except StateGone as error:
            log.warning("%s is not evaluated: %s", node.name, error)
            return
        except EngineError as error:
            why = f"all steps were taken, but the {_evaluation(node)} failed: {error}"
            raise EngineError(f"{why}. Resume the run to repeat only that") from error
        await store.write(evaluations.add, self.model.id, node, rewards, len(tasks), self.job_id)

    async def _score(self, node: Node, tasks: Sequence[Planned]) -> list[float]:
        """Rewards of one rollout per held-out task, sampled from a checkpoint, and kept."""
        found = await self._unless_stopped(self._sample(node, (), tasks))
        await self._keep(found, (self.job_id, self._step, None), node)
        return [rollout.reward for rollout in found.heldout]

    async def _sample(
        self, node: Node | None, train: Sequence[Planned], heldout: Sequence[Planned]
    ) -> Rollouts:
        parts = self._parts
        async with parts.policies.borrow(self.model, node) as handle:
            return await roll_out(
                parts.engine,
                handle,
                await parts.tokenizer(self.model),
                self._plan,
                (self.job_id, self._iteration),
                train,
                heldout,
                parts.base(self.model).context,
            )

    async def _keep(
        self,
        rollouts: Rollouts,
        place: tuple[str, int, int | None],
        evaluated: Node | None = None,
    ) -> None:
        temperature = self._plan.parameters["temperature"]
        model = self.model
        id_, step = (evaluated.id, evaluated.step) if evaluated else (None, None)
        rows = trace_rows(rollouts, place, model.slug, model.base, temperature, id_)
        await self._parts.store.write(add_rollouts, model.id, rows, step)

    def _batch(self, rollouts: Rollouts) -> Batch:
        parameters = self._plan.parameters
        trajectories = [r.trajectory(parameters["temperature"]) for r in rollouts.train]
        return make_batch(trajectories, parameters["group_size"], parameters["loss_fn"])

    async def _take_step(self, batch: Batch, rollouts: Rollouts, start: float) -> None:
        parameters = self._plan.parameters
        await self._session.forward_backward(batch, parameters["loss_fn"])
        await self._session.optim_step(
            Adam(parameters["learning_rate"]),
            job_id=self.job_id,
            extra=_extra(rollouts),
            also=lambda db, _: runs.advance(
                db,
                self.job_id,
                steps=1,
                tokens=sum(len(datum.output) for datum in batch.datums()),
                seconds=perf_counter() - start,
            ),
        )
        self._step += 1
        self._iteration += 1
        self._attempt = 1
        self._flats.clear()

    async def _skip(self, batch: Batch, rollouts: Rollouts, start: float) -> None:
        self._flats.add([rollout.reward for rollout in rollouts.train])
        self._iteration += 1
        self._attempt += 1
        note = f"step {self._step + 1}: {_why_skipped(batch, self._plan.parameters['loss_fn'])}"
        await self._parts.store.write(
            runs.advance,
            self.job_id,
            steps=0,
            tokens=0,
            seconds=perf_counter() - start,
            note=f"{note}: sampled again ({self._flats.count} of {IN_A_ROW})",
        )
        if self._flats.is_end and self._flats.solved:
            self._solved = self._flats.verdict
            await self._parts.store.write(runs.solved, self.job_id, self._solved)
        elif self._flats.is_end:
            raise NoSpread(f"{self._flats.verdict} ({note})")

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                raise Stopped
            return task.result()
        finally:
            for one in (task, stop):
                one.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)


def _evaluation(node: Node) -> str:
    return f"evaluation of {node.name} on the held-out tasks"


def _why_skipped(batch: Batch, loss_fn: str) -> str:
    if loss_fn == CROSS_ENTROPY:
        return "every reward was 0"
    return f"no group had spread: {name_flat(flat_groups(batch))}"


def _extra(rollouts: Rollouts) -> dict[str, float]:
    """The step's metrics that only sampling knows."""
    metrics = {
        "rollout_s": rollouts.seconds,
        "tokens_per_s": rollouts.tokens / max(rollouts.seconds, 1e-9),
        "truncated_share": rollouts.truncated,
    }
    if rollouts.heldout:
        metrics["heldout_reward"] = fmean(rollout.reward for rollout in rollouts.heldout)
    return metrics
