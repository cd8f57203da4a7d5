"""Managed runs: batches of rollouts, optimizer steps, evaluation, and how a run ends.

What comes next is decided by `rl/loop.py`; here it is done, with an engine.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

from hud_tui.errors import HudUsage
from hud_tui.rl.evaluation import summarize, tasks_digest
from hud_tui.rl.groups import CROSS_ENTROPY
from hud_tui.rl.loop import FLAT_IN_A_ROW, End, Evaluate, Loop, LoopFacts, Sample, Train
from hud_tui.rl.plan import Split, tasks_of_iteration
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.service.batches import (
    Batch,
    Trajectory,
    Turn,
    check_loss,
    flat_groups,
    make_batch,
    name_flat,
)
from hud_tui.service.context import ServiceContext, Stop
from hud_tui.service.engines.base import (
    Adam,
    Base,
    EngineError,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
    StateGone,
    Tokenizer,
    loss_config,
)
from hud_tui.service.environments import ENVIRONMENTS, Scenario
from hud_tui.service.http import Refused, bad_field, new_id, now, refusal, rollout_id
from hud_tui.service.store import checkpoints, evaluations, jobs, runs
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.traces import TraceRow, TurnRow, add_rollouts, keep_rollouts
from hud_tui.wire import EvaluationParameters, Group, JobParameters

T = TypeVar("T")
log = logging.getLogger(__name__)
# The plan of a managed run: parameters with defaults, parsed rows, rendered prompts.
#
# Everything that can be wrong with a submission is found here, before it is queued.
#
# Rollout j of task t in iteration i of seed s is sampled with the generator (s, i, t, j), so it
# does not depend on what else runs.


UPDATE: Mapping[str, Any] = {
    "reward_scale": 1.0,
    "norm_adv_by_std": False,
    **{name: getattr(Adam, name) for name in ("beta1", "beta2", "eps", "weight_decay")},
}
"""Default parameters of a step."""
EFFORT = {"low": 0.6, "medium": 1.0, "high": 2.0}
"""max_tokens of each reasoning_effort, in multiples of the base's default."""
MOST_TASKS = 10_000
HELDOUT_EVERY = 5


@dataclass(frozen=True)
class Planned:
    """One task, ready to be sampled and graded."""

    index: int
    task: Task
    scenario: Scenario
    question: str
    prompt: Sequence[int]

    @property
    def slug(self) -> str:
        return self.task.slug

    @property
    def heldout(self) -> bool:
        return self.task.heldout

    def grade(self, completion: str) -> float:
        return float(self.scenario.grade(self.task.args, completion))


@dataclass(frozen=True)
class Plan:
    parameters: Mapping[str, Any]
    """All parameters, by their wire names."""
    train: Sequence[Planned]
    heldout: Sequence[Planned]

    def tasks_of(self, iteration: int) -> list[Planned]:
        """The training tasks of one iteration (from 0), without duplicates."""
        parameters = self.parameters
        per_step, seed = parameters["tasks_per_step"], parameters["seed"]
        return tasks_of_iteration(self.train, per_step, seed, iteration)


def fill(asked: JobParameters, base: Base) -> dict[str, Any]:
    """All parameters of a run: the given ones, and the base's defaults.

    Raises:
        Refused: 422, an unknown loss, or no room for a completion.
    """
    defaults = base.defaults
    effort = effort_tokens(asked.reasoning_effort, base)
    loss_fn = asked.loss_fn or "importance_sampling"
    filled = {
        "reasoning_effort": asked.reasoning_effort,
        "steps": asked.steps or defaults.steps,
        "group_size": asked.group_size or defaults.group_size,
        "tasks_per_step": asked.tasks_per_step or defaults.tasks_per_step,
        "learning_rate": asked.learning_rate or defaults.learning_rate,
        "loss_fn": loss_fn,
        "loss_fn_config": checked_config(loss_fn, asked.loss_fn_config, "config.parameters"),
        **{name: _or(getattr(asked, name), usual) for name, usual in UPDATE.items()},
        "temperature": asked.temperature or 1.0,
        "max_tokens": min(asked.max_tokens or effort, base.context - 1),
        "seed": asked.seed or 0,
        "heldout_every": asked.heldout_every or HELDOUT_EVERY,
    }
    evaluations = asked.model_dump(include={"eval_every", "eval_samples", "baseline"})
    filled |= {name: value for name, value in evaluations.items() if value is not None}
    return filled if asked.sweep is None else {**filled, "sweep": asked.sweep}


