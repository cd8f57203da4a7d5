"""Training requests from a caller's numbers; what is wrong with one is a `HudBadInput`."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from pydantic import ValidationError

from hud_tui.client.batches import to_inputs
from hud_tui.client.trainer_inputs import Input
from hud_tui.errors import HudBadInput
from hud_tui.rl.text import one_line
from hud_tui.wire import Chat, Forward, ForwardBackward, Request

R = TypeVar("R", bound=Request)
CROSS_ENTROPY = "cross_entropy"
"""The loss that imitates: it weighs a rollout by its reward and compares it with none."""


def checked(kind: type[R], **fields: Any) -> R:
    """A request of these fields.

    Raises:
        HudBadInput: A field is out of its bounds; the message names it.
    """
    for name, value in fields.items():
        numbers = value.values() if isinstance(value, Mapping) else [value]
        if any(isinstance(number, float) and not isfinite(number) for number in numbers):
            raise HudBadInput(f"{name} is {one_line(value, 80)}", "it must be finite")
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place} is {one_line(first['input'], 80)}"
        raise HudBadInput(problem, one_line(first["msg"])) from error


def chat_body(model: str, messages: str | Sequence[Mapping[str, Any]], **wanted: Any) -> Chat:
    """Asks for what training needs of the answers. Raises HudBadInput: a number."""
    asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    copied = [dict(message) for message in asked]
    return checked(
        Chat, model=model, messages=copied, logprobs=True, return_token_ids=True, **wanted
    )


def forward_backward_body(
    inputs: Iterable[Input], group_size: int | None, loss_fn: str, **numbers: Any
) -> ForwardBackward:
    """Raises HudBadInput: the batch, its groups or a number."""
    sent = to_inputs(inputs, group_size, compared=loss_fn != CROSS_ENTROPY)
    return checked(ForwardBackward, inputs=sent, group_size=group_size, loss_fn=loss_fn, **numbers)


def forward_body(inputs: Iterable[Input], group_size: int | None, reward_scale: float) -> Forward:
    """Raises HudBadInput: the batch, its groups or the scale."""
    sent = to_inputs(inputs, group_size)
    return checked(Forward, inputs=sent, group_size=group_size, reward_scale=reward_scale)
