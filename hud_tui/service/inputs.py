"""Training inputs as trajectories: inline payloads, and trace ids whose tokens were kept."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.service.batches import Trajectory, Turn
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import Refused, bad_field
from hud_tui.service.store import Db, spans, traces, turns
from hud_tui.service.temperatures import Temperatures
from hud_tui.wire import Payload, Sample


@dataclass(frozen=True)
class Resolved:
    """What can be trained of a call's inputs."""

    trajectories: Sequence[Trajectory]
    """In the order of the inputs."""
    without_samples: int = 0
    """Trace ids that were left out, because no tokens of theirs are known."""


def resolve(
    db: Db,
    inputs: Sequence[str | Payload],
    base: str,
    temperatures: Temperatures,
    group_size: int | None = None,
) -> Resolved:
    """Look trace ids up. Those without tokens are left out, in whole groups.

    Args:
        db: The store's.
        inputs: Trace ids (either spelling) and payloads, mixed as they come.
        base: The base of the model that is trained: tokens of another one mean nothing.
        temperatures: Of what was sampled lately, for turns that no trace keeps.
        group_size: Where groups were named: one that would be trained in part is refused.

    Raises:
        Refused: 400, nothing has tokens, or only part of a group has, by their ids; 422, a
            trace that errored, has no reward yet, or was sampled from another base.
    """
    sampled = {item: _turns(db, item, temperatures) for item in inputs if isinstance(item, str)}
    for number, item in enumerate(inputs):
        if isinstance(item, str):
            _refuse_failed(db, number, item, group_size)
    empty = [item for item in inputs if isinstance(item, str) and not sampled[item]]
    if len(empty) == len(inputs):
        raise _without_samples("no trainable turns in the provided inputs", empty)
    if empty and group_size:
        _refuse_parted(inputs, set(empty), group_size)
    taken: set[str] = set()
    found = [
        _of_trace(db, number, item, sampled[item], base)
        if isinstance(item, str)
        else _of_payload(db, item, taken, temperatures)
        for number, item in enumerate(inputs)
        if not isinstance(item, str) or sampled[item]
    ]
    return Resolved(found, len(empty))


def _refuse_failed(db: Db, number: int, ref: str, group_size: int | None) -> None:
    """A reward of 0 that an error left is no verdict on the policy: it must not train."""
    id_ = canonical(ref)
    status = None if id_ is None else traces.status(db, id_)
    if status in ("error", "cancelled"):
        where = f" (group {number // group_size + 1})" if group_size else ""
        message = f"trace {id_}{where} ended as {status}: leave it and its group out"
        raise bad_field(f"inputs.{number}", message)


def _refuse_parted(inputs: Sequence[object], empty: set[str], size: int) -> None:
    for start in range(0, len(inputs), size):
        group = inputs[start : start + size]
        missing = [item for item in group if isinstance(item, str) and item in empty]
        if 0 < len(missing) < len(group):
            problem = f"group {start // size + 1} has no trainable turns for {len(missing)}"
            raise _without_samples(f"{problem} of its {len(group)} inputs", missing)


def _without_samples(problem: str, empty: Sequence[str]) -> Refused:
    named = ", ".join(item[:40] for item in empty[:10])
    more = f" and {len(empty) - 10} more" if len(empty) > 10 else ""
    cure = "Sample with return_token_ids and a Trace-Id, or send the samples inline"
    return Refused(400, f"{problem}: {named}{more}. {cure}")


def _of_trace(
    db: Db, number: int, ref: str, found: Sequence[tuple[Turn, str]], base: str
) -> Trajectory:
    id_ = canonical(ref) or ""
    trace = traces.get(db, id_)
    field, reward = f"inputs.{number}", trace["reward"]
    if reward is None:
        raise bad_field(field, f"trace {id_} has no reward: report its exit first")
    foreign = next((other for _, other in found if other not in (base, "")), None)
    if foreign is not None:
        raise bad_field(field, f"trace {id_} was sampled from {foreign}, not {base}")
    return Trajectory([turn for turn, _ in found], reward, trace["task_slug"], id_)


def _of_payload(
    db: Db, payload: Payload, taken: set[str], temperatures: Temperatures
) -> Trajectory:
    """An inline trajectory; where the gateway sampled it, its trace and temperature are known.

    The trace that it names has the first word. Siblings may have said the very same: each
    is then taken for another of their traces.
    """
    trace_id = canonical(payload.trace_id or "")
    made, slug, errored = [], None, False
    for sample in payload.samples:
        one = turns.within(db, trace_id, sample) if trace_id else None
        if one is None:
            same = turns.same(db, sample)
            one = min(same, key=lambda row: _unlikeliness(row, payload, taken), default=None)
        if one is not None:
            slug = slug or one["task_slug"]
            trace_id = trace_id or one["trace_id"]
            errored = errored or one["status"] == "error"
        made.append(_turn(sample, one["temperature"] if one else _recent(sample, temperatures)))
    if trace_id is not None:
        taken.add(trace_id)
    return Trajectory(made, payload.reward, slug, trace_id, errored)


def _unlikeliness(row: sqlite3.Row, payload: Payload, taken: set[str]) -> tuple[object, ...]:
    """Of a turn of the same tokens, that it is the payload's own; ties go to the oldest."""
    trained, other = row["checkpoint_id"] is not None, row["reward"] != payload.reward
    return row["trace_id"] in taken, trained, other, row["status"] == "error", row["id"]


def _turns(db: Db, ref: str, temperatures: Temperatures) -> list[tuple[Turn, str]]:
    """What was sampled in a trace, with its base: as the service saw it, else as spans say."""
    id_ = canonical(ref)
    if id_ is None:
        return []
    kept = [
        (_turn(Sample.model_validate_json(row["sample"]), row["temperature"]), row["base"])
        for row in turns.of_trace(db, id_)
    ]
    reported = spans.samples(db, id_)
    return kept or [(_turn(sample, _recent(sample, temperatures)), "") for sample in reported]


def _recent(sample: Sample, temperatures: Temperatures) -> float:
    """The temperature of what no trace keeps; 1 where it was not sampled here lately."""
    prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
    found = temperatures.find(prompt, output, sample.output_logprobs)
    return 1.0 if found is None else found


def _turn(sample: Sample, temperature: float) -> Turn:
    """At temperature 0 logprobs are recorded untempered, that is as at temperature 1."""
    prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
    return Turn(prompt, output, sample.output_logprobs, temperature or 1.0)