def checked_config(loss_fn: str, asked: Mapping[str, float] | None, place: str) -> dict[str, float]:
    """All keys of the loss's config. Raises Refused, 422: no such loss, key or value; it names the
    field, which is in `place`."""
    try:
        check_loss(loss_fn)
    except Refused as refused:
        raise bad_field(f"{place}.loss_fn", refused.detail[0]["msg"]) from refused
    try:
        return loss_config(loss_fn, asked)
    except EngineRefused as refused:
        raise bad_field(f"{place}.loss_fn_config", str(refused)) from refused


def _or(value: T | None, usual: T) -> T:
    return usual if value is None else value


def planned_before(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a run that an older version queued, with those that it did not have."""
    return {"loss_fn_config": None, **UPDATE, **parameters}


def effort_tokens(effort: str | None, base: Base) -> int:
    """max_tokens of a reasoning_effort; the base's default for None."""
    return round(base.defaults.max_tokens * EFFORT.get(effort or "", 1.0))


def make_plan(
    parameters: Mapping[str, Any], rows: Sequence[dict[str, Any]], base: Base, tokens: Tokenizer
) -> Plan:
    """Parse the rows and render every prompt.

    Raises:
        Refused: 422, naming the row: unreadable, unknown environment or scenario, args
            that do not fit, a prompt beyond the context, a duplicate slug; or no training task.
    """
    split = Split.of(plan_tasks(rows, base, tokens, "dataset.tasks"))
    if not split.train:
        raise bad_field("dataset.tasks", "every row is held out: nothing to train on")
    return Plan(parameters, split.train, split.heldout)


def plan_tasks(
    rows: Sequence[dict[str, Any]], base: Base, tokens: Tokenizer, field: str
) -> list[Planned]:
    """Parse rows and render every prompt. Raises Refused as `make_plan`, with `field` in its
    name."""
    if len(rows) > MOST_TASKS:
        raise bad_field(field, f"{len(rows)} tasks: at most {MOST_TASKS} in one run")
    try:
        tasks = read_rows(rows)
    except HudUsage as error:
        raise bad_field(field, f"{error.message} ({error.hint})") from error
    _refuse_twins(tasks, field)
    room = base.context - 1
    return [
        _plan_task(number, task, tokens, room, f"{field}.{number}")
        for number, task in enumerate(tasks)
    ]


def _plan_task(index: int, task: Task, tokens: Tokenizer, room: int, field: str) -> Planned:
    where = f"row {index + 1} ({task.slug})"
    environment = ENVIRONMENTS.get(task.env)
    if environment is None:
        known = ", ".join(ENVIRONMENTS)
        raise bad_field(field, f"{where}: no such environment: {task.env}; this has {known}")
    scenario = environment.scenarios.get(task.scenario)
    if scenario is None:
        known = ", ".join(environment.scenarios)
        message = f"{where}: {task.env} has no scenario {task.scenario}; it has {known}"
        raise bad_field(field, message)
    try:
        question = scenario.prompt(task.args)
    except ValueError as error:
        raise bad_field(field, f"{where}: {error}") from error
    prompt = tokens.render([{"role": "user", "content": question}])
    if len(prompt) > room:
        message = (
            f"{where}: the prompt's {len(prompt)} tokens leave no room for an answer in this"
            f" model's context of {room + 1}"
        )
        raise bad_field(field, message)
    return Planned(index, task, scenario, question, prompt)


def _refuse_twins(tasks: Sequence[Task], field: str) -> None:
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        first = seen.setdefault(task.slug, number)
        if first != number:
            message = f"row {number}: slug {task.slug} is row {first}'s already"
            raise bad_field(f"{field}.{number - 1}.slug", message)


# Rollouts of a managed run: sample, decode, grade.


HELDOUT_SEED = 1_000_003
"""Separates the generators of held-out rollouts from those of training rollouts."""


@dataclass(frozen=True)
class Rollout:
    """One graded completion of one task."""

    planned: Planned
    index: int
    """Index in its group, from 0."""
    sampled: Sampled
    completion: str
    reward: float
    trace_id: str

    def trajectory(self, temperature: float) -> Trajectory:
        """The rollout as training input."""
        turn = Turn(self.planned.prompt, self.sampled.tokens, self.sampled.logprobs, temperature)
        return Trajectory([turn], self.reward, self.planned.task.slug, self.trace_id)


@dataclass(frozen=True)
class Rollouts:
    """All rollouts of one iteration."""

    train: Sequence[Rollout]
    """Task by task, `group_size` each."""
    heldout: Sequence[Rollout]
    started_at: float
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(len(r.sampled.tokens) for r in (*self.train, *self.heldout))

    @property
    def truncated(self) -> float:
        """Share of the training rollouts that ended at max_tokens."""
        cut = sum(rollout.sampled.finish_reason == "length" for rollout in self.train)
        return cut / len(self.train)


def trace_rows(
    rollouts: Rollouts,
    place: tuple[str, int, int | None],
    model: ModelRow,
    temperature: float,
    evaluates: str | None = None,
) -> list[TraceRow]:
    """The rollouts as stored traces, with one turn each.

    Args:
        rollouts: One iteration's.
        place: The job's id, the step, and the attempt at that step; both from 1.
        model: The sampled model.
        temperature: Sampling temperature.
        evaluates: Id of the checkpoint that they evaluate.
    """
    job_id, step, attempt = place
    groups: defaultdict[int, str] = defaultdict(new_id)
    times = (rollouts.started_at, now())
    return [
        TraceRow(
            id=rollout.trace_id,
            job_id=job_id,
            model=model.slug,
            task_slug=rollout.planned.task.slug,
            group_id=groups[rollout.planned.index],
            step=step,
            attempt=attempt,
            rollout=rollout.index,
            reward=rollout.reward,
            stop_reason="done" if rollout.sampled.finish_reason == "stop" else "length",
            heldout=rollout.planned.task.heldout,
            evaluates=evaluates,
            turns=[_turn_row(rollout, model.base, temperature, times)],
        )
        for rollout in (*rollouts.train, *rollouts.heldout)
    ]


def _turn_row(
    rollout: Rollout, base: str, temperature: float, times: tuple[float, float]
) -> TurnRow:
    return TurnRow(
        prompt=rollout.planned.prompt,
        output=rollout.sampled.tokens,
        logprobs=rollout.sampled.logprobs,
        base=base,
        temperature=temperature,
        prompt_text=rollout.planned.question,
        completion=rollout.completion,
        started_at=times[0],
        ended_at=times[1],
    )


def _request(plan: Plan, iteration: int, task: Planned, j: int, context: int) -> SampleRequest:
    seed = (plan.parameters["seed"], iteration, task.index, j)
    return SampleRequest(
        prompt=task.prompt,
        max_tokens=min(plan.parameters["max_tokens"], context - len(task.prompt)),
        temperature=plan.parameters["temperature"],
        seed=(*seed, HELDOUT_SEED) if task.task.heldout else seed,
    )


def _grade(task: Planned, j: int, sampled: Sampled, tokens: Tokenizer, trace_id: str) -> Rollout:
    completion = tokens.decode(sampled.tokens)
    return Rollout(task, j, sampled, completion, task.grade(completion), trace_id)


# Evaluations: rollouts that measure a checkpoint, in a run or apart from any.


EVALUATION_SEED = 1_000_033
"""Separates the generators of evaluations from those of runs."""


def in_turns(tasks: Sequence[Planned], samples: int, most: int) -> list[Sequence[Planned]]:
    """Tasks in parts of at most `most` rollouts, but at least one task. Other callers of the engine
    get their turn between two parts."""
    count = max(1, most // samples)
    return [tasks[start : start + count] for start in range(0, len(tasks), count)]


def evaluation_requests(
    tasks: Sequence[Planned], asked: EvaluationParameters, context: int
) -> list[SampleRequest]:
    """The engine's requests, task by task.

    A rollout's generator depends only on the seed, the task's slug and the rollout's index, not on
    what else is evaluated.
    """
    most = asked.max_tokens or context
    return [
        SampleRequest(
            prompt=task.prompt,
            max_tokens=min(most, context - len(task.prompt)),
            temperature=asked.temperature,
            seed=(asked.seed, EVALUATION_SEED, *_slug_seed(task.task.slug), j),
        )
        for task in tasks
        for j in range(asked.samples)
    ]


def grade_all(
    tasks: Sequence[Planned],
    sampled: Sequence[Sampled],
    tokens: Tokenizer,
    name: Callable[[str, int], str],
) -> list[Rollout]:
    """The rollouts for `evaluation_requests`; `name` gives their ids by slug and index."""
    samples, rollouts = len(sampled) // len(tasks), []
    for number, task in enumerate(tasks):
        graded: dict[tuple[int, ...], tuple[str, float]] = {}  # many rollouts answer the same
        for j, one in enumerate(sampled[number * samples : (number + 1) * samples]):
            answer = tuple(one.tokens)
            if answer not in graded:
                completion = tokens.decode(one.tokens)
                graded[answer] = completion, task.grade(completion)
            rollouts.append(Rollout(task, j, one, *graded[answer], name(task.task.slug, j)))
    return rollouts


def groups_of(rollouts: Sequence[Rollout]) -> list[Group]:
    """The rollouts' rewards by task."""
    rewards: dict[str, list[float]] = {}
    for rollout in rollouts:
        rewards.setdefault(rollout.planned.task.slug, []).append(rollout.reward)
    return [Group(task_slug=slug, rewards=row) for slug, row in rewards.items()]


def _slug_seed(slug: str) -> tuple[int, int]:
    named = blake2b(slug.encode(), digest_size=8).digest()
    return int.from_bytes(named[:4], "big"), int.from_bytes(named[4:], "big")


# One managed run: sample from the head, grade, step, repeat; at the end, evaluate.
#
# A step's rollouts are sampled with the weights before it, so the last checkpoint has rewards of
# its own only after the evaluation, which samples the held-out tasks once more.
#
# The head is read before sampling and, under the session's lock, before training. If it moved in
# between, the rollouts are discarded and sampled again from the new head, so that the next node
# branches from the chosen one. A stop takes effect between rollouts; a step in progress is
# completed.


LOST_IN_A_ROW = 3
"""Attempts at an iteration before an engine failure, or a file that cannot be opened, ends the
run."""
EVALUATED_AT_ONCE = 256
"""Rollouts of an evaluation per call to the engine."""
HEAD_MOVED = "the head was moved: sampled again from it"


class Run:
    def __init__(
        self,
        parts: ServiceContext,
        model: ModelRow,
        job_id: str,
        plan: Plan,
        facts: LoopFacts | None = None,
    ) -> None:
        """
        Args:
            model: The fork to train.
            facts: What earlier processes did of it; None for a new run.
        """
        self.model = model
        self.job_id = job_id
        self.stop = Stop()
        self._parts = parts
        self._plan = plan
        self._loop = Loop.of(plan.parameters)
        self._facts = facts or LoopFacts()
        self._skipped = ""
        """Why the last batch had no gradient."""
        tasks = (one.task.slug for one in (*plan.train, *plan.heldout))
        self._tasks_digest = tasks_digest(list(tasks))
        self._alarms = runs.RunAlarms(parts.store, job_id, plan.parameters["steps"])
        self._session = parts.session(model)

    async def train(self) -> End:
        """Do what the loop says until it ends; returns how.

        Raises:
            Stopped: A stop was requested.
            EngineError: The engine failed, or stopped too often.
        """
        async with self._session.lock:
            await self._session.drop()
        self._facts = await self._with_evaluations(self._facts)
        while True:
            match self._loop.next(self._facts):
                case Sample() as action:
                    iterate = partial(self._iterate, action)
                    await self._persist(iterate, f"step {self._facts.step + 1}")
                    await self._alarms.follow()
                case Evaluate(step):
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
            is_due = await store.read(evaluations.due, self.job_id) is not None
        else:
            is_due = not await store.read(evaluations.has_baseline, self.job_id)
        return facts if is_due else facts.scored()

    async def _persist(
        self, work: Callable[[], Awaitable[T]], what: str, node: Node | None = None
    ) -> T:
        """Do something; retry if the engine stops meanwhile, or a file cannot be opened.

        Args:
            work: What is done.
            what: Its name, for messages.
            node: The checkpoint that it samples from; None for the head.
        """
        for lost in range(1, LOST_IN_A_ROW + 1):
            try:
                return await work()
            except (EngineLost, OSError) as error:
                if refusal(error) is not None:  # a disk error does not pass by itself
                    raise
                from_ = node or await self._parts.store.read(checkpoints.head, self.model.id)
                place = from_.name if from_ else "the start"
                note = f"{what}: {error}: sampled again from {place}"
                await self._parts.store.write(jobs.note, self.job_id, note)
                if isinstance(error, OSError):  # too many open files: this may pass
                    await self.stop.unless(asyncio.sleep(lost))
        return await work()

    async def _iterate(self, action: Sample) -> None:
        """Sample a batch, and train on it if it has a gradient."""
        start = perf_counter()
        node = await self._parts.store.read(checkpoints.head, self.model.id)
        train = self._plan.tasks_of(action.iteration)
        heldout = self._plan.heldout if action.with_heldout else ()
        rollouts = await self.stop.unless(self._sample(node, train, heldout))
        async with self._session.lock:
            now = await self._parts.store.read(checkpoints.head_id, self.model.id)
            if self.stop.requested.is_set():
                return
            if now != (node.id if node else None):
                await self._discard(len(rollouts.train), perf_counter() - start)
                return
            place = (self.job_id, self._facts.step + 1, action.attempt)
            await self._parts.store.write(add_rollouts, self.model.id, self._rows(rollouts, place))
            batch = self._batch(rollouts)
            rewards = [group.rewards for group in batch.groups()]
            sampled = self._facts.sampled(rewards, bool(batch.datums()))
            if self._loop.next(sampled) == Train():
                await self._take_step(batch, rollouts, start)
                self._facts = sampled.stepped()
            else:
                await self._skip(sampled, batch, rollouts, start)
                self._facts = sampled

    async def _discard(self, rollouts: int, seconds: float) -> None:
        """Sample the iteration again: the head was set elsewhere while it was sampled."""
        self._facts = self._facts.discarded()
        await self._parts.store.write(
            jobs.advance,
            self.job_id,
            iterations=0,
            seconds=seconds,
            wasted=rollouts,
            note=f"step {self._facts.step + 1}: {HEAD_MOVED}",
        )

    async def _evaluate(self, step: int) -> None:
        """Evaluate the run's last checkpoint; before the first step, the model's head."""
        store = self._parts.store
        if step:
            node = await store.read(evaluations.due, self.job_id)
            if node is None:
                return
        else:
            node = await store.read(checkpoints.head, self.model.id)
        await self._score(node)

    async def _score(self, node: Node | None) -> None:
        """Sample the held-out tasks from a checkpoint, and store its evaluation.

        Raises:
            Stopped: A stop was requested.
            EngineError: Sampling failed; the steps are kept.
        """
        store, tasks, what = self._parts.store, self._plan.heldout, _evaluation(node)
        if not tasks:
            return
        await store.write(jobs.note, self.job_id, f"{what}: {len(tasks)} tasks")
        asked, rewards = self._asked(), []
        try:
            for part in in_turns(tasks, asked.samples, EVALUATED_AT_ONCE):
                score = partial(self._score_part, node, part, asked)
                rewards += await self._persist(score, what, node)
        except StateGone as error:
            log.warning("%s is not evaluated: %s", node.name if node else "base", error)
            return
        except EngineError as error:
            raise EngineError(self._unscored(what, error)) from error
        found = await asyncio.to_thread(summarize, rewards)
        ids = (self.model.id, self.job_id)
        await store.write(evaluations.record, *ids, node, asked, rewards, found)

    def _unscored(self, what: str, error: EngineError) -> str:
        if self._loop.is_over(self._facts):
            why = f"all steps were taken, but the {what} failed: {error}"
            return f"{why}. Resume the run to repeat only that"
        return f"the {what} failed: {error}. Resume the run to continue from there"

    def _asked(self) -> EvaluationParameters:
        parameters = self._plan.parameters
        return EvaluationParameters(
            samples=parameters.get("eval_samples", 1),
            **{name: parameters[name] for name in ("max_tokens", "temperature", "seed")},
        )

    async def _score_part(
        self, node: Node | None, tasks: Sequence[Planned], asked: EvaluationParameters
    ) -> list[Group]:
        """Rewards of some held-out tasks, sampled from a checkpoint and stored."""
        found = await self.stop.unless(self._sample_part(node, tasks, asked))
        store, place = self._parts.store, (self.job_id, self._facts.step, None)
        if node is None:
            await store.write(keep_rollouts, self._rows(found, place), now())
        else:
            rows = self._rows(found, place, node.id)
            await store.write(add_rollouts, self.model.id, rows, node.step)
        return groups_of(found.heldout)

    async def _sample_part(
        self, node: Node | None, tasks: Sequence[Planned], asked: EvaluationParameters
    ) -> Rollouts:
        parts, started_at, start = self._parts, now(), perf_counter()
        requests = evaluation_requests(tasks, asked, parts.base(self.model).context)
        async with parts.policies.borrow(self.model, node) as handle:
            sampled = await parts.engine.sample(handle, requests)
        place = (self.job_id, "evaluation", node.id if node else "start")
        tokens = await parts.tokenizer(self.model)
        rollouts = grade_all(tasks, sampled, tokens, partial(rollout_id, *place))
        return Rollouts((), rollouts, started_at, perf_counter() - start)

    async def _sample(
        self, node: Node | None, train: Sequence[Planned], heldout: Sequence[Planned]
    ) -> Rollouts:
        """Sample and grade some tasks in one call to the engine: `group_size` rollouts of a
        training task, one of a held-out task. Raises EngineLost: the engine stopped."""
        parts, plan, context = self._parts, self._plan, self._parts.base(self.model).context
        trained = [(task, j) for task in train for j in range(plan.parameters["group_size"])]
        every = [*trained, *((task, 0) for task in heldout)]
        iteration = self._facts.iteration
        requests = [_request(plan, iteration, task, j, context) for task, j in every]
        async with parts.policies.borrow(self.model, node) as handle:
            tokens = await parts.tokenizer(self.model)
            started_at, start = now(), perf_counter()
            sampled = await parts.engine.sample(handle, requests)
            seconds = perf_counter() - start
        place = (self.job_id, iteration)  # an iteration that is repeated has the same ids
        graded = [
            _grade(task, j, one, tokens, rollout_id(*place, task.index, j))
            for (task, j), one in zip(every, sampled, strict=True)
        ]
        count = len(trained)
        return Rollouts(graded[:count], graded[count:], started_at, seconds)

    def _rows(
        self, rollouts: Rollouts, place: tuple[str, int, int | None], evaluates: str | None = None
    ) -> list[TraceRow]:
        temperature = self._plan.parameters["temperature"]
        return trace_rows(rollouts, place, self.model, temperature, evaluates)

    def _batch(self, rollouts: Rollouts) -> Batch:
        parameters = self._plan.parameters
        trajectories = [r.trajectory(parameters["temperature"]) for r in rollouts.train]
        return make_batch(
            trajectories,
            parameters["group_size"],
            parameters["loss_fn"],
            parameters["reward_scale"],
            parameters["norm_adv_by_std"],
        )

    async def _take_step(self, batch: Batch, rollouts: Rollouts, start: float) -> None:
        parameters = self._plan.parameters
        loss_fn, config = parameters["loss_fn"], parameters["loss_fn_config"]
        await self._session.forward_backward(batch, loss_fn, config)
        await self._session.optim_step(
            Adam(**{field.name: parameters[field.name] for field in fields(Adam)}),
            job_id=self.job_id,
            extra=_extra(rollouts),
            also=lambda db, _: jobs.advance(
                db,
                self.job_id,
                steps=1,
                tokens=sum(len(datum.output) for datum in batch.datums()),
                seconds=perf_counter() - start,
            ),
            tasks_digest=self._tasks_digest,
        )

    async def _skip(self, facts: LoopFacts, batch: Batch, rollouts: Rollouts, start: float) -> None:
        """Store a batch without a gradient."""
        why = _why_skipped(batch, self._plan.parameters["loss_fn"])
        self._skipped = f"step {facts.step + 1}: {why}"
        count = f"{facts.flat.count} of {FLAT_IN_A_ROW}"
        await self._parts.store.write(
            jobs.advance,
            self.job_id,
            seconds=perf_counter() - start,
            wasted=len(rollouts.train),
            note=f"{self._skipped}: sampled again ({count})",
        )
        if facts.solved is not None:
            await self._parts.store.write(jobs.solved, self.job_id, facts.solved)


def _evaluation(node: Node | None) -> str:
    return f"evaluation of {node.name if node else 'base'} on the held-out tasks"


def _why_skipped(batch: Batch, loss_fn: str) -> str:
    if loss_fn == CROSS_ENTROPY:
        return "every reward was 0"
    return f"every group had zero variance: {name_flat(flat_groups(batch))}"


def _extra(rollouts: Rollouts) -> dict[str, float]:
    """Metrics of the step that only sampling knows."""
    metrics = {
        "rollout_s": rollouts.seconds,
        "tokens_per_s": rollouts.tokens / max(rollouts.seconds, 1e-9),
        "truncated_share": rollouts.truncated,
    }
    if rollouts.heldout:
        metrics["heldout_reward"] = fmean(rollout.reward for rollout in rollouts.heldout)
        metrics["num_heldout_traces"] = float(len(rollouts.heldout))
    return metrics
