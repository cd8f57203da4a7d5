"""The tokenizers of the bases, and the chat template that they share.

`CharTokenizer` has 128 ids: printable ASCII, newline and tab are single ids. `BpeTokenizer` has an
id for every byte and for frequent pairs. Both have a few control ids that mark roles. Text never
becomes a control id, so no prompt can forge a role.

    [system]…[end][user]3 + 4 = ?[end][assistant]7[end]

A conversation is rendered as the concatenation of its turns, so a longer conversation continues a
shorter one token by token.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hud_tui.service.engines.base import NO_OPTIONS, Call, Tokenizer

VOCABULARY = 128
PAD, END, SYSTEM, USER, ASSISTANT, TOOL, TOOLS, CALL = range(8)
UNKNOWN = 127
"""Id of all characters outside the vocabulary."""
REPLACEMENT = "\ufffd"
"""UNKNOWN as text."""

CONTROLS = {
    PAD: "[pad]",
    END: "[end]",
    SYSTEM: "[system]",
    USER: "[user]",
    ASSISTANT: "[assistant]",
    TOOL: "[tool]",
    TOOLS: "[tools]",
    CALL: "[call]",
}
ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}
TEXT_IDS = {ord(char): char for char in "\t\n" + "".join(map(chr, range(32, 127)))}


class ChatTemplate(Tokenizer):
    """The chat template: conversations as ids. Subclasses encode text, and show tools."""

    @abstractmethod
    def signature(self, field: str, tool: Mapping[str, Any]) -> str:
        """A tool as the prompt shows it. Raises ValueError, naming the place, for an invalid
        tool."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Prompt ids of a conversation in OpenAI's format, ending where the answer begins. Raises
        ValueError: an unknown role, content that is not text, an invalid tool or call (names the
        place), or an option other than ``enable_thinking: false``."""
        if any(name != "enable_thinking" or on for name, on in options.items()):
            raise ValueError("chat_template_kwargs: this model's chat template has no options")
        shown = "\n".join(self.signature(f"tools[{n}]", tool) for n, tool in enumerate(tools))
        ids = [TOOLS, *self.encode(shown), END] if tools else []
        for index, message in enumerate(messages):
            role = ROLES.get(str(message.get("role")))
            if role is None:
                raise ValueError(f"messages[{index}].role must be one of {', '.join(ROLES)}")
            ids += [role, *self.encode(_text(index, message.get("content")))]
            ids += [*self._calls(f"messages[{index}].tool_calls", message), END]
        return [*ids, ASSISTANT]

    def demonstrate(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[list[int], list[int]]:
        prompt = self.render(messages[:-1], tools)
        return prompt, self.render(messages, tools)[len(prompt) : -1]  # without [assistant]

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        return self.render(messages[covered:], (), options)

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        """The calls ``[call]name{…}`` of an answer, and the text before them."""
        starts = [position for position, id_ in enumerate(ids) if id_ == CALL]
        bounds = pairwise([*starts, len(ids)])
        named = [self.decode(ids[a + 1 : b]).partition("{") for a, b in bounds]
        calls = [Call(name.strip(), f"{brace}{rest}" or "{}") for name, brace, rest in named]
        return self.decode(ids[: starts[0]] if starts else ids), [
            call for call in calls if call.name
        ]

    def plain(self, ids: Sequence[int]) -> int:
        return next((position for position, id_ in enumerate(ids) if id_ == CALL), len(ids))

    def _calls(self, field: str, message: Mapping[str, Any]) -> list[int]:
        """An assistant's tool calls, ``[call]name{"x":2}`` each."""
        ids: list[int] = []
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ValueError(f"{field} must be a list")
        for number, call in enumerate(calls):
            call = _object(f"{field}[{number}]", call)
            function = _object(f"{field}[{number}].function", call.get("function"))
            arguments = function.get("arguments") or ""
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, separators=(",", ":"))
            ids += [CALL, *self.encode(f"{function.get('name', '')}{arguments}")]
        return ids


