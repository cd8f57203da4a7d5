"""From trajectories to datums: groups, advantages, and every check before the engine is called.

A trajectory is one rollout: its turns and its reward. A group is `group_size` consecutive
trajectories. Every output token of every turn gets its trajectory's advantage; for
cross_entropy, which does not compare rollouts, it gets the reward itself.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import isfinite
from statistics import fmean, pstdev
from typing import TypeVar

from hud_tui.rl.groups import CROSS_ENTROPY, group_advantages, group_shares, has_signal
from hud_tui.rl.text import names_text
from hud_tui.service.engines.base import KNOWN, LOSSES, Base, Datum, fold
from hud_tui.service.http import Refused, bad_field, canonical
from hud_tui.service.store import traces
from hud_tui.service.store.db import Db
from hud_tui.wire import Group
from hud_tui.wire_training import Payload, Sample

T = TypeVar("T")

LARGEST = 1e6
"""Largest absolute reward, scale or logprob: sums must stay finite in 32 bits."""


@dataclass(frozen=True)
class Turn:
    """One answer of the policy: P prompt tokens, T output tokens, T sampling logprobs."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float] = ()
    temperature: float = 1.0
    sampled_from: str | None = None
    """Id of the checkpoint whose weights answered, or `BASE`; None if unknown."""


@dataclass(frozen=True)
class Trajectory:
    """One rollout that can be trained on."""

    turns: Sequence[Turn]
    reward: float
    task_slug: str | None = None
    trace_id: str | None = None
    errored: bool = False
    """Whether the agent failed: the reward then does not grade the policy alone."""

    @cached_property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return sum(len(turn.output) for turn in self.turns)

    @property
    def sampled_from(self) -> str | None:
        """Whose weights gave its first answer, as of `Turn`: if the head was moved meanwhile, the
        oldest."""
        return self.turns[0].sampled_from if self.turns else None


@dataclass(frozen=True)
class Batch:
    """Trajectories and their weights in the loss."""

    trajectories: Sequence[Trajectory]
    group_size: int
    weights: Sequence[float]
    """Advantage (cross_entropy: reward) times reward_scale of each trajectory."""
    grouped: bool
    """Whether the caller gave a group_size."""
    without_samples: int = 0
    """Number of traces left out because their tokens are not stored."""
    reported: bool = False
    """Whether a client made the rollouts; their traces then tell how they ended."""

    def datums(self) -> list[Datum]:
        """The turns with a weight other than 0."""
        return [datum for datum in self.all_datums() if datum.advantage]

    def all_datums(self) -> list[Datum]:
        """Every turn, in order."""
        return [
            Datum(turn.prompt, turn.output, turn.logprobs, weight, turn.temperature)
            for trajectory, weight in zip(self.trajectories, self.weights, strict=True)
            for turn in trajectory.turns
        ]

    @cached_property
    def groups(self) -> Sequence[Group]:
        """Rewards by task, in the order of the trajectories."""
        return [
            Group(
                task_slug=part[0].task_slug or f"group {number}",
                rewards=[t.reward for t in part],
                trace_ids=[t.trace_id for t in part if t.trace_id],
                num_tokens=[t.num_tokens for t in part],
            )
            for number, part in enumerate(_parts(self.trajectories, self.group_size), 1)
        ]


def make_batch(
    trajectories: Sequence[Trajectory],
    group_size: int | None,
    loss_fn: str,
    reward_scale: float = 1.0,
    norm_by_std: bool = False,
) -> Batch:
    """Weight trajectories for a loss. `norm_by_std`: as in `group_advantages`. Raises Refused, 422,
    the number of trajectories is not a multiple of group_size."""
    check_groups(len(trajectories), group_size)
    size = group_size or len(trajectories)
    rewards = [trajectory.reward for trajectory in trajectories]
    if loss_fn != CROSS_ENTROPY:
        rewards = [a for part in _parts(rewards, size) for a in group_advantages(part, norm_by_std)]
    weights = [reward * reward_scale for reward in rewards]
    return Batch(trajectories, size, weights, group_size is not None)


def with_penalties(
    datums: Sequence[Datum], reference: Sequence[Sequence[float]], coef: float
) -> tuple[list[Datum], float]:
    """Datums whose tokens are penalised for their distance from a reference policy, and its mean.

    To the advantage of each token, coef · (mean of d − d) is added, d = sampling logprob − logprob
    under the reference: a token that became more likely than usual is worth less. Source: the KL
    penalty of Tinker's cookbook.

    Args:
        datums: N turns with sampling logprobs, T output tokens each.
        reference: Logprobs of their output tokens under the reference, shape (T,) per datum.
    """
    differences = [
        [ours - theirs for ours, theirs in zip(datum.logprobs, row, strict=True)]
        for datum, row in zip(datums, reference, strict=True)
    ]
    mean = fmean(chain.from_iterable(differences))
    penalised = [
        replace(datum, penalties=[coef * (mean - difference) for difference in row])
        for datum, row in zip(datums, differences, strict=True)
    ]
    return penalised, mean


