"""Rollouts: what a model said, with the tokens to train on and a place for its reward."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from hud_tui.errors import HudBadInput, HudMalformed
from hud_tui.wire import Chat, ChatChoice, Sample

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

MOST = 64
"""Answers that one request may ask for."""


@dataclass
class Rollout:
    """One answer of the policy. Give it a reward, and it can be trained on."""

    text: str
    """What the model said, as it said it: not safe for a terminal."""
    samples: list[Sample]
    """Its turns in order; append the next one of a conversation, and all of them train."""
    reward: float | None = None
    """In any unit: rollouts are compared within their group."""
    group_id: str | None = None
    """The same for all that answered one prompt together."""
    finish_reason: str | None = None
    """``stop``, or ``length`` where it was cut."""
    trace_id: str | None = None
    """Where the service knows it already."""


def sample_of(choice: ChatChoice) -> Sample:
    """The tokens of a chat's choice, as training takes them.

    Raises:
        HudMalformed: It carries none: the model cannot be trained on, or
            ``return_token_ids`` was not asked for.
    """
    if choice.token_ids is None or choice.prompt_token_ids is None:
        raise HudMalformed(
            "the completion carries no token ids",
            "ask for return_token_ids, from a model that can be trained",
        )
    try:
        rows = (choice.logprobs or {}).get("content") or []
        logprobs = [float(row["logprob"]) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = "the completion's logprobs cannot be read"
        raise HudMalformed(problem, "update hud-tui, or the service") from error
    return Sample(
        prompt_token_ids=choice.prompt_token_ids,
        output_token_ids=choice.token_ids,
        output_logprobs=logprobs,
    )


async def sample_group(client: "HudClient", body: Chat, size: int) -> list[Rollout]:
    """Ask one prompt `size` times, in as few requests as the gateway can do with.

    Raises:
        HudBadInput: The size is below 1; nothing was sent.
        HudError: An answer did not come, or carries no tokens.
    """
    if size < 1:
        raise HudBadInput(f"group_size is {size}", "it must be at least 1")
    choices = await _choices(client, body, min(size, MOST))
    each = len(choices) or size  # a gateway may give one at a time, whatever it is asked
    starts = range(len(choices), size, each)
    asked = [_choices(client, _reseeded(body, start), min(each, size - start)) for start in starts]
    for more in await asyncio.gather(*asked):
        choices += more
    if len(choices) != size:
        problem = f"the gateway gave {len(choices)} answers of {size}"
        raise HudMalformed(problem, "ask for a smaller group, or try again")
    group_id = uuid4().hex
    return [_rollout(choice, group_id) for choice in choices]


async def _choices(client: "HudClient", body: Chat, count: int) -> list[ChatChoice]:
    reply = await client.chat(body.model_copy(update={"n": count}))
    return reply.choices[:count]


def _reseeded(body: Chat, start: int) -> Chat:
    """The same request, which must not get the same answers again."""
    return body if body.seed is None else body.model_copy(update={"seed": body.seed + start})


def _rollout(choice: ChatChoice, group_id: str) -> Rollout:
    text = choice.message.content or ""
    return Rollout(text, [sample_of(choice)], None, group_id, choice.finish_reason)
