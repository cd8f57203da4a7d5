"""Rollouts by group: the traces of a job as training used them.

Only rollouts of one task in one step are compared with each other. If the service reports neither
group nor step, as for a job reported by a client, groups are unknown and rollouts have no
advantage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from statistics import fmean
from typing import Any

from hud_tui.rl.groups import PLAIN, Advantages, has_signal, reward_std
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent, call_text, content_text, value_text

# A rollout's turns as two texts: the prompt and the policy's answer.


ASKING = frozenset({"system", "user_message"})
"""Kinds of events that belong to the prompt."""


def prompt_of(events: Sequence[TraceEvent]) -> str:
    """The text before the policy's first turn."""
    asked = []
    for event in events:
        if event.kind not in ASKING:
            break
        asked.append(event.text or "")
    return "\n".join(text for text in asked if text)


def answer_of(events: Sequence[TraceEvent]) -> str:
    """The text after the prompt, including tool calls and their results."""
    first = next((n for n, event in enumerate(events) if event.kind not in ASKING), len(events))
    calls = not any(event.kind == "tool_call" for event in events)
    return "\n".join(
        text for event in events[first:] for text in _event_texts(event, calls) if text
    )


def _event_texts(event: TraceEvent, calls: bool) -> list[str]:
    """The texts of an event; `calls`: whether to include tool calls, if they are not events of
    their own."""
    texts = [f"({event.reasoning})" if event.reasoning else ""]
    if event.kind == "tool_call":
        called = {"name": event.tool_name or "tool", "arguments": event.arguments}
        texts += [f"→ {call_text(called)}", event.result_text or "", event.screenshot_url or ""]
    elif event.kind in ASKING:
        texts.append(f"[{event.text or ''}]")
    else:
        texts.append(event.text or "")
    if calls:
        texts += [f"→ {call_text(call)}" for call in event.tool_calls or ()]
    return [*texts, f"error: {event.error}" if event.error else ""]


# Subscores: the parts of a reward, as the grader reports them.


@dataclass(frozen=True)
class Subscore:
    """One part of a reward."""

    name: str
    value: float
    weight: float | None = None


def subscores(result: object) -> list[Subscore]:
    """The parts of a grading result, given as a list or a mapping; empty if it has none.

    Source: the ``hud`` SDK's EvaluationResult (``subscores``: name, value, weight), and servers
    that send a mapping from name to number.
    """
    subscores = result.get("subscores") if isinstance(result, Mapping) else None
    if isinstance(subscores, Mapping):
        return [Subscore(str(name), float(v)) for name, v in subscores.items() if _number(v)]
    if isinstance(subscores, list):
        return [part for row in subscores if (part := _part(row)) is not None]
    return []


MOST_NOTES, NOTE_MOST = 24, 500
"""Maximum number of a grader's notes that are shown, and characters of each."""


def grade_notes(result: object) -> list[tuple[str, str]]:
    """What a grader reports beside the reward, as (name, text): whether it failed, its text, and
    each entry of its ``info``; bounded.

    Source: the ``hud`` SDK's EvaluationResult (``isError``, ``content``, ``info``).
    """
    if not isinstance(result, Mapping):
        return []
    failed = result.get("isError", result.get("is_error")) is True
    notes = [("grader", "reported an error")] if failed else []
    if text := content_text(result.get("content")):
        notes.append(("grader", text))
    info = result.get("info")
    rows = info.items() if isinstance(info, Mapping) else [("info", info)] if info else ()
    notes += [(str(name), value_text(value)) for name, value in rows if value is not None]
    more = [("…", f"{len(notes) - MOST_NOTES} more")] if len(notes) > MOST_NOTES else []
    return [*notes[:MOST_NOTES], *more]


def _part(row: Any) -> Subscore | None:
    if not isinstance(row, Mapping):
        return None
    value: Any = row.get("value", row.get("score"))
    weight: Any = row.get("weight")
    if not _number(value):
        return None
    return Subscore(
        str(row.get("name") or "?"), float(value), float(weight) if _number(weight) else None
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Rollout:
    """A trace and its advantage."""

    trace: Trace
    advantage: float | None
    """In the reward's unit; None if the rollout has no reward or no group, or is not trained on."""


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
    def has_signal(self) -> bool:
        """Whether the rewards differ, so that the group has a gradient."""
        return self.compared and not self.heldout and has_signal(self.rewards)


def rollout_groups(traces: Sequence[Trace], rule: Advantages = PLAIN) -> list[RolloutGroup]:
    """Group traces. Order: last attempt at a step first; within an attempt groups with signal, then
    zero-variance ones, then held-out tasks. O(N log N)."""
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


def _group(traces: list[Trace], rule: Advantages) -> RolloutGroup:
    first = traces[0]
    ordered = sorted(traces, key=lambda trace: -1 if trace.rollout is None else trace.rollout)
    compared = first.group_id is not None or first.step is not None
    heldout = bool(first.heldout)
    trained = compared and not heldout
    advantages = _advantages(ordered, rule) if trained else [None] * len(ordered)
    rollouts = tuple(Rollout(*pair) for pair in zip(ordered, advantages, strict=True))
    slug, attempt = first.task_slug or "", first.attempt or 1
    return RolloutGroup(slug, heldout, rollouts, compared, attempt, rule)


def _advantages(traces: list[Trace], rule: Advantages) -> list[float | None]:
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    advantages = iter(rule.of(rewards) if rewards else ())
    return [None if trace.reward is None else next(advantages) for trace in traces]


# Shading of an answer's tokens by logprob, importance ratio or advantage.
#
# Each token has a value in the measure's unit and a position on the colour ramp, 0 … 1. A token
# whose value is unknown has neither.


SURE = 6.0
"""Negative logprob at the low end of the ramp, in nats."""
TWOFOLD = log(2.0)
"""Log of the importance ratio at the high end of the ramp: a ratio of 2."""


class Shade(StrEnum):
    """The measure that tokens are shaded by."""

    LOGPROB = "logprob"
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


def by_logprob(logprobs: Sequence[float]) -> Shaded:
    """Shading by the logprob that each token was sampled with."""
    shares = [None if p != p else 1.0 - min(SURE, -min(0.0, p)) / SURE for p in logprobs]
    return Shaded(Shade.LOGPROB, logprobs, shares, (f"-{SURE:.0f}", "0"))


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
    ends = f"-{most:.2g}", f"+{most:.2g}"
    return Shaded(Shade.ADVANTAGE, [advantage] * tokens, [hue] * tokens, ends)