def check_groups(count: int, group_size: int | None) -> None:
    """Raises Refused, 422, if this number of inputs is not a multiple of group_size."""
    if group_size and count % group_size:
        raise bad_field("group_size", f"{count} inputs do not divide into groups of {group_size}")


def check_loss(loss_fn: str) -> None:
    """Raises Refused, 422, for an unknown loss."""
    if loss_fn not in LOSSES:
        raise bad_field("loss_fn", f"unknown loss {loss_fn[:100]!r}: use {', '.join(LOSSES)}")


def check_trajectories(trajectories: Sequence[Trajectory], base: Base, loss_fn: str) -> None:
    """Refuse invalid batches before any gradient is computed. Raises Refused, 422, naming the input
    and the turn."""
    for index, trajectory in enumerate(trajectories):
        if not abs(trajectory.reward) <= LARGEST:
            message = f"the reward must be finite, from -{LARGEST:.0f} to {LARGEST:.0f}"
            raise bad_field(f"inputs.{index}.reward", message)
        for number, turn in enumerate(trajectory.turns):
            problem = _problem(turn, base, loss_fn)
            if problem:
                field, message = problem
                where = f"input {index}, turn {number}: {message}"
                raise bad_field(f"inputs.{index}.samples.{number}.{field}", where)


def check_scale(reward_scale: float) -> None:
    """Raises Refused, 422, for a scale that is not finite or too large."""
    if not abs(reward_scale) <= LARGEST:
        raise bad_field("reward_scale", f"must be finite, from -{LARGEST:.0f} to {LARGEST:.0f}")


def name_flat(groups: Sequence[Group]) -> str:
    """Why groups have no gradient: ``every group had zero variance: add-1 (all 1.0), add-2 (all
    0.0)``; at most ten of them are named."""
    flat = [group for group in groups if not has_signal(group.rewards)]
    named = [f"{group.task_slug} (all {round(fmean(group.rewards), 4)})" for group in flat]
    return f"every group had zero variance: {names_text(named, 10)}"


def _problem(turn: Turn, base: Base, loss_fn: str) -> tuple[str, str] | None:
    """The invalid field of a turn and what is wrong with it; None if the turn is valid."""
    if not turn.prompt:
        return "prompt_token_ids", "no prompt tokens (prompt_chunks cannot be read here)"
    if not turn.output:
        return "output_token_ids", "no output tokens"
    for field, ids in (("prompt_token_ids", turn.prompt), ("output_token_ids", turn.output)):
        if min(ids) < 0 or max(ids) >= base.vocabulary:
            return field, f"a token id is outside the vocabulary of {base.vocabulary}"
    total = len(turn.prompt) + len(turn.output)
    if total > base.context:
        fits = f"{total} tokens do not fit this model's context of {base.context}"
        return "output_token_ids", fits
    if len(turn.logprobs) != len(turn.output) and (turn.logprobs or loss_fn != CROSS_ENTROPY):
        counts = f"{len(turn.logprobs)} logprobs for {len(turn.output)} output tokens"
        return "output_logprobs", counts
    if not all(abs(value) <= LARGEST for value in turn.logprobs):
        return "output_logprobs", "a logprob is not finite or out of range"
    if not turn.temperature > 0:
        return "output_logprobs", "sampled at temperature 0: no ratio can be formed"
    return None


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# How recent answers were sampled, with or without a trace.
#
# A rollout that a client sends inline has tokens and logprobs, but neither its temperature nor its
# sampler. At another temperature the current logprobs, and every importance ratio, would be wrong.


MOST_ANSWERS = 65_536
"""Most answers kept, about 200 bytes each; the oldest is dropped first."""


@dataclass(frozen=True)
class Origin:
    """How an answer was sampled."""

    temperature: float = 1.0
    sampled_from: str | None = None
    """As of `Turn`."""


class Origins:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Origin] = OrderedDict()

    def keep(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        logprobs: Sequence[float],
        origin: Origin,
    ) -> None:
        """Remember a sampled answer."""
        key = traces.digest(prompt, output, logprobs)
        self._kept[key] = origin
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_ANSWERS:
            self._kept.popitem(last=False)

    def find(self, sample: Sample) -> Origin:
        """How an answer was sampled; if not here, or too long ago, it is taken to be at temperature
        1, by an unknown checkpoint."""
        prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
        key = traces.digest(prompt, output, sample.output_logprobs)
        return self._kept.get(key) or Origin()


