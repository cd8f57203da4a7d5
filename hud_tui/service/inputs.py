"""Training inputs as trajectories: inline payloads, and trace ids whose tokens were kept."""

import sqlite3
from collections.abc import Sequence

import orjson

from hud_tui.service.batches import Trajectory, Turn
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import Refused, bad_field
from hud_tui.service.store import Db, traces
from hud_tui.wire import Payload, Sample


def resolve(db: Db, inputs: Sequence[str | Payload], base: str) -> list[Trajectory]:
    """Trajectories in the order of the inputs.

    Args:
        inputs: Trace ids (either spelling) and payloads, mixed as they come.
        base: The base of the model that is trained: tokens of another one mean nothing.

    Raises:
        Refused: 400, traces without tokens, by their ids; 422, a trace that errored, has
            no reward yet, or was sampled from another base.
    """
    empty = [item for item in inputs if isinstance(item, str) and not _samples(db, item)]
    if empty:
        named = ", ".join(item[:40] for item in empty[:10])
        more = f" and {len(empty) - 10} more" if len(empty) > 10 else ""
        raise Refused(
            400,
            f"no trainable turns in the provided inputs: {named}{more}."
            " Sample with return_token_ids and a Trace-Id, or send the samples inline",
        )
    return [
        _of_trace(db, number, item, base) if isinstance(item, str) else _of_payload(db, item)
        for number, item in enumerate(inputs)
    ]


def _of_trace(db: Db, number: int, ref: str, base: str) -> Trajectory:
    id_ = canonical(ref) or ""
    trace = traces.get(db, id_)
    field, status, reward = f"inputs.{number}", trace["status"], trace["reward"]
    if status in ("error", "cancelled"):
        message = f"trace {id_} ended as {status}: leave it and its group out"
        raise bad_field(field, message)
    if reward is None:
        raise bad_field(field, f"trace {id_} has no reward: report its exit first")
    turns = _samples(db, ref)
    foreign = next((turn["base"] for turn in turns if turn["base"] not in (base, "")), None)
    if foreign is not None:
        raise bad_field(field, f"trace {id_} was sampled from {foreign}, not {base}")
    return Trajectory([_turn(row) for row in turns], reward, trace["task_slug"], id_)


def _of_payload(db: Db, payload: Payload) -> Trajectory:
    """An inline trajectory; where the gateway sampled it, its task and temperature are known."""
    slug, turns = None, []
    for sample in payload.samples:
        prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
        known = traces.same_turn(db, prompt, output)
        slug = slug or (known["task_slug"] if known else None)
        temperature = (known["temperature"] if known else 1.0) or 1.0
        turns.append(Turn(prompt, output, sample.output_logprobs, temperature))
    return Trajectory(turns, payload.reward, slug, canonical(payload.trace_id or ""))


def _samples(db: Db, ref: str) -> list[sqlite3.Row] | list[dict[str, object]]:
    """What was sampled in a trace: by the service itself, else as its spans say."""
    id_ = canonical(ref)
    if id_ is None:
        return []
    return traces.turns(db, id_) or _of_spans(db, id_)


def _of_spans(db: Db, trace_id: str) -> list[dict[str, object]]:
    found = []
    for span in traces.spans(db, trace_id):
        sample = traces.payload(span).get("sample")
        if isinstance(sample, dict) and sample.get("output_token_ids"):
            row = {"sample": orjson.dumps(sample), "temperature": 1.0, "base": ""}
            found.append(row)
    return found


def _turn(row: "sqlite3.Row | dict[str, object]") -> Turn:
    try:
        sample = Sample.model_validate_json(row["sample"])  # type: ignore[arg-type]
    except ValueError as error:
        raise Refused(
            400, "no trainable turns in the provided inputs: unreadable sample"
        ) from error
    return Turn(
        sample.prompt_token_ids or [],
        sample.output_token_ids,
        sample.output_logprobs,
        float(row["temperature"]) or 1.0,  # type: ignore[arg-type]
    )
