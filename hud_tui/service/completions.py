"""Completions in OpenAI's form, with the exact token ids on each choice: whole, or as a stream.

A stream's chunks are made from answers that are whole: engines sample them so. There is one
chunk a token, so that a stream carries the same tokens and logprobs as the whole reply.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.service.engines.base import Call, Sampled, Tokenizer
from hud_tui.service.ids import new_id
from hud_tui.service.prompts import offered_tools
from hud_tui.service.refusals import Refused
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.wire import Chat, Completion, Sampling

ASKED = 64
"""Most stop sequences in a request."""
HALF = "\ufffd"
"""How a character reads of which some bytes are in the tokens to come."""


@dataclass(frozen=True)
class Answered:
    """A request and what was sampled for it."""

    model: ModelRow
    node: Node | None
    body: Sampling
    tokens: Tokenizer
    prompts: Sequence[Sequence[int]]
    sampled: Sequence[Sampled]
    """`n` for each prompt, prompt by prompt."""
    started_at: float

    def prompt(self, number: int) -> Sequence[int]:
        """What the choice of this number continues."""
        return self.prompts[number // (self.body.n or 1)]

    def text(self, sampled: Sampled) -> str:
        """A completion's text, without the stop sequence that ended it."""
        text = self.tokens.decode(sampled.tokens)
        if sampled.finish_reason == "stop":
            ending = next((stop for stop in stops(self.body) if text.endswith(stop)), "")
            text = text.removesuffix(ending)
        return text


def stops(body: Sampling) -> list[str]:
    """The texts that end a completion. Raises Refused, 400, for too many."""
    asked = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(asked) > ASKED:
        raise Refused(400, f"at most {ASKED} stop sequences", param="stop")
    return [text for text in asked if text]


def whole(answered: Answered) -> dict[str, Any]:
    """The reply's body."""
    form = _form(answered)
    choices = [form.choice(number, one) for number, one in enumerate(answered.sampled)]
    return {**form.head(form.kind), "choices": choices, "usage": _usage(answered)}


def chunks(answered: Answered) -> Iterator[dict[str, Any]]:
    """The reply as a stream has it; the last chunk has the usage, where that was asked for."""
    form, options = _form(answered), answered.body.stream_options
    usage = {"usage": None} if options and options.include_usage else {}
    head = {**form.head(form.chunk_kind), **usage}
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

    def head(self, kind: str) -> dict[str, Any]:
        return _head(self._answered, self.prefix, kind)

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        text, calls = self._said(sampled)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message |= {"content": text or None, "tool_calls": calls}
        choice: dict[str, Any] = {
            "index": number,
            "message": message,
            "finish_reason": "tool_calls" if calls else sampled.finish_reason,
            "logprobs": self._logprobs(sampled, 0, len(sampled.tokens)),
        }
        if self._body.return_token_ids:
            prompt = list(self._answered.prompt(number))
            choice |= {"prompt_token_ids": prompt, "token_ids": sampled.tokens}
        return choice

    def pieces(self, number: int, sampled: Sampled) -> Iterator[dict[str, Any]]:
        """The role; what each token adds, calls of tools together; how it ended."""
        text, calls = self._said(sampled)
        ids = {"prompt_token_ids": list(self._answered.prompt(number))}
        yield self._piece(number, {"role": "assistant", "content": ""}, None, ids)
        said = [text] if calls else _split(self._answered.tokens, sampled.tokens, text)
        for place, (start, end) in enumerate(_spans(said, len(sampled.tokens))):
            delta: dict[str, Any] = {"content": said[place]} if said[place] else {}
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

    def _said(self, sampled: Sampled) -> tuple[str, list[dict[str, Any]]]:
        """What was said; where tools were offered, calls of them beside the text.

        A call that was cut off is no call: it stays text.
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
        for row, top in zip(content, sampled.top[start:end], strict=False):
            row["top_logprobs"] = [
                {"token": tokens.pieces([id_])[0], "logprob": logprob, "bytes": None}
                for id_, logprob in top
            ]
        return {"content": content}


class _TextForm:
    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, answered: Answered, body: Completion) -> None:
        self._answered, self._body = answered, body

    def head(self, kind: str) -> dict[str, Any]:
        return _head(self._answered, self.prefix, kind)

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": number,
            "text": self._answered.text(sampled),
            "finish_reason": sampled.finish_reason,
            "logprobs": self._logprobs(sampled, 0, len(sampled.tokens), 0),
        }
        if self._body.return_token_ids:
            prompt = list(self._answered.prompt(number))
            choice |= {"prompt_token_ids": prompt, "token_ids": sampled.tokens}
        return choice

    def pieces(self, number: int, sampled: Sampled) -> Iterator[dict[str, Any]]:
        """What each token adds, and with the last one how it ended."""
        said = _split(self._answered.tokens, sampled.tokens, self._answered.text(sampled))
        offset = 0
        for place, (start, end) in enumerate(_spans(said, len(sampled.tokens))):
            is_last = end == len(sampled.tokens)
            choice: dict[str, Any] = {
                "index": number,
                "text": said[place],
                "finish_reason": sampled.finish_reason if is_last else None,
                "logprobs": self._logprobs(sampled, start, end, offset),
            }
            if self._body.return_token_ids:
                ids = {} if start else {"prompt_token_ids": list(self._answered.prompt(number))}
                choice |= {**ids, "token_ids": sampled.tokens[start:end]}
            offset += len(said[place])
            yield choice

    def _logprobs(
        self, sampled: Sampled, start: int, end: int, offset: int
    ) -> dict[str, Any] | None:
        """`offset`: characters of the completion before these tokens."""
        if self._body.logprobs is None and not self._body.return_token_ids:
            return None
        tokens = self._answered.tokens
        pieces = tokens.pieces(sampled.tokens[start:end])
        places = [offset + sum(map(len, pieces[:n])) for n in range(len(pieces))]
        top = [{tokens.pieces([id_])[0]: lp for id_, lp in one} for one in sampled.top[start:end]]
        return {
            "tokens": pieces,
            "token_logprobs": sampled.logprobs[start:end],
            "top_logprobs": top or None,
            "text_offset": places,
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
    produced = sum(len(one.tokens) for one in answered.sampled)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": produced,
        "total_tokens": prompt + produced,
    }


def _split(tokens: Tokenizer, ids: Sequence[int], text: str) -> list[str]:
    """The text as each token adds to it; all of it at once where tokens do not read one by one.

    A character of several tokens comes with the last of them; what a stop sequence took away
    is empty.
    """
    pieces, start = [""] * len(ids), 0
    for place in range(len(ids)):
        piece = tokens.decode(ids[start : place + 1])
        if not piece.endswith(HALF) or place == len(ids) - 1:
            pieces[place], start = piece, place + 1
    if not "".join(pieces).startswith(text):
        return [text]
    left = len(text)
    for place, piece in enumerate(pieces):
        pieces[place] = piece[:left]
        left -= len(pieces[place])
    return pieces


def _spans(said: Sequence[str], count: int) -> list[tuple[int, int]]:
    """The tokens that each piece of a text stands for: one each, or all in one."""
    return [(0, count)] if len(said) != count else [(n, n + 1) for n in range(count)]


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{new_id()}", "type": "function", "function": function}
