"""Rollouts from an engine: sample, decode, grade, in the form in which they are stored.

Rollout j of task t in iteration i of seed s is sampled with the generator (s, i, t, j), so it does
not depend on what else runs. One of an evaluation has the task's slug in place of i and t, so that
it does not depend on what else is evaluated.
"""

import asyncio
import struct
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b
from time import perf_counter
from typing import Any

from hud_tui.rl.groups import task_groups
from hud_tui.rl.plan import MissingRollouts, in_parts
from hud_tui.service.batches import Trajectory, Turn
from hud_tui.service.context import ServiceContext, Stop
from hud_tui.service.engines.base import EngineLost, Handle, Sampled, SampleRequest, Tokenizer
from hud_tui.service.http import new_id, now, refusal, rollout_id
from hud_tui.service.run_plan import Planned
from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import Node, id_of
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.traces import TraceRow, TurnRow
from hud_tui.wire import BASE, Group
from hud_tui.wire_runs import EvaluationParameters
from hud_tui.wire_time import TimedRollouts

LOST_IN_A_ROW = 3
"""Consecutive engine failures, or files that cannot be opened, without a rollout in between, after
which a run or an evaluation ends."""
HELDOUT_SEED = 1_000_003
"""Separates the generators of held-out rollouts from those of training rollouts."""
EVALUATION_SEED = 1_000_033
"""Separates the generators of evaluations from those of runs."""
AT_ONCE = 256
"""Rollouts per part of an evaluation."""
LONG = 100
"""Tokens of an answer from which on a part has half as many rollouts, so that runs get their turn
as soon."""
AHEAD = 1
"""Parts handed to the engine in addition to the current one, so that it never waits for grading or
the store."""

Wanted = tuple[Planned, int]
"""A rollout to make: its task, and its index in the task's group."""


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

    def trajectory(self, temperature: float, sampled_from: str) -> Trajectory:
        """The rollout as training input."""
        prompt, sampled = self.planned.prompt, self.sampled
        turn = Turn(prompt, sampled.tokens, sampled.logprobs, temperature, sampled_from)
        return Trajectory([turn], self.reward, self.planned.slug, self.trace_id)


@dataclass(frozen=True)
class Rollouts:
    """Rollouts that were made together."""

    all: Sequence[Rollout]
    """Task by task."""
    started_at: float
    seconds: float
    sampled_from: str = BASE
    """Id of the checkpoint whose weights made them, or `BASE`."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """What the run knows of its tasks after them, as `Drawing.counts`."""

    @property
    def train(self) -> list[Rollout]:
        return [rollout for rollout in self.all if not rollout.planned.heldout]

    @property
    def heldout(self) -> list[Rollout]:
        return [rollout for rollout in self.all if rollout.planned.heldout]

    def bars(self, seconds: float) -> list[TimedRollouts]:
        """Those to train on, by task, that began together and took so long."""
        first = {rollout.planned.slug: rollout.trace_id for rollout in reversed(self.train)}
        counts = Counter(rollout.planned.slug for rollout in self.train)
        return [
            TimedRollouts(first[slug], slug, 0.0, seconds, number, "", self.seconds)
            for slug, number in counts.items()
        ]

    @property
    def groups(self) -> list[Group]:
        """The rewards by task."""
        return task_groups((rollout.planned.slug, rollout.reward) for rollout in self.all)


def trace_rows(
    rollouts: Rollouts,
    batch_key: tuple[str, int, int | None],
    model: ModelRow,
    temperature: float,
    evaluates: str | None = None,
) -> list[TraceRow]:
    """The rollouts as stored traces. `batch_key`: the job's id, the step, and
    the attempt at that step, both from 1; `evaluates`: id of the checkpoint that they evaluate."""
    job_id, step, attempt = batch_key
    groups: defaultdict[int, str] = defaultdict(new_id)
    ended_at = now()
    return [
        TraceRow(
            id=rollout.trace_id,
            job_id=job_id,
            model=model.slug,
            task_slug=rollout.planned.slug,
            group_id=groups[rollout.planned.index],
            step=step,
            attempt=attempt,
            rollout=rollout.index,
            reward=rollout.reward,
            stop_reason="done" if rollout.sampled.finish_reason == "stop" else "length",
            heldout=rollout.planned.heldout,
            evaluates=evaluates,
            turn=TurnRow(
                prompt=rollout.planned.prompt,
                output=rollout.sampled.tokens,
                logprobs=rollout.sampled.logprobs,
                base=model.base,
                temperature=temperature,
                prompt_text=rollout.planned.question,
                completion=rollout.completion,
                started_at=rollouts.started_at,
                ended_at=ended_at,
                sampled_from=rollouts.sampled_from,
            ),
        )
        for rollout in rollouts.all
    ]


def training_requests(
    wanted: Sequence[Wanted], parameters: Mapping[str, Any], iteration: int, context: int
) -> list[SampleRequest]:
    """The engine's requests for one iteration of a run with these parameters."""
    requests = []
    for task, j in wanted:
        seed = (parameters["seed"], iteration, task.index, j)
        requests.append(
            SampleRequest(
                prompt=task.prompt,
                max_tokens=min(parameters["max_tokens"], context - len(task.prompt)),
                temperature=parameters["temperature"],
                seed=(*seed, HELDOUT_SEED) if task.heldout else seed,
            )
        )
    return requests


