"""The gateway: completions from a model's head, or from a checkpoint that is named.

A reply carries the exact token ids and logprobs on the choice, and under a Trace-Id the
turn is kept, so that the rollout can be trained on by that id.
"""

import logging
from collections.abc import Sequence
from secrets import randbits
from typing import Any

from hud_tui.service.clock import now
from hud_tui.service.completions import Answered, stops
from hud_tui.service.engines.base import (
    Base,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
    Tokenizer,
)
from hud_tui.service.ids import canonical
from hud_tui.service.parts import Parts
from hud_tui.service.prompts import prompt_ids, text_prompts
from hud_tui.service.refusals import Refused
from hud_tui.service.store import heads, models, nodes, traces
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.service.store.turns import TurnRow
from hud_tui.wire import Chat, Completion, Sampling

log = logging.getLogger(__name__)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "functions": ([],),
    "function_call": ("none",),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
}
"""Parameters that no engine here has, and the values that ask for nothing of them."""
TEXT_LENGTH = 16
"""Most tokens of a text completion that does not say how long it may be. Source: OpenAI's."""
REPEATS = 2
"""Times that a request is sampled again after its policy was lost, as with a server's restart."""


def check(parts: Parts, body: Sampling) -> None:
    """Refuse by name what would otherwise be left out in silence.

    Raises:
        Refused: 400.
    """
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name, None)
        if value is not None and value not in neutral:
            engine = parts.engine.about().engine
            ways = [f"send {_shown(one)}" for one in neutral]
            cure = ", or ".join(["leave it out", *ways])
            problem = f"{name} is not supported by the {engine} engine: {cure}"
            raise Refused(400, problem, "unsupported_parameter", name)
    if isinstance(body, Chat) and body.top_logprobs and not body.logprobs:
        raise Refused(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise Refused(400, "stream_options needs stream: true", param="stream_options")


async def complete(parts: Parts, body: Chat | Completion, trace_id: str | None) -> Answered:
    """Answer a request; `completions` says it in OpenAI's form, whole or as a stream.

    Raises:
        Refused: 404 no such model or checkpoint; 410 the checkpoint has expired; 400 what
            cannot be read, sampled or honoured, or a prompt beyond the context (code
            ``context_length_exceeded``).
        EngineLost: The engine stopped, again and again.
    """
    check(parts, body)
    kept_as = _trace_id(trace_id)
    model = await parts.store.read(models.find, body.model)
    base, tokens = parts.base(model), await parts.tokenizer(model)
    node = await _node(parts, model, body.checkpoint)
    prompts = [prompt_ids(body, tokens)] if isinstance(body, Chat) else text_prompts(body, tokens)
    requests = [one for ids in prompts for one in _requests(body, ids, base, tokens)]
    started_at = now()
    sampled = await _sample(parts, model, node, body.checkpoint is not None, requests)
    answered = Answered(model, node, body, tokens, prompts, sampled, started_at)
    for number, one in enumerate(sampled):
        prompt = answered.prompt(number)
        parts.temperatures.keep(prompt, one.tokens, one.logprobs, _temperature(body))
    if kept_as is not None and len(sampled) == 1:
        await parts.store.write(traces.record_turn, kept_as, _turn(answered))
    return answered


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


async def _sample(
    parts: Parts,
    model: ModelRow,
    node: Node | None,
    pinned: bool,
    requests: Sequence[SampleRequest],
) -> Sequence[Sampled]:
    """Completions of a node's weights; where a policy is lost on the way, of one opened anew.

    Sampling changes nothing, so it is safe to repeat.
    """
    for _ in range(REPEATS):
        try:
            return await _ask(parts, model, node, pinned, requests)
        except EngineLost as error:
            log.info("sampling is repeated: %s", error)
    return await _ask(parts, model, node, pinned, requests)


async def _ask(
    parts: Parts,
    model: ModelRow,
    node: Node | None,
    pinned: bool,
    requests: Sequence[SampleRequest],
) -> Sequence[Sampled]:
    async with parts.policies.borrow(model, node, pinned) as handle:
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
    body: Chat | Completion, prompt: Sequence[int], base: Base, tokens: Tokenizer
) -> list[SampleRequest]:
    room = base.context - len(prompt)
    if room < 1:
        raise Refused(
            400,
            f"this model's context is {base.context} tokens, prompt and answer together, and the"
            f" prompt is {len(prompt)}: shorten it",
            "context_length_exceeded",
            "messages" if isinstance(body, Chat) else "prompt",
        )
    if min(prompt) < 0 or max(prompt) >= base.vocabulary:
        raise Refused(400, f"a prompt token id is outside the vocabulary of {base.vocabulary}")
    seed = randbits(63) if body.seed is None else body.seed % 2**63
    return [
        SampleRequest(
            prompt=prompt,
            max_tokens=min(_wanted(body) or room, room),
            temperature=_temperature(body),
            top_p=1.0 if body.top_p is None else body.top_p,
            top_logprobs=_top_logprobs(body),
            seed=(seed, number),
            stop=tuple(tuple(tokens.encode(text)) for text in stops(body)),
        )
        for number in range(body.n or 1)
    ]


def _wanted(body: Chat | Completion) -> int | None:
    """The longest answer that is asked for, in tokens; None for whatever fits."""
    if isinstance(body, Chat):
        return body.max_completion_tokens or body.max_tokens
    return body.max_tokens or TEXT_LENGTH


def _top_logprobs(body: Chat | Completion) -> int:
    return (body.top_logprobs if isinstance(body, Chat) else body.logprobs) or 0


def _temperature(body: Sampling) -> float:
    return 1.0 if body.temperature is None else body.temperature


def _turn(answered: Answered) -> TurnRow:
    [prompt], [sampled] = answered.prompts, answered.sampled
    return TurnRow(
        prompt=prompt,
        output=sampled.tokens,
        logprobs=sampled.logprobs,
        base=answered.model.base,
        temperature=_temperature(answered.body),
        prompt_text=answered.tokens.decode(prompt),
        completion=answered.text(sampled),
        started_at=answered.started_at,
        ended_at=now(),
    )
