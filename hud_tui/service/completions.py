"""Completions in OpenAI's format, with the exact token ids on each choice: as one reply, or as the
chunks of a stream.

A stream has one chunk per token, which is made as soon as no later token can change its text. So a
stream has the tokens, logprobs and text of the reply, and its chunks do not depend on how many of
the tokens are known at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hud_tui.service.engines.base import Call, EngineLost, Sampled, SampleRequest, Tokenizer
from hud_tui.service.http import Refused, new_id
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.models import ModelRow
from hud_tui.wire_training import Chat, Completion, Sampling

ASKED = 64
"""Most stop sequences in a request."""
HALF = "\ufffd"
"""Placeholder for a character whose bytes are not all decoded yet."""


@dataclass(frozen=True)
class Asked:
    """A request for completions."""

    model: ModelRow
    node: Node | None
    body: Sampling
    tokens: Tokenizer
    prompts: Sequence[Sequence[int]]
    requests: Sequence[SampleRequest] | None
    """`n` completions for each prompt, prompt by prompt; None if they are empty, for the context is
    full."""
    trace_id: str | None
    """The rollout that its turn is stored in."""
    started_at: float

    @property
    def count(self) -> int:
        """Number of choices."""
        return len(self.prompts) * (self.body.n or 1)

    def prompt(self, number: int) -> Sequence[int]:
        """Prompt of the choice with this index."""
        return self.prompts[number // (self.body.n or 1)]

    def text(self, sampled: Sampled) -> str:
        """A completion's text, without the stop sequence that ended it."""
        text = self.tokens.decode(sampled.tokens)
        if sampled.finish_reason == "stop":
            ending = next((stop for stop in stops(self.body) if text.endswith(stop)), "")
            text = text.removesuffix(ending)
        return text

    def text_and_calls(self, sampled: Sampled) -> tuple[str, list[Call]]:
        """The text, and the tool calls in it if tools were offered. An incomplete call is text."""
        if self.may_call and sampled.finish_reason == "stop":
            text, calls = self.tokens.calls(sampled.tokens)
            if calls:
                return text, calls
        return self.text(sampled), []

    @property
    def may_call(self) -> bool:
        """Whether tools were offered."""
        return isinstance(self.body, Chat) and bool(offered_tools(self.body))


def offered_tools(body: Chat) -> list[dict[str, Any]]:
    """The tools that an answer may call."""
    return [] if body.tool_choice == "none" else body.tools or []


STOP_LENGTH = 1000
"""Most characters of a stop sequence, which is made tokens for each prompt."""


def stops(body: Sampling) -> list[str]:
    """The stop sequences. Raises Refused, 400, for too many, or one that is too long."""
    asked = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(asked) > ASKED:
        raise Refused(400, f"at most {ASKED} stop sequences", param="stop")
    if any(len(text) > STOP_LENGTH for text in asked):
        raise Refused(400, f"a stop sequence has at most {STOP_LENGTH} characters", param="stop")
    return [text for text in asked if text]


def whole(asked: Asked, sampled: Sequence[Sampled]) -> dict[str, Any]:
    """The body of the reply."""
    form = _form(asked)
    choices = [form.choice(number, sample) for number, sample in enumerate(sampled)]
    head = _head(asked, form.prefix, form.kind)
    return {**head, "choices": choices, "usage": _usage(asked, sampled)}


# The chunks of a stream.


