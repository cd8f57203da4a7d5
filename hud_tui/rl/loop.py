"""The loop of a training run: from what has happened to what is done next.

Pure, so that a run has the same rules wherever its rollouts are made. `Loop.next` turns `LoopFacts`
into an action: sample a batch, train on it, evaluate, or end. Only its own methods change them,
one for each thing that can happen.

With `max_staleness` N, up to N batches are sampled while another one is trained on (`Loop.ahead`),
so that neither waits for the other; at most N are trained on between the weights that sample a
batch and those that it trains. With 0, these are the same.

A *step* is an optimizer step. An *iteration* is a batch of tasks that was dealt out; a batch
without a gradient is followed by the next iteration at the same step. An *attempt* counts the
batches sampled for one step, from 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from hud_tui.rl.evaluation import is_solved
from hud_tui.rl.metrics import short
from hud_tui.rl.work import End
from hud_tui.wire import JobError

FLAT_IN_A_ROW = 20
"""Consecutive batches without a gradient after which a run ends."""
UNGRADED_IN_A_ROW = 3
"""Consecutive batches without any complete group after which a run ends."""
CURE = "choose easier tasks, a larger group_size or a higher temperature"


@dataclass(frozen=True)
class Streak:
    """Consecutive batches without a gradient."""

    count: int = 0
    low: float = inf
    """Lowest reward in any of them."""
    high: float = -inf
    """Highest reward in any of them."""

    def add(self, rewards: Sequence[float]) -> "Streak":
        """With one more batch, of these rewards, shape (N,), N ≥ 1."""
        return Streak(self.count + 1, min(self.low, *rewards), max(self.high, *rewards))

    @property
    def is_end(self) -> bool:
        """Whether the run has to end."""
        return self.count >= FLAT_IN_A_ROW

    @property
    def is_solved(self) -> bool:
        """Whether every rollout in them solved its task, by the rule of evaluations."""
        return self.count > 0 and is_solved(self.low)

    @property
    def verdict(self) -> str:
        """What the batches say about the tasks, and what to do."""
        low, high = (short(round(reward, 4)) for reward in (self.low, self.high))
        rewards = f"reward {low}" if low == high else f"rewards from {low} to {high}"
        batches = f"the last {self.count} batches had {rewards}"
        if self.is_solved:
            return f"solved: every rollout of {batches}; no gradient left"
        if low != high:
            why = "the same within each group: each task is solved always or never"
            return f"{batches}, {why}: {CURE}"
        why = "too hard for this model"
        if self.low > 0:
            why = "the reward does not distinguish answers"
        return f"every rollout of {batches}: {why}: {CURE}"


@dataclass(frozen=True)
class LoopFacts:
    """What has happened to a run."""

    step: int = 0
    """Optimizer steps taken."""
    iteration: int = 0
    """Batches of tasks dealt out, including those without a gradient."""
    attempt: int = 1
    """Attempt at the next step."""
    flat: Streak = Streak()
    ungraded: int = 0
    """Consecutive batches without any complete group."""
    has_batch: bool = False
    """Whether a batch with a gradient waits to be trained on."""
    evaluated: frozenset[int] = frozenset()
    """Steps whose checkpoint was evaluated, or cannot be; 0 for the weights before the first."""
    is_measured: bool = False
    """Whether a batch for the next step was sampled from the present weights; the held-out tasks,
    if they were due, with it."""
    solved: str | None = None
    """Why no further step is taken: the tasks are solved."""

    def sampled(self, groups: Sequence[Sequence[float]], has_gradient: bool) -> "LoopFacts":
        """A batch was sampled.

        Args:
            has_gradient: Whether any of them has a gradient under the run's loss.
        """
        if not groups:
            return replace(self._again(), ungraded=self.ungraded + 1)
        if not has_gradient:
            flat = self.flat.add([reward for group in groups for reward in group])
            solved = flat.verdict if flat.is_end and flat.is_solved else None
            return replace(self._again(), ungraded=0, flat=flat, solved=solved)
        return replace(self, ungraded=0, flat=Streak(), has_batch=True)

    def _again(self) -> "LoopFacts":
        return replace(
            self, iteration=self.iteration + 1, attempt=self.attempt + 1, is_measured=True
        )

    def discarded(self) -> "LoopFacts":
        """The batch was sampled from weights that are not the head any more: its iteration is
        sampled again."""
        return replace(self, attempt=self.attempt + 1, has_batch=False, is_measured=False)

    def stepped(self, steps: int = 1) -> "LoopFacts":
        """The batch was trained on, with this many steps, and the checkpoints are in the tree."""
        return replace(
            self,
            step=self.step + steps,
            iteration=self.iteration + 1,
            attempt=1,
            has_batch=False,
            is_measured=False,
        )

    def stepped_again(self) -> "LoopFacts":
        """One more step was taken on the batch that was trained on last."""
        return replace(self, step=self.step + 1)

    def scored(self) -> "LoopFacts":
        """The checkpoint of the last step was evaluated, or cannot be."""
        return replace(self, evaluated=self.evaluated | {self.step})

    def resumed(self) -> "LoopFacts":
        """The run was resumed: whoever did so wants batches to be tried again."""
        return replace(self, flat=Streak(), ungraded=0, is_measured=False)


@dataclass(frozen=True)
class Sample:
    """Sample the batch of this iteration."""

    iteration: int
    attempt: int
    with_heldout: bool
    """Whether held-out tasks are sampled with it: once per step, however often that is tried."""
    step: int
    """The step that it is for, from 1; ahead of others, if each of these has a gradient."""


@dataclass(frozen=True)
class Train:
    """Train on the batch that was sampled."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the checkpoint of the last step on the held-out tasks."""

    step: int
    """0 for the weights before the first step."""


