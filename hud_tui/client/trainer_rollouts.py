"""Rollouts: what a model said, with the tokens to train on and a place for its reward."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from hud_tui.client.together import together
from hud_tui.client.trainer_reports import Reports
from hud_tui.errors import HudBadInput, HudError, HudMalformed
from hud_tui.rl.text import one_line
from hud_tui.wire import Chat, ChatChoice, Sample

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

AT_ONCE = 64
"""Requests of one group under way."""
SPREAD = 1_000_003
"""Keeps the seeds of one group apart from those of the next."""
SLUG = 60
"""Characters of a task's name that is taken from its prompt."""


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
    """Under which the service keeps it."""


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


async def sample_group(
    client: "HudClient", reports: Reports, body: Chat, size: int, task_slug: str | None
) -> list[Rollout]:
    """Ask one prompt `size` times, each answer under a trace of its own.

    Raises:
        HudBadInput: The size is below 1; nothing was sent.
        HudError: An answer did not come, or carries no tokens.
    """
    if size < 1:
        raise HudBadInput(f"group_size is {size}", "it must be at least 1")
    traces, group_id = [uuid4().hex for _ in range(size)], uuid4().hex
    await reports.enter(body.model, traces, task_slug or _slug(body), group_id)
    line = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int, trace_id: str) -> Rollout:
        async with line:
            reply = await client.chat(_reseeded(body, number), trace_id)
        if not reply.choices:
            raise HudMalformed("the gateway gave no answer", "try again")
        return _rollout(reply.choices[0], group_id, trace_id)

    try:
        async with together() as tasks:
            asked = [tasks.create_task(ask(*one)) for one in enumerate(traces)]
    except HudError as error:
        await reports.failed(traces, error)
        raise
    return [task.result() for task in asked]


def _reseeded(body: Chat, number: int) -> Chat:
    """The same request with a seed of its own: equal seeds would give equal answers."""
    if body.seed is None:
        return body
    return body.model_copy(update={"seed": (body.seed * SPREAD + number) % 2**63})


def _slug(body: Chat) -> str:
    """What the group's task is called where nobody says: how its last message begins."""
    content = body.messages[-1].get("content") if body.messages else None
    return one_line(content if isinstance(content, str) else "prompt", SLUG)


def _rollout(choice: ChatChoice, group_id: str, trace_id: str) -> Rollout:
    text = choice.message.content or ""
    return Rollout(text, [sample_of(choice)], None, group_id, choice.finish_reason, trace_id)