class Stream:
    """Makes the chunks, as far as the tokens of each choice are known."""

    def __init__(self, asked: Asked, on_add: Callable[[], object] = lambda: None) -> None:
        """`on_add`: called when tokens were added."""
        self._asked, self._form, self._on_add = asked, _form(asked), on_add
        options = asked.body.stream_options
        self._usage = {"usage": None} if options and options.include_usage else {}
        self._head = {**_head(asked, self._form.prefix, self._form.chunk_kind), **self._usage}
        ends = stops(asked.body)
        self._choices = [_Choice(asked.tokens, ends) for _ in range(asked.count)]

    def add(self, number: int, before: int, new: Sampled) -> None:
        """Add tokens of a choice, as `engines.base.Progress`."""
        self._choices[number].add(before, new)
        self._on_add()

    def news(self) -> Iterator[list[dict[str, Any]]]:
        """The chunks that can be made and were not, choice by choice."""
        for number, choice in enumerate(self._choices):
            if made := list(self._settled(number, choice)):
                yield [self._chunk(part) for part in made]

    def check(self, sampled: Sequence[Sampled]) -> None:
        """Raises EngineLost: the completions do not begin with the tokens that were added, for the
        engine stopped, and sampled them again."""
        for choice, sample in zip(self._choices, sampled, strict=True):
            count = len(choice.sampled.tokens)
            if choice.sampled.tokens != sample.tokens[:count] or (
                choice.sampled.logprobs != sample.logprobs[:count]
            ):
                raise EngineLost("the engine stopped, and sampled other numbers than before")

    def end(self, sampled: Sequence[Sampled]) -> Iterator[list[dict[str, Any]]]:
        """All other chunks, choice by choice; the last one has the usage, if requested."""
        for number, (choice, sample) in enumerate(zip(self._choices, sampled, strict=True)):
            yield [self._chunk(part) for part in self._rest(number, choice, sample)]
        if self._usage:
            yield [{**self._head, "choices": [], "usage": _usage(self._asked, sampled)}]

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [choice]}

    def _begin(self, number: int, choice: "_Choice") -> Iterator[dict[str, Any]]:
        if not choice.has_begun:
            choice.has_begun = True
            yield from self._form.begin(number)

    def _settled(self, number: int, choice: "_Choice") -> Iterator[dict[str, Any]]:
        tokens = choice.sampled.tokens
        if len(tokens) == len(choice.pieces):  # nothing new
            return
        yield from self._begin(number, choice)
        choice.settle()
        most = self._asked.tokens.plain(tokens) if self._asked.may_call else len(tokens)
        for index in range(choice.given, min(most, choice.settled)):
            yield self._piece(number, choice, choice.sampled, index + 1, choice.pieces[index])

    def _rest(self, number: int, choice: "_Choice", whole: Sampled) -> Iterator[dict[str, Any]]:
        yield from self._begin(number, choice)
        text, calls = self._asked.text_and_calls(whole)
        tokens = self._asked.tokens
        plain = tokens.plain(whole.tokens) if calls else len(whole.tokens)
        pieces = _split(tokens, whole.tokens[:plain], text)
        if pieces is None:  # tokens that cannot be decoded alone
            yield self._piece(number, choice, whole, plain, text[choice.offset :])
        else:
            for index in range(choice.given, plain):
                yield self._piece(number, choice, whole, index + 1, pieces[index])
        left = text[choice.offset :]
        yield from self._form.end(number, whole, choice.given, left, calls)

    def _piece(
        self, number: int, choice: "_Choice", sampled: Sampled, end: int, text: str
    ) -> dict[str, Any]:
        """The choice's tokens up to `end` that were not given, with what they add to the text."""
        piece = self._form.piece(number, sampled, choice.given, end, text, choice.offset)
        choice.given, choice.offset = end, choice.offset + len(text)
        return piece


@dataclass
class _Choice:
    """What is known, and was given, of one completion."""

    tokens: Tokenizer
    stops: Sequence[str]
    sampled: Sampled = field(default_factory=lambda: Sampled([], [], "length"))
    """The tokens that are known."""
    pieces: list[str] = field(default_factory=list)
    """What each of them adds to the text, as `_split` has it."""
    settled: int = 0
    """Number of tokens whose text is settled: its characters are complete, and no stop sequence may
    begin with its end."""
    has_begun: bool = False
    given: int = 0
    """Number of tokens that were given."""
    offset: int = 0
    """Number of characters that were given."""
    _start: int = 0
    """The first token of a character that is not complete."""
    _tail: str = ""
    """As much of the text as a stop sequence may have."""

    def add(self, before: int, new: Sampled) -> None:
        """Add tokens after so many others; those that are known already are left out."""
        count, mine = len(self.sampled.tokens) - before, self.sampled
        mine.tokens.extend(new.tokens[count:])
        mine.logprobs.extend(new.logprobs[count:])
        mine.top.extend(new.top[count:])

    def settle(self) -> None:
        """Settle what the tokens that were added add to the text."""
        mine, longest = self.sampled, max(map(len, self.stops), default=0)
        for index in range(len(self.pieces), len(mine.tokens)):
            piece = self.tokens.decode(mine.tokens[self._start : index + 1])
            if piece.endswith(HALF):
                self.pieces.append("")
                continue
            self.pieces.append(piece)
            self._start = index + 1
            self._tail = (self._tail + piece)[-longest:] if longest else ""
        self.settled, held = self._start, _held(self._tail, self.stops)
        while held > 0:
            self.settled -= 1
            held -= len(self.pieces[self.settled])


def _held(text: str, stops: Sequence[str]) -> int:
    """Number of characters at the end of a text with which a stop sequence begins."""
    longest = 0
    for stop in stops:
        at = text.find(stop[0], max(0, len(text) - len(stop)))
        while at >= 0 and not stop.startswith(text[at:]):
            at = text.find(stop[0], at + 1)
        if at >= 0:
            longest = max(longest, len(text) - at)
    return longest


def _split(tokens: Tokenizer, ids: Sequence[int], text: str) -> list[str] | None:
    """What each token adds to the text; None if tokens cannot be decoded alone.

    A character made of several tokens comes with the last of them; tokens of a removed stop
    sequence add nothing.
    """
    pieces, start = [""] * len(ids), 0
    for index in range(len(ids)):
        piece = tokens.decode(ids[start : index + 1])
        if not piece.endswith(HALF) or index == len(ids) - 1:
            pieces[index], start = piece, index + 1
    if pieces and not "".join(pieces).startswith(text):
        return None
    left = len(text)
    for index, piece in enumerate(pieces):
        pieces[index] = piece[:left]
        left -= len(pieces[index])
    return pieces