def evaluation_requests(
    wanted: Sequence[Wanted], asked: EvaluationParameters, context: int
) -> list[SampleRequest]:
    """The engine's requests for rollouts of an evaluation."""
    most = asked.max_tokens or context
    requests = []
    for task, j in wanted:
        of_slug = struct.unpack(">II", blake2b(task.slug.encode(), digest_size=8).digest())
        requests.append(
            SampleRequest(
                prompt=task.prompt,
                max_tokens=min(most, context - len(task.prompt)),
                temperature=asked.temperature,
                seed=(asked.seed, EVALUATION_SEED, *of_slug, j),
            )
        )
    return requests


def grade_all(
    wanted: Sequence[Wanted],
    sampled: Sequence[Sampled],
    tokens: Tokenizer,
    name: Callable[[Planned, int], str],
) -> list[Rollout]:
    """The graded rollouts; `name` gives their ids by task and index."""
    graded: dict[tuple[int, tuple[int, ...]], tuple[str, float]] = {}
    rollouts = []
    for (task, j), answer in zip(wanted, sampled, strict=True):
        key = task.index, tuple(answer.tokens)  # many rollouts of a task answer the same
        if key not in graded:
            completion = tokens.decode(answer.tokens)
            graded[key] = completion, task.grade(completion)
        rollouts.append(Rollout(task, j, answer, *graded[key], name(task, j)))
    return rollouts


@dataclass(frozen=True)
class EngineMaker:
    """Makes an evaluation's rollouts from a checkpoint's weights, in parts: other callers of the
    engine get their turn between two of them."""

    parts: ServiceContext
    model: ModelRow
    node: Node | None
    """The checkpoint; None for the weights that the model started from."""
    asked: EvaluationParameters
    rollout_key: tuple[str, ...]
    """What rollouts are named by, beside task and index; the job's id comes first."""
    stop: Stop
    on_loss: Callable[[Exception], Awaitable[object]]
    """Told of each error after which the making goes on."""
    pinned: bool = False
    """As `Policies.borrow` takes it."""

    async def make(
        self, missing: Sequence[MissingRollouts[Planned]]
    ) -> AsyncGenerator[Rollouts, None]:
        """Raises Stopped; Refused, 410, the weights were deleted; EngineError, OSError."""
        model, tokens, node = self.model, await self.parts.tokenizer(self.model), self.node
        if node is not None:  # retention may have moved the state to another file
            node = await self.parts.store.read(checkpoints.loadable, model.id, node.id)
        async with (
            self.parts.policies.borrow(model, node, self.pinned) as handle,
            aclosing(self._sampled(handle, missing)) as parts,
        ):
            async for wanted, sampled, seconds in parts:
                graded = grade_all(wanted, sampled, tokens, self._name)
                yield Rollouts(graded, now() - seconds, seconds, id_of(node))

    def _name(self, task: Planned, j: int) -> str:
        return rollout_id(*self.rollout_key, task.slug, j)

    async def _sampled(
        self, handle: Handle, missing: Sequence[MissingRollouts[Planned]]
    ) -> AsyncGenerator[tuple[list[Wanted], list[Sampled], float], None]:
        """The parts as they are sampled, each with the seconds it took."""
        context = self.parts.base(self.model).context
        most = AT_ONCE if (self.asked.max_tokens or context) < LONG else AT_ONCE // 2
        waiting = deque(
            [(rollouts.task, j) for rollouts in part for j in rollouts.indices]
            for part in in_parts(missing, most)
        )
        coming = deque[tuple[list[Wanted], asyncio.Future[list[Sampled]]]]()

        def hand_over() -> None:
            while waiting and len(coming) <= AHEAD:
                wanted = waiting.popleft()
                requests = evaluation_requests(wanted, self.asked, context)
                sampling = asyncio.ensure_future(self._part(handle, requests))
                coming.append((wanted, sampling))

        try:
            hand_over()
            while coming:
                start = perf_counter()
                wanted, sampling = coming[0]
                sampled = await self.stop.unless(sampling)
                coming.popleft()
                hand_over()
                yield wanted, sampled, perf_counter() - start
        finally:
            for _, sampling in coming:
                sampling.cancel()
            await asyncio.gather(*(rollouts for _, rollouts in coming), return_exceptions=True)

    async def _part(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        """A part, for which the calls of others wait."""
        self.parts.policies.evaluating += 1
        try:
            return await self.parts.engine.sample(handle, requests)
        finally:
            self.parts.policies.evaluating -= 1

    async def recover(self, error: Exception, losses: int) -> None:
        """Wait a moment after a failure that may pass. Raises the error if it does not."""
        if not is_passing(error, losses):
            raise error
        await self.on_loss(error)
        await self.stop.unless(asyncio.sleep(losses))


def is_passing(error: Exception, losses: int) -> bool:
    """Whether to sample again after the n-th consecutive failure: the engine stopped, or there are
    too many open files, which may pass; a disk error does not."""
    passes = isinstance(error, EngineLost | OSError) and refusal(error) is None
    return passes and losses <= LOST_IN_A_ROW
