"""The gateway: completions from a model's head, or from a given checkpoint.

A reply has the exact token ids and logprobs on each choice. A turn with a Trace-Id is stored, so
that the rollout can be trained on by that id.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from secrets import randbits
from typing import Any

from hud_tui.service.batches import Origin
from hud_tui.service.completions import Asked, Stream, offered_tools, stops
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import (
    PROGRESS,
    Base,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
    Tokenizer,
)
from hud_tui.service.http import Refused, canonical, now
from hud_tui.service.policies import telling
from hud_tui.service.store import checkpoints, models, traces
from hud_tui.service.store.checkpoints import Node, id_of
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.traces import TurnRow
from hud_tui.wire import BASE
from hud_tui.wire_training import Chat, Completion, Demonstration, Sampling

# Prompts: the token ids that a request asks to continue.


MOST_PROMPTS = 64
"""Most prompts in one text completion."""


def prompt_ids(body: Chat, tokens: Tokenizer) -> list[int]:
    """The prompt's tokens: the rendered conversation, or the given tokens and the messages after
    them.

    With `prompt_token_ids`, the first `continuation_from` messages, not counting a system message,
    are exactly those tokens; only the messages after them are rendered. Tools that may not be
    called (``tool_choice: none``) are not shown to the model. Raises Refused, 400, a message, a
    tool or an option of the template cannot be read, or continuation_from is negative.
    """
    messages = [_readable(message) for message in body.messages]
    if not messages and not body.prompt_token_ids:
        raise Refused(400, "messages is empty", param="messages")
    if (body.continuation_from or 0) < 0:
        problem = "continuation_from counts messages: it must be at least 0"
        raise Refused(400, problem, param="continuation_from")
    options = body.chat_template_kwargs or {}
    try:
        if not body.prompt_token_ids:
            return tokens.render(messages, offered_tools(body), options)
        covered = body.continuation_from or 0
        if messages and messages[0].get("role") in ("system", "developer"):
            covered += 1
        return [*body.prompt_token_ids, *tokens.follow(messages, covered, options)]
    except ValueError as error:
        raise Refused(400, str(error)) from error


def demonstrated(body: Demonstration, tokens: Tokenizer) -> tuple[list[int], list[int]]:
    """Prompt and answer of the last message. Raises Refused, 400, as `prompt_ids`; or the last
    message is not the assistant's."""
    messages = [_readable(message) for message in body.messages]
    if not messages or messages[-1].get("role") != "assistant":
        raise Refused(400, "the last message must be the assistant's", param="messages")
    try:
        return tokens.demonstrate(messages, body.tools or ())
    except ValueError as error:
        raise Refused(400, str(error)) from error


def text_prompts(body: Completion, tokens: Tokenizer) -> list[list[int]]:
    """The prompts of a text completion, given as one or several texts or lists of token ids. Raises
    Refused, 400, no prompt, an empty one, or too many."""
    sent: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if sent and isinstance(sent[0], int):
        sent = [sent]
    if not 1 <= len(sent) <= MOST_PROMPTS:
        raise Refused(400, f"prompt must be 1 to {MOST_PROMPTS} prompts", param="prompt")
    prompts = [
        tokens.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in sent
    ]
    if not all(prompts):
        raise Refused(400, "prompt must not be empty", param="prompt")
    return prompts


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its text parts joined. Raises Refused, 400, for other parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            problem = "only text parts can be read: this model sees no images"
            raise Refused(400, problem, param="messages")
    return {**message, "content": "".join(part["text"] for part in content)}


# Sampling of what is asked.


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
"""Parameters that no engine supports, and their neutral values, which are accepted."""
TEXT_LENGTH = 16
"""Default max_tokens of a text completion. Source: OpenAI's."""
REPEATS = 2
"""Retries of a request whose policy was lost, e.g. when the server restarted."""


