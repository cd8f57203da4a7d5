"""The gateway: completions from a model's head, or from a given checkpoint.

A reply has the exact token ids and logprobs on each choice. A turn with a Trace-Id is stored, so
that the rollout can be trained on by that id.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import Any

from hud_tui.service.batches import Origin
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import (
    Base,
    Call,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
    Tokenizer,
)
from hud_tui.service.http import Refused, canonical, new_id, now
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


def offered_tools(body: Chat) -> list[dict[str, Any]]:
    """The tools that an answer may call."""
    return [] if body.tool_choice == "none" else body.tools or []


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


# Completions in OpenAI's format, with the exact token ids on each choice: as one reply, or as a
# stream.
#
# Engines return whole answers, from which a stream's chunks are made: one chunk per token, so that
# a stream has the same tokens and logprobs as the reply.


ASKED = 64
"""Most stop sequences in a request."""
HALF = "\ufffd"
"""Placeholder for a character whose bytes are not all decoded yet."""


@dataclass(frozen=True)
class Answered:
    """A request and its completions."""

    model: ModelRow
    node: Node | None
    body: Sampling
    tokens: Tokenizer
    prompts: Sequence[Sequence[int]]
    sampled: Sequence[Sampled]
    """`n` completions for each prompt, prompt by prompt."""
    started_at: float

    def prompt(self, number: int) -> Sequence[int]:
        """Prompt of the choice with this index."""
        return self.prompts[number // (self.body.n or 1)]

    def ids(self, number: int, sampled: Sampled) -> dict[str, Any]:
        """The token ids of a choice, if they are asked for."""
        if not self.body.return_token_ids:
            return {}
        return {"prompt_token_ids": list(self.prompt(number)), "token_ids": sampled.tokens}

    def text(self, sampled: Sampled) -> str:
        """A completion's text, without the stop sequence that ended it."""
        text = self.tokens.decode(sampled.tokens)
        if sampled.finish_reason == "stop":
            ending = next((stop for stop in stops(self.body) if text.endswith(stop)), "")
            text = text.removesuffix(ending)
        return text


def stops(body: Sampling) -> list[str]:
    """The stop sequences. Raises Refused, 400, for too many."""
    asked = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(asked) > ASKED:
        raise Refused(400, f"at most {ASKED} stop sequences", param="stop")
    return [text for text in asked if text]


def whole(answered: Answered) -> dict[str, Any]:
    """The body of the reply."""
    form = _form(answered)
    choices = [form.choice(number, sampled) for number, sampled in enumerate(answered.sampled)]
    head = _head(answered, form.prefix, form.kind)
    return {**head, "choices": choices, "usage": _usage(answered)}


def chunks(answered: Answered) -> Iterator[dict[str, Any]]:
    """The chunks of the stream; the last one has the usage, if requested."""
    form, options = _form(answered), answered.body.stream_options
    usage = {"usage": None} if options and options.include_usage else {}
    head = {**_head(answered, form.prefix, form.chunk_kind), **usage}
    for number, sampled in enumerate(answered.sampled):
        for choice in form.pieces(number, sampled):
            yield {**head, "choices": [choice]}
    if usage:
        yield {**head, "choices": [], "usage": _usage(answered)}


