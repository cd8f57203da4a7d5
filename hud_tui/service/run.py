"""One managed run: sample from the head, grade, step, again.

The head is looked at before sampling and, under the session's lock, before training: if
it moved in between, the rollouts are thrown away and sampled again from the new head, so
that the next node branches from the one that was chosen. A stop is obeyed between
rollouts; a step that has begun is finished, whole.
"""

import asyncio
from collections.abc import Coroutine
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

from hud_tui.service.batches import CROSS_ENTROPY, Batch, flat_groups, make_batch, name_flat
from hud_tui.service.endings import NoSpread, Solved, Stopped
from hud_tui.service.engines.base import Adam, EngineLost
from hud_tui.service.flats import IN_A_ROW, Flats
from hud_tui.service.parts import Parts
from hud_tui.service.plan import Plan
from hud_tui.service.rollouts import Rollouts, roll_out, trace_rows
from hud_tui.service.store import heads, runs
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.rollouts import add_rollouts

T = TypeVar("T")

LOST_IN_A_ROW = 3
"""Times that an iteration is repeated after the engine stopped."""


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
        self._flats = Flats()
        self._session = parts.session(model)

    def stop(self, ends_as: str) -> None:
        """Ask it to end as soon as no step is being taken."""
        self.ends_as = ends_as
        self._stop.set()

    async def train(self) -> None:
        """Take all steps that are left.

        Raises:
            Stopped: It was asked to end.
            Solved: `flats.IN_A_ROW` batches had full rewards only.
            NoSpread: So many had nothing to train on.
            EngineError: The engine failed, or stopped too often.
        """
        async with self._session.lock:
            await self._session.drop()
        lost = 0
        while self._step < self._plan.parameters["steps"]:
            try:
                await self._iterate()
                lost = 0
            except EngineLost as error:
                lost += 1
                if lost > LOST_IN_A_ROW:
                    raise
                await self._say_lost(error)

    async def _iterate(self) -> None:
        start = perf_counter()
        node = await self._parts.store.read(heads.head, self.model.id)
        rollouts = await self._unless_stopped(self._sample(node))
        async with self._session.lock:
            now = await self._parts.store.read(heads.head_id, self.model.id)
            if self._stop.is_set() or now != (node.id if node else None):
                return
            await self._keep(rollouts)
            batch = self._batch(rollouts)
            if batch.datums():
                await self._take_step(batch, rollouts, start)
            else:
                await self._skip(batch, rollouts, start)

    async def _say_lost(self, error: EngineLost) -> None:
        node = await self._parts.store.read(heads.head, self.model.id)
        place = node.name if node else "the start"
        note = f"step {self._step + 1}: {error}: sampled again from {place}"
        await self._parts.store.write(runs.note, self.job_id, note)

    async def _sample(self, node: Node | None) -> Rollouts:
        parts, parameters = self._parts, self._plan.parameters
        last = self._step + 1 == parameters["steps"]
        heldout = self._plan.samples_heldout(self._iteration, last)
        async with parts.policies.borrow(self.model, node) as handle:
            return await roll_out(
                parts.engine,
                handle,
                await parts.tokenizer(self.model),
                self._plan,
                (self.job_id, self._iteration),
                heldout,
                parts.base(self.model).context,
            )

    async def _keep(self, rollouts: Rollouts) -> None:
        temperature = self._plan.parameters["temperature"]
        model = self.model
        place = (self.job_id, self._step + 1, self._attempt)
        rows = trace_rows(rollouts, place, model.slug, model.base, temperature)
        await self._parts.store.write(add_rollouts, model.id, rows)

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
                tokens=rollouts.tokens,
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
            raise Solved(self._flats.verdict)
        if self._flats.is_end:
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
