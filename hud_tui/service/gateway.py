"""The gateway: chat completions from a model's head, or from a checkpoint that is named.

A reply carries the exact token ids and logprobs on the choice, and under a Trace-Id the
turn is kept, so that the rollout can be trained on by that id.
"""

from collections.abc import Sequence
from secrets import randbits
from typing import Any

from hud_tui.service.clock import now
from hud_tui.service.completions import Answered, completion, stops, text_of
from hud_tui.service.engines.base import (
    Base,
    EngineRefused,
    Handle,
    Sampled,
    SampleRequest,
    Tokenizer,
)
from hud_tui.service.ids import canonical
from hud_tui.service.parts import Parts
from hud_tui.service.prompts import prompt_ids
from hud_tui.service.refusals import Refused
from hud_tui.service.store import heads, models, nodes, traces
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.turns import TurnRow
from hud_tui.wire import Chat


async def complete(parts: Parts, body: Chat, trace_id: str | None) -> dict[str, Any]:
    """Answer a chat request, in OpenAI's form with the token ids on each choice.

    Raises:
        Refused: 404 no such model or checkpoint; 410 the checkpoint has expired; 400 what
            cannot be read or sampled, a stream, or a prompt beyond the context (code
            ``context_length_exceeded``).
        EngineLost: The engine stopped.
    """
    if body.stream:
        raise Refused(400, "streaming is not offered: send stream false")
    if body.top_p not in (None, 1):
        raise Refused(400, "top_p is not supported by the tiny engine: leave it out, or send 1")
    kept_as = _trace_id(trace_id)
    model = await parts.store.read(models.find, body.model)
    base, tokens = parts.base(model), await parts.tokenizer(model)
    node = await _node(parts, model, body.checkpoint)
    prompt = prompt_ids(body, tokens)
    requests = _requests(body, prompt, base, tokens)
    started_at = now()
    async with parts.policies.borrow(model, node, body.checkpoint is not None) as handle:
        sampled = await _sample(parts, handle, requests)
    answered = Answered(model, node, body, prompt, sampled, started_at)
    for one in sampled:
        parts.temperatures.keep(prompt, one.tokens, one.logprobs, _temperature(body))
    if kept_as is not None and len(sampled) == 1:
        await parts.store.write(traces.record_turn, kept_as, _turn(answered, tokens))
    return completion(answered, tokens)


async def _sample(
    parts: Parts, handle: Handle, requests: Sequence[SampleRequest]
) -> Sequence[Sampled]:
    try:
        return await parts.engine.sample(handle, requests)
    except EngineRefused as error:
        raise Refused(400, str(error)) from error


def _trace_id(header: str | None) -> str | None:
    if header is not None and canonical(header) is None:
        raise Refused(400, "Trace-Id must be 32 hex digits or a UUID")
    return header and canonical(header)


async def _node(parts: Parts, model: ModelRow, pin: str | None) -> Node | None:
    if pin is None:
        return await parts.store.read(heads.head, model.id)
    node = await parts.store.read(nodes.find, model.id, canonical(pin) or pin)
    node.refuse_expired()
    return node


def _requests(
    body: Chat, prompt: Sequence[int], base: Base, tokens: Tokenizer
) -> list[SampleRequest]:
    room = base.context - len(prompt)
    if room < 1:
        raise Refused(
            400,
            f"this model's context is {base.context} tokens, and the messages are {len(prompt)}:"
            " shorten them",
            "context_length_exceeded",
        )
    if min(prompt) < 0 or max(prompt) >= base.vocabulary:
        raise Refused(400, f"a prompt token id is outside the vocabulary of {base.vocabulary}")
    wanted = body.max_completion_tokens or body.max_tokens or room
    seed = randbits(63) if body.seed is None else body.seed % 2**63
    return [
        SampleRequest(
            prompt=prompt,
            max_tokens=min(wanted, room),
            temperature=_temperature(body),
            seed=(seed, number),
            stop=tuple(tuple(tokens.encode(text)) for text in stops(body)),
        )
        for number in range(body.n or 1)
    ]


def _temperature(body: Chat) -> float:
    return 1.0 if body.temperature is None else body.temperature


def _turn(answered: Answered, tokens: Tokenizer) -> TurnRow:
    sampled = answered.sampled[0]
    return TurnRow(
        prompt=answered.prompt,
        output=sampled.tokens,
        logprobs=sampled.logprobs,
        base=answered.model.base,
        temperature=_temperature(answered.body),
        prompt_text=tokens.decode(answered.prompt),
        completion=text_of(answered, sampled, tokens),
        started_at=answered.started_at,
        ended_at=now(),
    )