class _ChatForm:
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, answered: Answered, body: Chat) -> None:
        self._answered, self._body = answered, body

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        text, calls = self._text_and_calls(sampled)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message |= {"content": text or None, "tool_calls": calls}
        choice: dict[str, Any] = {
            "index": number,
            "message": message,
            "finish_reason": "tool_calls" if calls else sampled.finish_reason,
            "logprobs": self._logprobs(sampled, 0, len(sampled.tokens)),
        }
        return choice | self._answered.ids(number, sampled)

    def pieces(self, number: int, sampled: Sampled) -> Iterator[dict[str, Any]]:
        """The role, then what each token adds (tool calls in one piece), then the finish reason."""
        text, calls = self._text_and_calls(sampled)
        ids = {"prompt_token_ids": list(self._answered.prompt(number))}
        yield self._piece(number, {"role": "assistant", "content": ""}, None, ids)
        pieces = [text] if calls else _split(self._answered.tokens, sampled.tokens, text)
        for index, (start, end) in enumerate(_spans(pieces, len(sampled.tokens))):
            delta: dict[str, Any] = {"content": pieces[index]} if pieces[index] else {}
            if calls:
                delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
            ids = {"token_ids": sampled.tokens[start:end]}
            yield self._piece(number, delta, self._logprobs(sampled, start, end), ids)
        reason = "tool_calls" if calls else sampled.finish_reason
        yield {**self._piece(number, {}, None, {}), "finish_reason": reason}

    def _piece(
        self, number: int, delta: dict[str, Any], logprobs: Any, ids: dict[str, Any]
    ) -> dict[str, Any]:
        shown = ids if self._body.return_token_ids else {}
        rest = {"logprobs": logprobs, "finish_reason": None}
        return {"index": number, "delta": delta, **rest, **shown}

    def _text_and_calls(self, sampled: Sampled) -> tuple[str, list[dict[str, Any]]]:
        """The text, and the tool calls in it if tools were offered.

        An incomplete call stays text.
        """
        if offered_tools(self._body) and sampled.finish_reason == "stop":
            text, calls = self._answered.tokens.calls(sampled.tokens)
            if calls:
                return text, [_call(call) for call in calls]
        return self._answered.text(sampled), []

    def _logprobs(self, sampled: Sampled, start: int, end: int) -> dict[str, Any] | None:
        if not self._body.logprobs and not self._body.return_token_ids:
            return None
        tokens = self._answered.tokens
        pieces = tokens.pieces(sampled.tokens[start:end])
        content: list[dict[str, Any]] = [
            {"token": piece, "logprob": logprob, "bytes": None, "top_logprobs": []}
            for piece, logprob in zip(pieces, sampled.logprobs[start:end], strict=True)
        ]
        for entry, top in zip(content, sampled.top[start:end], strict=False):
            entry["top_logprobs"] = [
                {"token": tokens.pieces([id_])[0], "logprob": logprob, "bytes": None}
                for id_, logprob in top
            ]
        return {"content": content}


class _TextForm:
    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, answered: Answered, body: Completion) -> None:
        self._answered, self._body = answered, body

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": number,
            "text": self._answered.text(sampled),
            "finish_reason": sampled.finish_reason,
            "logprobs": self._logprobs(sampled, 0, len(sampled.tokens), 0),
        }
        return choice | self._answered.ids(number, sampled)

    def pieces(self, number: int, sampled: Sampled) -> Iterator[dict[str, Any]]:
        """What each token adds; the last piece, the only one without tokens, has the finish
        reason."""
        text = self._answered.text(sampled)
        pieces = _split(self._answered.tokens, sampled.tokens, text) or [text]
        offset = 0
        for index, (start, end) in enumerate(_spans(pieces, len(sampled.tokens))):
            is_last = end == len(sampled.tokens)
            choice: dict[str, Any] = {
                "index": number,
                "text": pieces[index],
                "finish_reason": sampled.finish_reason if is_last else None,
                "logprobs": self._logprobs(sampled, start, end, offset),
            }
            if self._body.return_token_ids:
                ids = {} if start else {"prompt_token_ids": list(self._answered.prompt(number))}
                choice |= {**ids, "token_ids": sampled.tokens[start:end]}
            offset += len(pieces[index])
            yield choice

    def _logprobs(
        self, sampled: Sampled, start: int, end: int, offset: int
    ) -> dict[str, Any] | None:
        """`offset`: characters of the completion before these tokens."""
        if self._body.logprobs is None and not self._body.return_token_ids:
            return None
        tokens = self._answered.tokens
        pieces = tokens.pieces(sampled.tokens[start:end])
        offsets = [offset + sum(map(len, pieces[:n])) for n in range(len(pieces))]
        top = [
            {tokens.pieces([id_])[0]: lp for id_, lp in ranked} for ranked in sampled.top[start:end]
        ]
        return {
            "tokens": pieces,
            "token_logprobs": sampled.logprobs[start:end],
            "top_logprobs": top or None,
            "text_offset": offsets,
        }


def _form(answered: Answered) -> _ChatForm | _TextForm:
    body = answered.body
    if isinstance(body, Chat):
        return _ChatForm(answered, body)
    assert isinstance(body, Completion)
    return _TextForm(answered, body)