# Training inputs as trajectories: inline payloads, and trace ids with stored tokens.


def resolve(
    db: Db, inputs: Sequence[str | Payload], base: str, origins: Origins, group_size: int | None
) -> tuple[list[Trajectory], int]:
    """Look up trace ids. Traces without tokens are left out, in whole groups.

    Returns the trajectories in the order of the inputs, and the number of traces left out.

    Args:
        inputs: Trace ids (either spelling) and payloads, in any mixture.
        base: Base of the trained model: tokens of another base mean nothing to it.
        origins: Of recently sampled turns, for turns without a trace.
        group_size: If given, a group with only some of its tokens is refused.

    Raises:
        Refused: 400, no input has tokens, or only part of a group has; 422, a trace that
            errored, has no reward yet, was sampled from another base, or was played by a person.
    """
    sampled = {item: _turns(db, item, origins) for item in inputs if isinstance(item, str)}
    for number, item in enumerate(inputs):
        _refuse_untrainable(db, number, item, group_size)
    empty = [item for item in inputs if isinstance(item, str) and not sampled[item]]
    if len(empty) == len(inputs):
        raise _without_samples("no trainable turns in the provided inputs", empty)
    if group_size:
        _refuse_parted(inputs, set(empty), group_size)
    trajectories, taken = [], set[str]()
    for number, item in enumerate(inputs):
        if not isinstance(item, str):
            trajectories.append(_of_payload(db, item, taken, origins))
        elif sampled[item]:
            trajectories.append(_of_trace(db, number, item, sampled[item], base))
    return trajectories, len(empty)


def _refuse_untrainable(db: Db, number: int, item: str | Payload, group_size: int | None) -> None:
    """Raises Refused for a trace that a person has played: its answers are not the policy's; and
    for an input's own trace that errored: its reward of 0 does not grade the policy."""
    id_ = canonical((item if isinstance(item, str) else item.trace_id) or "")
    if id_ is None:
        return
    if traces.is_played(db, id_):
        message = f"trace {id_} was played by a person: it is never trained on"
        raise bad_field(f"inputs.{number}", message)
    status = traces.status(db, id_) if isinstance(item, str) else None
    if status in ("error", "cancelled"):
        where = f" (group {number // group_size + 1})" if group_size else ""
        message = f"trace {id_}{where} ended as {status}: leave it and its group out"
        raise bad_field(f"inputs.{number}", message)


def _refuse_parted(inputs: Sequence[str | Payload], empty: set[str], size: int) -> None:
    """Raises Refused, 400, for a group of which only some inputs have trainable turns."""
    for number, group in enumerate(_parts(inputs, size), 1):
        missing = [item for item in group if isinstance(item, str) and item in empty]
        if 0 < len(missing) < len(group):
            problem = f"group {number} has no trainable turns for {len(missing)}"
            raise _without_samples(f"{problem} of its {len(group)} inputs", missing)


def _without_samples(problem: str, empty: Sequence[str]) -> Refused:
    cure = "Sample with return_token_ids and a Trace-Id, or send the samples inline"
    return Refused(400, f"{problem}: {names_text(empty, 10)}. {cure}")


def _of_trace(
    db: Db, number: int, ref: str, turns: Sequence[tuple[Turn, str]], base: str
) -> Trajectory:
    id_ = canonical(ref) or ""
    trace = traces.get(db, id_)
    field, reward = f"inputs.{number}", trace["reward"]
    if reward is None:
        raise bad_field(field, f"trace {id_} has no reward: report its exit first")
    foreign = next((other for _, other in turns if other not in (base, "")), None)
    if foreign is not None:
        raise bad_field(field, f"trace {id_} was sampled from {foreign}, not {base}")
    return Trajectory([turn for turn, _ in turns], reward, trace["task_slug"], id_)


def _of_payload(db: Db, payload: Payload, taken: set[str], origins: Origins) -> Trajectory:
    """An inline trajectory, with its trace and temperature if the gateway sampled it.

    The trace that the payload names is preferred. Rollouts of one group may be identical:
    each is then matched with another of their traces.
    """
    trace_id = canonical(payload.trace_id or "")
    made, slug, errored = [], None, False
    for sample in payload.samples:
        turn = traces.within(db, trace_id, sample) if trace_id else None
        if turn is None:
            same = traces.same(db, sample)
            turn = min(same, key=partial(_unlikeliness, payload, taken), default=None)
        if turn is not None:
            slug = slug or turn["task_slug"]
            trace_id = trace_id or turn["trace_id"]
            errored = errored or turn["status"] == "error"
        made.append(_turn(sample, _origin(turn) if turn else origins.find(sample)))
    if trace_id is not None:
        taken.add(trace_id)
    return Trajectory(made, payload.reward, slug, trace_id, errored)


