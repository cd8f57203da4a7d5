"""Rollouts by group: the traces of a job as training used them.

Only rollouts of one task in one step are compared with each other. If the service reports neither
group nor step, as for a job reported by a client, groups are unknown and rollouts have no
advantage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, log
from statistics import fmean

from hud_tui.rl.groups import PLAIN, Advantages, has_signal, reward_std
from hud_tui.rl.metrics import short, with_sign
from hud_tui.wire import Group
from hud_tui.wire_rollouts import Trace


@dataclass(frozen=True)
class Rollout:
    """A trace and its advantage."""

    trace: Trace
    advantage: float | None
    """In the reward's unit; None if the rollout has no reward or no group, or is not trained on."""
    number: int = 1
    """In its group, from 1: as the service reports it, else by its place."""


@dataclass(frozen=True)
class RolloutGroup:
    """Rollouts of one task, ordered by index."""

    task_slug: str
    """Empty if the service does not report it."""
    heldout: bool
    rollouts: tuple[Rollout, ...]
    compared: bool
    """Whether they are one group of one step, so that they have advantages."""
    attempt: int = 1
    """The attempt at its step, from 1; a batch with zero variance in every group is sampled
    again."""
    rule: Advantages = PLAIN
    """How its advantages were computed."""
    evaluated: bool = False
    """Whether they are an evaluation's: nothing is trained on them."""
    sides: Sequence[tuple[str, int]] = ()
    """If they are of two sides that are compared: the name of each, and its number of rollouts, in
    their order."""

    def side_of(self, index: int) -> str:
        """The name of the side of a rollout; empty if there are no sides."""
        for name, count in self.sides:
            if index < count:
                return name
            index -= count
        return ""

    def with_trace(self, trace: Trace) -> "RolloutGroup":
        """The group with what is known by now of one of its rollouts."""
        told = {name: value for name, value in trace if value is not None}
        rollouts = tuple(
            replace(rollout, trace=rollout.trace.model_copy(update=told))
            if rollout.trace.id == trace.id
            else rollout
            for rollout in self.rollouts
        )
        return replace(self, rollouts=rollouts)

    @property
    def is_played(self) -> bool:
        """Whether a person was the policy."""
        return any(rollout.trace.played for rollout in self.rollouts)

    @property
    def rewards(self) -> list[float]:
        """The known rewards, shape (≤ size,)."""
        return [r.trace.reward for r in self.rollouts if r.trace.reward is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @property
    def std(self) -> float:
        """Standard deviation of the rewards; 0 if there are fewer than two."""
        return reward_std(self.rewards)

    @property
    def mean_text(self) -> str:
        """The mean reward, with the standard deviation if there are several; empty if there is
        none."""
        if self.mean is None:
            return ""
        std = f" ± {short(self.std)}" if len(self.rewards) > 1 else ""
        return f"{short(self.mean)}{std}"

    @property
    def has_signal(self) -> bool:
        """Whether the rewards differ, so that the group has a gradient."""
        return self.compared and not self.heldout and has_signal(self.rewards)


def rollout_groups(traces: Sequence[Trace], rule: Advantages | None = PLAIN) -> list[RolloutGroup]:
    """Group traces. Order: last attempt at a step first; within an attempt groups with signal, then
    zero-variance ones, then held-out tasks. O(N log N). `rule`: None if they are of an
    evaluation, in which nothing is trained on."""
    members: dict[tuple[object, ...], list[Trace]] = {}
    for trace in traces:
        members.setdefault(_key(trace), []).append(trace)
    groups = [_group(traces, rule) for traces in members.values()]
    return sorted(
        groups,
        key=lambda group: (-group.attempt, group.heldout, group.compared and not group.has_signal),
    )


def _key(trace: Trace) -> tuple[object, ...]:
    if trace.group_id is not None:
        return ("group", trace.group_id)
    return (trace.step, trace.attempt, trace.task_slug or "", bool(trace.heldout))


def _group(traces: list[Trace], rule: Advantages | None) -> RolloutGroup:
    first = traces[0]
    ordered = sorted(traces, key=lambda trace: -1 if trace.rollout is None else trace.rollout)
    compared = first.group_id is not None or first.step is not None
    evaluated = rule is None or first.evaluates is not None
    compared = compared and not evaluated and not first.played
    heldout, rule = bool(first.heldout), rule or PLAIN
    trained = compared and not heldout
    rollouts = _rollouts(ordered, rule if trained else None)
    slug, attempt = first.task_slug or "", first.attempt or 1
    return RolloutGroup(slug, heldout, rollouts, compared, attempt, rule, evaluated)


def known_group(
    group: Group,
    rule: Advantages | None,
    step: int | None = None,
    evaluated: bool = False,
    sides: Sequence[tuple[str, int]] = (),
) -> RolloutGroup:
    """A group of which only rewards and ids are known. `rule`: None if it has no advantages."""
    traces = [
        Trace(id=id_, task_slug=group.task_slug, step=step, rollout=number, reward=reward)
        for number, (id_, reward) in enumerate(zip(group.trace_ids, group.rewards, strict=False))
    ]
    return RolloutGroup(
        group.task_slug,
        False,
        _rollouts(traces, rule),
        rule is not None,
        rule=rule or PLAIN,
        evaluated=evaluated,
        sides=sides,
    )


def _rollouts(traces: Sequence[Trace], rule: Advantages | None) -> tuple[Rollout, ...]:
    """The traces of a group as its rollouts; without a rule they have no advantages."""
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    advantages = iter(rule.of(rewards) if rule is not None and rewards else ())
    return tuple(
        Rollout(
            trace,
            None if trace.reward is None else next(advantages, None),
            1 + (place if trace.rollout is None else trace.rollout),
        )
        for place, trace in enumerate(traces)
    )


# Shading of an answer's tokens by surprise, importance ratio or advantage.
#
# Each token has a value in the measure's unit and a position on a ramp, 0 … 1. A token whose value
# is unknown has neither.


SURE = 6.0
"""Negative logprob at the high end of the ramp of surprise, in nats."""
TWOFOLD = log(2.0)
"""Log of the importance ratio at the high end of the ramp: a ratio of 2."""
SURPRISES = ((0.9, "≥ .9"), (0.5, "≥ .5"), (0.1, "≥ .1"), (0.01, "≥ .01"), (0.0, "< .01"))
"""Levels of surprise, from certain tokens to improbable ones: the least probability, and its
label."""


class Shade(StrEnum):
    """The measure that tokens are shaded by."""

    SURPRISE = "surprise"
    RATIO = "ratio"
    ADVANTAGE = "advantage"


@dataclass(frozen=True)
class Shaded:
    """An answer's tokens with their shading."""

    by: Shade
    values: Sequence[float | None]
    """One per token: nats, a ratio, or the reward's unit; None if unknown."""
    shares: Sequence[float | None]
    """Position of each on the ramp, 0 … 1; None if unknown."""
    ends: tuple[str, str]
    """Labels of the ramp's two ends."""


def by_surprise(logprobs: Sequence[float]) -> Shaded:
    """Shading by the logprob that each token was sampled with: 0 for a certain one."""
    shares = [None if p != p else min(SURE, -min(0.0, p)) / SURE for p in logprobs]
    return Shaded(Shade.SURPRISE, logprobs, shares, ("0", f"-{SURE:.0f}"))


def surprise_level(logprob: float | None) -> int:
    """The index in `SURPRISES` of a token's logprob; that of a certain one if it is unknown."""
    if logprob is None or logprob != logprob:
        return 0
    probability = exp(min(0.0, logprob))
    return next(n for n, (least, _) in enumerate(SURPRISES) if probability >= least)


def least_likely(logprobs: Sequence[float], most: int) -> list[int]:
    """Indices of the tokens with the lowest logprobs, lowest first; certain ones are left out."""
    unlikely = [n for n, p in enumerate(logprobs) if p == p and surprise_level(p)]
    return sorted(unlikely, key=lambda n: logprobs[n])[:most]


def by_ratio(now: Sequence[float | None], sampled: Sequence[float]) -> Shaded:
    """Shading by the importance ratio π/π_old of each token.

    Args:
        now: Logprobs under the current policy π, shape (T,); None if unknown.
        sampled: Logprobs under the sampling policy π_old, shape (T,).
    """
    logs = [None if a is None or a != a or b != b else a - b for a, b in zip(now, sampled)]  # noqa: B905
    values = [None if each is None else exp(max(-50.0, min(50.0, each))) for each in logs]
    shares = [
        None if each is None else 0.5 + max(-TWOFOLD, min(TWOFOLD, each)) / TWOFOLD / 2
        for each in logs
    ]
    return Shaded(Shade.RATIO, values, shares, (".5", "2"))


def by_advantage(advantage: float | None, most: float, tokens: int) -> Shaded:
    """Shading by the rollout's advantage, which is the same for all of its tokens.

    Args:
        advantage: In the reward's unit; None if the rollout is not trained on.
        most: The group's largest absolute advantage, at the ends of the ramp.
    """
    hue = None if advantage is None or not most > 0 else 0.5 + advantage / most / 2
    ends = with_sign(-most), with_sign(most)
    return Shaded(Shade.ADVANTAGE, [advantage] * tokens, [hue] * tokens, ends)