Action = Sample | Train | Evaluate | End


@dataclass(frozen=True)
class Loop:
    """The rules of one run."""

    steps: int
    heldout_every: int | None = None
    """Steps between two that sample held-out tasks with their batch, from the first step on; the
    last step does so too. None: never."""
    eval_every: int | None = None
    """Steps between two evaluations; None: only the last checkpoint is evaluated."""
    baseline: bool = False
    """Whether the weights before the first step are evaluated."""
    max_staleness: int = 0
    """Most batches that are sampled ahead."""
    substeps: int = 1
    """Optimizer steps on each batch."""

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "Loop":
        """From a run's parameters, by their wire names."""
        return cls(
            steps=int(parameters["steps"]),
            heldout_every=parameters.get("heldout_every"),
            eval_every=parameters.get("eval_every"),
            baseline=bool(parameters.get("baseline")),
            max_staleness=parameters.get("max_staleness") or 0,
            substeps=parameters.get("substeps") or 1,
        )

    def next(self, facts: LoopFacts) -> Action:
        """What to do next."""
        if facts.ungraded >= UNGRADED_IN_A_ROW:
            message = f"no rollout of {facts.ungraded} batches was graded"
            return End("failed", JobError(code="environment", message=message))
        if facts.flat.is_end and facts.solved is None:
            return End("failed", JobError(code="zero_variance", message=facts.flat.verdict))
        if facts.has_batch:
            return Train()
        if self._evaluation_is_due(facts):
            return Evaluate(facts.step)
        if self.is_over(facts):
            return End("succeeded", reason=facts.solved)
        return self._sample(facts)

    def ahead(self, facts: LoopFacts, waiting: int) -> Sample | None:
        """What to sample while a batch is trained on; None if nothing.

        Args:
            waiting: Batches that are being sampled ahead already, or are sampled.
        """
        if waiting >= self.max_staleness:
            return None
        for _ in range(waiting + 1):
            facts = facts.stepped(self.steps_on_batch(facts))
        return None if self.is_over(facts) else self._sample(facts)

    def _sample(self, facts: LoopFacts) -> Sample:
        heldout, step = self._with_heldout(facts), facts.step + 1
        return Sample(facts.iteration, facts.attempt, heldout, step)

    @property
    def oldest(self) -> int:
        """Most steps between the weights that sample a batch and those that it trains."""
        return self.max_staleness * self.substeps

    def steps_on_batch(self, facts: LoopFacts) -> int:
        """Steps that are taken on the next batch: the last one may get fewer."""
        return min(self.substeps, max(self.steps - facts.step, 1))

    def is_over(self, facts: LoopFacts) -> bool:
        """Whether no further step is taken."""
        return facts.step >= self.steps or facts.solved is not None

    def _evaluation_is_due(self, facts: LoopFacts) -> bool:
        if facts.step in facts.evaluated:
            return False
        if not facts.step:
            return self.baseline
        if self.is_over(facts):
            return True
        return bool(self.eval_every) and self._is_at(facts.step, self.eval_every or 1)

    def _with_heldout(self, facts: LoopFacts) -> bool:
        if not self.heldout_every or facts.is_measured:
            return False
        is_last = facts.step + self.substeps >= self.steps
        return is_last or self._is_at(facts.step, self.heldout_every)

    def _is_at(self, step: int, every: int) -> bool:
        """Whether the last batch reached a multiple of `every`, or passed it."""
        return step % every < self.substeps
