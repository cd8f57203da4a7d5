"""From trajectories to datums: groups, advantages, and every check before the engine is asked.

A trajectory is one rollout: its turns and its reward. Groups are runs of `group_size`
consecutive trajectories. Every output token of every turn carries its trajectory's
advantage; for cross_entropy, which compares with nobody, it carries the reward itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from hud_tui.rl.advantage import group_advantages, has_signal
from hud_tui.service.engines.base import LOSSES, Base, Datum
from hud_tui.service.refusals import Refused, bad_field
from hud_tui.wire import Group

T = TypeVar("T")

CROSS_ENTROPY = "cross_entropy"
LARGEST = 1e6
"""Of rewards, their scale and logprobs: their sums must stay numbers, in 32 bits too."""


@dataclass(frozen=True)
class Turn:
    """One answer of the policy: P prompt tokens, T output tokens, T sampling logprobs."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float] = ()
    temperature: float = 1.0


@dataclass(frozen=True)
class Trajectory:
    """One rollout that can be trained on."""

    turns: Sequence[Turn]
    reward: float
    task_slug: str | None = None
    trace_id: str | None = None
    errored: bool = False
    """Whether the agent failed on the way: what it was graded on is not all its own doing."""


@dataclass(frozen=True)
class Batch:
    """Trajectories with what each is worth."""

    trajectories: Sequence[Trajectory]
    group_size: int
    weights: Sequence[float]
    """Advantage (cross_entropy: reward) times reward_scale of each trajectory."""
    grouped: bool
    """Whether the caller named a group_size."""
    without_samples: int = 0
    """Traces that were left out, because no tokens of theirs are known."""
    reported: bool = False
    """Whether a client's agents made it: how they ended is known from their traces."""

    def datums(self) -> list[Datum]:
        """The turns that move the policy: those with a weight other than 0."""
        return [datum for datum in self.all_datums() if datum.advantage]

    def all_datums(self) -> list[Datum]:
        """Every turn, in order."""
        return [
            Datum(turn.prompt, turn.output, turn.logprobs, weight, turn.temperature)
            for trajectory, weight in zip(self.trajectories, self.weights, strict=True)
            for turn in trajectory.turns
        ]

    def groups(self) -> list[Group]:
        """Rewards by task, in order."""
        return [
            Group(
                task_slug=part[0].task_slug or f"group {number}",
                rewards=[t.reward for t in part],
                trace_ids=[t.trace_id for t in part if t.trace_id],
                num_tokens=[sum(len(turn.output) for turn in t.turns) for t in part],
            )
            for number, part in enumerate(_parts(self.trajectories, self.group_size), 1)
        ]


def make_batch(
    trajectories: Sequence[Trajectory],
    group_size: int | None,
    loss_fn: str,
    reward_scale: float = 1.0,
) -> Batch:
    """Weigh trajectories for a loss.

    Raises:
        Refused: 422, the count is not a multiple of group_size.
    """
    check_groups(len(trajectories), group_size)
    size = group_size or len(trajectories)
    rewards = [trajectory.reward for trajectory in trajectories]
    if loss_fn != CROSS_ENTROPY:
        rewards = [a for part in _parts(rewards, size) for a in group_advantages(part)]
    weights = [reward * reward_scale for reward in rewards]
    return Batch(trajectories, size, weights, group_size is not None)


def check_groups(count: int, group_size: int | None) -> None:
    """Raises Refused, 422, where so many inputs do not divide into groups."""
    if group_size and count % group_size:
        message = f"{count} inputs do not divide into groups of {group_size}"
        raise bad_field("group_size", message)


def check_loss(loss_fn: str) -> None:
    """Raises Refused, 422, for a loss that no engine has."""
    if loss_fn not in LOSSES:
        raise bad_field("loss_fn", f"unknown loss {loss_fn[:100]!r}: use {', '.join(LOSSES)}")


def check_trajectories(trajectories: Sequence[Trajectory], base: Base, loss_fn: str) -> None:
    """Refuse what would spoil the gradients, before any is computed.

    Raises:
        Refused: 422, naming the input and the turn.
    """
    for index, trajectory in enumerate(trajectories):
        if not abs(trajectory.reward) <= LARGEST:
            message = f"the reward must be finite, from -{LARGEST:.0f} to {LARGEST:.0f}"
            raise bad_field(f"inputs.{index}.reward", message)
        for number, turn in enumerate(trajectory.turns):
            problem = _problem(turn, base, loss_fn)
            if problem:
                field, message = problem
                at = f"input {index}, turn {number}: {message}"
                raise bad_field(f"inputs.{index}.samples.{number}.{field}", at)


def check_scale(reward_scale: float) -> None:
    """Raises Refused, 422, for a scale that is no number, or too large."""
    if not abs(reward_scale) <= LARGEST:
        raise bad_field("reward_scale", f"must be finite, from -{LARGEST:.0f} to {LARGEST:.0f}")


def flat_groups(batch: Batch) -> list[Group]:
    """The groups whose rewards are all equal."""
    return [group for group in batch.groups() if not has_signal(group.rewards)]


def name_flat(groups: Sequence[Group]) -> str:
    """E.g. ``add-1 (all 1.0), add-2 (all 0.0)``, at most ten of them."""
    named = [f"{g.task_slug} (all {round(fmean(g.rewards), 4)})" for g in groups[:10]]
    more = f" and {len(groups) - 10} more" if len(groups) > 10 else ""
    return ", ".join(named) + more


def nothing_to_train(groups: Sequence[Group]) -> Refused:
    """409 for an optimizer step after batches in which no group had spread."""
    return Refused(
        409,
        f"nothing to step on: no group had spread: {name_flat(groups)}."
        " Sample again, or choose tasks that sometimes succeed",
    )


def _problem(turn: Turn, base: Base, loss_fn: str) -> tuple[str, str] | None:
    """Which field of a turn is wrong, and how."""
    if not turn.prompt:
        return "prompt_token_ids", "no prompt tokens (prompt_chunks cannot be read here)"
    if not turn.output:
        return "output_token_ids", "no output tokens"
    for field, ids in (("prompt_token_ids", turn.prompt), ("output_token_ids", turn.output)):
        if min(ids) < 0 or max(ids) >= base.vocabulary:
            return field, f"a token id is outside the vocabulary of {base.vocabulary}"
    if len(turn.prompt) + len(turn.output) > base.context:
        total = len(turn.prompt) + len(turn.output)
        return (
            "output_token_ids",
            f"{total} tokens do not fit this model's context of {base.context}",
        )
    if len(turn.logprobs) != len(turn.output) and (turn.logprobs or loss_fn != CROSS_ENTROPY):
        counts = f"{len(turn.logprobs)} logprobs for {len(turn.output)} output tokens"
        return "output_logprobs", counts
    if not all(abs(value) <= LARGEST for value in turn.logprobs):
        return "output_logprobs", "a logprob is not finite, or out of all reason"
    if not turn.temperature > 0:
        return "output_logprobs", "sampled at temperature 0: no ratio can be formed"
    return None


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