def _head(answered: Answered, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{new_id()}",
        "object": kind,
        "created": int(answered.started_at),
        "model": answered.model.slug,
        "checkpoint": answered.node.id if answered.node else None,
    }


def _usage(answered: Answered) -> dict[str, int]:
    prompt = sum(map(len, answered.prompts))
    produced = sum(len(sampled.tokens) for sampled in answered.sampled)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": produced,
        "total_tokens": prompt + produced,
    }


def _split(tokens: Tokenizer, ids: Sequence[int], text: str) -> list[str]:
    """What each token adds to the text; the whole text at once if tokens cannot be decoded alone.

    A character made of several tokens comes with the last of them; tokens of a removed stop
    sequence
    add nothing.
    """
    pieces, start = [""] * len(ids), 0
    for index in range(len(ids)):
        piece = tokens.decode(ids[start : index + 1])
        if not piece.endswith(HALF) or index == len(ids) - 1:
            pieces[index], start = piece, index + 1
    if not "".join(pieces).startswith(text):
        return [text]
    left = len(text)
    for index, piece in enumerate(pieces):
        pieces[index] = piece[:left]
        left -= len(pieces[index])
    return pieces


def _spans(pieces: Sequence[str], count: int) -> list[tuple[int, int]]:
    """Token range of each piece of a text: one token each, or all in one."""
    return [(0, count)] if len(pieces) != count else [(n, n + 1) for n in range(count)]


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{new_id()}", "type": "function", "function": function}


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


async def complete(
    parts: ServiceContext, body: Chat | Completion, trace_id: str | None
) -> Answered:
    """Sample a request; `completions` formats the result as a reply or as a stream.

    Raises:
        Refused: 404, no such model or checkpoint; 410, the checkpoint has expired; 400, an
            unsupported or unreadable parameter, or a prompt beyond the context (code
            ``context_length_exceeded``), except in a rollout that has turns already: there it is
            an empty answer that ends by length.
        EngineLost: The engine stopped repeatedly.
    """
    check(parts, body)
    kept_as = canonical(trace_id or "")
    if trace_id is not None and kept_as is None:
        raise Refused(400, "Trace-Id must be 32 hex digits or a UUID")
    model = await parts.store.read(models.find, body.model)
    base, tokens = parts.base(model), await parts.tokenizer(model)
    node = await _node(parts, model, body.checkpoint)
    prompts = [prompt_ids(body, tokens)] if isinstance(body, Chat) else text_prompts(body, tokens)
    started_at = now()
    if max(map(len, prompts)) >= base.context and await _is_later_turn(parts, kept_as):
        none = [Sampled([], [], "length") for _ in prompts for _ in range(body.n or 1)]
        return Answered(model, node, body, tokens, prompts, none, started_at)
    requests = [request for ids in prompts for request in _requests(body, ids, base, tokens)]
    pinned = body.checkpoint is not None
    with parts.sampling(model, kept_as, pinned):
        sampled = await _sample(parts, model, node, pinned, requests)
    answered = Answered(model, node, body, tokens, prompts, sampled, started_at)
    origin = Origin(_temperature(body), id_of(node))
    for number, request in enumerate(sampled):
        parts.origins.keep(answered.prompt(number), request.tokens, request.logprobs, origin)
    if kept_as is not None and len(sampled) == 1:
        await parts.store.write(traces.record_turn, kept_as, _turn(answered))
    return answered


async def _is_later_turn(parts: ServiceContext, trace_id: str | None) -> bool:
    """Whether a rollout has turns already. One whose context is full by now ends by length, and its
    reward counts; a task whose first prompt does not fit is an error."""
    return trace_id is not None and bool(await parts.store.read(traces.turns_of, trace_id))


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
    return await parts.store.read(checkpoints.loadable, model.id, canonical(pin) or pin)


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
    return [
        SampleRequest(
            prompt=prompt,
            max_tokens=min(most or room, room),
            temperature=_temperature(body),
            top_p=1.0 if body.top_p is None else body.top_p,
            top_logprobs=top or 0,
            seed=(seed, number),
            stop=tuple(tuple(tokens.encode(text)) for text in stops(body)),
        )
        for number in range(body.n or 1)
    ]


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
        sampled_from=id_of(answered.node),
    )