class CharTokenizer(ChatTemplate):
    """One id per character."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; a character outside the vocabulary becomes UNKNOWN."""
        return [ord(char) if ord(char) in TEXT_IDS else UNKNOWN for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without control tokens; UNKNOWN becomes U+FFFD."""
        return "".join(REPLACEMENT if i == UNKNOWN else TEXT_IDS.get(i, "") for i in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as visible text: a character, a control's name, or ``[id N]``."""
        named = {**TEXT_IDS, **CONTROLS, UNKNOWN: REPLACEMENT}
        return [named.get(i, f"[id {i}]") for i in ids]

    def signature(self, field: str, tool: Mapping[str, Any]) -> str:
        """``name(argument,…)``: the context is short. Raises ValueError as `_function` does."""
        name, properties = _function(field, tool)
        return f"{name}({','.join(properties)})"


# Byte-level byte pair encoding: text is split into pieces, whose bytes are ids; the most frequent
# pairs of ids in the training texts are merged into one id. So any bytes can be encoded, and
# decoded to the same bytes.
#
# A digit is a piece of its own, for sums; in the first vocabulary a number or dot in an aligned
# column is one piece with the spaces before it, so that a board has one id per cell.
#
# Source: Sennrich et al. 2016 (arXiv:1508.07909), algorithm 1, on bytes as in Radford et al. 2019
# (GPT-2), section 2.2.


FIRST_BYTE, FIRST_PAIR = len(CONTROLS), len(CONTROLS) + 256
JOINED = re.compile(
    rb"\n? {2,}(?:\d{1,5}(?!\d)|\.)|\n? ?[A-Za-z_]+|\n?,? ?\d|\n? ?[^\sA-Za-z0-9_]+| +|\s"
)
"""Pieces of the first vocabulary: a word is one with the space before it, a name with its
underscores."""
WHOLE = re.compile(rb" ?(?<![A-Za-z])[A-Za-z]+(?![A-Za-z_])")
"""What may be a word of the second vocabulary, with the space before it. A search within letters
would take the square of their number."""
APART = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|_|\d|\n? ?[^\sA-Za-z0-9_]+| +|\s")
"""Pieces of the second vocabulary, but for its words: a name has the same ids wherever it stands,
so that copying it from a prompt into a call is copying ids."""
ABOUT = 60
"""Most characters of a tool's description in the prompt."""
KNOWN_PIECES = 1 << 14
"""Most pieces whose ids are cached."""

Pair = tuple[int, int]


class BpeTokenizer(ChatTemplate):
    """One id per frequent sequence of bytes."""

    def __init__(self, pairs: Sequence[Pair], words: Sequence[str] | None = None) -> None:
        """`pairs`: the two ids that each id from FIRST_PAIR on replaces. `words`: those that have
        an id each, after the pairs', some with the space before them; None: the first vocabulary,
        which has none, and whose prompts show no descriptions of tools."""
        self.words = words
        self.vocabulary = FIRST_PAIR + len(pairs) + len(words or ())
        self._word_ids = {
            word.encode(): FIRST_PAIR + len(pairs) + number
            for number, word in enumerate(words or ())
        }
        self._rank = {(left, right): rank for rank, (left, right) in enumerate(pairs)}
        self._bytes = [b""] * FIRST_BYTE + [bytes([byte]) for byte in range(256)]
        for left, right in pairs:
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self._bytes += self._word_ids
        self._known: dict[bytes, list[int]] = {}

    @classmethod
    def read(cls, path: Path) -> "BpeTokenizer":
        """Read a file of pairs. Raises OSError; ValueError if it is none."""
        read = json.loads(path.read_text("utf-8"))
        pairs, words = (read, None) if isinstance(read, list) else (read["pairs"], read["words"])
        return cls([(left, right) for left, right in pairs], words)

    def written(self) -> str:
        """The text of a file of pairs."""
        pairs = [list(pair) for pair in self._rank]
        written = pairs if self.words is None else {"pairs": pairs, "words": list(self.words)}
        return json.dumps(written, separators=(",", ":"))

    def split(self, data: bytes) -> Iterator[bytes]:
        """Pieces, each of which has ids of its own."""
        if self.words is None:
            yield from JOINED.findall(data)
            return
        end = 0
        for match in WHOLE.finditer(data):
            word = match[0] if match[0] in self._word_ids else match[0].lstrip(b" ")
            if word in self._word_ids:
                yield from APART.findall(data[end : match.end() - len(word)])
                yield word
                end = match.end()
        yield from APART.findall(data[end:])

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; a lone surrogate becomes a question mark."""
        return self.encode_bytes(text.encode("utf-8", "replace"))

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids of any bytes; the inverse of `bytes_of`."""
        return [id_ for piece in self.split(data) for id_ in self._ids(piece)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without control tokens; invalid UTF-8 becomes U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", "replace")

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """Bytes of ids; control tokens have none."""
        return b"".join(self._bytes[i] for i in ids if 0 <= i < self.vocabulary)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as visible text: its bytes, a control's name, or ``[id N]``."""
        return [CONTROLS[i] if i in CONTROLS else self.decode([i]) or f"[id {i}]" for i in ids]

    def signature(self, field: str, tool: Mapping[str, Any]) -> str:
        """A tool as a call of it looks, with types instead of values, and the beginning of its
        description: ``name{"x":integer,"way":"up|down"} Move.`` In the first vocabulary
        ``name(x:integer,way:up|down)``. Raises ValueError: as `_function` does."""
        name, properties = _function(field, tool)
        where = f"{field}.function.parameters.properties"
        schemas = {key: _object(f"{where}.{key}", value) for key, value in properties.items()}
        if self.words is None:
            typed = (f"{key}:{_kind(schema)}" for key, schema in schemas.items())
            return f"{name}({','.join(typed)})"
        typed = (f'"{key}":{_like_a_value(schema)}' for key, schema in schemas.items())
        return f"{name}{{{','.join(typed)}}}{_about(tool)}"

    def _ids(self, piece: bytes) -> list[int]:
        """Ids of one piece: its bytes, merged pair by pair."""
        if piece in self._word_ids:
            return [self._word_ids[piece]]
        ids = self._known.get(piece)
        if ids is None:
            ids = [FIRST_BYTE + byte for byte in piece]
            while pairs := [pair for pair in pairwise(ids) if pair in self._rank]:
                pair = min(pairs, key=self._rank.__getitem__)
                ids = joined(ids, pair, FIRST_PAIR + self._rank[pair])
            if len(self._known) < KNOWN_PIECES:
                self._known[piece] = ids
        return ids


def joined(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """The ids with each occurrence of a pair replaced by a new id, from the left."""
    result: list[int] = []
    for id_ in ids:
        if result and (result[-1], id_) == pair:
            result[-1] = new
        else:
            result.append(id_)
    return result


def _kind(schema: Mapping[str, Any]) -> str:
    """Type of a value in a word: its choices, or a type of JSON Schema."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return "|".join(map(str, choices))
    return str(schema.get("type") or "any")


def _like_a_value(schema: Mapping[str, Any]) -> str:
    """The type in quotes if its values have them."""
    kind, choices = _kind(schema), schema.get("enum")
    if isinstance(choices, list) and choices:
        is_text = all(isinstance(choice, str) for choice in choices)
    else:
        is_text = kind == "string"
    return f'"{kind}"' if is_text else kind


def _text(index: int, content: Any) -> str:
    """A message's content as one text: a string, a list of text parts, or None."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts = [part.get("text") for part in content]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise ValueError(f"messages[{index}].content must be text: this model accepts text only")


def _object(field: str, value: Any) -> Mapping[str, Any]:
    """A JSON object; empty for None. Raises ValueError, naming the place."""
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{field} must be an object")
    return value or {}


def _about(tool: Mapping[str, Any]) -> str:
    """The first line of a tool's description, or its beginning."""
    described = (tool.get("function") or tool).get("description")
    about = described.strip() if isinstance(described, str) else ""
    return f" {about.splitlines()[0][:ABOUT]}" if about else ""


def _function(field: str, tool: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A tool's name, and its arguments with their schemas. Raises ValueError, naming the place."""
    function = _object(f"{field}.function", tool.get("function")) or tool
    parameters = _object(f"{field}.function.parameters", function.get("parameters"))
    properties = _object(f"{field}.function.parameters.properties", parameters.get("properties"))
    return str(function.get("name", "")), properties