# The two forms: chat and text completions.


class _ChatForm:
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, asked: Asked, body: Chat) -> None:
        self._asked, self._body = asked, body

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        text, calls = self._asked.text_and_calls(sampled)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message |= {"content": text or None, "tool_calls": [_call(call) for call in calls]}
        choice: dict[str, Any] = {
            "index": number,
            "message": message,
            "finish_reason": "tool_calls" if calls else sampled.finish_reason,
            "logprobs": self._logprobs(sampled, 0, len(sampled.tokens)),
        }
        if self._body.return_token_ids:
            ids = list(self._asked.prompt(number))
            choice |= {"prompt_token_ids": ids, "token_ids": sampled.tokens}
        return choice

    def begin(self, number: int) -> Iterator[dict[str, Any]]:
        """The role."""
        ids = {"prompt_token_ids": list(self._asked.prompt(number))}
        yield self._piece(number, {"role": "assistant", "content": ""}, None, ids)

    def piece(
        self, number: int, sampled: Sampled, start: int, end: int, text: str, offset: int
    ) -> dict[str, Any]:
        """What some tokens add, after so many characters."""
        delta: dict[str, Any] = {"content": text} if text else {}
        ids = {"token_ids": sampled.tokens[start:end]}
        return self._piece(number, delta, self._logprobs(sampled, start, end), ids)

    def end(
        self, number: int, sampled: Sampled, start: int, text: str, calls: Sequence[Call]
    ) -> Iterator[dict[str, Any]]:
        """The tool calls, with the tokens from `start` on and what is left of the text; then the
        finish reason."""
        if calls:
            piece = self.piece(number, sampled, start, len(sampled.tokens), text, 0)
            made = [{"index": index, **_call(call)} for index, call in enumerate(calls)]
            piece["delta"] |= {"tool_calls": made}
            yield piece
        reason = "tool_calls" if calls else sampled.finish_reason
        yield {**self._piece(number, {}, None, {}), "finish_reason": reason}

    def _piece(
        self, number: int, delta: dict[str, Any], logprobs: Any, ids: dict[str, Any]
    ) -> dict[str, Any]:
        shown = ids if self._body.return_token_ids else {}
        rest = {"logprobs": logprobs, "finish_reason": None}
        return {"index": number, "delta": delta, **rest, **shown}

    def _logprobs(self, sampled: Sampled, start: int, end: int) -> dict[str, Any] | None:
        if not self._body.logprobs and not self._body.return_token_ids:
            return None
        tokens = self._asked.tokens
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

    def __init__(self, asked: Asked, body: Completion) -> None:
        self._asked, self._body = asked, body

    def choice(self, number: int, sampled: Sampled) -> dict[str, Any]:
        text, end = self._asked.text(sampled), len(sampled.tokens)
        piece = self.piece(number, sampled, 0, end, text, 0)
        return {**piece, "finish_reason": sampled.finish_reason}

    def begin(self, number: int) -> Iterator[dict[str, Any]]:
        """Nothing."""
        yield from ()

    def piece(
        self, number: int, sampled: Sampled, start: int, end: int, text: str, offset: int
    ) -> dict[str, Any]:
        """What some tokens add, after so many characters."""
        choice: dict[str, Any] = {
            "index": number,
            "text": text,
            "finish_reason": None,
            "logprobs": self._logprobs(sampled, start, end, offset),
        }
        if self._body.return_token_ids:
            ids = {} if start else {"prompt_token_ids": list(self._asked.prompt(number))}
            choice |= {**ids, "token_ids": sampled.tokens[start:end]}
        return choice

    def end(
        self, number: int, sampled: Sampled, start: int, text: str, calls: Sequence[Call]
    ) -> Iterator[dict[str, Any]]:
        """The finish reason, in a piece without tokens."""
        piece = self.piece(number, sampled, start, start, "", 0)
        yield {**piece, "finish_reason": sampled.finish_reason, "logprobs": None}

    def _logprobs(
        self, sampled: Sampled, start: int, end: int, offset: int
    ) -> dict[str, Any] | None:
        """`offset`: characters of the completion before these tokens."""
        if self._body.logprobs is None and not self._body.return_token_ids:
            return None
        tokens = self._asked.tokens
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


def _form(asked: Asked) -> _ChatForm | _TextForm:
    body = asked.body
    if isinstance(body, Chat):
        return _ChatForm(asked, body)
    assert isinstance(body, Completion)
    return _TextForm(asked, body)


def _head(asked: Asked, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{new_id()}",
        "object": kind,
        "created": int(asked.started_at),
        "model": asked.model.slug,
        "checkpoint": asked.node.id if asked.node else None,
    }


def _usage(asked: Asked, sampled: Sequence[Sampled]) -> dict[str, int]:
    prompt = sum(map(len, asked.prompts))
    produced = sum(len(sample.tokens) for sample in sampled)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": produced,
        "total_tokens": prompt + produced,
    }


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{new_id()}", "type": "function", "function": function}