def _unlikeliness(payload: Payload, taken: set[str], row: sqlite3.Row) -> tuple[object, ...]:
    """Sort key of turns with the same tokens: the payload's own turn first, then the oldest."""
    trained, other = row["checkpoint_id"] is not None, row["reward"] != payload.reward
    return row["trace_id"] in taken, trained, other, row["status"] == "error", row["id"]


def _turns(db: Db, ref: str, origins: Origins) -> list[tuple[Turn, str]]:
    """The turns of a trace, each with its base: as the service sampled them, else from spans."""
    id_ = canonical(ref)
    if id_ is None:
        return []
    recorded = [
        (_turn(traces.sample_of(row), _origin(row)), row["base"])
        for row in traces.turns_of(db, id_)
    ]
    reported = traces.samples(db, id_)
    return recorded or [(_turn(sample, origins.find(sample)), "") for sample in reported]


def _origin(turn: sqlite3.Row) -> Origin:
    return Origin(turn["temperature"], turn["sampled_from"])


def _turn(sample: Sample, origin: Origin) -> Turn:
    """At temperature 0, logprobs are those of temperature 1."""
    prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
    temperature = origin.temperature or 1.0
    return Turn(prompt, output, sample.output_logprobs, temperature, origin.sampled_from)


# The metrics of one optimizer step, from its passes and its rollouts.
#
# Pure arithmetic over plain lists; the engine's own metrics (losses, ratios, entropy) are passed
# in, one dict per pass.


LEFT_OUT = "traces_without_samples"


def merge_passes(passes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One pass's metrics from several passes that accumulated into the same gradient.

    Keys that not every engine reports come from the last pass that has them.
    """
    merged: dict[str, float] = {}
    for figures in passes:
        merged.update(figures)
    for key in KNOWN:
        having = [figures for figures in passes if key in figures]
        if having:
            merged[key] = fold(key, having)
    if LEFT_OUT in merged:
        merged[LEFT_OUT] = sum(figures.get(LEFT_OUT, 0.0) for figures in passes)
    return finite(merged)


def of_rewards(batches: Sequence[Batch]) -> dict[str, float]:
    """Reward and group metrics of a step's batches."""
    rewards = [t.reward for batch in batches for t in batch.trajectories]
    # of a client's rollouts that errored; they are trained on with their reward
    errored = [t.errored for batch in batches if batch.reported for t in batch.trajectories]
    return {
        "reward_mean": fmean(rewards),
        "reward_std": pstdev(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        **group_shares(group.rewards for batch in batches for group in batch.groups),
    } | ({"errored_share": fmean(errored)} if errored else {})


def left_out(batch: Batch) -> dict[str, float]:
    """Metric for the number of traces left out; empty if none were."""
    return {LEFT_OUT: float(batch.without_samples)} if batch.without_samples else {}


def of_completions(batches: Sequence[Batch]) -> dict[str, float]:
    """Length and logprob metrics of a step's batches; lengths are per trajectory."""
    trajectories = [t for batch in batches for t in batch.trajectories]
    lengths = [trajectory.num_tokens for trajectory in trajectories]
    logprobs = list(chain.from_iterable(turn.logprobs for t in trajectories for turn in t.turns))
    metrics = {
        "completion_length_mean": fmean(lengths),
        "completion_length_max": float(max(lengths)),
    }
    return metrics | ({"sampling_logprob_mean": fmean(logprobs)} if logprobs else {})


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The finite metrics: JSON has no NaN and no infinity."""
    return {key: float(value) for key, value in metrics.items() if isfinite(value)}


def of_step(
    batches: Sequence[Batch],
    passes: Sequence[Mapping[str, float]],
    learning_rate: float,
    extra: Mapping[str, float],
) -> dict[str, float]:
    """All metrics of a step.

    Args:
        batches: The batches passed forward and backward.
        passes: The engine's metrics, one dict per pass.
        learning_rate: Of the optimizer step.
        extra: Metrics from the optimizer and the runner, e.g. grad_norm and rollout_s.
    """
    return finite(
        {
            **merge_passes(passes),
            **of_completions(batches),
            **of_rewards(batches),
            "learning_rate": learning_rate,
            **extra,
        }
    )
