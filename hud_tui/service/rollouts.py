"""Rollouts of a managed run: sample, decode, grade."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from hud_tui.service.batches import Trajectory, Turn
from hud_tui.service.clock import now
from hud_tui.service.engines.base import Engine, Handle, Sampled, SampleRequest, Tokenizer
from hud_tui.service.ids import new_id, rollout_id
from hud_tui.service.plan import Plan, Planned
from hud_tui.service.store.rollouts import TraceRow
from hud_tui.service.store.turns import TurnRow

HELDOUT_SEED = 1_000_003
"""Keeps the generators of held-out rollouts apart from those that are trained on."""


@dataclass(frozen=True)
class Rollout:
    """One graded completion of one task."""

    planned: Planned
    index: int
    """In its group, from 0."""
    sampled: Sampled
    completion: str
    reward: float
    trace_id: str

    def trajectory(self, temperature: float) -> Trajectory:
        """As training takes it."""
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
        """Share of the training rollouts that ran into max_tokens."""
        cut = sum(rollout.sampled.finish_reason == "length" for rollout in self.train)
        return cut / len(self.train)


async def roll_out(
    engine: Engine,
    handle: Handle,
    tokens: Tokenizer,
    plan: Plan,
    place: tuple[str, int],
    train: Sequence[Planned],
    heldout: Sequence[Planned],
    context: int,
) -> Rollouts:
    """Sample and grade some tasks, all in one call to the engine.

    Args:
        engine, handle, tokens: What samples, and its tokens' texts.
        plan: The run's.
        place: The job's id and the iteration's number, which name the rollouts: an
            iteration that is repeated has the same ones again.
        train: Tasks that are sampled `group_size` times each.
        heldout: Tasks that are sampled once each.
        context: Most tokens of a prompt and its completion.

    Raises:
        EngineLost: The engine stopped.
    """
    size, (_, iteration) = plan.parameters["group_size"], place
    wanted = [(task, j) for task in train for j in range(size)]
    held = [(task, 0) for task in heldout]
    requests = [_request(plan, iteration, task, j, context) for task, j in (*wanted, *held)]
    started_at, start = now(), perf_counter()
    sampled = await engine.sample(handle, requests)
    seconds = perf_counter() - start
    graded = [
        _grade(task, j, one, tokens, rollout_id(*place, task.index, j))
        for (task, j), one in zip((*wanted, *held), sampled, strict=True)
    ]
    return Rollouts(graded[: len(wanted)], graded[len(wanted) :], started_at, seconds)


def trace_rows(
    rollouts: Rollouts,
    place: tuple[str, int, int | None],
    model: str,
    base: str,
    temperature: float,
    evaluates: str | None = None,
) -> list[TraceRow]:
    """The rollouts as they are kept: traces with one turn each.

    Args:
        rollouts: An iteration's.
        place: The job's id, its step and which sampling of that this is, both from 1.
        model, base: Slug and base of what sampled them.
        temperature: That they were sampled at.
        evaluates: Id of the checkpoint that they evaluate.
    """
    job_id, step, attempt = place
    groups: dict[int, str] = {}
    times = (rollouts.started_at, now())
    rows = []
    for rollout in (*rollouts.train, *rollouts.heldout):
        task = rollout.planned.task
        row = TraceRow(
            id=rollout.trace_id,
            job_id=job_id,
            model=model,
            task_slug=task.slug,
            group_id=groups.setdefault(rollout.planned.index, new_id()),
            step=step,
            attempt=attempt,
            rollout=rollout.index,
            reward=rollout.reward,
            stop_reason="done" if rollout.sampled.finish_reason == "stop" else "length",
            heldout=task.heldout,
            evaluates=evaluates,
            turns=[_turn_row(rollout, base, temperature, times)],
        )
        rows.append(row)
    return rows


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
