"""One training input, whatever it is: what is sent of it, and what can be seen of it here.

A trace id, a `Payload` (or a mapping with its keys), or a rollout of any make: an object
with a reward and either samples or a trace id, as a ``hud.Run`` is.

Source: which rollouts are refused is as in the ``hud`` SDK's TrainingClient, 0.6.21.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from operator import index
from typing import Any, Protocol
from uuid import UUID

from pydantic import ValidationError

from hud_tui.errors import HudBadInput
from hud_tui.rl.text import one_line
from hud_tui.wire import Payload, Sample


class Scored(Protocol):
    """A rollout of any make: a reward, and ``samples``, ``trace.steps[*].sample`` or a trace id.

    ``group_id``, ``grade.is_error`` and ``trace.stop_reason`` are heeded where it has them.
    """

    @property
    def reward(self) -> float | None: ...

    @property
    def trace_id(self) -> str | None: ...


Input = str | UUID | Payload | Mapping[str, Any] | Scored


@dataclass(frozen=True)
class Item:
    """An input that was read."""

    sent: str | Payload
    reward: float | None = None
    """None where only the service knows it."""
    group_id: str | None = None


def read_input(item: Input, where: str) -> Item:
    """
    Args:
        item: The input.
        where: What messages call it, e.g. ``inputs[5]``.

    Raises:
        HudBadInput: It cannot be trained on.
    """
    if isinstance(item, UUID):
        return Item(item.hex)
    if isinstance(item, str):
        return Item(_trace_id(item, where))
    if isinstance(item, Mapping):
        item = _payload(item, where)
    if isinstance(item, Payload):
        return Item(item, _finite(item.reward, where))
    return _read_scored(item, where)


def _payload(item: Mapping[str, Any], where: str) -> Payload:
    """A payload as the wire has it, e.g. out of a JSON file."""
    try:
        return Payload.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = one_line(f"{where} is no payload: {place}: {first['msg']}", 200)
        raise HudBadInput(problem, "a payload has samples and a reward") from error


def _read_scored(item: Any, where: str) -> Item:
    """A rollout object: its tokens where it has them, else the id that the service has them by."""
    _refuse_ungraded(item, where)
    trace_id, group_id = getattr(item, "trace_id", None), getattr(item, "group_id", None)
    name = None if trace_id is None else _trace_id(str(trace_id), where)
    reward = getattr(item, "reward", None)
    seen = None if reward is None else _finite(reward, where)
    sent: str | Payload | None = name
    if turns := _turns(item):
        if seen is None:
            raise HudBadInput(f"{where} has no reward", "grade every rollout before it is trained")
        samples = [_sample(turn, where) for turn in turns]
        sent = Payload(samples=samples, reward=seen, trace_id=name)
    if sent is None:
        kind = one_line(type(item).__name__, 60)
        raise HudBadInput(
            f"{where} is a {kind} with neither samples nor a trace id",
            "sample with return_token_ids, and give trace ids, payloads or graded rollouts",
        )
    return Item(sent, seen, None if group_id is None else str(group_id))


def _refuse_ungraded(item: Any, where: str) -> None:
    """A reward that says nothing of the policy must not train it."""
    trace = getattr(item, "trace", None)
    stopped = {getattr(trace, "stop_reason", None), getattr(item, "stop_reason", None)}
    choice = "leave its whole group out, or send a Payload with the reward you choose"
    if "timeout" in stopped:
        raise HudBadInput(f"{where} timed out, so its reward is no verdict", choice)
    if getattr(getattr(item, "grade", None), "is_error", False):
        raise HudBadInput(f"{where} has no valid grade, so its reward is no verdict", choice)


def _turns(item: Any) -> list[Any]:
    """The turns that were sampled, in order; those without a token are none."""
    found: Iterable[Any] | None = getattr(item, "samples", None)
    if found is None:
        steps = getattr(getattr(item, "trace", None), "steps", None) or ()
        found = [getattr(step, "sample", None) for step in steps]
    return [turn for turn in found if getattr(turn, "output_token_ids", None)]


def _sample(turn: Any, where: str) -> Sample:
    if isinstance(turn, Sample):
        return turn
    prompt = getattr(turn, "prompt_token_ids", None) or ()
    logprobs = getattr(turn, "output_logprobs", None) or ()
    try:
        return Sample(
            prompt_token_ids=[index(token) for token in prompt] or None,
            prompt_chunks=getattr(turn, "prompt_chunks", None),
            output_token_ids=[index(token) for token in turn.output_token_ids],
            output_logprobs=[float(value) for value in logprobs],
        )
    except (ValidationError, TypeError, ValueError) as error:
        problem = f"{where}: a sample's tokens or logprobs are not lists of numbers"
        raise HudBadInput(problem, "tokens are whole numbers, logprobs are floats") from error


def _trace_id(text: str, where: str) -> str:
    try:
        usable = len(text) in (32, 36) and UUID(text) is not None
    except ValueError:
        usable = False
    if not usable:
        problem = f"{where} is not a trace id: {one_line(text, 60)!r}"
        raise HudBadInput(problem, "a trace id is 32 hex digits or a UUID")
    return text


def _finite(reward: Any, where: str) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value):
        raise HudBadInput(f"{where}: the reward is {one_line(reward, 40)}", "it must be finite")
    return value
