"""Training inputs as trajectories: inline payloads, and trace ids whose tokens were kept."""

from collections.abc import Sequence

from hud_tui.service.batches import Trajectory, Turn
from hud_tui.service.ids import canonical
from hud_tui.service.refusals import Refused, bad_field
from hud_tui.service.store import Db, spans, traces, turns
from hud_tui.wire import Payload, Sample


def resolve(db: Db, inputs: Sequence[str | Payload], base: str) -> list[Trajectory]:
    """Trajectories in the order of the inputs.

    Args:
        db: The store's.
        inputs: Trace ids (either spelling) and payloads, mixed as they come.
        base: The base of the model that is trained: tokens of another one mean nothing.

    Raises:
        Refused: 400, traces without tokens, by their ids; 422, a trace that errored, has
            no reward yet, or was sampled from another base.
    """
    sampled = {item: _turns(db, item) for item in inputs if isinstance(item, str)}
    empty = [item for item, found in sampled.items() if not found]
    if empty:
        named = ", ".join(item[:40] for item in empty[:10])
        more = f" and {len(empty) - 10} more" if len(empty) > 10 else ""
        raise Refused(
            400,
            f"no trainable turns in the provided inputs: {named}{more}."
            " Sample with return_token_ids and a Trace-Id, or send the samples inline",
        )
    taken: set[str] = set()
    return [
        _of_trace(db, number, item, sampled[item], base)
        if isinstance(item, str)
        else _of_payload(db, item, taken)
        for number, item in enumerate(inputs)
    ]


def _of_trace(
    db: Db, number: int, ref: str, found: Sequence[tuple[Turn, str]], base: str
) -> Trajectory:
    id_ = canonical(ref) or ""
    trace = traces.get(db, id_)
    field, status, reward = f"inputs.{number}", trace["status"], trace["reward"]
    if status in ("error", "cancelled"):
        message = f"trace {id_} ended as {status}: leave it and its group out"
        raise bad_field(field, message)
    if reward is None:
        raise bad_field(field, f"trace {id_} has no reward: report its exit first")
    foreign = next((other for _, other in found if other not in (base, "")), None)
    if foreign is not None:
        raise bad_field(field, f"trace {id_} was sampled from {foreign}, not {base}")
    return Trajectory([turn for turn, _ in found], reward, trace["task_slug"], id_)


def _of_payload(db: Db, payload: Payload, taken: set[str]) -> Trajectory:
    """An inline trajectory; where the gateway sampled it, its trace and temperature are known.

    Siblings may have said the very same: each is then taken for another of their traces.
    """
    trace_id = canonical(payload.trace_id or "")
    made, slug = [], None
    for sample in payload.samples:
        prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
        same = turns.same(db, prompt, output)
        one = next((row for row in same if row["trace_id"] not in taken), None) or next(
            iter(same), None
        )
        if one is not None:
            slug = slug or one["task_slug"]
            trace_id = trace_id or one["trace_id"]
        temperature = (one["temperature"] if one else 1.0) or 1.0
        made.append(Turn(prompt, output, sample.output_logprobs, temperature))
    if trace_id is not None:
        taken.add(trace_id)
    return Trajectory(made, payload.reward, slug, trace_id)


def _turns(db: Db, ref: str) -> list[tuple[Turn, str]]:
    """What was sampled in a trace, with its base: as the service saw it, else as spans say.

    At temperature 0 logprobs are recorded untempered, that is as at temperature 1.
    """
    id_ = canonical(ref)
    if id_ is None:
        return []
    kept = [
        (_turn(Sample.model_validate_json(row["sample"]), row["temperature"] or 1.0), row["base"])
        for row in turns.of_trace(db, id_)
    ]
    return kept or [(_turn(sample, 1.0), "") for sample in spans.samples(db, id_)]


def _turn(sample: Sample, temperature: float) -> Turn:
    prompt, output = sample.prompt_token_ids or [], sample.output_token_ids
    return Turn(prompt, output, sample.output_logprobs, temperature)