def check(parts: ServiceContext, body: Sampling) -> None:
    """Refuse unsupported parameters by name instead of ignoring them. Raises Refused, 400."""
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name, None)
        if value is not None and value not in neutral:
            engine = parts.engine.about().engine
            ways = [f"send {_shown(accepted)}" for accepted in neutral]
            cure = ", or ".join(["remove it", *ways])
            problem = f"{name} is not supported by the {engine} engine: {cure}"
            raise Refused(400, problem, "unsupported_parameter", name)
    if isinstance(body, Chat) and body.top_logprobs and not body.logprobs:
        raise Refused(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise Refused(400, "stream_options needs stream: true", param="stream_options")


Carry = Callable[[Callable[[], list[list[int]]]], Awaitable[list[list[int]]]]
"""Makes prompts, beside the loop if they are long."""


async def _at_once(make: Callable[[], list[list[int]]]) -> list[list[int]]:
    return make()


async def read(
    parts: ServiceContext, body: Chat | Completion, trace_id: str | None, carry: Carry = _at_once
) -> Asked:
    """What a request asks to sample.

    Raises:
        Refused: 404, no such model or checkpoint; 410, the checkpoint has expired; 400, an
            unsupported or unreadable parameter, or a prompt beyond the context (code
            ``context_length_exceeded``), except in a rollout that has turns already: there it is
            an empty answer that ends by length.
    """
    check(parts, body)
    kept_as = canonical(trace_id or "")
    if trace_id is not None and kept_as is None:
        raise Refused(400, "Trace-Id must be 32 hex digits or a UUID")
    model = await parts.store.read(models.find, body.model)
    base, tokens = parts.base(model), await parts.tokenizer(model)
    node = await _node(parts, model, body.checkpoint)
    prompts = await carry(
        lambda: [prompt_ids(body, tokens)] if isinstance(body, Chat) else text_prompts(body, tokens)
    )
    started_at, requests = now(), None
    fits = max(map(len, prompts)) < base.context
    # A rollout with turns whose context is full by now ends by length, and its reward counts; a
    # task whose first prompt does not fit is an error.
    if fits or kept_as is None or not await parts.store.read(traces.turns_of, kept_as):
        requests = [r for ids in prompts for r in _requests(body, ids, base, tokens)]
    return Asked(model, node, body, tokens, prompts, requests, kept_as, started_at)


async def complete(
    parts: ServiceContext, asked: Asked, stream: Stream | None = None
) -> Sequence[Sampled]:
    """Sample what a request asks, in the order of its choices; a turn of a rollout is stored.

    Args:
        stream: Tokens are added to it as they are sampled, if the engine tells them.

    Raises:
        Refused: 400, the engine does not support a parameter.
        EngineLost: The engine stopped repeatedly, or sampled other numbers afterwards.
    """
    if asked.requests is None:
        return [Sampled([], [], "length") for _ in range(asked.count)]
    pinned = asked.body.checkpoint is not None
    with (
        telling(PROGRESS, None if stream is None else stream.add),
        parts.sampling(asked.model, asked.trace_id, pinned),
    ):
        sampled = await _sample(parts, asked.model, asked.node, pinned, asked.requests)
    if stream is not None:
        stream.check(sampled)
    origin = Origin(_temperature(asked.body), id_of(asked.node))
    for number, request in enumerate(sampled):
        parts.origins.keep(asked.prompt(number), request.tokens, request.logprobs, origin)
    if asked.trace_id is not None and len(sampled) == 1:
        await parts.store.write(traces.record_turn, asked.trace_id, _turn(asked, sampled[0]))
    return sampled


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


async def _sample(
    parts: ServiceContext,
    model: ModelRow,
    node: Node | None,
    pinned: bool,
    requests: Sequence[SampleRequest],
) -> Sequence[Sampled]:
    """Completions from a node's weights; retried with a new policy if the policy is lost.

    Sampling changes nothing, so it is safe to repeat.
    """
    lost = 0
    while True:
        try:
            async with parts.policies.borrow(model, node, pinned) as handle:
                try:
                    return await parts.engine.sample(handle, requests)
                except EngineRefused as error:  # one of a policy's opening is not the request's
                    raise Refused(400, str(error)) from error
        except EngineLost as error:
            lost += 1
            if lost > REPEATS:
                raise
            log.info("sampling is repeated: %s", error)
            if node is not None:  # retention may have moved the state to another file
                node = await parts.store.read(checkpoints.find, model.id, node.id)


async def _node(parts: ServiceContext, model: ModelRow, pin: str | None) -> Node | None:
    if pin is None:
        return await parts.store.read(checkpoints.head, model.id)
    if pin == BASE:
        return None
    return await parts.store.read(checkpoints.loadable, model.id, pin)


def _requests(
    body: Chat | Completion, prompt: Sequence[int], base: Base, tokens: Tokenizer
) -> list[SampleRequest]:
    room = base.context - len(prompt)
    if room < 1:
        raise Refused(
            400,
            f"this model's maximum context length is {base.context} tokens, prompt and answer"
            f" together, and the prompt has {len(prompt)}: shorten it",
            "context_length_exceeded",
            "messages" if isinstance(body, Chat) else "prompt",
        )
    if min(prompt) < 0 or max(prompt) >= base.vocabulary:
        raise Refused(400, f"a prompt token id is outside the vocabulary of {base.vocabulary}")
    seed = randbits(63) if body.seed is None else body.seed % 2**63
    if isinstance(body, Chat):
        most, top = body.max_completion_tokens or body.max_tokens, body.top_logprobs
    else:
        most, top = body.max_tokens or TEXT_LENGTH, body.logprobs
    stop = tuple(tuple(tokens.encode(text)) for text in stops(body))
    return [
        SampleRequest(
            prompt=prompt,
            max_tokens=min(most or room, room),
            temperature=_temperature(body),
            top_p=1.0 if body.top_p is None else body.top_p,
            top_logprobs=top or 0,
            seed=(seed, number),
            stop=stop,
        )
        for number in range(body.n or 1)
    ]


def _temperature(body: Sampling) -> float:
    return 1.0 if body.temperature is None else body.temperature


def _turn(asked: Asked, sampled: Sampled) -> TurnRow:
    [prompt] = asked.prompts
    return TurnRow(
        prompt=prompt,
        output=sampled.tokens,
        logprobs=sampled.logprobs,
        base=asked.model.base,
        temperature=_temperature(asked.body),
        prompt_text=asked.tokens.decode(prompt),
        completion=asked.text(sampled),
        started_at=asked.started_at,
        ended_at=now(),
        sampled_from=id_of(asked.node),
    )
