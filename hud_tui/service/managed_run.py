"""Managed runs: batches of rollouts, optimizer steps, evaluation, and how a run ends.

What comes next is decided by `rl/loop.py`; here it is done, with an engine.

A step's rollouts are sampled with the weights before it, so the last checkpoint has rewards of its
own only after the evaluation, which samples the held-out tasks once more.

The head is read before sampling and, under the session's lock, before training. If the weights that
sampled are not the head then, nor one of its ancestors at most `Loop.oldest` steps before, the
rollouts are discarded and sampled again from the new head, so that the next node branches from the
chosen one. A stop takes effect between rollouts; a step in progress is completed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

from hud_tui.parameters import USUAL
from hud_tui.rl import timeline
from hud_tui.rl.drawing import BEFORE, Drawing
from hud_tui.rl.evaluation import summarize, tasks_digest
from hud_tui.rl.groups import CROSS_ENTROPY
from hud_tui.rl.loop import FLAT_IN_A_ROW, Evaluate, Loop, LoopFacts, Sample, Train
from hud_tui.rl.text import counted
from hud_tui.rl.timeline import DISK, ENGINE, EVALUATING, FORWARD_BACKWARD, GRADING, SAMPLING
from hud_tui.rl.work import TRAINING, End
from hud_tui.sampling import SampledAhead, sample_missing
from hud_tui.service.batches import Batch, make_batch, name_flat
from hud_tui.service.context import ServiceContext, Stop
from hud_tui.service.engine_rollouts import (
    EngineMaker,
    Rollout,
    Rollouts,
    grade_all,
    is_passing,
    trace_rows,
    training_requests,
)
from hud_tui.service.engines.base import Adam, EngineError, EngineLost, StateGone
from hud_tui.service.http import new_id, now, rollout_id
from hud_tui.service.run_plan import Plan, Planned
from hud_tui.service.session import kl_of
from hud_tui.service.store import checkpoints, evaluations, jobs, runs, seen, times, works
from hud_tui.service.store.checkpoints import Node, id_of
from hud_tui.service.store.db import Db, Store
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.traces import TraceRow, add_rollouts, keep_rollouts
from hud_tui.service.works import log_waits
from hud_tui.wire import BASE, Group
from hud_tui.wire_runs import EvaluationParameters
from hud_tui.wire_time import StepTime

T = TypeVar("T")
log = logging.getLogger(__name__)
HEAD_MOVED = "the head was moved: sampled again from it"
TOO_STALE = "sampled {} steps before the head: sampled again from it"


class Run:
    kind = TRAINING

    def __init__(
        self,
        parts: ServiceContext,
        model: ModelRow,
        job_id: str,
        plan: Plan,
        facts: LoopFacts | None = None,
    ) -> None:
        """`facts`: what earlier processes did of it; None for a new run."""
        self.model = model
        self.id = job_id
        self.stop = Stop()
        self._parts = parts
        self._plan = plan
        self._loop = Loop.of(plan.parameters)
        self._facts = facts or LoopFacts()
        self._drawing = Drawing(plan.parameters)
        self._heldout: tuple[str | None, Sequence[Rollout]] = (None, ())
        """The held-out rollouts of this step, and the checkpoint that they are of (`id_of`)."""
        self._skipped = ""
        """Why the last batch had no gradient."""
        tasks = (planned.task.slug for planned in (*plan.train, *plan.heldout))
        self._tasks_digest = tasks_digest(list(tasks))
        self._alarms = runs.RunAlarms(parts.store, job_id, plan.parameters["steps"])
        self._session = parts.session(model)
        self._ahead = SampledAhead(self._sample_ahead)
        self._watch = self._session.stopwatch
        self._after_last: StepTime | None = None
        """Where the time after the last step went."""

    async def carry_out(self) -> End:
        """As `train`; followers are told what the engine's server is waiting for."""
        await self._parts.store.write(works.mark, self.id, status="running")

        async def stop_sampling_ahead() -> None:  # a step in progress may wait for it
            await self.stop.requested.wait()
            await self._ahead.drop()

        telling = asyncio.create_task(log_waits(self._parts, self.id, self._watch))
        stopping = asyncio.create_task(stop_sampling_ahead())
        try:
            return await self.train()
        finally:
            for task in (telling, stopping):
                task.cancel()
            await self._ahead.drop()
            await asyncio.gather(telling, stopping, return_exceptions=True)
            self._after_last = self._watch.so_far()
            self._watch.end()

    async def finish(self, end: End) -> None:
        await self._parts.store.write(self._finish, end)

    def _finish(self, db: Db, end: End) -> None:
        works.finish(db, self.id, end)
        if self._after_last is not None:
            ids = {"run_id": self.id, "step": self._facts.step + 1}
            times.keep(db, self._after_last.model_copy(update=ids))

    async def train(self) -> End:
        """Do what the loop says until it ends; returns how. Raises Stopped: a stop was requested;
        EngineError: the engine failed, or stopped too often."""
        self._watch.begin(self.id)
        async with self._session.lock:
            await self._session.drop()
        with self._watch.measure(DISK):
            self._facts = await self._with_evaluations(self._facts)
            await self._look_back()
        while True:
            match self._loop.next(self._facts):
                case Sample() as action:
                    iterate = partial(self._iterate, action)
                    await self._persist(iterate, f"step {self._facts.step + 1}")
                    with self._watch.measure(DISK):
                        await self._alarms.follow()
                case Evaluate(step):
                    with self._watch.measure(EVALUATING):
                        await self._evaluate(step)
                    self._facts = self._facts.scored()
                case End() as end:
                    return self._explained(end)
                case Train():
                    raise AssertionError("a batch is trained on when it has been sampled")

    def _explained(self, end: End) -> End:
        """With the groups of the last batch, if the run fails for them."""
        if end.error is None:
            return end
        error = end.error.model_copy(update={"message": f"{end.error.message} ({self._skipped})"})
        return replace(end, error=error)

    async def _with_evaluations(self, facts: LoopFacts) -> LoopFacts:
        """The facts, with what earlier processes evaluated."""
        store = self._parts.store
        if facts.step:
            is_due = await store.read(evaluations.due, self.id) is not None
        else:
            is_due = not await store.read(evaluations.has_baseline, self.id)
        return facts if is_due else facts.scored()

    async def _look_back(self) -> None:
        """Read what is known of the tasks: from before the run, and of its own batches."""
        store, facts = self._parts.store, self._facts
        self._drawing.saw(BEFORE, (await store.read(seen.before, self.id)).items())
        batches = await store.read(seen.by_batch, self.id, facts.step + 1, facts.attempt)
        for iteration, groups in enumerate(batches, facts.iteration - len(batches)):
            self._drawing.saw(iteration, groups.items())

    async def _persist(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Do something from the head, named in messages by `what`; retry if the engine stops
        meanwhile, or a file cannot be opened."""
        losses = 0
        while True:
            try:
                return await work()
            except (EngineLost, OSError) as error:
                losses += 1
                await self._ahead.drop()
                if not is_passing(error, losses):
                    raise
                with self._watch.measure(ENGINE):
                    head = await self._parts.store.read(checkpoints.head, self.model.id)
                    await self._note_loss(what, head, error)
                    if isinstance(error, OSError):
                        await self.stop.unless(asyncio.sleep(losses))

    async def _note_loss(self, what: str, node: Node | None, error: Exception) -> None:
        note = f"{what}: {error}: sampled again from {node.name if node else 'the start'}"
        await self._parts.store.write(works.mark, self.id, note=note)

    async def _iterate(self, action: Sample) -> None:
        """Sample a batch, and train on it if it has a gradient."""
        start, measure = perf_counter(), self._watch.measure
        with measure(SAMPLING, 0):
            rollouts = await self.stop.unless(self._sampled(action))
        if rollouts.heldout:
            self._heldout = rollouts.sampled_from, rollouts.heldout
        async with self._session.lock:
            with measure(DISK):
                why = await self._why_too_old(rollouts)
            if self.stop.requested.is_set():
                return
            if why:
                await self._discard(rollouts, perf_counter() - start, why)
                return
            batch_key = (self.id, self._facts.step + 1, action.attempt)
            with measure(DISK):
                rows = trace_rows(
                    rollouts, batch_key, self.model, self._plan.parameters["temperature"]
                )
                storing = asyncio.ensure_future(
                    self._parts.store.write(add_rollouts, self.model.id, rows)
                )
            try:
                with measure(FORWARD_BACKWARD, 0):
                    batch = self._batch(rollouts)
                    rewards = [group.rewards for group in batch.groups]
                    sampled = self._facts.sampled(rewards, bool(batch.datums()))
                if self._loop.next(sampled) == Train():
                    self._ahead.fill(partial(self._loop.ahead, sampled))
                    await self._take_steps(sampled, batch, rollouts, start, storing)
                else:
                    with measure(DISK):
                        await storing
                    await self._skip(sampled, batch, rollouts, start)
                    self._facts = sampled
            finally:
                with measure(DISK):
                    await asyncio.gather(storing, return_exceptions=True)

    async def _sampled(self, action: Sample) -> Rollouts:
        """The rollouts of an iteration: those that were sampled ahead, or now, from the head."""
        ahead = await self._ahead.take(action.iteration)
        if ahead is None:
            with self._watch.measure(DISK):
                node = await self._parts.store.read(checkpoints.head, self.model.id)
            heldout = self._plan.heldout if self._measures(action, node) else ()
            return await self._sample_batch(action.iteration, node, heldout)
        node, rollouts = ahead
        if self._measures(action, node) and self._plan.heldout and not rollouts.heldout:
            # it was not known yet that a batch before it would have no gradient
            measured = await self._sample(action.iteration, node, (), self._plan.heldout)
            return replace(rollouts, all=[*rollouts.all, *measured.all])
        return rollouts

    def _measures(self, action: Sample, node: Node | None) -> bool:
        """Whether held-out tasks are sampled with an iteration from this checkpoint: they are due,
        or were measured for the same step from another one."""
        measured_from, samples = self._heldout
        return action.with_heldout or (bool(samples) and measured_from != id_of(node))

    async def _sample_ahead(self, action: Sample) -> tuple[Node | None, Rollouts]:
        """Sample an iteration from the head, while another one is trained on."""
        node = await self._parts.store.read(checkpoints.head, self.model.id)
        heldout = self._plan.heldout if action.with_heldout else ()
        # Weights that are opened a second time cost a server more than the update's wait for them;
        # and with a single batch ahead, that batch is waited for anyway.
        pinned = self._loop.oldest > 1
        return node, await self._sample_batch(action.iteration, node, heldout, pinned)

    async def _sample_batch(
        self, iteration: int, node: Node | None, heldout: Sequence[Planned], pinned: bool = False
    ) -> Rollouts:
        """Sample the tasks that are drawn for an iteration, and some held-out ones."""
        train = self._drawing.tasks_of(self._plan.train, iteration)
        rollouts = await self._sample(iteration, node, train, heldout, pinned)
        groups = replace(rollouts, all=rollouts.train).groups
        self._drawing.saw(iteration, [(group.task_slug, group.rewards) for group in groups])
        return replace(rollouts, counts=self._drawing.counts(self._plan.train))

    async def _why_too_old(self, rollouts: Rollouts) -> str:
        """Why a batch cannot be trained on; empty if it can."""
        source, most = rollouts.sampled_from, self._loop.oldest
        head = await self._parts.store.read(checkpoints.head_id, self.model.id)
        if source == (head or BASE):
            return ""
        ages = await self._parts.store.read(checkpoints.ages, head, {source}) if most else {}
        if source not in ages:
            return HEAD_MOVED
        return TOO_STALE.format(ages[source]) if ages[source] > most else ""

    async def _discard(self, rollouts: Rollouts, seconds: float, why: str) -> None:
        """Sample the iteration again, with what was sampled ahead, because it is too old. What is
        discarded is stored under other ids: the same tasks are sampled again."""
        attempt, step = self._facts.attempt, self._facts.step + 1
        self._facts, self._heldout = self._facts.discarded(), (None, ())
        batches = [rollouts, *(batch for _, batch in await self._ahead.drop())]
        reason = timeline.HEAD_MOVED if why == HEAD_MOVED else timeline.STALE
        kept = []
        for batch in batches:
            again = [replace(rollout, trace_id=new_id()) for rollout in batch.train]
            pairs = zip(batch.train, again, strict=True)
            self._watch.discard(reason, {old.trace_id: new.trace_id for old, new in pairs})
            part, key = replace(batch, all=again), (self.id, step, attempt)
            kept += trace_rows(part, key, self.model, self._plan.parameters["temperature"])
        await self._waste(
            reason,
            [row.id for row in kept],
            kept,
            iterations=0,
            seconds=seconds,
            note=f"step {step}: {why}",
        )

    async def _waste(
        self, reason: str, ids: Sequence[str], rows: Sequence[TraceRow] = (), **more: Any
    ) -> None:
        """Store that rollouts are not trained on, with what else `jobs.advance` takes; `rows` are
        those that are not stored yet."""
        step = self._facts.step + 1

        def waste(db: Db) -> None:
            keep_rollouts(db, rows, now())
            times.discard(db, self.id, step, {reason: ids})
            jobs.advance(db, self.id, wasted=len(ids), **more)

        with self._watch.measure(DISK):
            await self._parts.store.write(waste)

    async def _evaluate(self, step: int) -> None:
        """Sample the held-out tasks from the run's last checkpoint, before the first step from the
        model's head, and store its evaluation. Raises Stopped: a stop was requested; EngineError:
        sampling failed; the steps are kept."""
        store, tasks, parameters = self._parts.store, self._plan.heldout, self._plan.parameters
        if step:
            node = await store.read(evaluations.due, self.id)
        else:
            node = await store.read(checkpoints.head, self.model.id)
        if not tasks or (step and node is None):
            return
        what = f"evaluation of {node.name if node else 'base'} on the held-out tasks"
        await store.write(works.mark, self.id, note=f"{what}: {counted(len(tasks), 'task')}")
        asked = EvaluationParameters(
            samples=parameters.get("eval_samples", USUAL["eval_samples"]),
            **{name: parameters[name] for name in ("max_tokens", "temperature", "seed")},
        )
        maker = EngineMaker(
            self._parts,
            self.model,
            node,
            asked,
            (self.id, "evaluation", node.id if node else "start"),
            self.stop,
            partial(self._note_loss, what, node),
        )
        batch_key = (self.id, self._facts.step)
        scores = _Scores(store, self.model, batch_key, node, asked)
        try:
            await sample_missing(tasks, asked.samples, maker, scores)
        except StateGone as error:
            log.warning("%s is not evaluated: %s", node.name if node else "base", error)
            return
        except EngineError as error:
            why, left = f"the {what} failed: {error}", "continue from there"
            if self._loop.is_over(self._facts):
                why, left = f"all steps were taken, but {why}", "repeat only that"
            raise EngineError(f"{why}. Resume the run to {left}") from error
        await scores.record()

    async def _sample(
        self,
        iteration: int,
        node: Node | None,
        train: Sequence[Planned],
        heldout: Sequence[Planned],
        pinned: bool = False,
    ) -> Rollouts:
        """Sample and grade some tasks in one call to the engine: `group_size` rollouts of a
        training task, one of a held-out task. `pinned`: as of `Policies.borrow`. Raises EngineLost:
        the engine stopped."""
        parts, plan, context = self._parts, self._plan, self._parts.base(self.model).context
        wanted = [(task, j) for task in train for j in range(plan.parameters["group_size"])]
        wanted += [(task, 0) for task in heldout]
        requests = training_requests(wanted, plan.parameters, iteration, context)
        watch = self._watch
        async with AsyncExitStack() as stack:
            with watch.measure(ENGINE):
                borrowed = parts.policies.borrow(self.model, node, pinned)
                handle = await stack.enter_async_context(borrowed)
                tokens = await parts.tokenizer(self.model)
            started_at, start, began = now(), perf_counter(), watch.now()
            with parts.policies.calling(watch, SAMPLING, len(requests)):
                sampled = await parts.engine.sample(handle, requests)
            seconds = perf_counter() - start

        def name(task: Planned, j: int) -> str:
            return rollout_id(self.id, iteration, task.index, j)  # the same if it is repeated

        with watch.measure(GRADING):
            graded = grade_all(wanted, sampled, tokens, name)
        rollouts = Rollouts(graded, started_at, seconds, id_of(node))
        for bar in rollouts.bars(watch.now() - began):
            watch.add_rollouts(began, bar)
        return rollouts

    def _batch(self, rollouts: Rollouts) -> Batch:
        parameters = self._plan.parameters
        temperature, sampled_from = parameters["temperature"], rollouts.sampled_from
        trajectories = [r.trajectory(temperature, sampled_from) for r in rollouts.train]
        return make_batch(
            trajectories,
            parameters["group_size"],
            parameters["loss_fn"],
            parameters["reward_scale"],
            parameters["norm_adv_by_std"],
        )

    async def _take_steps(
        self,
        facts: LoopFacts,
        batch: Batch,
        rollouts: Rollouts,
        start: float,
        storing: asyncio.Future[None],
    ) -> None:
        """Train on a batch, whose rollouts are being stored. Each of its steps counts as soon as it
        is in the tree."""
        left = self._loop.steps_on_batch(facts) - 1
        after, extra = facts.stepped(), _extra(rollouts, self._heldout[1])
        await self._take_step(batch, start, extra, storing, None if left else after)
        self._facts, self._heldout = after, (None, ())
        while left and not self.stop.requested.is_set():
            left, after = left - 1, after.stepped_again()
            again = perf_counter()
            await self._take_step(batch, again, {}, storing, None if left else after, iterations=0)
            self._facts = after

    async def _take_step(
        self,
        batch: Batch,
        start: float,
        extra: Mapping[str, float],
        storing: asyncio.Future[None],
        after: LoopFacts | None,
        iterations: int = 1,
    ) -> None:
        """Take one step; `after`: the facts then, if it is the last one on its batch."""
        parameters = self._plan.parameters
        loss_fn, config = parameters["loss_fn"], parameters["loss_fn_config"]
        await self._session.forward_backward(batch, loss_fn, config, kl_of(parameters))
        try:
            with self._watch.measure(DISK):
                await storing
        except Exception:  # no step without its rollouts: the pass is made again with others
            await self._session.drop()
            raise
        await self._session.optim_step(
            Adam(**{field.name: parameters[field.name] for field in fields(Adam)}),
            job_id=self.id,
            extra=extra,
            also=lambda db, _: jobs.advance(
                db,
                self.id,
                steps=1,
                iterations=iterations,
                tokens=sum(len(datum.output) for datum in batch.datums()),
                seconds=perf_counter() - start,
            ),
            tasks_digest=self._tasks_digest,
            draw=self._drawing.by,
            coming=None if after is None else self._begin_next(after),
        )

    def _begin_next(self, after: LoopFacts) -> Callable[[Node], None] | None:
        """What has the batch after a step sampled, given the node, while that is saved and stored;
        None if no batch comes next, or some are sampled ahead anyway."""
        action, context = self._loop.next(after), copy_context()
        if not isinstance(action, Sample) or self._loop.max_staleness:
            return None

        async def sample(node: Node) -> tuple[Node | None, Rollouts]:
            heldout = self._plan.heldout if action.with_heldout else ()
            return node, await self._sample_batch(action.iteration, node, heldout)

        def begin(node: Node) -> None:
            if not self.stop.requested.is_set():
                self._ahead.begin(action.iteration, sample(node), context)

        return begin

    async def _skip(self, facts: LoopFacts, batch: Batch, rollouts: Rollouts, start: float) -> None:
        """Store a batch without a gradient."""
        is_weighted = self._plan.parameters["loss_fn"] == CROSS_ENTROPY
        why = "every reward was 0" if is_weighted else name_flat(batch.groups)
        self._skipped = f"step {facts.step + 1}: {why}"
        count = f"{facts.flat.count} of {FLAT_IN_A_ROW}"
        ids = [rollout.trace_id for rollout in rollouts.train]
        self._watch.discard(timeline.ZERO_VARIANCE, dict.fromkeys(ids, ""))
        await self._waste(
            timeline.ZERO_VARIANCE,
            ids,
            seconds=perf_counter() - start,
            note=f"{self._skipped}: sampled again ({count})",
        )
        if facts.solved is not None:
            await self._parts.store.write(works.mark, self.id, solved=facts.solved)


@dataclass(frozen=True)
class _Scores:
    """What a run's own weights score on its held-out tasks: its rollouts, and then the result."""

    store: Store
    model: ModelRow
    batch_key: tuple[str, int]
    """The run's id, and its last step."""
    node: Node | None
    asked: EvaluationParameters

    async def made(self) -> Mapping[str, int]:
        return {group.task_slug: len(group.rewards) for group in await self._groups()}

    async def keep(self, part: Rollouts) -> None:
        node, batch_key, temperature = self.node, (*self.batch_key, None), self.asked.temperature
        rows = trace_rows(part, batch_key, self.model, temperature, node.id if node else None)
        if node is None:
            await self.store.write(keep_rollouts, rows, now())
        else:
            await self.store.write(add_rollouts, self.model.id, rows, node.step)

    async def record(self) -> None:
        groups, ids = await self._groups(), (self.model.id, self.batch_key[0])
        result = await asyncio.to_thread(summarize, groups)
        await self.store.write(evaluations.record, *ids, self.node, self.asked, groups, result)

    async def _groups(self) -> list[Group]:
        return await self.store.read(evaluations.made_by_run, self.batch_key[0], self.node)


def _extra(rollouts: Rollouts, heldout: Sequence[Rollout]) -> dict[str, float]:
    """Metrics of the step that only sampling knows."""
    tokens = sum(len(rollout.sampled.tokens) for rollout in rollouts.all)
    metrics = {
        "rollout_s": rollouts.seconds,
        "tokens_per_s": tokens / max(rollouts.seconds, 1e-9),
        "truncated_share": fmean(r.sampled.finish_reason == "length" for r in rollouts.train),
        **rollouts.counts,
    }
    if heldout:
        metrics["heldout_reward"] = fmean(rollout.reward for rollout in heldout)
        metrics["num_heldout_traces"] = float(len(heldout))
    return metrics
