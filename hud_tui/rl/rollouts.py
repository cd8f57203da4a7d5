"""Rollouts by group: the traces of a job as training saw them.

Only rollouts of one task in one step are compared with each other. Where the service
says neither group nor step, as for a job that a client reports, there is no telling who
is compared with whom, and no advantage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hud_tui.rl.advantage import group_advantages, has_signal, spread
from hud_tui.wire import Trace


@dataclass(frozen=True)
class Rollout:
    """One trace, and how much better it did than its siblings."""

    trace: Trace
    advantage: float | None
    """In the reward's unit; None where it has no reward, no group, or is not trained on."""


@dataclass(frozen=True)
class RolloutGroup:
    """Rollouts of one task, in the order of their indices."""

    task_slug: str
    """Empty where the service does not say."""
    heldout: bool
    rollouts: tuple[Rollout, ...]
    compared: bool
    """Whether these are one group of one step, so that they have advantages."""
    attempt: int = 1
    """Which sampling of its step it is part of: a batch without spread is sampled again."""

    @property
    def rewards(self) -> list[float]:
        """The rewards that are known, shape (≤ size,)."""
        return [r.trace.reward for r in self.rollouts if r.trace.reward is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @property
    def spread(self) -> float:
        """Standard deviation of the rewards; 0 for fewer than two."""
        return spread(self.rewards)

    @property
    def teaches(self) -> bool:
        """Whether the rewards differ, so that the group moves the policy."""
        return self.compared and not self.heldout and has_signal(self.rewards)


def rollout_groups(traces: Sequence[Trace]) -> list[RolloutGroup]:
    """Group traces: the last attempt at a step first, and in each those that teach before flat
    ones, held-out tasks last. O(N log N)."""
    members: dict[tuple[object, ...], list[Trace]] = {}
    for trace in traces:
        members.setdefault(_key(trace), []).append(trace)
    groups = [_group(traces) for traces in members.values()]
    return sorted(
        groups,
        key=lambda group: (-group.attempt, group.heldout, group.compared and not group.teaches),
    )


def _key(trace: Trace) -> tuple[object, ...]:
    if trace.group_id is not None:
        return ("group", trace.group_id)
    return (trace.step, trace.attempt, trace.task_slug or "", bool(trace.heldout))


def _group(traces: list[Trace]) -> RolloutGroup:
    first = traces[0]
    ordered = sorted(traces, key=lambda trace: -1 if trace.rollout is None else trace.rollout)
    compared = first.group_id is not None or first.step is not None
    heldout = bool(first.heldout)
    advantages = _advantages(ordered) if compared and not heldout else [None] * len(ordered)
    rollouts = tuple(Rollout(*pair) for pair in zip(ordered, advantages, strict=True))
    return RolloutGroup(first.task_slug or "", heldout, rollouts, compared, first.attempt or 1)


def _advantages(traces: list[Trace]) -> list[float | None]:
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    known = iter(group_advantages(rewards) if rewards else ())
    return [None if trace.reward is None else next(known) for trace in traces]
